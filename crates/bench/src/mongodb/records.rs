//! Measures records put by one caller and by 64, beside bare inserts of a document of the same size.

use std::sync::Arc;

use annals_core::{Collection, DEFAULT_TENANT, RecordChange, Records, Store};
use mongodb::bson::{RawDocumentBuf, rawdoc};

use super::figures::Figures;
use super::{Arguments, Place, bare, text};
use crate::cell::{self, Cell, Commits};
use crate::workload::Row;

const CALLERS: [usize; 2] = [1, 64];

/// A source of documents, each of them new.
pub struct Documents {
    caller: usize,
    made: u64,
}

impl Documents {
    pub fn new(caller: usize) -> Self {
        Self { caller, made: 0 }
    }

    pub fn next(&mut self) -> RawDocumentBuf {
        self.made += 1;
        let id = format!("{:04}-{:09}", self.caller, self.made);
        rawdoc! { "_id": &*id, "state": "shipped", "total": 129.25, "customer": "c-20731", "note": "leave it at the door, please" }
    }
}

/// A caller that puts records.
pub struct Ours(Arc<dyn Records>, Documents);

impl Ours {
    pub fn new(records: Arc<dyn Records>, documents: Documents) -> Self {
        Self(records, documents)
    }
}

impl Commits for Ours {
    async fn commit(&mut self) -> Result<(), String> {
        let change = RecordChange::put("orders", self.1.next());
        self.0.write(vec![change]).await.map(|_| ()).map_err(text)
    }
}

struct Bare(mongodb::Collection<RawDocumentBuf>, Documents);

impl Commits for Bare {
    async fn commit(&mut self) -> Result<(), String> {
        self.0.insert_one(self.1.next()).await.map(|_| ()).map_err(text)
    }
}

pub async fn measure(place: &Place, round: usize, arguments: &Arguments, figures: &mut Figures) -> Result<(), String> {
    for callers in CALLERS {
        for turn in 0..2 {
            let cell = Cell::new(arguments.seconds);
            let (name, measured) = if (round + turn).is_multiple_of(2) {
                let database = place.client.database(bare::DATABASE);
                database.drop().await.map_err(text)?;
                // Before the first insert: 64 concurrent first inserts would all try to create it.
                database.create_collection("orders").await.map_err(text)?;
                let collection = database.collection_with_options::<RawDocumentBuf>("orders", bare::strict());
                let bare = (0..callers).map(|n| Bare(collection.clone(), Documents::new(n))).collect();
                let measured = cell::run(&cell, bare).await?;
                database.drop().await.map_err(text)?;
                ("bare insert of a record", measured)
            } else {
                let opened = place.store("annals_bench_ours").await?;
                let records = opened.store.records(DEFAULT_TENANT).map_err(text)?;
                records.declare(Collection::new("orders")).await.map_err(text)?;
                let ours = (0..callers).map(|n| Ours(records.clone(), Documents::new(n))).collect();
                let measured = cell::run(&cell, ours).await?;
                place.close(opened).await?;
                ("record put", measured)
            };
            let row = Row { writers: callers, events: 1 };
            figures.add(&format!("{name}/s, {callers} callers"), measured.events_per_second(&row, &cell));
            figures.add(&format!("{name} p50 ms, {callers} callers"), measured.latency_us(0.5) / 1e3);
        }
    }
    Ok(())
}
