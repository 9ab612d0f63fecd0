//! Streams in an export: the entries and the progress of each.

use std::io::Write;
use std::sync::Arc;

use annals_core::{
    Code, Included, SequenceNumber, Store, StreamEntry, StreamInfo, StreamQuery, Streams, StreamsQuery, Verdicts,
    limits,
};
use serde::{Deserialize, Serialize};

use super::ExportedLog;
use super::write::line;
use crate::operations::OperationError;

/// The maximum number of entries that are appended at once.
const ENTRIES_MAX: usize = 5_000;

type Outcome<T> = Result<T, OperationError>;

/// The line before the entries of a stream.
#[derive(Serialize, Deserialize)]
pub(super) struct StreamLine {
    pub(super) stream: Named,
}

/// A stream of the log before it.
#[derive(Serialize, Deserialize)]
pub(super) struct Named {
    name: String,
    /// Whether it is public, which cannot always be told from its name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    public: bool,
}

/// The line after the entries of a stream.
#[derive(Serialize, Deserialize)]
pub(super) struct StreamEnd {
    pub(super) stream_end: MovedStream,
}

/// A stream that was exported or imported completely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedStream {
    /// Its tenant.
    pub tenant: String,
    /// Its scope.
    pub scope: String,
    /// Its name.
    pub name: String,
    /// The number of its entries.
    pub entries: u64,
    /// The progress of its filter.
    pub progress: SequenceNumber,
}

/// Writes each stream of a log, up to the exported head of the log.
pub(super) async fn export(
    store: &dyn Store,
    log: &ExportedLog,
    out: &mut (dyn Write + Send),
    moved: &mut Vec<MovedStream>,
) -> Outcome<()> {
    let streams = open(store, log)?;
    let definitions = store.stream_definitions(&log.tenant, &log.scope);
    let definitions = definitions.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
    let mut query = StreamsQuery { limit: limits::PAGE_MAX, after: None };
    loop {
        let page = streams.list(query.clone()).await.map_err(|error| refused(error.code(), &error))?;
        let Some(last) = page.last() else { return Ok(()) };
        query.after = Some(last.name.clone());
        for info in page {
            let definition = definitions.get(&info.name).await.map_err(|error| refused(error.code(), &error))?;
            let public = definition.is_some_and(|definition| definition.public);
            let end = export_one(&*streams, log, (info, public), out).await?;
            moved.push(end.clone());
            line(out, &StreamEnd { stream_end: end })?;
        }
    }
}

async fn export_one(
    streams: &dyn Streams,
    log: &ExportedLog,
    (info, public): (StreamInfo, bool),
    out: &mut (dyn Write + Send),
) -> Outcome<MovedStream> {
    line(out, &StreamLine { stream: Named { name: info.name.to_string(), public } })?;
    // Entries appended meanwhile are left out: `info` was read before, and its progress covers the entries below its head.
    let mut query = StreamQuery { limit: limits::PAGE_MAX, to: info.head, ..StreamQuery::new(info.name.clone()) };
    let mut entries = 0;
    'pages: loop {
        let page = streams.read(query.clone()).await.map_err(|error| refused(error.code(), &error))?;
        if page.entries.is_empty() {
            break;
        }
        query.from = page.next;
        for entry in page.entries {
            if entry.sequence_number >= log.head {
                break 'pages;
            }
            line(out, &entry)?;
            entries += 1;
        }
    }
    let (tenant, scope, name) = (log.tenant.clone(), log.scope.clone(), info.name.to_string());
    Ok(MovedStream { tenant, scope, name, entries, progress: info.progress.min(log.head) })
}

fn open(store: &dyn Store, log: &ExportedLog) -> Outcome<Arc<dyn Streams>> {
    let streams = store.streams(&log.tenant, &log.scope);
    streams.map_err(|error| OperationError::new(error.code(), error.to_string()))
}

/// A stream that is being imported.
pub(super) struct Appending {
    streams: Arc<dyn Streams>,
    tenant: String,
    scope: String,
    name: String,
    public: bool,
    /// The number of events in its log.
    head: SequenceNumber,
    /// The progress of the existing stream; a run of verdicts must not cross it.
    there: SequenceNumber,
    /// The sequence number at which the current run begins.
    from: SequenceNumber,
    included: Vec<Included>,
    entries: u64,
}

impl Appending {
    pub(super) async fn new(store: &dyn Store, log: &ExportedLog, Named { name, public }: Named) -> Outcome<Self> {
        let streams = open(store, log)?;
        let there = streams.stream(&name).await.map_err(|error| refused(error.code(), &error))?.progress;
        let (tenant, scope) = (log.tenant.clone(), log.scope.clone());
        let head = log.head;
        Ok(Self { streams, tenant, scope, name, public, head, there, from: 0, included: Vec::new(), entries: 0 })
    }

    /// Reads the line of the next entry.
    pub(super) async fn take(&mut self, line: &[u8]) -> Outcome<Result<(), String>> {
        let entry: StreamEntry = match serde_json::from_slice(line) {
            Ok(entry) => entry,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let next = self.included.last().map_or(self.from, |last| last.sequence_number + 1);
        if entry.position != self.entries || !(next..self.head).contains(&entry.sequence_number) {
            return Ok(Err(format!("entry {} is out of order", entry.position)));
        }
        if (self.from + 1..=entry.sequence_number).contains(&self.there) {
            self.append(self.there).await?;
        }
        self.entries += 1;
        self.included.push(Included { sequence_number: entry.sequence_number, partition: entry.partition });
        if self.included.len() >= ENTRIES_MAX {
            self.append(entry.sequence_number + 1).await?;
        }
        Ok(Ok(()))
    }

    /// Appends the verdicts up to `to`. The store compares those that it already has.
    async fn append(&mut self, to: SequenceNumber) -> Outcome<()> {
        if to <= self.from {
            return Ok(());
        }
        let included = std::mem::take(&mut self.included);
        let (stream, public) = (self.name.as_str().into(), self.public);
        let verdicts = Verdicts { stream, from: self.from, to, included, public };
        self.from = to;
        let appended = self.streams.append(verdicts).await;
        appended.map(drop).map_err(|error| {
            let message = format!("{}/{}, stream {}: {error}", self.tenant, self.scope, self.name);
            OperationError::new(error.code(), message)
        })
    }

    /// Appends the rest, and compares the stream with the export.
    pub(super) async fn finish(mut self, due: MovedStream) -> Outcome<Result<MovedStream, String>> {
        let next = self.included.last().map_or(self.from, |last| last.sequence_number + 1);
        let same = (&due.tenant, &due.scope, &due.name) == (&self.tenant, &self.scope, &self.name);
        if !same || due.entries != self.entries || !(next..=self.head).contains(&due.progress) {
            return Ok(Err("the stream is not the one that was exported; the export was altered".to_owned()));
        }
        if (self.from + 1..due.progress).contains(&self.there) {
            self.append(self.there).await?;
        }
        self.append(due.progress).await?;
        let found = self.streams.stream(&self.name).await.map_err(|error| refused(error.code(), &error))?;
        if found.progress == due.progress && found.head != due.entries {
            let message = format!(
                "{}/{}, stream {}: it has {} entries, and {} were imported",
                self.tenant, self.scope, self.name, found.head, due.entries
            );
            return Err(OperationError::new(Code::VerdictsDiffer, message));
        }
        Ok(Ok(due))
    }
}

fn refused(code: Code, error: &dyn std::fmt::Display) -> OperationError {
    OperationError::new(code, error.to_string())
}
