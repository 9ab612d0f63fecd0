//! One of the two parties: a store, a server, and the other party as a partner.

use std::sync::Arc;

use annals::handlers::HandlerDefinition;
use annals::partners::{Limits, PartnerDefinition, Receive};
use annals::runtime::{Effects, HandleFailure, Handler, Host, HostOptions, PartnerKeys, PartnerOptions};
use annals::server::{Options, Stop, serve};
use annals::{Condition, DEFAULT_TENANT, HttpSending, NewCommit, NewEvent, RecordedEvent};
use async_trait::async_trait;
use clap::ValueEnum;
use tokio::net::TcpListener;

use crate::Failure;

/// The secret that only the two parties share.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Which party it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Places orders, and receives invoices.
    Shop,
    /// Receives orders, and sends an invoice for each.
    Supplier,
}

impl Role {
    /// Returns the name of the party.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shop => "shop",
            Self::Supplier => "supplier",
        }
    }

    /// Returns the kind of line that an event of this type is in the books of the party.
    pub fn kind_of(self, event_type: &str) -> Option<&'static str> {
        match (self, event_type) {
            (Self::Shop, "order_placed") | (Self::Supplier, "order_received") => Some("order"),
            (Self::Shop, "invoice_received") | (Self::Supplier, "order_invoiced") => Some("invoice"),
            _ => None,
        }
    }

    /// Returns the definition of the other party as a partner: which events go to `url`, and how events from there are recorded.
    fn partner(self, url: &str) -> PartnerDefinition {
        let (other, sends, aggregate, received) = match self {
            Self::Shop => (Self::Supplier, "order_placed", "invoice", "invoice_received"),
            Self::Supplier => (Self::Shop, "order_invoiced", "order", "order_received"),
        };
        let receive =
            Receive { aggregate: Some(aggregate.into()), event_type: Some(received.into()), ..Receive::default() };
        // The breaker closes soon, so that a party that was away is reached shortly after it is back.
        let limits =
            Limits { concurrency: 4, timeout_ms: 1_000, breaker_failures: 5, breaker_ms: 1_000, ..Limits::default() };
        let url = format!("{url}/v1/partners/{}/events", self.name());
        let partner = PartnerDefinition::new(other.name(), other.name());
        PartnerDefinition { receive, limits, ..partner }.sends(url, Condition::eq("type", sends)).secrets([SECRET])
    }
}

/// A party that runs in this process.
pub struct Party {
    /// The role of the party.
    pub role: Role,
    /// The URL of its store.
    pub store: String,
    /// The address it listens on.
    pub listen: String,
    /// The address the other party listens on.
    pub other: String,
}

impl Party {
    /// Runs the party until `stop` is signalled.
    ///
    /// # Errors
    /// When the store or the port cannot be opened.
    pub async fn run(&self, stop: Stop) -> Result<(), Failure> {
        let store = annals::open(&self.store).await?;
        let listener = TcpListener::bind(&self.listen).await?;
        let sending = HttpSending::default().allowing(["127.0.0.0/8"])?;
        let partners = PartnerOptions { sending: Arc::new(sending), keys: Some(PartnerKeys::for_development()) };
        let host = Host::start(Arc::clone(&store), HostOptions { partners, ..HostOptions::default() });
        if self.role == Role::Supplier {
            let invoice = HandlerDefinition::new("invoice").types(["order_received"]);
            host.handle(DEFAULT_TENANT, invoice, Invoice).await?;
        }
        host.partners(DEFAULT_TENANT)?.put(self.role.partner(&self.other)).await?;
        let mut options = Options::default();
        options.host = Some(host);
        serve(listener, store, options, async { stop.stopped().await }).await?;
        Ok(())
    }
}

/// Sends an invoice for each order. The commit is an effect of the event, so no order is invoiced twice.
struct Invoice;

#[async_trait]
impl Handler for Invoice {
    async fn handle(&self, events: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure> {
        for event in events {
            let order = event.commit.aggregate.id.to_string();
            let invoiced = NewEvent::new("order_invoiced", event.data.clone());
            effects.commit(event, NewCommit::new("invoice", order).event(invoiced));
        }
        Ok(())
    }
}
