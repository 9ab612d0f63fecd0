//! The result processor, which stores how each execution ended and commits that it did.

use std::sync::Arc;

use annals::bson::Document;
use annals::runtime::{Consumer, HandleFailure, consumer};
use annals::{CommitError, EventLog, RecordedEvent, Records, limits};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::events::{self, AGGREGATE, ENDED_BY_ITSELF, RESULT_FAILED, RESULT_STORED};
use crate::execution::Status;
use crate::records::{ResultRecord, date, is_there, typed};
use annals::RecordType;

/// The group of the result processor, as Integr8sCode calls it.
pub const RESULTS_GROUP: &str = "result-processor";

/// Largest stdout and stderr of a result together, in bytes. It is half of what an event can hold, because each stream sends the result
/// as JSON.
const OUTPUT_BYTES_MAX: usize = limits::EVENT_BYTES_MAX / 2;

pub(crate) struct Results {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) records: Arc<dyn Records>,
}

/// The fields that the three events have in common.
#[derive(Deserialize)]
struct Ended {
    #[serde(default = "one")]
    exit_code: i64,
    #[serde(default)]
    stdout: String,
    #[serde(default)]
    stderr: String,
    #[serde(default)]
    error_type: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    resource_usage: Option<Document>,
}

fn one() -> i64 {
    1
}

impl Results {
    pub(crate) fn consumer(self: &Arc<Self>) -> Consumer {
        ENDED_BY_ITSELF.into_iter().fold(consumer(RESULTS_GROUP, ENDED_BY_ITSELF), |group, topic| {
            let results = Arc::clone(self);
            group.on(topic, move |event, _: Value| {
                let results = Arc::clone(&results);
                async move { results.store(&event).await }
            })
        })
    }

    /// Stores a result once, however often its event is delivered, and commits `result_stored`.
    pub(crate) async fn store(&self, event: &RecordedEvent) -> Result<(), HandleFailure> {
        if &*event.commit.aggregate.name != AGGREGATE {
            return Ok(());
        }
        let id = &*event.commit.aggregate.id;
        let (event_type, data) = match event.data.decode::<Ended>() {
            Ok(ended) if ended.stdout.len() + ended.stderr.len() <= OUTPUT_BYTES_MAX => {
                let size = self.insert(event, ended).await?;
                let path = format!("{}/{id}", ResultRecord::COLLECTION);
                let data =
                    json!({ "execution_id": id, "storage_type": "database", "storage_path": path, "size_bytes": size });
                (RESULT_STORED, data)
            }
            _ => (RESULT_FAILED, json!({ "execution_id": id, "storage_type": "database" })),
        };
        let told = events::event(event_type, &data).map_err(HandleFailure::never)?;
        match self.log.commit(events::next_commit(event, vec![told], "result")).await {
            // Another event had already ended the execution, and its result is stored.
            Ok(_) | Err(CommitError::RequestIdReused { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn insert(&self, event: &RecordedEvent, ended: Ended) -> Result<usize, HandleFailure> {
        let size = ended.stdout.len() + ended.stderr.len();
        let result = ResultRecord {
            execution_id: event.commit.aggregate.id.to_string(),
            status: Status::Queued.after(&event.event_type).map_or("failed", Status::name).to_owned(),
            exit_code: ended.exit_code,
            stdout: ended.stdout,
            stderr: ended.stderr,
            error_type: ended.error_type,
            reason: ended.reason,
            resource_usage: ended.resource_usage,
            ended_at: date(event.time),
        };
        match typed::<ResultRecord>(&self.records).insert(&result).await {
            Ok(_) => Ok(size),
            Err(error) if is_there(&error) => Ok(size),
            Err(error) => Err(HandleFailure::new(error.to_string())),
        }
    }
}

impl ResultRecord {
    /// Returns the result as the API shows it.
    pub(crate) fn shown(&self) -> Value {
        let usage = self.resource_usage.clone().map(|usage| annals::bson::Bson::Document(usage).into_relaxed_extjson());
        json!({
            "execution_id": self.execution_id, "status": self.status, "exit_code": self.exit_code,
            "stdout": self.stdout, "stderr": self.stderr, "error_type": self.error_type, "reason": self.reason,
            "resource_usage": usage,
        })
    }
}

#[cfg(test)]
mod tests;
