//! One insert per commit through the bare driver: the document that the store writes, with its five indexes, at majority and journaled.

use mongodb::bson::{RawDocumentBuf, Uuid, doc, rawdoc};
use mongodb::options::{CollectionOptions, IndexOptions, WriteConcern};
use mongodb::{Collection, IndexModel};

use super::{Place, sample, text};
use crate::cell::Commits;

/// The database that the bare driver writes to.
pub const DATABASE: &str = "annals_bench_bare";
/// The collection of the commits of orders.
pub const COLLECTION: &str = "order_event_stream";

/// Returns the document of a commit.
pub fn document(aggregate: &str, version: i32, n: u64) -> Result<RawDocumentBuf, String> {
    let id = Uuid::new().to_string();
    let event = Uuid::new().to_string();
    let data = RawDocumentBuf::from_bytes(sample::data(n).as_bytes().to_vec()).map_err(text)?;
    Ok(rawdoc! {
        "_id": &*id, "contextName": "annals", "aggregateName": sample::NAME, "header": {}, "aggregateId": aggregate,
        "tenantId": "(0)", "ownerId": "", "spaceId": "", "commandId": &*id, "requestId": &*id, "version": version,
        "body": [{ "id": &*event, "name": sample::TYPE, "revision": "1.0.0", "bodyType": sample::TYPE, "body": data }],
        "createTime": 1_700_000_000_000_i64, "size": 1_i32,
    })
}

/// Creates a collection with the five indexes.
pub async fn collection(place: &Place) -> Result<Collection<RawDocumentBuf>, String> {
    let database = place.client.database(DATABASE);
    database.drop().await.map_err(text)?;
    let collection = database.collection_with_options::<RawDocumentBuf>(COLLECTION, strict());
    let unique = || IndexOptions::builder().unique(true).build();
    let indexes = [
        IndexModel::builder().keys(doc! { "aggregateId": "hashed" }).build(),
        IndexModel::builder().keys(doc! { "aggregateId": 1, "version": 1 }).options(unique()).build(),
        IndexModel::builder().keys(doc! { "aggregateId": 1, "requestId": 1 }).options(unique()).build(),
        IndexModel::builder().keys(doc! { "tenantId": "hashed" }).build(),
        IndexModel::builder().keys(doc! { "ownerId": "hashed" }).build(),
    ];
    collection.create_indexes(indexes).await.map_err(text)?;
    Ok(collection)
}

/// Returns majority and journaled, as the store writes.
pub fn strict() -> CollectionOptions {
    let mut concern = WriteConcern::majority();
    concern.journal = Some(true);
    CollectionOptions::builder().write_concern(concern).build()
}

/// A caller that inserts.
pub struct Caller {
    collection: Collection<RawDocumentBuf>,
    turns: sample::Turns,
    made: u64,
}

impl Caller {
    pub fn new(collection: &Collection<RawDocumentBuf>, number: usize) -> Self {
        Self { collection: collection.clone(), turns: sample::Turns::new(number), made: 0 }
    }
}

impl Commits for Caller {
    async fn commit(&mut self) -> Result<(), String> {
        let (aggregate, version) = self.turns.next();
        self.made += 1;
        let document = document(&aggregate, version as i32 + 1, self.made)?;
        self.collection.insert_one(document).await.map(|_| ()).map_err(text)
    }
}
