//! Imports an export into an open store.
//!
//! Each commit is copied with its sequence number, which the log checks, so no other writer can interleave. Events that the log already
//! has are compared one by one: an interrupted import resumes, and an import into a log with other events is refused.

use std::collections::VecDeque;
use std::io::{BufRead, Read};
use std::sync::Arc;

use annals_core::wire::EventLine;
use annals_core::{
    Code, CommitCopy, CommitInfo, DEFAULT_SCOPE, EventLog, EventsHash, RecordedCommit, RecordedEvent, SequenceNumber,
    Store, TransactionPlace, Uuid,
};
use futures_util::future::{BoxFuture, FutureExt};
use serde::de::DeserializeOwned;

use super::begun::{Begun, Written};
use super::keys::{self, Changing, KeysEnd, MovedKeys};
use super::records::{CollectionEnd, CollectionLine, Filling, MovedCollection};
use super::streams::{Appending, MovedStream, StreamEnd, StreamLine};
use super::{
    Besides, CopyLine, EXPORT_VERSION, ExportEnd, ExportedLog, Header, LogEnd, LogHead, LogLine, Moved, MovedLog,
    PlaceLine, RecordsEnd, StreamsEnd, WITH_KEYS, WITH_RECORDS, from_hex,
};
use crate::operations::OperationError;

/// The maximum length of a line: 8 MiB of data may take six times as much in JSON, and twice as much in hexadecimal beside it.
const LINE_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// The maximum number of commits, and of bytes of data, that are stored at once. A transaction is never split.
const COMMITS_MAX: usize = 256;
const BYTES_MAX: usize = 16 * 1024 * 1024;

type Outcome<T> = Result<T, OperationError>;

/// An export whose first line has been read.
pub struct ExportReader<'a> {
    // Boxed instead of a type parameter, so that an import is compiled here and not in its callers.
    input: Box<dyn BufRead + Send + 'a>,
    header: Header,
    /// The number of the last line that was read.
    line: u64,
}

impl<'a> ExportReader<'a> {
    /// Reads the first line.
    ///
    /// # Errors
    /// `newer_format` for an export of a newer version; `invalid_backup` if the input is not an export; `unreadable_input`.
    pub fn new(input: impl BufRead + Send + 'a) -> Outcome<Self> {
        let header = Header {
            annals_export: 0,
            began: annals_core::Timestamp::from_millis(0),
            without_records: false,
            logs: Vec::new(),
        };
        let mut reader = Self { input: Box::new(input), header, line: 0 };
        let first = reader.next_line()?.unwrap_or_default();
        let version = serde_json::from_slice::<serde_json::Value>(&first).ok();
        let version = version.and_then(|header| header.get("annals_export")?.as_u64());
        let no_export = || reader.invalid("the file does not begin like an export of Annals");
        match version {
            None => return Err(no_export()),
            Some(newer) if newer > u64::from(EXPORT_VERSION) => {
                let message = format!(
                    "the export has version {newer}, and this version reads up to {EXPORT_VERSION}; use the version that \
                     wrote it or a later one"
                );
                return Err(OperationError::new(Code::NewerFormat, message));
            }
            Some(_) => {}
        }
        reader.header = serde_json::from_slice(&first).map_err(|_| no_export())?;
        Ok(reader)
    }

    /// Returns the tenants and scopes that the store must have declared.
    pub fn logs(&self) -> Vec<(String, String)> {
        self.header.logs.iter().map(|log| (log.tenant.clone(), log.scope.clone())).collect()
    }

