//! Reading an export into an open store.
//!
//! Every commit is copied with the number it had, which the log checks, so nothing can come in between. What is there already is
//! compared event by event: an import that was interrupted goes on where it was, and one into a log of other events is refused.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{BufRead, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use annals_core::wire::EventLine;
use annals_core::{
    Code, CommitError, CommitInfo, CommitOutcome, Data, EventLog, EventsHash, Filter, LogQuery, NewCommit,
    RecordedCommit, RecordedEvent, SequenceNumber, Store, limits,
};

use super::{EXPORT_VERSION, ExactData, ExportEnd, ExportedLog, Header, LogEnd, MovedLog};
use crate::operations::OperationError;

/// Longest line that is believed: 8 MiB of data may take six times as much as JSON, and twice as much in hexadecimal beside it.
const LINE_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Most commits under way at once, and most bytes of data.
const COMMITS_MAX: usize = 256;
const BYTES_MAX: usize = 16 * 1024 * 1024;

type Outcome<T> = Result<T, OperationError>;

/// An export of which the first line has been read.
pub struct ExportReader<R> {
    input: R,
    header: Header,
    /// The number of the line that was read last.
    line: u64,
}

impl<R: BufRead + Send> ExportReader<R> {
    /// Reads the first line.
    ///
    /// # Errors
    /// `newer_format` for the export of a newer version; `invalid_backup` for what is no export; `unreadable_input`.
    pub fn new(input: R) -> Outcome<Self> {
        let header = Header { annals_export: 0, began: annals_core::Timestamp::from_millis(0), logs: Vec::new() };
        let mut reader = Self { input, header, line: 0 };
        let first = reader.next_line()?.unwrap_or_default();
        let version = serde_json::from_slice::<serde_json::Value>(&first).ok();
        let version = version.and_then(|header| header.get("annals_export")?.as_u64());
        let no_export = || reader.invalid("the file does not begin as an export of Annals does");
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

    /// The tenants and scopes that the store must have declared.
    pub fn logs(&self) -> Vec<(String, String)> {
        self.header.logs.iter().map(|log| (log.tenant.clone(), log.scope.clone())).collect()
    }

    /// Copies every commit into the store, and compares the hashes of the logs at the end. `progress` counts events.
    ///
    /// It reads its input on the caller's task.
    ///
    /// # Errors
    /// `other_events` when a log holds other events; `invalid_backup` when the export ends early or was altered, which the line of the
    /// error says; `unknown_tenant`, `unknown_scope`, `unreadable_input`, and what committing says.
    pub async fn import_into(
        mut self,
        store: &dyn Store,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Outcome<Vec<MovedLog>> {
        let logs = self.header.logs.clone();
        let all: u64 = logs.iter().map(|log| log.head).sum();
        let mut done = 0;
        let mut moved = Vec::new();
        for log in &logs {
            let open = store.log(&log.tenant, &log.scope);
            let open = open.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
            let mut copying = Copying::new(open, log).await?;
            let end = loop {
                let Some(line) = self.next_line()? else { return Err(self.invalid("the export ends early")) };
                if line.starts_with(b"{\"log_end\"") {
                    break serde_json::from_slice::<LogEnd>(&line).map_err(|error| self.invalid(&error.to_string()))?;
                }
                let event = self.event(&line)?;
                copying.take(event, self.line).await?;
                progress(done + copying.next, all);
            };
            moved.push(copying.finish(end.log_end, self.line).await?);
            done += log.head;
        }
        let last = self.next_line()?.unwrap_or_default();
        match serde_json::from_slice::<ExportEnd>(&last) {
            Ok(end) if end.export_end.events == all => Ok(moved),
            _ => Err(self.invalid("the export ends early")),
        }
    }

    fn event(&self, line: &[u8]) -> Outcome<RecordedEvent> {
        let parsed: EventLine = serde_json::from_slice(line).map_err(|error| self.invalid(&error.to_string()))?;
        let mut event = RecordedEvent::from(parsed);
        // Looked for as text first: nearly no line has it.
        if line.windows(11).any(|part| part == b"\"data_bson\"")
            && let Ok(exact) = serde_json::from_slice::<ExactData>(line)
        {
            let bytes = from_hex(&exact.data_bson).and_then(|bytes| Data::from_stored(bytes.into()).ok());
            event.data = bytes.ok_or_else(|| self.invalid("data_bson is not a BSON document in hexadecimal"))?;
        }
        Ok(event)
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
            return Err(self.invalid("the line does not end, so the export ends early"));
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

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.bytes().map(|byte| char::from(byte).to_digit(16).map(|digit| digit as u8)).collect();
    let (pairs, []) = digits.as_deref()?.as_chunks::<2>() else { return None };
    Some(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// A log that is being copied.
struct Copying<'a> {
    log: Arc<dyn EventLog>,
    exported: &'a ExportedLog,
    /// The number of events that were there.
    head: SequenceNumber,
    /// Those of them that were read and not compared yet.
    there: VecDeque<RecordedEvent>,
    next: SequenceNumber,
    hash: EventsHash,
    /// The commit and ordinal of the last event.
    last: Option<(Arc<CommitInfo>, u32)>,
    /// The events of the commit that is not whole yet.
    open: Vec<RecordedEvent>,
    ready: Vec<NewCommit>,
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
            last: None,
            open: Vec::new(),
            ready: Vec::new(),
            bytes: 0,
        })
    }

    /// Takes the next event.
    async fn take(&mut self, mut event: RecordedEvent, line: u64) -> Outcome<()> {
        if event.sequence_number != self.next || !self.follows(&mut event) {
            return Err(invalid(line, &format!("event {} does not follow on", event.sequence_number)));
        }
        self.last = Some((event.commit.clone(), event.ordinal));
        self.next += 1;
        self.hash.add(&event);
        if event.sequence_number < self.head {
            return self.compare(&event).await;
        }
        if event.ordinal == 0 {
            self.close();
            if self.ready.len() >= COMMITS_MAX || self.bytes >= BYTES_MAX {
                self.commit().await?;
            }
        }
        self.bytes += event.data.as_bytes().len();
        self.open.push(event);
        Ok(())
    }

    /// Whether the event begins a commit or goes on with the last one, which it then belongs to: a line alone says the time of its
    /// event only.
    fn follows(&self, event: &mut RecordedEvent) -> bool {
        match &self.last {
            Some((commit, last)) if event.ordinal > 0 => {
                let same = CommitInfo { time: commit.time, ..(*event.commit).clone() };
                event.commit = commit.clone();
                same == **commit && event.ordinal == last + 1
            }
            _ => event.ordinal == 0,
        }
    }

    /// Compares an event with the one that is there.
    async fn compare(&mut self, event: &RecordedEvent) -> Outcome<()> {
        if self.there.is_empty() {
            self.there = page(&*self.log, event.sequence_number).await?.into();
        }
        match self.there.pop_front() {
            Some(there) if there == *event => Ok(()),
            _ => Err(other_events(self.exported, event.sequence_number, "the log holds another event there")),
        }
    }

    /// The open commit is whole.
    fn close(&mut self) {
        let events = std::mem::take(&mut self.open);
        if let Some(first) = events.first() {
            let info = first.commit.clone();
            self.ready.push(NewCommit::copy_of(RecordedCommit { info, events }));
        }
    }

    /// Commits what is ready. All are under way at once, and begun in order, which is the order they are judged in; should one
    /// overtake another all the same, its number is refused, and it is tried again in its turn.
    async fn commit(&mut self) -> Outcome<()> {
        let ready = std::mem::take(&mut self.ready);
        self.bytes = 0;
        let begun = ready.iter().map(|commit| self.log.commit(commit.clone())).collect();
        for (outcome, commit) in all(begun).await.into_iter().zip(ready) {
            let outcome = match outcome {
                Err(CommitError::OtherEvents { .. }) => self.log.commit(commit.clone()).await,
                outcome => outcome,
            };
            let outcome = outcome.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
            let due = commit.recorded.map(|recorded| recorded.sequence_number);
            if due != Some(outcome.first_sequence_number) {
                let why = "a commit of the same request stands elsewhere in the log";
                return Err(other_events(self.exported, outcome.first_sequence_number, why));
            }
        }
        Ok(())
    }

    /// Commits the rest, reads the log back and compares it with what the export says.
    async fn finish(mut self, due: MovedLog, line: u64) -> Outcome<MovedLog> {
        self.close();
        self.commit().await?;
        let (tenant, scope) = (self.exported.tenant.clone(), self.exported.scope.clone());
        let read = MovedLog { tenant, scope, head: self.next, events_hash: self.hash };
        if read != due {
            return Err(invalid(
                line,
                "the events are not those that were exported; the export was altered or is not whole",
            ));
        }
        let mut hash = EventsHash::default();
        let mut next = 0;
        while next < due.head {
            let events = page(&*self.log, next).await?;
            let Some(last) = events.last() else { break };
            next = last.sequence_number + 1;
            events.iter().for_each(|event| hash.add(event));
        }
        if (next, hash) != (due.head, due.events_hash) {
            return Err(other_events(self.exported, next, "the log does not hold what was imported"));
        }
        Ok(due)
    }
}

async fn page(log: &dyn EventLog, from: SequenceNumber) -> Outcome<Vec<RecordedEvent>> {
    let query = LogQuery { from: Some(from), limit: limits::PAGE_MAX, backwards: false, filter: Filter::default() };
    let page = log.read(query).await.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
    Ok(page.events)
}

fn other_events(log: &ExportedLog, number: SequenceNumber, why: &str) -> OperationError {
    let message = format!("{}/{} at sequence number {number}: {why}", log.tenant, log.scope);
    OperationError::new(Code::OtherEvents, message)
}

type Committing<'a> = Pin<Box<dyn Future<Output = Result<CommitOutcome, CommitError>> + Send + 'a>>;

/// Waits for all, which are polled in their order.
async fn all(mut begun: Vec<Committing<'_>>) -> Vec<Result<CommitOutcome, CommitError>> {
    let mut outcomes: Vec<Option<Result<CommitOutcome, CommitError>>> = begun.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, outcome) in begun.iter_mut().zip(&mut outcomes).filter(|(_, outcome)| outcome.is_none()) {
            if let Poll::Ready(done) = future.as_mut().poll(context) {
                *outcome = Some(done);
            }
        }
        if outcomes.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outcomes.into_iter().flatten().collect()
}
