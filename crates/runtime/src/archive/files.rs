//! Due documents become rows of Parquet files, by type and day.
//!
//! ```text
//!  <server.archive>/<tenant>/.writing/NAME.parquet     written and synced; nothing reads it
//!        │  one batch: ArchiveFileRecord, marks and expiry dates of its documents
//!        ▼
//!  <server.archive>/<tenant>/type=T/day=D/NAME.parquet
//! ```
//!
//! INVARIANT: a file that readers see has a record, and no event of the log is in two of them. A process that dies before the batch leaves
//! a file in `.writing`, which the next one deletes; one that dies after it leaves one there that the next one renames.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use annals_core::archive::{
    ARCHIVE_FILES, ArchiveFileRecord, ArchiveTarget, DueGroup, file_path, numbers_of, packed_numbers,
};
use annals_core::browse::number_of;
use annals_core::bson::{DateTime, Document};
use annals_core::{Condition, Expected, RecordError, RecordQuery, RecordType, TypedRecords, limits, new_uuid};
use ring::digest::{SHA256, digest};

use super::collect::Due;
use super::guard::{Guard, Stop};
use super::parquet::written;
use super::{Loaded, TenantArchive};

/// Most events of a file: one batch marks all of them.
const ROWS_MAX: usize = 5_000;
/// Most documents, and most bytes of them, that are in memory before files are written.
const GATHERED_MAX: (usize, usize) = (20_000, 32 * 1024 * 1024);
/// Where files are that readers must not see.
const WRITING: &str = ".writing";

/// The documents of one type and day.
type Days = BTreeMap<(String, String), Vec<Due>>;

impl TenantArchive {
    /// The folder of the tenant's files.
    pub(super) fn folder(&self) -> Result<PathBuf, Stop> {
        let missing =
            || Stop::Unwritable("this process has no folder for files of the archive; set server.archive".into());
        Ok(self.shared.options.archive.as_ref().ok_or_else(missing)?.join(&self.tenant))
    }

    /// Places files whose batch was written, and deletes those whose batch was not. Returns why that cannot be done.
    pub(super) async fn recover_files(&self, guard: &mut Guard<'_>) -> Result<Option<String>, Stop> {
        let folder = match self.folder() {
            Ok(folder) => folder,
            Err(Stop::Unwritable(why)) => return Ok(Some(why)),
            Err(stop) => return Err(stop),
        };
        let left = match fs::read_dir(folder.join(WRITING)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Ok(Some(format!("{}: {error}", folder.display()))),
            Ok(left) => left.filter_map(Result::ok).map(|entry| entry.path()).collect::<Vec<_>>(),
        };
        for path in left {
            guard.renew().await?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let done = match self.file_named(&name).await? {
                Some(record) => placed(&path, &folder.join(record.path)),
                None => fs::remove_file(&path),
            };
            if let Err(error) = done {
                return Ok(Some(format!("{}: {error}", path.display())));
            }
        }
        Ok(None)
    }

    async fn file_named(&self, name: &str) -> Result<Option<ArchiveFileRecord>, RecordError> {
        let query = TypedRecords::<ArchiveFileRecord>::query().matching(Condition::eq("name", name)).limit(1);
        match self.file_records().find(query).await {
            Err(RecordError::UnknownCollection(_)) => Ok(None),
            found => Ok(found?.0.into_iter().next().map(|found| found.value)),
        }
    }

    pub(super) fn file_records(&self) -> TypedRecords<ArchiveFileRecord> {
        TypedRecords::declared(std::sync::Arc::clone(&self.records))
    }

