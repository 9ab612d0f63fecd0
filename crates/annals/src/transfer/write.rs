//! Writing an export.

use std::io::{self, Write};

use annals_core::wire::EventView;
use annals_core::{
    Clock, Code, Data, EventLog, EventsHash, Filter, LogQuery, RecordedEvent, SequenceNumber, Store, limits,
};
use annals_embedded::SystemClock;

use super::{EXPORT_VERSION, Events, ExportEnd, ExportedLog, Header, LogEnd, MovedLog};
use crate::operations::OperationError;

/// Writes every log of an open store, each up to the head that it has when this begins. `progress` counts events.
///
/// # Errors
/// What reading the log says; `internal` when `out` cannot be written.
pub async fn export(
    store: &dyn Store,
    out: &mut (dyn Write + Send),
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<Vec<MovedLog>, OperationError> {
    let mut logs = Vec::new();
    for status in store.status() {
        let (tenant, scope) = (status.tenant, status.scope);
        let identity = store
            .identity(&tenant)
            .ok_or_else(|| OperationError::new(Code::UnknownTenant, format!("tenant {tenant:?} has no identity")))?;
        let (store_id, incarnation) = (identity.store_id, identity.incarnation);
        logs.push(ExportedLog { tenant, scope, store_id, incarnation, head: status.head });
    }
    let all = logs.iter().map(|log| log.head).sum();
    let mut done = 0;
    line(out, &Header { annals_export: EXPORT_VERSION, began: SystemClock.now(), logs: logs.clone() })?;
    let mut moved = Vec::new();
    for log in logs {
        let open = store.log(&log.tenant, &log.scope);
        let open = open.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
        let events_hash = events(&*open, &log, out, &mut |count| progress(done + count, all)).await?;
        done += log.head;
        let log_end = MovedLog { tenant: log.tenant, scope: log.scope, head: log.head, events_hash };
        moved.push(log_end.clone());
        line(out, &LogEnd { log_end })?;
    }
    line(out, &ExportEnd { export_end: Events { events: done } })?;
    out.flush().map_err(|error| unwritten(&error))?;
    Ok(moved)
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
        let query = LogQuery { from: Some(next), limit: limits::PAGE_MAX, backwards: false, filter: Filter::default() };
        let page = log.read(query).await.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
        if page.events.is_empty() {
            let message = format!("the log ended at {next}, before its head {}", exported.head);
            return Err(OperationError::new(Code::StoreDamaged, message));
        }
        for event in page.events.iter().take_while(|event| event.sequence_number < exported.head) {
            hash.add(event);
            write_event(event, exported, out)?;
        }
        next = page.next;
        progress(next.min(exported.head));
    }
    Ok(hash)
}

fn write_event(
    event: &RecordedEvent,
    exported: &ExportedLog,
    out: &mut (dyn Write + Send),
) -> Result<(), OperationError> {
    let view = EventView { event, tenant: &exported.tenant, scope: &exported.scope };
    let mut json = serde_json::to_vec(&view).map_err(|error| unwritten(&error.into()))?;
    let same = serde_json::to_string(&event.data).ok().and_then(|text| Data::from_json(&text).ok());
    if same.is_none_or(|data| data != event.data) {
        json.pop();
        json.extend_from_slice(b",\"data_bson\":\"");
        event.data.as_bytes().iter().for_each(|byte| json.extend_from_slice(format!("{byte:02x}").as_bytes()));
        json.extend_from_slice(b"\"}");
    }
    json.push(b'\n');
    out.write_all(&json).map_err(|error| unwritten(&error))
}

fn line(out: &mut (dyn Write + Send), value: &impl serde::Serialize) -> Result<(), OperationError> {
    let mut json = serde_json::to_vec(value).map_err(|error| unwritten(&error.into()))?;
    json.push(b'\n');
    out.write_all(&json).map_err(|error| unwritten(&error))
}

fn unwritten(error: &io::Error) -> OperationError {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::DiskFull,
        _ => Code::Internal,
    };
    OperationError::new(code, format!("the export cannot be written: {error}"))
}
