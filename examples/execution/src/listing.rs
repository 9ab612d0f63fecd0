//! The executions for lists: a handler that keeps one record for each execution, exactly once.

use std::sync::Arc;

use annals::handlers::HandlerDefinition;
use annals::processing::PartitionBy;
use annals::runtime::{Effects, HandleFailure, Handler};
use annals::{ByteString, Condition, Cursor, Expected, RecordError, RecordedEvent, Records, TypedRecords};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::events::{self, AGGREGATE, REQUESTED, Requested, SLOT_GRANTED, STARTED, TERMINAL};
use crate::execution::Status;
use crate::records::{ExecutionRecord, date, typed};

/// The name of the handler.
pub const LISTING: &str = "execution-list";

pub(crate) struct Listing {
    pub(crate) records: Arc<dyn Records>,
}

/// Returns the definition of the handler.
pub(crate) fn definition() -> HandlerDefinition {
    const AT_ONCE: u32 = 16;
    let types = [&[REQUESTED, SLOT_GRANTED, STARTED], &TERMINAL[..]].concat();
    let types = types.into_iter().map(ByteString::from_static);
    HandlerDefinition::new(LISTING).types(types).partitioned(PartitionBy::Aggregate, AT_ONCE)
}

#[derive(Default, Deserialize)]
struct Ended {
    #[serde(default)]
    exit_code: Option<i64>,
    #[serde(default)]
    error_type: Option<String>,
}

#[async_trait]
impl Handler for Listing {
    async fn handle(&self, events: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure> {
        for event in events.iter().filter(|event| &*event.commit.aggregate.name == AGGREGATE) {
            let failed = |error: RecordError| HandleFailure::new(error.to_string());
            let found =
                typed::<ExecutionRecord>(&self.records).get(&*event.commit.aggregate.id).await.map_err(failed)?;
            if let Some(next) = next(found.map(|found| found.value), event) {
                let change = TypedRecords::replacement(&next, Expected::AbsentOr(Condition::All));
                effects.change(change.map_err(failed)?);
            }
        }
        Ok(())
    }
}

/// Returns the record after an event; `None` if the event changes nothing.
fn next(before: Option<ExecutionRecord>, event: &RecordedEvent) -> Option<ExecutionRecord> {
    let Some(mut record) = before else {
        let requested: Requested = event.data.decode().ok().filter(|_| &*event.event_type == REQUESTED)?;
        let id = event.commit.aggregate.id.to_string();
        return Some(ExecutionRecord {
            execution_id: id.clone(),
            id,
            user_id: events::user_of(event).to_owned(),
            status: Status::Queued.name().to_owned(),
            priority: requested.priority().as_str().to_owned(),
            lang: requested.language,
            lang_version: requested.language_version,
            exit_code: None,
            error_type: None,
            created_at: date(event.time),
            updated_at: date(event.time),
        });
    };
    let status = Status::from_name(&record.status)?.after(&event.event_type)?;
    status.name().clone_into(&mut record.status);
    if status.is_over() {
        let ended: Ended = event.data.decode().unwrap_or_default();
        (record.exit_code, record.error_type) = (ended.exit_code, ended.error_type);
    }
    record.updated_at = date(event.time);
    Some(record)
}

/// Selects the executions to list.
#[derive(Debug, Default)]
pub(crate) struct ListQuery {
    pub(crate) user: Option<String>,
    pub(crate) status: Option<Status>,
    pub(crate) limit: usize,
    pub(crate) cursor: Option<String>,
}

/// Returns a page of executions, newest first, as `{"items", "cursor"?}`.
///
/// # Errors
/// See [`RecordError`].
pub(crate) async fn list(records: &Arc<dyn Records>, query: ListQuery) -> Result<Value, RecordError> {
    let user = query.user.map_or(Condition::All, |user| Condition::eq("user_id", user.as_str()));
    let status = query.status.map_or(Condition::All, |status| Condition::eq("status", status.name()));
    let mut find = TypedRecords::<ExecutionRecord>::query()
        .matching(Condition::and([user, status]))
        .descending("created_at")
        .limit(query.limit);
    if let Some(cursor) = query.cursor {
        find = find.after(Cursor::new(cursor));
    }
    let (found, next) = typed::<ExecutionRecord>(records).find(find).await?;
    let items: Vec<Value> = found.into_iter().map(|found| shown(&found.value)).collect();
    let mut page = json!({ "items": items });
    if let Some(cursor) = next {
        page["cursor"] = cursor.to_string().into();
    }
    Ok(page)
}

fn shown(record: &ExecutionRecord) -> Value {
    let time = |date: annals::bson::DateTime| annals::Timestamp::from_millis(date.timestamp_millis()).to_string();
    json!({
        "execution_id": record.execution_id, "user_id": record.user_id, "status": record.status, "language": record.lang,
        "language_version": record.lang_version, "priority": record.priority, "exit_code": record.exit_code,
        "error_type": record.error_type, "created_at": time(record.created_at), "updated_at": time(record.updated_at),
    })
}
