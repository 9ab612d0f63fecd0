//! Sagas of a program, whose steps and compensations are Rust functions.

use std::collections::HashMap;
use std::sync::Arc;

use annals_core::bson::Document;
use annals_core::sagas::{SagaActed, SagaDefinition, SagaFailure, SagaRecord, SagaWork};
use annals_core::{ByteString, UnknownLog};
use futures_util::future::{BoxFuture, FutureExt};

use crate::host::{Host, locked};
pub use crate::sagas::HostSagas;

/// The arguments of a saga's function.
#[derive(Debug, Clone)]
pub struct SagaCall {
    /// The id of the saga.
    pub saga_id: ByteString,
    /// The correlation: the value that the saga's events share.
    pub execution_id: ByteString,
    /// The name of the step or compensation.
    pub step: ByteString,
    /// The context of the saga.
    pub context: Document,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// In a compensation, why the saga failed.
    pub cause: Option<String>,
    /// A key that is the same in each attempt of this step of this saga, and unique to it. Other services can use it to recognise a
    /// repetition.
    pub key: String,
}

impl SagaCall {
    pub(crate) fn of(saga: &SagaRecord, work: &SagaWork) -> Self {
        let way = if work.compensates { "compensation" } else { "action" };
        Self {
            saga_id: saga.saga_id.as_str().into(),
            execution_id: saga.execution_id.as_str().into(),
            step: work.name.as_str().into(),
            context: saga.context_data.clone(),
            attempt: u32::try_from(work.attempt).unwrap_or(u32::MAX),
            cause: saga.error_message.clone(),
            key: format!("saga/{}/{}/{way}", saga.saga_id, work.name),
        }
    }
}

/// A function of a saga.
pub(crate) type Function = Arc<dyn Fn(SagaCall) -> BoxFuture<'static, Result<SagaActed, SagaFailure>> + Send + Sync>;

/// A definition with its functions, which capture their dependencies.
///
/// A function is called again after a crash, with the same attempt number, so its effects elsewhere must be idempotent by
/// [`SagaCall::key`]. The commands that it returns are committed exactly once.
#[derive(Clone)]
pub struct SagaProgram {
    pub(crate) definition: SagaDefinition,
    pub(crate) functions: HashMap<String, Function>,
}

impl std::fmt::Debug for SagaProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SagaProgram").field("definition", &self.definition).finish_non_exhaustive()
    }
}

impl SagaProgram {
    /// Creates a program from a definition. Add a function for each step with `"action": "program"`.
    pub fn new(definition: SagaDefinition) -> Self {
        Self { definition, functions: HashMap::new() }
    }

    /// Sets the function of a step or a compensation.
    #[must_use]
    pub fn function<F, R>(mut self, name: &str, function: F) -> Self
    where
        F: Fn(SagaCall) -> R + Send + Sync + 'static,
        R: Future<Output = Result<SagaActed, SagaFailure>> + Send + 'static,
    {
        let boxed: Function = Arc::new(move |call| function(call).boxed());
        self.functions.insert(name.to_owned(), boxed);
        self
    }
}

impl Host {
    /// Returns the sagas of a tenant.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn sagas(&self, tenant: &str) -> Result<Arc<HostSagas>, UnknownLog> {
        let mut tenants = locked(&self.0.sagas);
        if let Some(known) = tenants.get(tenant) {
            return Ok(Arc::clone(known));
        }
        let sagas = HostSagas::new(Arc::clone(&self.0.shared), tenant)?;
        tenants.insert(tenant.to_owned(), Arc::clone(&sagas));
        Ok(sagas)
    }

    pub(crate) fn start_sagas(&self) {
        for tenant in self.0.shared.store.tenants() {
            if let Ok(sagas) = self.sagas(&tenant) {
                sagas.start();
            }
        }
    }
}
