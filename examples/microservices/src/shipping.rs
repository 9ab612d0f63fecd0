//! The service that ships orders. It knows only those events of orders that the other service made public.

use annals::handlers::HandlerDefinition;
use annals::runtime::Effects;
use annals::{DEFAULT_TENANT, Data, NewCommit, NewEvent, RecordedEvent};
use async_trait::async_trait;

use crate::orders;
use crate::service::{Failure, INBOX, Service};

/// The public stream that the service offers.
pub const STREAM: &str = "public-shipments";
/// The microservice name of the service.
pub const NAME: &str = "shipping";

/// Starts the service on a store.
///
/// # Errors
/// When the store or a port cannot be opened.
pub async fn start(store: &str) -> Result<Service, Failure> {
    let service = Service::start(NAME, store).await?;
    service.offer(STREAM, "shipment_sent", orders::NAME).await?;
    let ship = HandlerDefinition::new("ship").types(["order_placed"]).of_scope(INBOX);
    service.host.handle(DEFAULT_TENANT, ship, Ship).await?;
    Ok(service)
}

/// Subscribes to the public stream of the orders service at `url`.
///
/// # Errors
/// When the store cannot keep the subscription.
pub async fn connect(service: &Service, url: &str) -> Result<(), Failure> {
    service.receive(orders::STREAM, url).await
}

/// Sends a shipment for each order. The commit is an effect of the event, so no order is shipped twice.
struct Ship;

#[async_trait]
impl annals::runtime::Handler for Ship {
    async fn handle(
        &self,
        events: &[RecordedEvent],
        effects: &mut Effects,
    ) -> Result<(), annals::runtime::HandleFailure> {
        for event in events {
            // A received event belongs to no aggregate here; its event source is the order.
            let order = event.commit.aggregate.event_source().unwrap_or_default().to_owned();
            let data = Data::from_value(&serde_json::json!({ "order": order, "carrier": "bike" }));
            let data = data.map_err(annals::runtime::HandleFailure::new)?;
            let sent = NewEvent { public: true, ..NewEvent::new("shipment_sent", data) };
            effects.commit(event, NewCommit::new("shipment", order).event(sent));
        }
        Ok(())
    }
}
