//! The suite of the event horizon, and the documents that other software reads.

use std::sync::Arc;

use annals_conformance::OTHER_TENANT;
use annals_conformance::receiving::SCOPE;
use annals_core::filters::FilterDefinition;
use annals_core::horizon::{Consent, LOCAL_PRODUCER, SubscriptionDefinition};
use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, Data, NewCommit, NewEvent, Store};
use annals_mongodb::Options;
use annals_runtime::{Host, HostOptions};
use mongodb::bson::{Decimal128, Document, Uuid, doc};

use crate::receiving::INBOX;
use crate::records::MongoRecords;
use crate::server::{Databases, two_tenants, until};

mod replica_set {
    use super::*;
    annals_conformance::horizon!(MongoRecords::with_scope(SCOPE));
    annals_conformance::horizon_of_processes!(MongoRecords::with_scope(SCOPE));
}

const ID: &str = "323bcdb2-5bbd-4f13-a7c3-b19bc2cc2452";

/// The event, with where it came from and under which consent, and the position.
#[tokio::test]
async fn received_events_and_positions_are_stored_as_the_dolittle_runtime_stores_them() {
    let databases = Databases::new();
    let options = Options { scopes: vec![INBOX.to_owned()], ..two_tenants() };
    let store: Arc<dyn Store> = Arc::new(databases.store(options).await);
    let host = Host::start(Arc::clone(&store), HostOptions { microservice: ID.to_owned(), ..HostOptions::default() });
    let filter = FilterDefinition::new("partners").types(["placed"]).public();
    assert!(host.filters(OTHER_TENANT).expect("declared").put(filter).await.expect("defined"));
    let consent = Consent::new(ID, "partners").to(ID, DEFAULT_TENANT);
    assert!(host.horizon(OTHER_TENANT).expect("declared").put_consent(consent).await.expect("given"));
    let subscription = SubscriptionDefinition::new("s", LOCAL_PRODUCER, "partners", INBOX).from_tenant(OTHER_TENANT);
    let consumer = host.horizon(DEFAULT_TENANT).expect("declared");
    assert!(consumer.put_subscription(subscription).await.expect("defined"));
    let log = store.log(OTHER_TENANT, DEFAULT_SCOPE).expect("declared");
    for event_type in ["paid", "placed"] {
        let event = NewEvent { public: true, ..NewEvent::new(event_type, Data::empty()) };
        log.commit(NewCommit::new("order", "o-1").event(event)).await.expect("committed");
    }
    let database = databases.database().await;
    let events = database.collection::<Document>(&format!("x-{INBOX}-event-log"));
    until("the event is received", async || events.count_documents(doc! {}).await.expect("counted") == 1).await;
    let event = events.find_one(doc! {}).await.expect("found").expect("there");
    let horizon = event.get_document("EventHorizon").expect("of the horizon");
    let id = Uuid::parse_str(ID).expect("a UUID");
    assert_eq!(horizon.get("FromEventHorizon"), Some(&true.into()));
    let number: Decimal128 = "1".parse().expect("a number");
    assert_eq!(horizon.get("ExternalEventLogSequenceNumber"), Some(&number.into()));
    assert_eq!(horizon.get("Consent"), Some(&id.into()));
    let context = event.get_document("ExecutionContext").expect("a context");
    assert_eq!(context.get("Microservice"), Some(&id.into()), "that of the producer");
    let states = database.collection::<Document>(&format!("x-{INBOX}-subscription-states"));
    let state = states.find_one(doc! {}).await.expect("found").expect("there");
    assert_eq!((state.get("Microservice"), state.get("Position")), (Some(&id.into()), Some(&number.into())));
    host.drain().await;
    store.close().await;
}
