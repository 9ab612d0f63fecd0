//! Writes an export.

use std::io::{self, Write};
use std::sync::Arc;

use annals_core::wire::EventView;
use annals_core::{
    Clock, Code, CommitCopy, Data, EventLog, EventsHash, RecordedEvent, SequenceNumber, Store, StoreError,
};
use annals_system::SystemClock;
use futures_util::future::{BoxFuture, FutureExt};

use super::{
    Collections, CopyLine, EXPORT_VERSION, Events, ExportEnd, ExportedLog, Header, LogEnd, LogHead, LogLine, Moved,
    MovedLog, RecordsEnd, StreamCount, StreamsEnd, keys, records, streams, to_hex,
};
use crate::operations::OperationError;

/// Writes the records of an open store, then each log with its streams, up to the head that it has once the records are written.
/// `progress` counts events.
///
/// # Errors
/// The errors of reading the store; `disk_full` and `unwritable_output` if `out` cannot be written.
pub fn export<'a>(
    store: &'a dyn Store,
    out: &'a mut (dyn Write + Send),
    progress: &'a mut (dyn FnMut(u64, u64) + Send),
) -> BoxFuture<'a, Result<Moved, OperationError>> {
    write(store, true, out, progress).boxed()
}

/// Writes only the logs of a store with their prepare keys, without records and streams. It serves a store whose records are damaged; the
/// first line says that they were left out.
///
/// # Errors
/// As for [`export`].
pub fn export_without_records<'a>(
    store: &'a dyn Store,
    out: &'a mut (dyn Write + Send),
    progress: &'a mut (dyn FnMut(u64, u64) + Send),
) -> BoxFuture<'a, Result<Moved, OperationError>> {
    write(store, false, out, progress).boxed()
}

