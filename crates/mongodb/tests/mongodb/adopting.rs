//! Databases as Wow and the Dolittle Runtime write them, by the plain driver, and what adopting them needs.

use std::hash::{DefaultHasher, Hasher};

use annals_core::{DEFAULT_TENANT, OpenError};
use annals_mongodb::Options;
use annals_mongodb::adopt::{AdoptNames, AdoptReport, adopt, inspect};
use mongodb::Database;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Decimal128, Document, RawDocumentBuf, doc};

use crate::server::Databases;

pub const PLACED: &str = "7a1c6a5e-1111-4111-8111-0123456789ab";
pub const PAID: &str = "7a1c6a5e-2222-4222-8222-0123456789ab";
pub const ORDER: &str = "c0ffee00-3333-4333-8333-0123456789ab";

/// Names of all three.
pub fn names() -> AdoptNames {
    let list = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(uuid, name)| ((*uuid).to_owned(), Some((*name).to_owned()))).collect()
    };
    AdoptNames { event_types: list(&[(PLACED, "placed"), (PAID, "paid")]), aggregates: list(&[(ORDER, "purchase")]) }
}

impl Databases {
    /// # Errors
    /// Those of the adoption.
    pub async fn inspect(&self, names: &AdoptNames) -> Result<AdoptReport, OpenError> {
        inspect(&self.url(), DEFAULT_TENANT, &Options::default(), names, &mut |_, _| {}).await
    }

    /// # Errors
    /// Those of the adoption.
    pub async fn adopt(&self, names: &AdoptNames) -> Result<AdoptReport, OpenError> {
        adopt(&self.url(), DEFAULT_TENANT, &Options::default(), names, &mut |_, _| {}).await
    }
}

/// Every document and every index of a database.
pub async fn hash(database: &Database) -> Vec<(String, u64)> {
    let mut names = database.list_collection_names().await.expect("listed");
    names.sort_unstable();
    let mut hashes = Vec::new();
    for name in names {
        let mut hasher = DefaultHasher::new();
        let collection = database.collection::<RawDocumentBuf>(&name);
        let mut found = collection.find(doc! {}).sort(doc! { "_id": 1 }).await.expect("found");
        while found.advance().await.expect("read") {
            hasher.write(found.current().as_bytes());
        }
        let mut indexes = collection.list_index_names().await.expect("listed");
        indexes.sort_unstable();
        hasher.write(indexes.join(",").as_bytes());
        hashes.push((name, hasher.finish()));
    }
    hashes
}

fn decimal(value: u64) -> Decimal128 {
    value.to_string().parse().expect("a decimal")
}

/// As drivers write UUIDs today.
pub fn standard(text: &str) -> Bson {
    let uuid = annals_core::Uuid::try_parse(text).expect("a UUID");
    Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: uuid.as_bytes().to_vec() })
}

/// As older drivers for .NET wrote them.
pub fn legacy(text: &str) -> Bson {
    let uuid = annals_core::Uuid::try_parse(text).expect("a UUID");
    Bson::Binary(Binary { subtype: BinarySubtype::UuidOld, bytes: uuid.to_bytes_le().to_vec() })
}

/// What an event has in every era.
fn event(number: u64, event_type: Bson, source: impl Into<Bson>) -> Document {
    let zero = "00000000-0000-0000-0000-000000000000";
    let version = doc! { "Major": 1_i32, "Minor": 0_i32, "Patch": 0_i32, "Build": 0_i32, "PreRelease": "" };
    doc! {
        "_id": decimal(number),
        "Content": { "n": number as i64 },
        "ExecutionContext": {
            "Correlation": standard("99999999-9999-4999-8999-999999999999"), "Microservice": standard(zero),
            "Tenant": standard("445f8ea8-1a6f-40d7-b2fc-796dba92dc44"), "Version": version, "Environment": "Production",
            "Claims": [],
        },
        "Metadata": {
            "Occurred": DateTime::from_millis(1_700_000_000_000 + number as i64), "EventSource": source,
            "TypeId": event_type, "TypeGeneration": 2_i64, "Public": false,
        },
    }
}

/// The sub-documents that version 7 and 8 always write.
fn both(mut event: Document, applied: Option<(Bson, u64)>) -> Document {
    let zero = standard("00000000-0000-0000-0000-000000000000");
    let aggregate = match applied {
        Some((kind, version)) => doc! {
            "WasAppliedByAggregate": true, "TypeId": kind, "TypeGeneration": 1_i64, "Version": decimal(version),
        },
        None => doc! {
            "WasAppliedByAggregate": false, "TypeId": zero.clone(), "TypeGeneration": 0_i64, "Version": decimal(0),
        },
    };
    event.insert("Aggregate", aggregate);
    let never = DateTime::from_millis(-62_135_596_800_000);
    event.insert(
        "EventHorizon",
        doc! { "FromEventHorizon": false, "ExternalEventLogSequenceNumber": decimal(0), "Received": never, "Consent": zero },
    );
    event
}

/// An event as version 7 writes it.
pub fn v7(number: u64, event_type: &str, source: &str, applied: Option<u64>) -> Document {
    both(event(number, standard(event_type), source), applied.map(|version| (standard(ORDER), version)))
}

/// An event of version 6, read on by version 7: UUIDs in the older form, and one as the event source.
pub fn v6(number: u64, event_type: &str, source: &str, applied: u64) -> Document {
    both(event(number, legacy(event_type), legacy(source)), Some((legacy(ORDER), applied)))
}

/// An event as version 9 writes it: what does not apply is left out.
pub fn v9(number: u64, event_type: &str, source: &str, applied: Option<u64>) -> Document {
    let mut event = event(number, standard(event_type), source);
    if let Some(version) = applied {
        event.insert(
            "Aggregate",
            doc! {
                "WasAppliedByAggregate": true, "TypeId": standard(ORDER), "TypeGeneration": 1_i64,
                "Version": decimal(version),
            },
        );
    }
    event
}

/// How many events an aggregate has applied.
pub fn applied(source: &str, version: u64) -> Document {
    doc! { "EventSource": source, "AggregateType": standard(ORDER), "Version": decimal(version) }
}
