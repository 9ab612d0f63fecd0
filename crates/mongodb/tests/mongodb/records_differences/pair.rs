//! The embedded store and a store on the mongod, with the same records.

use std::sync::Arc;

use annals_conformance::ManualClock;
use annals_core::bson::{Bson, Document, RawDocumentBuf};
use annals_core::{
    Code, Collection, Condition, DEFAULT_TENANT, Deletion, DocumentQuery, Index, Pagination, Queries, QuerySource,
    Record, RecordChange, RecordError, RecordQuery, Records, Store, Timestamp,
};
use annals_embedded::EmbeddedStore;
use annals_embedded::disk::MemoryDisk;
use annals_mongodb::MongoStore;

use crate::server::Databases;

/// Records that are refused by both for the same reason, or found.
pub type Answer = Result<Vec<Record>, RecordError>;

pub struct Pair {
    pub clock: Arc<ManualClock>,
    pub databases: Databases,
    embedded: EmbeddedStore,
    mongodb: MongoStore,
}

/// What both hold: the embedded store twice, with indexes and without.
#[derive(Clone)]
pub struct Loaded {
    /// As if the documents were snapshots of the aggregates of this name.
    name: String,
    embedded: Arc<dyn Records>,
    mongodb: Arc<dyn Records>,
    queries: [Arc<dyn Queries>; 2],
}

impl Pair {
    pub async fn open() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
        let databases = Databases::new();
        let options = annals_embedded::Options { clock: clock.clone(), ..Default::default() };
        let embedded = EmbeddedStore::open(Arc::new(MemoryDisk::default()), options).expect("the store opens");
        let mongodb = databases.store(annals_mongodb::Options { clock: clock.clone(), ..Default::default() }).await;
        Self { clock, databases, embedded, mongodb }
    }

    pub async fn close(self) {
        self.embedded.close().await;
        self.mongodb.close().await;
    }

    /// Puts the documents into a collection of this name, and then makes the indexes that can hold them.
    ///
    /// # Errors
    /// What the stores do not agree about.
    pub async fn load(&self, name: &str, documents: &[Document], indexes: &[Index]) -> Result<Loaded, String> {
        let embedded = self.embedded.records(DEFAULT_TENANT).expect("the tenant");
        let mongodb = self.mongodb.records(DEFAULT_TENANT).expect("the tenant");
        let stores: [&dyn Store; 2] = [&self.embedded, &self.mongodb];
        let queries = stores.map(|store| store.queries(DEFAULT_TENANT).expect("the tenant"));
        let loaded = Loaded { name: name.to_owned(), embedded, mongodb, queries };
        for (records, name) in loaded.all() {
            records.declare(Collection::new(&name)).await.map_err(|error| error.to_string())?;
            let changes = documents.iter().map(|document| {
                let document = RawDocumentBuf::try_from(document).map_err(|error| error.to_string())?;
                Ok(RecordChange::insert(&name, document))
            });
            records.write(changes.collect::<Result<_, String>>()?).await.map_err(|error| error.to_string())?;
        }
        for index in indexes {
            let declared = || Collection::new(loaded.collection()).index(index.clone());
            let made = [loaded.embedded.declare(declared()).await, loaded.mongodb.declare(declared()).await];
            let [embedded, mongodb] = made.map(|made| made.map_err(|error| error.code()));
            if embedded != mongodb {
                return Err(format!("{index:?} is made in different ways: {embedded:?}, on MongoDB {mongodb:?}"));
            }
        }
        Ok(loaded)
    }
}

impl Loaded {
    pub fn embedded(&self) -> &Arc<dyn Records> {
        &self.embedded
    }

    pub fn mongodb(&self) -> &Arc<dyn Records> {
        &self.mongodb
    }

    fn all(&self) -> [(&Arc<dyn Records>, String); 3] {
        [(&self.embedded, self.collection()), (&self.embedded, self.plain()), (&self.mongodb, self.collection())]
    }

    pub fn collection(&self) -> String {
        format!("{}_snapshot", self.name)
    }

    /// The collection without indexes.
    pub fn plain(&self) -> String {
        format!("{}-plain", self.name)
    }

