//! Projections of a program, whose reducers are Rust functions.

use std::sync::Arc;

use annals_core::bson::Document;
use annals_core::projections::{ProjectionDefinition, ProjectionError, Projections, PutProjection};
use annals_core::{RecordedEvent, UnknownLog};

use crate::host::{Host, locked};
use crate::projections::TenantProjections;

impl Host {
    /// Returns the projections of a tenant.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn projections(&self, tenant: &str) -> Result<Arc<dyn Projections>, UnknownLog> {
        Ok(self.projections_of(tenant)?)
    }

    pub(crate) fn projections_of(&self, tenant: &str) -> Result<Arc<TenantProjections>, UnknownLog> {
        let mut tenants = locked(&self.0.projections);
        if let Some(known) = tenants.get(tenant) {
            return Ok(Arc::clone(known));
        }
        let projections = TenantProjections::new(Arc::clone(&self.0.shared), tenant)?;
        tenants.insert(tenant.to_owned(), Arc::clone(&projections));
        Ok(projections)
    }

    pub(crate) fn start_projections(&self) {
        for tenant in self.0.shared.store.tenants() {
            if let Ok(projections) = self.projections_of(&tenant) {
                projections.start();
            }
        }
    }

    /// Defines a projection whose events `reducer` folds in this process for as long as the host runs. `reducer` receives the record of
    /// the event's key, or `None` if there is none, and leaves the new record in its place. It must depend on nothing else: after a crash
    /// it is called again for events whose records were not stored. An error or a panic stops the projection before the event.
    ///
    /// A changed reducer needs a higher version in its definition. Its records are then built beside the live ones and replace them.
    ///
    /// # Errors
    /// [`UnknownLog`] as [`ProjectionError::Invalid`]; else as [`Projections::put`].
    pub async fn project(
        &self,
        tenant: &str,
        definition: ProjectionDefinition,
        reducer: impl Fn(&mut Option<Document>, &RecordedEvent) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<PutProjection, ProjectionError> {
        let unknown = |error: UnknownLog| annals_core::Invalid::new(error.code(), "tenant", error.to_string());
        let projections = self.projections_of(tenant).map_err(unknown)?;
        projections.register(&definition, Arc::new(reducer));
        projections.put(definition).await
    }
}
