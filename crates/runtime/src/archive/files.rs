//! Archiving due documents as rows of Parquet files, by type and day.
//!
//! ```text
//!  <server.archive>/<tenant>/.writing/STORE-INCARNATION/NAME.parquet     put and read back; no reader looks there
//!        │  one batch: ArchiveFileRecord, marks and expiry dates of its documents
//!        ▼
//!  <server.archive>/<tenant>/type=T/day=D/NAME.parquet
//! ```
//!
//! INVARIANT: a file that readers see has a record, and no event of the log is in two of them. A process that dies before the batch
//! leaves a file in `.writing`, which the next process deletes. One that dies after the batch leaves a file there that the next process
//! renames.
//!
//! INVARIANT: a process deletes only files that its own store wrote in this incarnation. Another file may belong to a store that uses the
//! same place, or to an incarnation whose records this one does not have.
//!
//! INVARIANT: the batch is written only after the file was read back with the length and the hash in its record.

use std::collections::{BTreeMap, HashSet};

use annals_core::archive::{
    ARCHIVE_FILES, ArchiveFileRecord, ArchiveFiles, ArchiveTarget, DueGroup, FileError, file_path, numbers_of,
    packed_numbers,
};
use annals_core::bson::DateTime;
use annals_core::bson::raw::RawDocument;
use annals_core::{
    Condition, Expected, RecordChange, RecordError, RecordQuery, RecordType, TypedRecords, limits, new_uuid,
};
use bytes::Bytes;
use ring::digest::{SHA256, digest};
use tokio::task::JoinHandle;

use super::collect::Due;
use super::guard::{Guard, Stop};
use super::{Loaded, NO_PLACE, TenantArchive, parquet};

/// The most events in a file, because one batch marks all of them.
const ROWS_MAX: usize = 5_000;
/// The most documents, and the most bytes of them, in memory before files are written.
const GATHERED_MAX: (usize, usize) = (20_000, 32 * 1024 * 1024);
/// The folder for files that readers must not see yet.
const WRITING: &str = ".writing";

/// Documents by type and day.
type Days = BTreeMap<(String, String), Vec<Due>>;

/// A file whose content is being encoded.
struct NewFile {
    /// The record that will be stored, still without length and hash.
    record: ArchiveFileRecord,
    /// The changes that mark its documents.
    marks: Vec<RecordChange>,
    content: JoinHandle<Result<Bytes, String>>,
}

impl TenantArchive {
    /// Returns the storage for files.
    fn storage(&self) -> Result<&dyn ArchiveFiles, Stop> {
        self.shared.options.archive.as_deref().ok_or_else(|| Stop::Unwritable(NO_PLACE.to_owned()))
    }

    /// Returns the path at which a file of the tenant is stored.
    pub(super) fn stored_path(&self, path: &str) -> String {
        format!("{}/{path}", self.tenant)
    }

    /// Returns the folder in which this incarnation of the store writes files of the tenant.
    fn writing(&self) -> String {
        let own = self.shared.store.identity(&self.tenant);
        own.map_or_else(|| WRITING.to_owned(), |it| format!("{WRITING}/{}-{}", it.store_id.simple(), it.incarnation))
    }

    /// Returns whether there are records of files, one of which may still have to be placed.
    pub(super) async fn has_files(&self) -> Result<bool, RecordError> {
        if self.shared.options.archive.is_none() {
            return Ok(false);
        }
        match self.file_records().find(TypedRecords::<ArchiveFileRecord>::query().limit(1)).await {
            Err(RecordError::UnknownCollection(_)) => Ok(false),
            found => Ok(!found?.0.is_empty()),
        }
    }