    /// Archives some of what is due, and returns how many; none where nothing is due.
    pub(super) async fn write_files(
        &self,
        guard: &mut Guard<'_>,
        loaded: &Loaded,
        live: &str,
        group: &DueGroup,
    ) -> Result<Option<usize>, Stop> {
        let folder = self.folder()?;
        let days = self.gathered(loaded, live, group).await?;
        if days.is_empty() {
            return Ok(None);
        }
        self.records.declare(<ArchiveFileRecord as RecordType>::collection()).await?;
        let mut moved = 0;
        for ((event_type, day), due) in days {
            let known = self.archived_numbers(&event_type, &day).await?;
            // An event that was archived before is in the view again after a rebuild.
            let is_known = |it: &Due| it.document.get("_id").and_then(number_of).is_some_and(|it| known.contains(&it));
            let (again, new): (Vec<_>, Vec<_>) = due.into_iter().partition(is_known);
            for some in again.chunks(ROWS_MAX) {
                moved += self.marked_again(guard, loaded, live, some).await?;
            }
            for some in new.chunks(ROWS_MAX) {
                guard.renew().await?;
                moved += self.written_file(guard, loaded, live, &folder, some).await?;
            }
        }
        Ok(Some(moved))
    }

    /// Reads due documents, as many as fit into memory.
    async fn gathered(&self, loaded: &Loaded, live: &str, group: &DueGroup) -> Result<Days, Stop> {
        let due = loaded.plan.due(group, self.now().as_millis());
        let mut query = RecordQuery::new(live).matching(due).ascending("timestamp").limit(limits::PAGE_MAX);
        let (mut days, mut count, mut bytes) = (Days::new(), 0, 0);
        loop {
            let page = self.records.find(query.clone()).await?;
            for record in &page.records {
                bytes += record.document.as_bytes().len();
                count += 1;
                let Some(due) = Due::of(record) else { continue };
                let event_type = due.document.get_str("event_type").unwrap_or_default().to_owned();
                let (_, day) = file_path(&event_type, happened(&due.document), "");
                days.entry((event_type, day)).or_default().push(due);
            }
            match page.next {
                Some(cursor) if count < GATHERED_MAX.0 && bytes < GATHERED_MAX.1 => query = query.after(cursor),
                _ => return Ok(days),
            }
        }
    }

    /// The sequence numbers of events of a type and day that files hold.
    async fn archived_numbers(&self, event_type: &str, day: &str) -> Result<HashSet<u64>, RecordError> {
        let of_day = Condition::and([Condition::eq("event_type", event_type), Condition::eq("day", day)]);
        let mut query = TypedRecords::<ArchiveFileRecord>::query().matching(of_day).limit(limits::PAGE_MAX);
        let mut numbers = HashSet::new();
        loop {
            let (files, next) = self.file_records().find(query.clone()).await?;
            numbers.extend(files.iter().flat_map(|file| numbers_of(&file.value.numbers)));
            let Some(cursor) = next else { return Ok(numbers) };
            query = query.after(cursor);
        }
    }

    async fn marked_again(&self, guard: &Guard<'_>, loaded: &Loaded, live: &str, due: &[Due]) -> Result<usize, Stop> {
        let mut batch = guard.checks(loaded).to_vec();
        batch.extend(due.iter().map(|it| it.marked(loaded, live, ArchiveTarget::Files)));
        match self.records.write(batch).await {
            Ok(_) => Ok(due.len()),
            Err(error) => guard.stop_of(error).map(|()| 0),
        }
    }

