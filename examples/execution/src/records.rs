//! The records that the service keeps beside the log: allocations, pods, workers, results, and executions for lists.

use annals::bson::{DateTime, Document};
use annals::{Index, RecordError, RecordType, Records, Timestamp, TypedRecords};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Resources that a running execution holds. The collection and its fields are those of Integr8sCode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AllocationRecord {
    /// The id of the execution, so that each has at most one.
    #[serde(rename = "_id")]
    pub(crate) id: String,
    pub(crate) allocation_id: String,
    pub(crate) execution_id: String,
    pub(crate) language: String,
    pub(crate) cpu_request: String,
    pub(crate) memory_request: String,
    pub(crate) cpu_limit: String,
    pub(crate) memory_limit: String,
    /// [`ACTIVE`] or [`RELEASED`].
    pub(crate) status: String,
    pub(crate) allocated_at: DateTime,
    pub(crate) released_at: Option<DateTime>,
}

pub(crate) const ACTIVE: &str = "active";
pub(crate) const RELEASED: &str = "released";

impl RecordType for AllocationRecord {
    const COLLECTION: &'static str = "resource_allocations";

    fn indexes() -> Vec<Index> {
        vec![
            Index::on("allocation_id").unique().into(),
            Index::on("execution_id").into(),
            Index::on("language").into(),
            Index::on("status").into(),
        ]
    }
}

/// A pod that a worker runs. The record is deleted with the pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PodRecord {
    /// The execution. It has one pod at a time.
    #[serde(rename = "_id")]
    pub(crate) execution_id: String,
    pub(crate) pod_name: String,
    /// The worker that runs the pod.
    pub(crate) worker: String,
    /// Why the pod must end, if another worker received that command.
    pub(crate) delete: Option<String>,
}

impl RecordType for PodRecord {
    const COLLECTION: &'static str = "execution_pods";

    fn indexes() -> Vec<Index> {
        vec![Index::on("worker").into()]
    }
}

/// A worker, and until when it keeps its pods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorkerRecord {
    #[serde(rename = "_id")]
    pub(crate) worker: String,
    pub(crate) until: DateTime,
}

impl RecordType for WorkerRecord {
    const COLLECTION: &'static str = "execution_workers";
}

/// The result of an execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ResultRecord {
    #[serde(rename = "_id")]
    pub(crate) execution_id: String,
    /// `completed`, `failed` or `timeout`.
    pub(crate) status: String,
    pub(crate) exit_code: i64,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) error_type: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) resource_usage: Option<Document>,
    pub(crate) ended_at: DateTime,
}

impl RecordType for ResultRecord {
    const COLLECTION: &'static str = "execution_results";
}

/// An execution as it is listed. The names are those of Integr8sCode. Everything else is in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExecutionRecord {
    #[serde(rename = "_id")]
    pub(crate) id: String,
    pub(crate) execution_id: String,
    pub(crate) user_id: String,
    pub(crate) status: String,
    pub(crate) lang: String,
    pub(crate) lang_version: String,
    pub(crate) priority: String,
    pub(crate) exit_code: Option<i64>,
    pub(crate) error_type: Option<String>,
    pub(crate) created_at: DateTime,
    pub(crate) updated_at: DateTime,
}

impl RecordType for ExecutionRecord {
    const COLLECTION: &'static str = "executions";

    fn indexes() -> Vec<Index> {
        use annals::order::Direction::{Ascending, Descending};
        vec![
            Index::ordered([("user_id", Ascending), ("created_at", Descending)]).into(),
            Index::ordered([("status", Ascending), ("created_at", Descending)]).into(),
            Index::on("created_at").into(),
        ]
    }
}

/// Declares every collection.
pub(crate) async fn declare(records: &Arc<dyn Records>) -> Result<(), RecordError> {
    TypedRecords::<AllocationRecord>::declare(Arc::clone(records)).await?;
    TypedRecords::<PodRecord>::declare(Arc::clone(records)).await?;
    TypedRecords::<WorkerRecord>::declare(Arc::clone(records)).await?;
    TypedRecords::<ResultRecord>::declare(Arc::clone(records)).await?;
    TypedRecords::<ExecutionRecord>::declare(Arc::clone(records)).await?;
    Ok(())
}

/// Returns the records of a type that [`declare`] declared.
pub(crate) fn typed<T: RecordType>(records: &Arc<dyn Records>) -> TypedRecords<T> {
    TypedRecords::declared(Arc::clone(records))
}

/// Returns whether a record was refused because its `_id` exists.
pub(crate) fn is_there(error: &RecordError) -> bool {
    matches!(error, RecordError::DuplicateKey { .. } | RecordError::NotAsExpected { .. })
}

pub(crate) fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.as_millis())
}