    /// Places files whose batch was written, and deletes files of this store whose batch was not. If a file cannot be placed, the others
    /// are still placed or deleted. Returns the error of the first one that cannot be placed.
    pub(super) async fn recover_files(&self, guard: &Guard<'_>) -> Result<Option<String>, Stop> {
        let files = match self.storage() {
            Ok(files) => files,
            Err(Stop::Unwritable(why)) => return Ok(Some(why)),
            Err(stop) => return Err(stop),
        };
        let left = match files.list(&self.stored_path(WRITING)).await {
            Ok(left) => left,
            Err(error) => return Ok(Some(error.to_string())),
        };
        let own = format!("{}/", self.stored_path(&self.writing()));
        let mut failed = None;
        for path in left {
            guard.keep_lease().await?;
            let name = path.rsplit('/').next().unwrap_or_default();
            let done = match self.file_named(name).await? {
                Some(record) => files.rename(&path, &self.stored_path(&record.path)).await,
                // It does not block any event, so it can be deleted later.
                None if path.starts_with(&own) => {
                    if let Err(error) = files.delete(&path).await {
                        tracing::debug!(%error, "could not delete a file of the archive; it will be deleted later");
                    }
                    Ok(())
                }
                None => Ok(()),
            };
            if let Err(error) = done {
                failed.get_or_insert(error.to_string());
            }
        }
        Ok(failed)
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

    /// Archives some of the due documents and adds their number to `moved`, even if the rest fails. Returns whether any were due.
    pub(super) async fn write_files(
        &self,
        guard: &Guard<'_>,
        loaded: &Loaded,
        live: &str,
        group: &DueGroup,
        moved: &mut usize,
    ) -> Result<bool, Stop> {
        let files = self.storage()?;
        let days = self.gathered(loaded, live, group).await?;
        if days.is_empty() {
            return Ok(false);
        }
        self.records.declare(<ArchiveFileRecord as RecordType>::collection()).await?;
        let mut unplaceable = None;
        for ((event_type, day), due) in days {
            let known = self.archived_numbers(&event_type, &day).await?;
            // After a rebuild, the view again contains events that were archived before.
            let is_known = |it: &Due| parquet::number(&it.document).is_some_and(|it| known.contains(&it));
            let (again, mut new): (Vec<_>, Vec<_>) = due.into_iter().partition(is_known);
            for some in again.chunks(ROWS_MAX) {
                *moved += self.marked_again(guard, loaded, live, some).await?;
            }
            let mut next = self.begun_file(loaded, live, &mut new);
            while let Some(file) = next {
                // A type whose name is too long for a folder must not block other types.
                if let Err(error) = files.prepare(&self.stored_path(&file.record.path)).await {
                    unplaceable.get_or_insert(error);
                    break;
                }
                // Encode the next file while the batch of this one is being written.
                next = self.begun_file(loaded, live, &mut new);
                guard.keep_lease().await?;
                self.written_file(guard, loaded, file, moved).await?;
            }
        }
        if let Some(error) = unplaceable {
            return Err(error.into());
        }
        Ok(true)
    }

    /// Reads as many due documents as fit into memory.
    async fn gathered(&self, loaded: &Loaded, live: &str, group: &DueGroup) -> Result<Days, Stop> {
        let due = loaded.plan.due(group, self.now().as_millis());
        let mut query = RecordQuery::new(live).matching(due).ascending("timestamp").limit(limits::PAGE_MAX);
        let (mut days, mut count, mut bytes) = (Days::new(), 0, 0);
        loop {
            let page = self.records.find(query.clone()).await?;
            for record in page.records {
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

    /// Returns the sequence numbers of a type's and day's events that are in files.
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

    /// Starts encoding a file of the first of these documents, which it removes from `due`; `None` if there are none.
    fn begun_file(&self, loaded: &Loaded, live: &str, due: &mut Vec<Due>) -> Option<NewFile> {
        let count = due.len().min(ROWS_MAX);
        let some: Vec<Due> = due.drain(..count).collect();
        let (now, random) = (self.now(), &*self.shared.options.random);
        let name = format!("{}.parquet", new_uuid(now, random));
        let record = described(&some, &name, DateTime::from_millis(now.as_millis()))?;
        let marks = some.iter().map(|it| it.marked(loaded, live, ArchiveTarget::Files)).collect();
        let documents: Vec<_> = some.into_iter().map(|it| it.document).collect();
        let content = tokio::task::spawn_blocking(move || {
            parquet::written(&documents).map(Bytes::from).map_err(|error| error.to_string())
        });
        Some(NewFile { record, marks, content })
    }

    /// Writes a file whose place is prepared, sets the expiry dates of its documents, and adds their number to `moved`. Does nothing if one
    /// of them has changed since it was read.
    async fn written_file(
        &self,
        guard: &Guard<'_>,
        loaded: &Loaded,
        file: NewFile,
        moved: &mut usize,
    ) -> Result<(), Stop> {
        let NewFile { mut record, marks, content } = file;
        let (files, count) = (self.storage()?, marks.len());
        let writing = self.stored_path(&format!("{}/{}", self.writing(), record.name));
        let place = self.stored_path(&record.path);
        let content = content.await.map_err(|error| Stop::Failed(error.to_string()))?.map_err(Stop::Unwritable)?;
        (record.bytes, record.sha256) = (length_of(&content), hash_of(&content));
        put_whole(files, &writing, content, &record).await?;
        let mut batch = guard.checks(loaded).to_vec();
        batch.push(TypedRecords::replacement(&record, Expected::Absent)?);
        batch.extend(marks);
        match self.records.write(batch).await {
            Ok(_) => {}
            Err(error) => {
                // If the outcome is unknown, the next recovery resolves it: a file with a record is placed, one without is deleted.
                let is_refused = matches!(error, RecordError::NotAsExpected { .. } | RecordError::Invalid(_));
                if is_refused && let Err(error) = files.delete(&writing).await {
                    tracing::debug!(%error, "could not delete a file of the archive; it will be deleted later");
                }
                return guard.stop_of(error);
            }
        }
        // Their expiry dates are set by now, even if the file is placed later.
        *moved += count;
        files.rename(&writing, &place).await?;
        Ok(())
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

/// Stores a file where readers do not look, and reads it back. If it differs from its record, it is deleted and an error returned.
async fn put_whole(
    files: &dyn ArchiveFiles,
    path: &str,
    content: Bytes,
    record: &ArchiveFileRecord,
) -> Result<(), FileError> {
    files.put(path, content).await?;
    let read = files.read(path).await?;
    if is_whole(record, &read) {
        return Ok(());
    }
    if let Err(error) = files.delete(path).await {
        tracing::debug!(%error, "could not delete a file of the archive; it will be deleted later");
    }
    let reason = format!("wrote {} bytes, but read back another length or hash", record.bytes);
    Err(FileError::new(format!("{}/{path}", files.place()), reason))
}

/// Returns whether this is the complete content of a file, by its length and its hash.
pub(super) fn is_whole(record: &ArchiveFileRecord, content: &[u8]) -> bool {
    record.bytes == length_of(content) && record.sha256 == hash_of(content)
}

fn length_of(content: &[u8]) -> i64 {
    i64::try_from(content.len()).unwrap_or(i64::MAX)
}

/// Returns the SHA-256 of some content in hexadecimal.
fn hash_of(content: &[u8]) -> String {
    digest(&SHA256, content).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn happened(document: &RawDocument) -> i64 {
    document.get_datetime("timestamp").map_or(0, |at| at.timestamp_millis())
}

/// Returns the record of a file of documents of one type and day; `None` if there are no documents.
fn described(due: &[Due], name: &str, now: DateTime) -> Option<ArchiveFileRecord> {
    let first = &due.first()?.document;
    let event_type = first.get_str("event_type").unwrap_or_default();
    let (path, day) = file_path(event_type, happened(first), name);
    let ids = || due.iter().filter_map(|it| it.document.get_str("event_id").ok());
    let mut numbers: Vec<u64> = due.iter().filter_map(|it| parquet::number(&it.document)).collect();
    numbers.sort_unstable();
    Some(ArchiveFileRecord {
        path,
        name: name.to_owned(),
        event_type: event_type.to_owned(),
        day,
        events: i64::try_from(due.len()).unwrap_or(i64::MAX),
        bytes: 0,
        sha256: String::new(),
        first_id: ids().min().unwrap_or_default().to_owned(),
        last_id: ids().max().unwrap_or_default().to_owned(),
        numbers: packed_numbers(&numbers),
        written: now,
    })
}
