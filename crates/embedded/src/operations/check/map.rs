//! Checks the engine's map of a tenant: every page, every record and index entry, every stream.

use std::collections::BTreeMap;

use annals_core::StoreError;

use super::{CheckReport, CheckedMap, Finding};
use crate::disk::{Disk, Open};
use crate::engine::{self, Damage, FILE, FORMAT_KEY, JOURNAL_FILES, Looked, Range, View};
use crate::operations::{Outcome, survey, unreadable};
use crate::store::{ENGINE_DIR, TenantFile};
use crate::whole::UNFINISHED;
use crate::{records, streams};

const RESTORE: &str = "restore a backup; the log is not affected, and `annals export --without-records` exports it";
const TORN: &str = "nothing: the next opening skips it";
const RESTORE_STREAM: &str =
    "restore a backup, or cut the log with `annals repair --cut-at`, which cuts its streams too";
const REBUILD: &str = "rebuild the indexes of the tenant's records with `annals repair --indexes`";

/// The map that is checked.
pub(super) struct Place<'a> {
    pub(super) tenant: &'a str,
    pub(super) dir: String,
    pub(super) file: Option<&'a TenantFile>,
}

impl<'a> Place<'a> {
    pub(super) fn new(tenant: &'a survey::TenantFolder, file: Option<&'a TenantFile>) -> Self {
        Self { tenant: &tenant.name, dir: format!("{}/{ENGINE_DIR}", tenant.dir), file }
    }

    fn path(&self) -> String {
        format!("{}/{FILE}", self.dir)
    }

    /// Returns the finding for damage that opening would report, in the map's file or in the journal's.
    fn damage(&self, damage: Damage) -> Finding {
        let kind = if damage.file == self.path() { "map" } else { "journal" };
        let what = damage.to_string();
        Finding { file: damage.file, offset: damage.offset, what, ..self.finding(kind, None, String::new()) }
    }

    fn finding(&self, kind: &'static str, scope: Option<&str>, what: String) -> Finding {
        let advice = match kind {
            "index_entry" => REBUILD,
            "stream" => RESTORE_STREAM,
            _ => RESTORE,
        };
        Finding {
            kind,
            tenant: Some(self.tenant.to_owned()),
            scope: scope.map(str::to_owned),
            file: self.path(),
            what: format!("{}: {what}", self.path()),
            advice: advice.to_owned(),
            ..Finding::default()
        }
    }
}

/// Returns the size in bytes of a tenant's map and its journal, or 0 if it has none.
pub(super) fn bytes_of(disk: &dyn Disk, tenant: &survey::TenantFolder) -> u64 {
    let dir = Place::new(tenant, None).dir;
    let bytes = |name: &str| disk.open(&format!("{dir}/{name}"), Open::Read).and_then(|file| file.length());
    JOURNAL_FILES.into_iter().chain([FILE]).map(|name| bytes(name).unwrap_or(0)).sum()
}

/// Checks the map at `place` against the heads of the logs in the report, and adds it to the report.
pub(super) fn check(disk: &dyn Disk, place: &Place<'_>, report: &mut CheckReport) -> Outcome<()> {
    other_files(disk, place, report)?;
    let marks = place.file.map(TenantFile::map_marks).unwrap_or_default();
    let map = match engine::look(disk, &place.dir, &marks)? {
        Looked::Missing if place.file.is_some_and(|file| file.has_begun(ENGINE_DIR)) => {
            report.damaged(place.damage(Damage::lost(&place.dir)));
            return Ok(());
        }
        Looked::Missing => return Ok(()),
        Looked::Damaged(damage) => {
            report.damaged(place.damage(damage));
            return Ok(());
        }
        Looked::Open(map) => map,
    };
    for torn in &map.torn {
        let (file, offset, advice) = (torn.file.clone(), Some(torn.offset), TORN.to_owned());
        let note =
            Finding { file, offset, what: torn.to_string(), advice, ..place.finding("torn_tail", None, String::new()) };
        report.notes.push(note);
    }
    let logs = report.logs.iter().filter(|log| log.tenant == place.tenant);
    let heads: BTreeMap<String, u64> = logs.map(|log| (log.scope.clone(), log.head)).collect();
    match entries(&*map.view, place, &heads, report) {
        Ok(checked) => report.maps.push(CheckedMap { bytes: map.bytes, ..checked }),
        Err(StoreError::RecordsDamaged(what)) => report.damaged(place.finding("map", None, what)),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn entries(
    view: &dyn View,
    place: &Place<'_>,
    heads: &BTreeMap<String, u64>,
    report: &mut CheckReport,
) -> Result<CheckedMap, StoreError> {
    for range in [Range::up_to(FORMAT_KEY), Range::between(FORMAT_KEY, &[1]), Range::beyond(&[3])] {
        if let Some((key, _)) = view.ascending(&range)?.next().transpose()? {
            report.damaged(place.finding("map_key", None, format!("key {} belongs to nothing", key.escape_ascii())));
        }
    }
    let found = records::check(view, &mut |kind, what| report.damaged(place.finding(kind, None, what)))?;
    let owner = streams::Owner { incarnation: place.file.map(|file| file.incarnation), heads };
    let of_streams =
        streams::check(view, &owner, &mut |scope, what| report.damaged(place.finding("stream", scope, what)))?;
    Ok(CheckedMap {
        tenant: place.tenant.to_owned(),
        bytes: 0,
        collections: found.collections,
        records: found.records,
        index_entries: found.index_entries,
        changes: found.changes,
        streams: of_streams.streams,
        stream_entries: of_streams.entries,
    })
}

fn other_files(disk: &dyn Disk, place: &Place<'_>, report: &mut CheckReport) -> Outcome<()> {
    let names = match disk.list(&place.dir) {
        Ok(names) => names,
        Err(error) => return Err(unreadable(&place.dir, &error)),
    };
    for name in names.iter().filter(|name| *name != FILE && !JOURNAL_FILES.contains(&name.as_str())) {
        let (kind, advice) = match name.ends_with(UNFINISHED) {
            true => ("unfinished_file", "nothing: the next write of records or streams removes it"),
            false => ("foreign_file", "move it elsewhere if you know what it is; the store does not use it"),
        };
        let file = format!("{}/{name}", place.dir);
        let what = format!("{file} is not a file of this map");
        let finding = place.finding(kind, None, what.clone());
        report.notes.push(Finding { file, what, advice: advice.to_owned(), ..finding });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
