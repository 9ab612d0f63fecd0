//! The content of a store at the start of an import: decides whether the import may begin, and what it had written if it fails.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::{EventLog, SequenceNumber, Store};

use super::{ExportedLog, keys};
use crate::operations::OperationError;

type Outcome<T> = Result<T, OperationError>;

/// The store as it was before the import.
pub(super) struct Begun {
    /// Each log by name, with its head.
    logs: Vec<(String, Arc<dyn EventLog>, SequenceNumber)>,
}

/// How many records of each tenant an import has inserted.
#[derive(Default)]
pub(super) struct Written(Mutex<BTreeMap<String, u64>>);

impl Written {
    pub(super) fn add(&self, tenant: &str, count: usize) {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *written.entry(tenant.to_owned()).or_default() += count as u64;
    }
}

impl Begun {
    /// Checks for every obstacle that can be detected before anything is written.
    pub(super) async fn look(store: &dyn Store, exported: &[ExportedLog]) -> Outcome<Self> {
        let mut begun = Self { logs: Vec::new() };
        for log in exported {
            let refused = |error: annals_core::UnknownLog| OperationError::new(error.code(), error.to_string());
            let open = store.log(&log.tenant, &log.scope).map_err(refused)?;
            // Store an empty list of copies: a store that accepts no copies refuses it.
            let stored = open.store_copies(Vec::new()).await;
            stored.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
            let head = open.head().await.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
            let unwritten =
                |held: OperationError| OperationError::new(held.code, format!("{}; nothing was written", held.message));
            keys::none_of_others(store, log).await.map_err(unwritten)?;
            begun.logs.push((format!("{}/{}", log.tenant, log.scope), open, head));
            // If records cannot be read, this fails before anything is written.
            let records = store.records(&log.tenant).map_err(refused)?.collections().await;
            records.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
        }
        Ok(begun)
    }

    /// Adds what the import had written to its error. Logs that can no longer be read are left out.
    pub(super) async fn tell(self, error: OperationError, records: Written) -> OperationError {
        let records = records.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let records = records.into_iter().filter(|(_, count)| *count > 0);
        let mut written: Vec<_> = records.map(|(tenant, count)| format!("{count} records of {tenant}")).collect();
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
