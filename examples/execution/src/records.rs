//! What the service stores beside the log, as records: allocations, pods, workers, results, and executions for lists.

use annals::bson::{DateTime, Document};
use annals::{Index, RecordError, RecordType, Records, Timestamp, TypedRecords};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Resources that a running execution holds; the collection and its fields are those of Integr8sCode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AllocationRecord {
    /// The execution, so that an execution has one.
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

/// A pod that a worker runs. It is deleted with the pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PodRecord {
    /// The execution, which has one pod at a time.
    #[serde(rename = "_id")]
    pub(crate) execution_id: String,
    pub(crate) pod_name: String,
    /// The worker that runs it.
    pub(crate) worker: String,
    /// Why it is to end, when another worker was told so.
    pub(crate) delete: Option<String>,
}

impl RecordType for PodRecord {
    const COLLECTION: &'static str = "execution_pods";

    fn indexes() -> Vec<Index> {
        vec![Index::on("worker").into()]
    }
}

/// A worker, and until when its pods are its own.
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

/// An execution as it is listed; the names are those of Integr8sCode. The log holds everything else.
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

/// The records of a type, which [`declare`] declared.
pub(crate) fn typed<T: RecordType>(records: &Arc<dyn Records>) -> TypedRecords<T> {
    TypedRecords::declared(Arc::clone(records))
}

/// Whether a record was refused because one with its `_id` is there.
pub(crate) fn is_there(error: &RecordError) -> bool {
    matches!(error, RecordError::DuplicateKey { .. } | RecordError::NotAsExpected { .. })
}

pub(crate) fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.as_millis())
}
