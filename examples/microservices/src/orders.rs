//! The service that takes orders, and closes them once they are shipped.

use annals::handlers::HandlerDefinition;
use annals::processing::PartitionBy;
use annals::runtime::Effects;
use annals::{DEFAULT_TENANT, Data, ExpectedVersion, NewCommit, NewEvent, RecordedEvent};
use async_trait::async_trait;

use crate::service::{Failure, INBOX, Service};
use crate::shipping;

/// The public stream that the service offers.
pub const STREAM: &str = "public-orders";
/// The microservice name of the service.
pub const NAME: &str = "orders";

/// Starts the service on a store.
///
/// # Errors
/// When the store or a port cannot be opened.
pub async fn start(store: &str) -> Result<Service, Failure> {
    let service = Service::start(NAME, store).await?;
    service.offer(STREAM, "order_placed", shipping::NAME).await?;
    let close = HandlerDefinition::new("close").types(["shipment_sent"]).of_scope(INBOX);
    service.host.handle(DEFAULT_TENANT, close.partitioned(PartitionBy::Data("order".to_owned()), 4), Close).await?;
    Ok(service)
}

/// Subscribes to the public stream of the shipping service at `url`.
///
/// # Errors
/// When the store cannot keep the subscription.
pub async fn connect(service: &Service, url: &str) -> Result<(), Failure> {
    service.receive(shipping::STREAM, url).await
}

/// Places an order. The event is public, so the shipping service receives it.
///
/// # Errors
/// When an order with this id was placed before.
pub async fn place(service: &Service, id: &str, what: &str) -> Result<(), Failure> {
    let placed = NewEvent::new("order_placed", Data::from_value(&serde_json::json!({ "what": what }))?);
    let placed = NewEvent { public: true, ..placed };
    let commit = NewCommit::new("order", id.to_owned()).expect(ExpectedVersion::Empty).event(placed);
    service.log.commit(commit).await?;
    Ok(())
}

/// Closes the order of a shipment. The commit is an effect of the event, so it is made exactly once.
struct Close;

#[async_trait]
impl annals::runtime::Handler for Close {
    async fn handle(
        &self,
        events: &[RecordedEvent],
        effects: &mut Effects,
    ) -> Result<(), annals::runtime::HandleFailure> {
        for event in events {
            let order = event.data.as_raw().get_str("order").unwrap_or_default().to_owned();
            let shipped = NewEvent::new("order_shipped", event.data.clone());
            effects.commit(event, NewCommit::new("order", order).event(shipped));
        }
        Ok(())
    }
}
