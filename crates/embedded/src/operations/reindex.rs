//! Rebuilds the indexes of a tenant's records.

use std::sync::Arc;

use annals_core::{Code, UnknownLog};
use serde::Serialize;

use super::survey::{self, Small};
use super::{OperationError, Outcome};
use crate::Options;
use crate::disk::Disk;
use crate::engine::{self, Engine, FILE, Known, Looked, Marks};
use crate::records;
use crate::store::{ENGINE_DIR, TenantNotes};

/// The result of rebuilding indexes, or of a dry run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Reindexed {
    /// The tenant.
    pub tenant: String,
    /// The number of indexes of its records.
    pub indexes: u64,
    /// Their faults, at most a thousand.
    pub wrong: Vec<String>,
    /// Whether the indexes were rebuilt.
    pub done: bool,
}

/// Faults beyond this number are not listed.
const LISTED_MAX: usize = 1_000;

/// Rebuilds the indexes of a tenant's records, in a store that no process has open. The records, the notes of their changes and the
/// streams are not touched.
///
/// # Errors
/// `unknown_tenant`; `store_damaged` if records or the map are damaged, so that indexes cannot be derived from them; `duplicate_key` if
/// two records have the same entry of a unique index; `not_a_store`, `store_locked`, `newer_format`, `read_failed`, `disk_full`,
/// `store_read_only`. Indexes not yet rebuilt are then unchanged.
pub fn reindex(disk: &Arc<dyn Disk>, tenant: &str, confirmed: bool, options: &Options) -> Outcome<Reindexed> {
    let _lock = survey::lock(&**disk)?;
    let tenants = survey::tenants(&**disk)?;
    let found = tenants.iter().find(|found| found.name == tenant).ok_or_else(|| {
        let unknown = UnknownLog::Tenant(tenant.to_owned());
        OperationError::new(unknown.code(), format!("the store holds no such tenant: {unknown}"))
    })?;
    let dir = format!("{}/{ENGINE_DIR}", found.dir);
    let known = match found.file(&**disk)? {
        Small::Whole(file) => TenantNotes::new(disk, &found.dir, &file).of_map(),
        Small::Missing | Small::Damaged => Known::default(),
    };
    let mut done = Reindexed { tenant: tenant.to_owned(), ..Reindexed::default() };
    let Some(wrong) = faults(&**disk, &dir, &known.marks, &mut done.indexes)? else {
        done.done = confirmed;
        return Ok(done);
    };
    done.wrong = wrong;
    if confirmed {
        let engine = Engine::open(disk.clone(), dir.clone(), known, options)?;
        let made = records::rebuild(&engine);
        engine.close();
        made.map_err(|error| OperationError::new(error.code(), format!("{dir}/{FILE}: {error}")))?;
        if let Some(still) =
            faults(&**disk, &dir, &Marks::default(), &mut 0)?.and_then(|wrong| wrong.into_iter().next())
        {
            return Err(damaged(&dir, &still));
        }
        done.done = true;
    }
    Ok(done)
}

/// Returns the faults of the indexes, or `None` if there is no map.
fn faults(disk: &dyn Disk, dir: &str, marks: &Marks, indexes: &mut u64) -> Outcome<Option<Vec<String>>> {
    let map = match engine::look(disk, dir, marks)? {
        Looked::Missing => return Ok(None),
        Looked::Damaged(damage) => return Err(unfit(&damage.to_string())),
        Looked::Open(map) => map,
    };
    let (mut wrong, mut beyond) = (Vec::new(), None);
    let found = records::check(&*map.view, &mut |kind, what| match kind {
        "index_entry" if wrong.len() < LISTED_MAX => wrong.push(what),
        "index_entry" => {}
        // Without the catalog or a record it is unknown what the indexes must hold.
        "catalog" | "record" => drop(beyond.get_or_insert(what)),
        _ => {}
    })?;
    *indexes = found.indexes;
    match beyond {
        Some(what) => Err(damaged(dir, &what)),
        None => Ok(Some(wrong)),
    }
}

fn damaged(dir: &str, what: &str) -> OperationError {
    unfit(&format!("{dir}/{FILE}: {what}"))
}

fn unfit(what: &str) -> OperationError {
    OperationError::new(
        Code::StoreDamaged,
        format!("{what}; the indexes cannot be rebuilt from it, so restore a backup"),
    )
}