async fn write(
    store: &dyn Store,
    with_records: bool,
    out: &mut (dyn Write + Send),
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<Moved, OperationError> {
    let mut logs = Vec::new();
    for status in store.status() {
        let (tenant, scope) = (status.tenant, status.scope);
        // A damaged log reads like a shorter one, so refuse it.
        if let Some(damage @ StoreError::Damaged(_)) = status.refusing {
            return Err(OperationError::new(damage.code(), format!("{tenant}/{scope}: {damage}")));
        }
        let identity = store
            .identity(&tenant)
            .ok_or_else(|| OperationError::new(Code::UnknownTenant, format!("tenant {tenant:?} has no identity")))?;
        let (store_id, incarnation) = (identity.store_id, identity.incarnation);
        logs.push(ExportedLog { tenant, scope, store_id, incarnation, head: status.head });
    }
    // Check this before writing anything, because a partial export looks like a complete one.
    for log in &logs {
        let can_be_copied = open(store, log)?.read_copies(log.head).await;
        can_be_copied.map_err(|error| OperationError::new(error.code(), error.to_string()).advise(UNCOPIED))?;
    }
    let (began, without_records) = (SystemClock.now(), !with_records);
    line(out, &Header { annals_export: EXPORT_VERSION, began, without_records, logs: logs.clone() })?;
    let mut moved = Moved::default();
    for tenant in store.tenants().into_iter().filter(|_| with_records) {
        records::export(store, &tenant, out, &mut moved.collections).await?;
    }
    let collections = moved.collections.len() as u64;
    line(out, &RecordsEnd { records_end: Collections { collections } })?;
    // Read the heads after the records, so that no exported record depends on an event past them.
    for log in &mut logs {
        log.head =
            open(store, log)?.head().await.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
    }
    let all = logs.iter().map(|log| log.head).sum();
    let mut done = 0;
    for log in logs {
        let ExportedLog { tenant, scope, head, .. } = log.clone();
        line(out, &LogLine { log: LogHead { tenant, scope, head } })?;
        let open = open(store, &log)?;
        let events_hash = events(&*open, &log, out, &mut |count| progress(done + count, all)).await?;
        done += log.head;
        let log_end = MovedLog { tenant: log.tenant.clone(), scope: log.scope.clone(), head: log.head, events_hash };
        moved.logs.push(log_end.clone());
        line(out, &LogEnd { log_end })?;
        let before = moved.streams.len();
        if with_records {
            streams::export(store, &log, out, &mut moved.streams).await?;
        }
        let streams = (moved.streams.len() - before) as u64;
        line(out, &StreamsEnd { streams_end: StreamCount { streams } })?;
        keys::export(store, &log, out, &mut moved.keys).await?;
    }
    line(out, &ExportEnd { export_end: Events { events: done } })?;
    out.flush().map_err(|error| unwritten(&error))?;
    Ok(moved)
}

/// The advice for a log that cannot be exported.
const UNCOPIED: &str = "Export an embedded store; a store on MongoDB is copied with the tools of MongoDB, or event by event with `annals log read`.";

fn open(store: &dyn Store, log: &ExportedLog) -> Result<Arc<dyn EventLog>, OperationError> {
    let open = store.log(&log.tenant, &log.scope);
    open.map_err(|error| OperationError::new(error.code(), error.to_string()))
}

async fn events(
    log: &dyn EventLog,
    exported: &ExportedLog,
    out: &mut (dyn Write + Send),
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<EventsHash, OperationError> {
    let mut hash = EventsHash::default();
    let mut next: SequenceNumber = 0;
    while next < exported.head {
        let copies = log.read_copies(next).await;
        let copies = copies.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
        let before = next;
        for copy in &copies {
            let events = &copy.commit.events;
            if events.first().is_none_or(|first| first.sequence_number >= exported.head) {
                break;
            }
            hash.add_commit(events, &copy.keys);
            events.iter().try_for_each(|event| write_event(event, copy, exported, out))?;
            next += events.len() as u64;
        }
        if next == before {
            let message = format!("the log ended at {next}, before its head {}", exported.head);
            return Err(OperationError::new(Code::StoreDamaged, message));
        }
        progress(next.min(exported.head));
    }
    Ok(hash)
}

fn write_event(
    event: &RecordedEvent,
    copy: &CommitCopy,
    exported: &ExportedLog,
    out: &mut (dyn Write + Send),
) -> Result<(), OperationError> {
    let view = EventView { event, tenant: &exported.tenant, scope: &exported.scope };
    let mut json = serde_json::to_vec(&view).map_err(|error| unwritten(&error.into()))?;
    let same = serde_json::to_string(&event.data).ok().and_then(|text| Data::from_json(&text).ok());
    if same.is_none_or(|data| data != event.data) {
        besides(&mut json, "data_bson", &to_hex(event.data.as_bytes()))?;
    }
    if event.ordinal == 0 && (copy.commit.info.transaction.is_some() || !copy.keys.is_empty()) {
        besides(&mut json, "copy", &CopyLine::of(copy))?;
    }
    written(json, out)
}

/// Adds a field to an object.
pub(super) fn besides(json: &mut Vec<u8>, name: &str, value: &impl serde::Serialize) -> Result<(), OperationError> {
    json.pop();
    json.extend_from_slice(format!(",\"{name}\":").as_bytes());
    serde_json::to_writer(&mut *json, value).map_err(|error| unwritten(&error.into()))?;
    json.push(b'}');
    Ok(())
}

/// Writes a value as a line.
pub(super) fn line(out: &mut (dyn Write + Send), value: &impl serde::Serialize) -> Result<(), OperationError> {
    let json = serde_json::to_vec(value).map_err(|error| unwritten(&error.into()))?;
    written(json, out)
}

/// Writes a line.
pub(super) fn written(mut json: Vec<u8>, out: &mut (dyn Write + Send)) -> Result<(), OperationError> {
    json.push(b'\n');
    out.write_all(&json).map_err(|error| unwritten(&error))
}

pub(super) fn unwritten(error: &io::Error) -> OperationError {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::DiskFull,
        _ => Code::UnwritableOutput,
    };
    let refusal = OperationError::new(code, format!("the export cannot be written: {error}"));
    refusal.advise("Make room or name another place, then export again; the store is unchanged.")
}