    /// Writes a file and lets its documents expire. Returns 0 where one of them is not as it was read.
    async fn written_file(
        &self,
        guard: &mut Guard<'_>,
        loaded: &Loaded,
        live: &str,
        folder: &Path,
        due: &[Due],
    ) -> Result<usize, Stop> {
        let (now, random) = (self.now(), &*self.shared.options.random);
        let name = format!("{}.parquet", new_uuid(now, random));
        let documents: Vec<Document> = due.iter().map(|it| cleaned(it.document.clone())).collect();
        let mut record = described(&documents, &name, DateTime::from_millis(now.as_millis()));
        let (writing, place) = (folder.join(WRITING).join(&name), folder.join(&record.path));
        let to = writing.clone();
        let written = tokio::task::spawn_blocking(move || {
            let bytes = written(&documents).map_err(|error| error.to_string())?;
            synced(&to, &bytes).map_err(|error| format!("{}: {error}", to.display()))?;
            let hash: String = digest(&SHA256, &bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            Ok::<_, String>((bytes.len(), hash))
        });
        let written = written.await.map_err(|error| Stop::Failed(error.to_string()))?;
        let (bytes, hash) = written.map_err(Stop::Unwritable)?;
        (record.bytes, record.sha256) = (i64::try_from(bytes).unwrap_or(i64::MAX), hash);
        let mut batch = guard.checks(loaded).to_vec();
        batch.push(TypedRecords::replacement(&record, Expected::Absent)?);
        batch.extend(due.iter().map(|it| it.marked(loaded, live, ArchiveTarget::Files)));
        match self.records.write(batch).await {
            Ok(_) => {}
            Err(error) => {
                // Where the outcome is unknown, the next look finds out: with its record the file is placed, without it is deleted.
                let is_refused = matches!(error, RecordError::NotAsExpected { .. } | RecordError::Invalid(_));
                if is_refused && let Err(error) = fs::remove_file(&writing) {
                    tracing::debug!(%error, "a file of the archive is deleted later");
                }
                return guard.stop_of(error).map(|()| 0);
            }
        }
        placed(&writing, &place).map_err(|error| Stop::Unwritable(format!("{}: {error}", place.display())))?;
        Ok(due.len())
    }

    /// Returns the files that may hold an event.
    pub(super) async fn files_of(&self, event_id: &str) -> Result<Vec<ArchiveFileRecord>, RecordError> {
        let may = Condition::and([Condition::lte("first_id", event_id), Condition::gte("last_id", event_id)]);
        let mut query = RecordQuery::new(ARCHIVE_FILES).matching(may).limit(limits::PAGE_MAX);
        let mut files = Vec::new();
        loop {
            let (page, next) = match self.file_records().find(query.clone()).await {
                Err(RecordError::UnknownCollection(_)) => return Ok(files),
                page => page?,
            };
            files.extend(page.into_iter().map(|found| found.value));
            let Some(cursor) = next else { return Ok(files) };
            query = query.after(cursor);
        }
    }
}

fn happened(document: &Document) -> i64 {
    document.get_datetime("timestamp").map_or(0, |at| at.timestamp_millis())
}

/// A document without what the store keeps in it.
fn cleaned(mut document: Document) -> Document {
    document.remove("_annals");
    document
}

/// The record of a file of documents of one type and day.
fn described(documents: &[Document], name: &str, now: DateTime) -> ArchiveFileRecord {
    let first = documents.first();
    let event_type = first.and_then(|it| it.get_str("event_type").ok()).unwrap_or_default();
    let (path, day) = file_path(event_type, first.map_or(0, happened), name);
    let ids = || documents.iter().filter_map(|it| it.get_str("event_id").ok());
    let mut numbers: Vec<u64> = documents.iter().filter_map(|it| number_of(it.get("_id")?)).collect();
    numbers.sort_unstable();
    ArchiveFileRecord {
        path,
        name: name.to_owned(),
        event_type: event_type.to_owned(),
        day,
        events: i64::try_from(documents.len()).unwrap_or(i64::MAX),
        bytes: 0,
        sha256: String::new(),
        first_id: ids().min().unwrap_or_default().to_owned(),
        last_id: ids().max().unwrap_or_default().to_owned(),
        numbers: packed_numbers(&numbers),
        written: now,
    }
}

/// Writes a file that is on the disk when this returns.
fn synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)?;
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    File::open(folder)?.sync_all()
}

/// Puts a file where readers find it.
fn placed(from: &Path, to: &Path) -> io::Result<()> {
    let folder = to.parent().unwrap_or(to);
    fs::create_dir_all(folder)?;
    fs::rename(from, to)?;
    File::open(folder)?.sync_all()
}
