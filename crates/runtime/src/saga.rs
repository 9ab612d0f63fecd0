//! Sagas of a program: steps and compensations that are functions in Rust.

use std::collections::HashMap;
use std::sync::Arc;

use annals_core::bson::Document;
use annals_core::sagas::{SagaActed, SagaDefinition, SagaFailure, SagaRecord, SagaWork};
use annals_core::{ByteString, UnknownLog};
use futures_util::future::{BoxFuture, FutureExt};

use crate::host::{Host, locked};
pub use crate::sagas::HostSagas;

/// What a function of a saga is called with.
#[derive(Debug, Clone)]
pub struct SagaCall {
    /// The saga.
    pub saga_id: ByteString,
    /// What its events have in common.
    pub execution_id: ByteString,
    /// The step or compensation.
    pub step: ByteString,
    /// The context.
    pub context: Document,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Why the saga failed, in a compensation.
    pub cause: Option<String>,
    /// The same in each attempt of this step of this saga and in nothing else: other services recognise a repetition by it.
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

/// A definition with its functions. Their dependencies are what they capture.
///
/// A function is called again after a crash, with the same attempt: what it does elsewhere must bear a repetition, by [`SagaCall::key`].
/// The commands that it returns are committed once all the same.
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
    /// A definition whose steps with `"action": "program"` get their functions next.
    pub fn new(definition: SagaDefinition) -> Self {
        Self { definition, functions: HashMap::new() }
    }

    /// Carries out a step or a compensation.
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
    /// [`UnknownLog::Tenant`] when the tenant is not declared.
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