    /// What all pages of a query hold, if all say the same.
    ///
    /// # Errors
    /// What they do not agree about.
    pub async fn find(&self, query: &RecordQuery) -> Result<Answer, String> {
        let [indexed, plain, mongodb] = self.all();
        let due = pages(mongodb.0, query, &mongodb.1).await;
        for (how, (records, name)) in [("with its indexes", &indexed), ("without an index", &plain)] {
            let found = pages(records, query, name).await;
            if *name == plain.1 && matches!(&found, Err(error) if error.code() == Code::NoTextIndex) && due.is_ok() {
                continue;
            }
            same(&found, &due).map_err(|why| format!("{how} {why}"))?;
        }
        Ok(due)
    }

    /// The same, the count of its condition, and the second page of seven through the port of queries.
    ///
    /// # Errors
    /// What they do not agree about.
    pub async fn ask(&self, query: &RecordQuery) -> Result<Answer, String> {
        let [(embedded, name), _, (mongodb, _)] = self.all();
        let counts = [
            embedded.count(&name, &query.condition).await.map_err(|error| error.code()),
            mongodb.count(&name, &query.condition).await.map_err(|error| error.code()),
        ];
        let found = self.find(query).await?;
        match counts {
            [of_embedded, of_mongodb] if of_embedded == of_mongodb => {}
            [of_embedded, of_mongodb] => return Err(format!("counts {of_embedded:?}, on MongoDB {of_mongodb:?}")),
        }
        self.paged(query, Pagination { index: 2, size: 7 }).await?;
        Ok(found)
    }

    async fn paged(&self, query: &RecordQuery, page: Pagination) -> Result<(), String> {
        let source = QuerySource::Snapshots(self.name.as_str().into());
        let asked = DocumentQuery {
            // Without it, only what has a field `deleted` would be found.
            condition: Condition::And(vec![Condition::Deleted(Deletion::All), query.condition.clone()]),
            projection: query.projection.clone(),
            sort: query.sort.clone(),
            bytes_max: None,
        };
        let [embedded, mongodb] = &self.queries;
        let embedded = embedded.paged(&source, asked.clone(), page).await.map_err(|error| error.code());
        let mongodb = mongodb.paged(&source, asked, page).await.map_err(|error| error.code());
        match embedded == mongodb {
            true => Ok(()),
            false => Err(format!("has the page {page:?} {embedded:?}, on MongoDB {mongodb:?}")),
        }
    }

    /// The ids that a condition means, if both say the same, in the order of ids.
    ///
    /// # Errors
    /// What they do not agree about.
    pub async fn ids(&self, condition: Condition) -> Result<Vec<Bson>, String> {
        let query = RecordQuery::new("").matching(condition).limit(annals_core::limits::PAGE_MAX);
        let records = self.ask(&query).await?.map_err(|error| error.to_string())?;
        Ok(ids(&records))
    }
}

async fn pages(records: &Arc<dyn Records>, query: &RecordQuery, collection: &str) -> Answer {
    let mut query = RecordQuery { collection: collection.to_owned(), ..query.clone() };
    let mut all = Vec::new();
    loop {
        let page = records.find(query.clone()).await?;
        all.extend(page.records);
        match page.next {
            None => return Ok(all),
            Some(next) => query.after = Some(next),
        }
    }
}

fn same(found: &Answer, due: &Answer) -> Result<(), String> {
    match (found, due) {
        (Ok(found), Ok(due)) => {
            let (found_ids, due_ids) = (ids(found), ids(due));
            if !same_values(&found_ids, &due_ids) {
                return Err(format!("finds {found_ids:?}, on MongoDB {due_ids:?}"));
            }
            match found.iter().zip(due).find(|(found, due)| found.document != due.document) {
                None => Ok(()),
                Some((found, due)) => Err(format!("reads {:?}, on MongoDB {:?}", found.document, due.document)),
            }
        }
        (Err(found), Err(due)) if found.code() == due.code() => Ok(()),
        _ => Err(format!("answers {found:?}, on MongoDB {due:?}")),
    }
}

/// Whether two lists hold the same bytes. `Bson` has no equality of its own for NaN.
fn same_values(a: &[Bson], b: &[Bson]) -> bool {
    let bytes = |values: &[Bson]| annals_core::bson::doc! { "v": values.to_vec() }.to_vec().ok();
    bytes(a) == bytes(b)
}

fn ids(records: &[Record]) -> Vec<Bson> {
    let id = |record: &Record| Bson::try_from(record.document.get("_id").ok()??).ok();
    records.iter().map(|record| id(record).unwrap_or(Bson::Undefined)).collect()
}
