//! The content of a store at the start of an import: decides whether the import may begin, and what it had written if it fails.

use std::sync::Arc;

use annals_core::{ChangeNumber, EventLog, Records, SequenceNumber, Store};

use super::{ExportedLog, keys};
use crate::operations::OperationError;

type Outcome<T> = Result<T, OperationError>;

/// The store as it was before the import.
pub(super) struct Begun {
    /// Each log by name, with its head.
    logs: Vec<(String, Arc<dyn EventLog>, SequenceNumber)>,
    /// The records of each tenant, with the number of the newest change.
    records: Vec<(String, Arc<dyn Records>, ChangeNumber)>,
}

impl Begun {
    /// Checks for every obstacle that can be known before anything is written.
    pub(super) async fn look(store: &dyn Store, exported: &[ExportedLog]) -> Outcome<Self> {
        let mut begun = Self { logs: Vec::new(), records: Vec::new() };
        for log in exported {
            let refused = |error: annals_core::UnknownLog| OperationError::new(error.code(), error.to_string());
            let open = store.log(&log.tenant, &log.scope).map_err(refused)?;
            // Copies of no commits: a store that accepts none refuses here.
            let stored = open.store_copies(Vec::new()).await;
            stored.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
            let head = open.head().await.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
            let unwritten =
                |held: OperationError| OperationError::new(held.code, format!("{}; nothing was written", held.message));
            keys::none_of_others(store, log).await.map_err(unwritten)?;
            begun.logs.push((format!("{}/{}", log.tenant, log.scope), open, head));
            if begun.records.iter().all(|(tenant, ..)| *tenant != log.tenant) {
                let records = store.records(&log.tenant).map_err(refused)?;
                let last = records.last_change().await;
                let last = last.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
                begun.records.push((log.tenant.clone(), records, last));
            }
        }
        Ok(begun)
    }

    /// Adds what the import had written to its error. Logs and records that can no longer be read are left out.
    pub(super) async fn tell(self, error: OperationError) -> OperationError {
        let mut written = Vec::new();
        for (tenant, records, before) in self.records {
            let now = records.last_change().await.unwrap_or(before);
            if now > before {
                written.push(format!("{} records of {tenant}", now - before));
            }
        }
        for (name, log, before) in self.logs {
            let head = log.head().await.unwrap_or(before);
            if head > before {
                written.push(format!("the events {before} to {} of {name}", head - 1));
            }
        }
        let written = match written.is_empty() {
            true => "no event and no record was written".to_owned(),
            false => {
                format!("written before that: {}; an import of the same export resumes from there", written.join(", "))
            }
        };
        OperationError::new(error.code, format!("{}; {written}", error.message))
    }
}
