//! Cuts a log at a sequence number, and keeps aside what is cut off.
//!
//! The order of steps makes every crash harmless. First, the segment with the border is copied. Then the new incarnation begins; an uncut
//! log of a new incarnation only makes readers check again. Then a checkpoint records how far the log reached, so that opening a
//! partially cut log reports damage. Then the segments after the border are removed, last to first, and the commits after the border by
//! one rename. The checkpoint is removed at the end. Running the repair again completes it.
//!
//! Streams of the log are cut when the store is next opened, because the incarnation has changed. Their entries refer to events of the
//! part that is kept aside. Records are not touched, because they are not derived from events.

use std::collections::BTreeMap;

use annals_core::{Code, SequenceNumber, UnknownLog};
use serde::{Deserialize, Serialize};

use super::copy::copy;
use super::cut::{self, Border};
use super::survey::{self, Small, TenantFolder};
use super::{OperationError, Outcome, Progress, unreadable, unwritable};
use crate::Options;
use crate::disk::{Disk, Open};
use crate::engine::{self, Looked, Marks};
use crate::log::{Checkpoint, names};
use crate::options::SeededBug;
use crate::store::{ENGINE_DIR, TenantFile};
use crate::streams::would_stay;
use crate::whole::{UNFINISHED, seal, write_whole};

/// The folder that keeps what was cut off.
const CUT: &str = "cut";

/// What to cut.
#[derive(Debug, Clone)]
pub struct Cut {
    /// The tenant.
    pub tenant: String,
    /// The scope.
    pub scope: String,
    /// The number of events that remain, which is the sequence number of the first one removed.
    pub at: SequenceNumber,
    /// Whether to cut, rather than only report what would be done.
    pub confirmed: bool,
}

/// The result of a repair, or of a dry run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Repair {
    /// The tenant.
    pub tenant: String,
    /// The scope.
    pub scope: String,
    /// The number of events that remain.
    pub at: SequenceNumber,
    /// The segment whose first part remains; `None` if the border lies between two segments.
    pub cut_segment: Option<String>,
    /// The offset of the border in that segment.
    pub cut_offset: Option<u64>,
    /// The files that are removed, relative to the store's folder.
    pub files: Vec<String>,
    /// The folder that keeps them, and a complete copy of the segment that is cut.
    pub kept_in: String,
    /// The incarnation to which the removed events belong.
    pub incarnation: u32,
    /// The incarnation that begins.
    pub next_incarnation: u32,
    /// What happens to the scope's streams when the store is opened: they are cut where the log is. Records are unchanged.
    #[serde(default)]
    pub streams: Vec<CutStream>,
    /// Whether the log was cut.
    pub done: bool,
}

/// The effect of cutting a log on one of its streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutStream {
    /// Its name.
    pub name: String,
    /// The number of its entries before.
    pub entries: u64,
    /// How many of them remain.
    pub stay: u64,
}

/// Cuts a log of a store that no process has open. `progress` counts the events that remain.
///
/// # Errors
/// `invalid_range` if no commit ends there, naming the nearest border; `unknown_tenant`, `unknown_scope`, `store_damaged` if the tenant's
/// own file is damaged; `not_a_store`, `store_locked`, `newer_format`, `read_failed`, `disk_full`, `store_read_only`.
pub fn repair(disk: &dyn Disk, cut: &Cut, options: &Options, progress: Progress<'_>) -> Outcome<Repair> {
    let _lock = survey::lock(disk)?;
    let tenants = survey::tenants(disk)?;
    let tenant = find_tenant(&tenants, cut)?;
    let file = match tenant.file(disk)? {
        Small::Whole(file) => file,
        _ => {
            let message = format!("{} is damaged; take it from a backup first", tenant.file_path());
            return Err(OperationError::new(Code::StoreDamaged, message));
        }
    };
    let dir = tenant.log_dir(&cut.scope);
    let border = cut::find(disk, &dir, cut.at, &mut |events| progress(events, cut.at))?;
    let mut repair = plan(disk, cut, &dir, &border, &file)?;
    if cut.confirmed {
        Work { disk, dir: &dir, repair: &repair, options }.run(tenant, &border, &file)?;
        repair.done = true;
    }
    Ok(repair)
}

fn find_tenant<'a>(tenants: &'a [TenantFolder], cut: &Cut) -> Outcome<&'a TenantFolder> {
    let unknown =
        |error: UnknownLog| OperationError::new(error.code(), format!("the store holds no such log: {error}"));
    let tenant = tenants.iter().find(|tenant| tenant.name == cut.tenant);
    let tenant = tenant.ok_or_else(|| unknown(UnknownLog::Tenant(cut.tenant.clone())))?;
    if !tenant.scopes.contains(&cut.scope) {
        return Err(unknown(UnknownLog::Scope { tenant: cut.tenant.clone(), scope: cut.scope.clone() }));
    }
    Ok(tenant)
}

fn plan(disk: &dyn Disk, cut: &Cut, dir: &str, border: &Border, file: &TenantFile) -> Outcome<Repair> {
    let within = border.within.as_ref().map(|open| open.at.number);
    let goes = |name: &String| {
        let segment = names::segment_number(name).is_some_and(|number| number >= border.beyond);
        let index = names::index_number(name).is_some_and(|number| number >= border.beyond || Some(number) == within);
        segment || index || name == names::CHECKPOINT
    };
    let mut files: Vec<String> = survey::sorted(disk, dir)?.into_iter().filter(goes).collect();
    // The checkpoint, which is replaced, comes first; then the files from last to first.
    files.sort_by_key(|name| std::cmp::Reverse((name == names::CHECKPOINT, name.clone())));
    Ok(Repair {
        tenant: cut.tenant.clone(),
        scope: cut.scope.clone(),
        at: cut.at,
        cut_segment: border.within.as_ref().map(|open| open.at.name.clone()),
        cut_offset: border.within.as_ref().map(|_| border.offset),
        files: files.into_iter().map(|name| format!("{dir}/{name}")).collect(),
        kept_in: free_folder(disk, cut)?,
        incarnation: file.incarnation,
        next_incarnation: file.incarnation + 1,
        streams: streams(disk, cut)?,
        done: false,
    })
}

