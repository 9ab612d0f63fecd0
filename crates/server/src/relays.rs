//! The relays that publish the events of tenants while a server runs.

use std::sync::Arc;

use annals_core::Broker;
use annals_runtime::{Host, RelayOptions};

/// The relays of a server, by tenant.
#[derive(Clone, Default)]
pub struct Relays(Vec<(String, Arc<dyn Broker>, RelayOptions)>);

impl std::fmt::Debug for Relays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(tenant, ..)| tenant)).finish()
    }
}

impl Relays {
    /// Adds a relay that publishes the events of a tenant through this broker.
    pub fn add(&mut self, tenant: impl Into<String>, broker: Arc<dyn Broker>, options: RelayOptions) {
        self.0.push((tenant.into(), broker, options));
    }

    /// Makes the tenants' topics visible on their brokers, without publishing anything.
    pub fn show(&self, host: &Host) {
        for (tenant, broker, options) in &self.0 {
            host.use_broker(tenant, Arc::clone(broker), options.topics.settings.clone());
        }
    }

    /// Starts the relays on a host.
    pub(crate) fn start(&self, host: &Host) {
        for (tenant, broker, options) in &self.0 {
            if let Err(error) = host.relay(tenant, Arc::clone(broker), options.clone()) {
                tracing::error!(tenant, %error, "could not start the relay");
            }
        }
    }
}