    /// Copies everything into the store: inserts records, stores commits with their sequence numbers, appends verdicts to streams, and
    /// takes and releases keys. Finally compares the content of the store with the hashes of the export. `progress` counts events.
    ///
    /// No other writer may use the store meanwhile. The input is read on the caller's task.
    ///
    /// # Errors
    /// Each error names what had been written; running the import again resumes from there. Before anything is written:
    /// `not_supported_by_store` if the store accepts no import, and `key_taken` if prepare keys were changed without a commit, other than
    /// by an import of this file.
    ///
    /// `other_events` if a log has other events, `other_records` if a collection has other records, `verdicts_differ` if a stream differs,
    /// `key_taken` if a prepare key has another holder; `invalid_backup` with the line number if the export is truncated or was altered;
    /// `unknown_tenant`, `unknown_scope`, `unreadable_input`, and the errors of committing, writing and appending.
    pub fn import_into<'b>(
        self,
        store: &'b dyn Store,
        progress: &'b mut (dyn FnMut(u64, u64) + Send),
    ) -> BoxFuture<'b, Outcome<Moved>>
    where
        'a: 'b,
    {
        let imported = async move {
            let begun = Begun::look(store, &self.header.logs).await?;
            let written = Written::default();
            match self.all_into(store, &written, progress).await {
                Ok(moved) => Ok(moved),
                Err(error) => Err(begun.tell(error, written).await),
            }
        };
        imported.boxed()
    }

    async fn all_into(
        mut self,
        store: &dyn Store,
        written: &Written,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Outcome<Moved> {
        let mut logs = self.header.logs.clone();
        let mut moved = Moved::default();
        let with_records = self.header.annals_export >= WITH_RECORDS;
        if with_records {
            moved.collections = self.records(store, written).await?;
        }
        let mut done = 0;
        for n in 0..logs.len() {
            if with_records {
                logs[n].head = self.head_of(&logs[n])?;
                keys::none_of_others(store, &logs[n]).await?;
            }
            let (log, all) = (&logs[n], logs.iter().map(|log| log.head).sum());
            let open = store.log(&log.tenant, &log.scope);
            let open = open.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
            let mut copying = Copying::new(open, log).await?;
            let end = loop {
                let line = self.line_within()?;
                if line.starts_with(b"{\"log_end\"") {
                    break self.parsed::<LogEnd>(&line)?;
                }
                let (event, copy) = self.event(&line)?;
                copying.take(event, copy, self.line).await?;
                progress(done + copying.next, all);
            };
            moved.logs.push(copying.finish(end.log_end, self.line).await?);
            done += log.head;
            if with_records {
                self.streams(store, log, &mut moved.streams).await?;
            }
            if self.header.annals_export >= WITH_KEYS && log.scope == DEFAULT_SCOPE {
                self.keys(store, log, &mut moved.keys).await?;
            }
        }
        let last = self.next_line()?.unwrap_or_default();
        match serde_json::from_slice::<ExportEnd>(&last) {
            Ok(end) if end.export_end.events == done => {}
            _ => return Err(self.invalid("the export is truncated")),
        }
        // Otherwise the second of two files that were joined would be ignored without a word.
        while let Some(line) = self.next_line()? {
            if !line.trim_ascii().is_empty() {
                return Err(self.invalid("the export ends before this line; import each export separately"));
            }
        }
        Ok(moved)
    }

    /// Imports the records of all tenants.
    async fn records(&mut self, store: &dyn Store, written: &Written) -> Outcome<Vec<MovedCollection>> {
        let mut moved = Vec::new();
        loop {
            let line = self.line_within()?;
            if line.starts_with(b"{\"records_end\"") {
                let end = self.parsed::<RecordsEnd>(&line)?.records_end;
                let whole = end.collections == moved.len() as u64;
                return if whole { Ok(moved) } else { Err(self.invalid("a collection was left out or added")) };
            }
            let mut filling = Filling::new(store, self.parsed::<CollectionLine>(&line)?.collection, written).await?;
            let end = loop {
                let line = self.line_within()?;
                if line.starts_with(b"{\"collection_end\"") {
                    break self.parsed::<CollectionEnd>(&line)?.collection_end;
                }
                filling.take(&line).await?.map_err(|why| self.invalid(&why))?;
            };
            moved.push(filling.finish(end).await?.map_err(|why| self.invalid(&why))?);
        }
    }

    /// Reads the number of events of a log that follow.
    fn head_of(&mut self, log: &ExportedLog) -> Outcome<SequenceNumber> {
        let line = self.line_within()?;
        let LogHead { tenant, scope, head } = self.parsed::<LogLine>(&line)?.log;
        let follows = (&tenant, &scope) == (&log.tenant, &log.scope) && head >= log.head;
        if follows { Ok(head) } else { Err(self.invalid("the next log is not the one that the first line announces")) }
    }

    /// Imports the streams of a log.
    async fn streams(&mut self, store: &dyn Store, log: &ExportedLog, moved: &mut Vec<MovedStream>) -> Outcome<()> {
        let before = moved.len();
        loop {
            let line = self.line_within()?;
            if line.starts_with(b"{\"streams_end\"") {
                let end = self.parsed::<StreamsEnd>(&line)?.streams_end;
                let whole = end.streams == (moved.len() - before) as u64;
                return if whole { Ok(()) } else { Err(self.invalid("a stream was left out or added")) };
            }
            let mut appending = Appending::new(store, log, self.parsed::<StreamLine>(&line)?.stream).await?;
            let end = loop {
                let line = self.line_within()?;
                if line.starts_with(b"{\"stream_end\"") {
                    break self.parsed::<StreamEnd>(&line)?.stream_end;
                }
                appending.take(&line).await?.map_err(|why| self.invalid(&why))?;
            };
            moved.push(appending.finish(end).await?.map_err(|why| self.invalid(&why))?);
        }
    }

    /// Imports the keys of a log's tenant.
    async fn keys(&mut self, store: &dyn Store, log: &ExportedLog, moved: &mut Vec<MovedKeys>) -> Outcome<()> {
        let mut changing = Changing::new(store, log)?;
        let end = loop {
            let line = self.line_within()?;
            if line.starts_with(b"{\"keys_end\"") {
                break self.parsed::<KeysEnd>(&line)?.keys_end;
            }
            changing.take(&line).await?.map_err(|why| self.invalid(&why))?;
        };
        let keys = changing.finish(end).map_err(|why| self.invalid(&why))?;
        moved.extend(Some(keys).filter(|keys| keys.keys > 0));
        Ok(())
    }

    /// Reads a line, and fails at the end of the input.
    fn line_within(&mut self) -> Outcome<Vec<u8>> {
        self.next_line()?.ok_or_else(|| self.invalid("the export is truncated"))
    }

    fn parsed<T: DeserializeOwned>(&self, line: &[u8]) -> Outcome<T> {
        serde_json::from_slice(line).map_err(|error| self.invalid(&error.to_string()))
    }

    /// Parses the event of a line, and the fields about its commit.
    fn event(&self, line: &[u8]) -> Outcome<(RecordedEvent, Option<CopyLine>)> {
        let parsed: EventLine = serde_json::from_slice(line).map_err(|error| self.invalid(&error.to_string()))?;
        let mut event = RecordedEvent::from(parsed);
        // A substring search comes first, because few lines have these fields.
        let has = |name: &[u8]| line.windows(name.len()).any(|part| part == name);
        if !has(b"\"data_bson\"") && !has(b"\"copy\"") {
            return Ok((event, None));
        }
        let besides: Besides = serde_json::from_slice(line).map_err(|error| self.invalid(&error.to_string()))?;
        if let Some(hex) = besides.data_bson {
            let exact = from_hex(&hex);
            event.data = exact.ok_or_else(|| self.invalid("data_bson is not a BSON document in hexadecimal"))?;
        }
        Ok((event, besides.copy))
    }

    fn next_line(&mut self) -> Outcome<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let read = (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let failed = |error: std::io::Error| OperationError::new(Code::UnreadableInput, error.to_string());
        if read.map_err(failed)? == 0 {
            return Ok(None);
        }
        self.line += 1;
        if line.pop() != Some(b'\n') {
            return Err(self.invalid("the line is incomplete, so the export is truncated"));
        }
        Ok(Some(line))
    }

    fn invalid(&self, why: &str) -> OperationError {
        invalid(self.line, why)
    }
}