/// Returns the streams that the cut affects; empty if they cannot be read, which a check reports.
fn streams(disk: &dyn Disk, cut: &Cut) -> Outcome<Vec<CutStream>> {
    let dir = format!("{}/{}/{ENGINE_DIR}", survey::TENANTS, cut.tenant);
    let Looked::Open(map) = engine::look(disk, &dir, &Marks::default())? else { return Ok(Vec::new()) };
    let streams = would_stay(&*map.view, &cut.scope, cut.at).unwrap_or_default().into_iter();
    Ok(streams.map(|(name, entries, stay)| CutStream { name, entries, stay }).collect())
}

fn free_folder(disk: &dyn Disk, cut: &Cut) -> Outcome<String> {
    for n in 1.. {
        let dir = format!("{CUT}/{}/{}-at-{}-{n}", cut.tenant, cut.scope, cut.at);
        if disk.list(&dir).map_err(|error| unreadable(&dir, &error))?.is_empty() {
            return Ok(dir);
        }
    }
    Err(OperationError::new(Code::Internal, "there are too many folders of removed parts; move old ones elsewhere"))
}

struct Work<'a> {
    disk: &'a dyn Disk,
    dir: &'a str,
    repair: &'a Repair,
    options: &'a Options,
}

impl Work<'_> {
    fn run(&self, tenant: &TenantFolder, border: &Border, file: &TenantFile) -> Outcome<()> {
        let aside = &self.repair.kept_in;
        let write = |error: std::io::Error| unwritable(aside, &error);
        self.disk.create_dir(aside).map_err(write)?;
        let note = seal(self.repair).map_err(write)?;
        write_whole(self.disk, aside, &format!("{aside}/cut.json"), &note).map_err(write)?;
        if let Some(open) = &border.within {
            let copied = self.aside(&open.at.name);
            copy(self.disk, &*open.at.file, &copied, open.length, open.length).map_err(write)?;
            self.disk.sync_dir(aside).map_err(write)?;
        }
        self.begin_incarnation(tenant, file)?;
        let checkpoint = format!("{}/{}", self.dir, names::CHECKPOINT);
        let (first, rest) = self.repair.files.split_at(self.repair.files.partition_point(|name| *name == checkpoint));
        self.move_aside(first)?;
        let guarded = self.guard(&checkpoint, file.term_key().owner(&self.repair.scope))?;
        self.move_aside(rest)?;
        self.cut_segment(border)?;
        if guarded {
            let removed = self.disk.remove(&checkpoint).and_then(|()| self.disk.sync_dir(self.dir));
            removed.map_err(|error| unwritable(&checkpoint, &error))?;
        }
        Ok(())
    }

    /// Records how far the log reached, unless it ends at the border anyway. Returns whether it did.
    fn guard(&self, checkpoint: &str, owner: u64) -> Outcome<bool> {
        let head = cut::head_of(self.disk, self.dir)?;
        if head <= self.repair.at {
            return Ok(false);
        }
        let reached = seal(&Checkpoint { segment: 0, end: 0, head, owner });
        let written = reached.and_then(|bytes| write_whole(self.disk, self.dir, checkpoint, &bytes));
        written.map_err(|error| unwritable(checkpoint, &error))?;
        Ok(true)
    }

    fn move_aside(&self, files: &[String]) -> Outcome<()> {
        for name in files {
            // One at a time, so that no power loss leaves a gap.
            let moved = self.disk.rename(name, &self.aside(name));
            let moved = moved.and_then(|()| self.disk.sync_dir(&self.repair.kept_in));
            moved.and_then(|()| self.disk.sync_dir(self.dir)).map_err(|error| unwritable(name, &error))?;
        }
        Ok(())
    }

    fn aside(&self, name: &str) -> String {
        let file = name.rsplit('/').next().unwrap_or(name);
        format!("{}/{file}", self.repair.kept_in)
    }

    fn begin_incarnation(&self, tenant: &TenantFolder, file: &TenantFile) -> Outcome<()> {
        if self.options.has(SeededBug::KeepIncarnation) {
            return Ok(());
        }
        let mut starts = BTreeMap::new();
        for scope in &tenant.scopes {
            let start = match *scope == self.repair.scope {
                true => self.repair.at,
                false => cut::head_of(self.disk, &tenant.log_dir(scope))?,
            };
            starts.insert(scope.clone(), start);
        }
        let path = tenant.file_path();
        let written = seal(&file.reborn(starts)).and_then(|bytes| write_whole(self.disk, &tenant.dir, &path, &bytes));
        written.map(|_| ()).map_err(|error| unwritable(&path, &error))
    }

    /// Replaces a segment, atomically, by one without the commits after the border.
    fn cut_segment(&self, border: &Border) -> Outcome<()> {
        let Some(open) = &border.within else { return Ok(()) };
        let name = &open.at.name;
        let unfinished = format!("{name}{UNFINISHED}");
        let done = cut::keep_to(self.disk, open, border.offset, &unfinished)
            .and_then(|()| self.disk.rename(&unfinished, name))
            .and_then(|()| self.disk.sync_dir(self.dir))
            .and_then(|()| self.disk.open(name, Open::Read));
        done.map(|_| ()).map_err(|error| unwritable(name, &error))
    }
}
