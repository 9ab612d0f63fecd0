//! The suite of filters, and the documents that other software reads.

use std::sync::Arc;

use annals_core::filters::{FilterDefinition, FilterName};
use annals_core::{DEFAULT_TENANT, Store};
use annals_mongodb::Options;
use annals_runtime::{Host, HostOptions};
use mongodb::Database;
use mongodb::bson::{Bson, Document, Uuid, doc};

use crate::receiving::{INBOX, batch, receiving};
use crate::records::MongoRecords;
use crate::server::{Databases, until};
use crate::streams::write;

mod replica_set {
    use super::*;
    annals_conformance::filters!(MongoRecords::new());
    annals_conformance::filters_of_processes!(MongoRecords::new());
}

const ID: &str = "323bcdb2-5bbd-4f13-a7c3-b19bc2cc2452";

fn uuid(text: &str) -> Bson {
    Bson::from(Uuid::parse_str(text).expect("a UUID"))
}

async fn definition(database: &Database, collection: &str, id: &str) -> Option<Document> {
    database.collection(collection).find_one(doc! { "_id": uuid(id) }).await.expect("found")
}

async fn filled(database: &Database, collection: &str, entries: u64) {
    until("the stream is filled", async || {
        database.collection::<Document>(collection).count_documents(doc! {}).await.expect("counted") == entries
    })
    .await;
}

#[tokio::test]
async fn definitions_and_streams_are_stored_as_the_dolittle_runtime_stores_them() {
    let databases = Databases::new();
    let store = databases.store(Options { scopes: vec![INBOX.to_owned()], ..Options::default() }).await;
    write(&store, 3).await;
    receiving(&store).receive(batch("p", 0..2)).await.expect("received");
    let store: Arc<dyn Store> = Arc::new(store);
    let host = Host::start(Arc::clone(&store), HostOptions::default());
    let filters = host.filters(DEFAULT_TENANT).expect("declared");
    let by_types = FilterDefinition::new(ID).types(["order_changed", ID]);
    let public = FilterDefinition { name: FilterName::new("partners"), ..FilterDefinition::new("x") }.public();
    let scoped = FilterDefinition { name: FilterName::of_scope(INBOX, ID), ..FilterDefinition::new(ID) };
    for definition in [by_types, public, scoped] {
        assert!(filters.put(definition).await.expect("defined"));
    }
    let database = databases.database().await;
    filled(&database, &format!("stream-{ID}"), 3).await;
    filled(&database, &format!("x-{INBOX}-stream-{ID}"), 2).await;
    let of_types = definition(&database, "stream-definitions", ID).await.expect("stored");
    let mut types =
        of_types.get_document("Filter").and_then(|filter| filter.get_array("Types")).expect("types").clone();
    types.sort_by_key(|id| *id == uuid(ID));
    assert_eq!((types.len(), types.last()), (2, Some(&uuid(ID))), "a type that is a UUID is used as it is");
    let filter = of_types.get_document("Filter").expect("a filter");
    assert_eq!((filter.len(), filter.get_str("Type").ok()), (2, Some("EventTypeId")));
    let flags = ["Partitioned", "Public"].map(|flag| of_types.get_bool(flag).ok());
    assert_eq!((of_types.len(), flags), (4, [Some(false); 2]));
    let remote = doc! { "_id": uuid(ID), "Partitioned": false, "Public": false, "Filter": { "Type": "Remote" } };
    assert_eq!(definition(&database, &format!("x-{INBOX}-stream-definitions"), ID).await, Some(remote));
    // The stream of a public filter is public, whatever its name.
    let states = database.collection::<Document>("annals-streams");
    let found = async || states.find_one(doc! { "_id": "partners" }).await.expect("found");
    until("the public stream is there", async || found().await.is_some()).await;
    let collection = found().await.expect("there").get_str("collection").expect("a name").to_owned();
    let id = collection.strip_prefix("public-stream-").expect("it is public");
    let remote = doc! { "_id": uuid(id), "Partitioned": true, "Public": true, "Filter": { "Type": "Remote" } };
    assert_eq!(definition(&database, "stream-definitions", id).await, Some(remote));
    host.drain().await;
    store.close().await;
}