fn invalid(line: u64, why: &str) -> OperationError {
    OperationError::new(Code::InvalidBackup, format!("line {line}: {why}"))
}

/// A log that is being copied.
struct Copying<'a> {
    log: Arc<dyn EventLog>,
    exported: &'a ExportedLog,
    /// The number of events that the log had before the import.
    head: SequenceNumber,
    /// Commits among them that were read but not compared yet.
    there: VecDeque<CommitCopy>,
    next: SequenceNumber,
    hash: EventsHash,
    /// The current transaction.
    transaction: Option<TransactionPlace>,
    /// The commit whose events are being read.
    open: Option<CommitCopy>,
    ready: Vec<CommitCopy>,
    bytes: usize,
}

impl<'a> Copying<'a> {
    async fn new(log: Arc<dyn EventLog>, exported: &'a ExportedLog) -> Outcome<Self> {
        let head = log.head().await.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
        if head > exported.head {
            return Err(other_events(exported, exported.head, "the log holds more events than the export"));
        }
        let (there, hash) = (VecDeque::new(), EventsHash::default());
        Ok(Self {
            log,
            exported,
            head,
            there,
            next: 0,
            hash,
            transaction: None,
            open: None,
            ready: Vec::new(),
            bytes: 0,
        })
    }

    /// Adds the next event.
    async fn take(&mut self, mut event: RecordedEvent, copy: Option<CopyLine>, line: u64) -> Outcome<()> {
        let wrong = || invalid(line, &format!("event {} is out of order", event.sequence_number));
        if event.sequence_number != self.next {
            return Err(wrong());
        }
        self.next += 1;
        self.bytes += event.data.as_bytes().len();
        if event.ordinal > 0 {
            let open = self.open.as_mut().filter(|open| belongs(&event, open)).ok_or_else(wrong)?;
            let commit = open.commit.info.clone();
            open.commit.events.push(RecordedEvent { commit, ..event });
            return Ok(());
        }
        self.close().await?;
        let copy = copy.unwrap_or_default();
        if let (None, Some(place)) = (event.commit.transaction, &copy.transaction) {
            Arc::make_mut(&mut event.commit).transaction = Some(self.place_of(event.commit.commit_id, place));
        }
        self.transaction = event.commit.transaction;
        let keys =
            copy.keys().ok_or_else(|| invalid(line, "the value of a key is not a BSON document in hexadecimal"))?;
        let commit = RecordedCommit { info: event.commit.clone(), events: vec![event] };
        self.open = Some(CommitCopy { commit, keys });
        Ok(())
    }

    /// Returns the place of the commit with this id, for exports of an early version, which lack the transaction's id.
    fn place_of(&self, commit_id: Uuid, place: &PlaceLine) -> TransactionPlace {
        let id = self.transaction.filter(|_| place.place > 0).map_or(commit_id, |begun| begun.id);
        TransactionPlace { id, place: place.place, count: place.count }
    }

    /// Completes the open commit: compares it if the log already has it, and queues it otherwise.
    async fn close(&mut self) -> Outcome<()> {
        let Some(copy) = self.open.take() else { return Ok(()) };
        self.hash.add_commit(&copy.commit.events, &copy.keys);
        let first = copy.commit.events.first().map_or(0, |event| event.sequence_number);
        if first < self.head {
            return self.compare(&copy, first).await;
        }
        let ends = copy.ends();
        self.ready.push(copy);
        if ends && (self.ready.len() >= COMMITS_MAX || self.bytes >= BYTES_MAX) {
            return self.store().await;
        }
        Ok(())
    }

    async fn compare(&mut self, copy: &CommitCopy, first: SequenceNumber) -> Outcome<()> {
        if self.there.is_empty() {
            self.there = copies(&*self.log, first).await?.into();
        }
        match self.there.pop_front() {
            Some(there) if there == *copy => Ok(()),
            _ => Err(other_events(self.exported, first, "the log holds a different commit there")),
        }
    }

    async fn store(&mut self) -> Outcome<()> {
        self.bytes = 0;
        let stored = self.log.store_copies(std::mem::take(&mut self.ready)).await;
        stored.map_err(|error| OperationError::new(error.code(), error.to_string()))
    }

    /// Stores the rest, reads the log back and compares it with the export.
    async fn finish(mut self, due: MovedLog, line: u64) -> Outcome<MovedLog> {
        self.close().await?;
        self.store().await?;
        let (tenant, scope) = (self.exported.tenant.clone(), self.exported.scope.clone());
        let read = MovedLog { tenant, scope, head: self.next, events_hash: self.hash };
        if read != due {
            let why = "the events are not those that were exported; the export was altered or is incomplete";
            return Err(invalid(line, why));
        }
        let (mut next, mut hash) = (0, EventsHash::default());
        while next < due.head {
            let read = copies(&*self.log, next).await?;
            if read.is_empty() {
                break;
            }
            for copy in read {
                next += copy.commit.events.len() as u64;
                hash.add_commit(&copy.commit.events, &copy.keys);
            }
        }
        if (next, hash) != (due.head, due.events_hash) {
            return Err(other_events(self.exported, next, "the log does not hold what was imported"));
        }
        Ok(due)
    }
}

/// Returns whether an event continues a commit. The times are not compared, because a line has only the time of its event.
fn belongs(event: &RecordedEvent, open: &CommitCopy) -> bool {
    let info = &open.commit.info;
    let transaction = event.commit.transaction.or(info.transaction);
    let same = CommitInfo { time: info.time, transaction, ..(*event.commit).clone() };
    same == **info && event.ordinal as usize == open.commit.events.len()
}

async fn copies(log: &dyn EventLog, from: SequenceNumber) -> Outcome<Vec<CommitCopy>> {
    log.read_copies(from).await.map_err(|error| OperationError::new(error.code(), error.to_string()))
}

fn other_events(log: &ExportedLog, number: SequenceNumber, why: &str) -> OperationError {
    let message = format!("{}/{} at sequence number {number}: {why}", log.tenant, log.scope);
    OperationError::new(Code::OtherEvents, message)
}
