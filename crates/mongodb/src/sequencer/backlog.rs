//! Commits that the change stream does not show, because they are older than it: found in the collections, and sequenced in an order that
//! no aggregate contradicts. Each aggregate in the order of its versions, aggregates merged by the running maximum of createTime.
//!
//! The server sorts, and may use its disk for it; here are one row of each collection, and one batch of commits.

use mongodb::Cursor;
use mongodb::bson::{Document, RawDocumentBuf, doc};

use super::Ended;
use super::place::Place;
use super::stream::Incoming;
use crate::layout::fields::{integer, natural, text};
use crate::layout::names::aggregate_of;

/// Commits that are fetched and sequenced together.
const BATCH_MAX: usize = 500;

/// A commit's place in the order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    /// The greatest createTime of its aggregate up to it.
    time: i64,
    collection: String,
    aggregate: String,
    version: u64,
    commit: String,
}

/// Sequences whatever is in the collections and not in the log.
pub(super) async fn bring_up(place: &mut Place) -> Result<(), Ended> {
    let mut sources = Vec::new();
    for collection in place.log.database.list_collection_names().await? {
        if aggregate_of(&collection).is_some() {
            sources.push(Source::open(place, collection).await?);
        }
    }
    let from = place.next;
    let mut batch = Vec::new();
    // The collections are few; the least of their first rows is the next of all.
    while let Some(least) = sources.iter_mut().filter(|source| source.row.is_some()).min_by(|a, b| a.row.cmp(&b.row)) {
        batch.extend(least.row.take());
        least.advance().await?;
        if batch.len() >= BATCH_MAX {
            sequence(place, std::mem::take(&mut batch)).await?;
        }
    }
    sequence(place, batch).await?;
    if place.next > from {
        tracing::info!(
            tenant = place.log.tenant,
            from,
            to = place.next,
            "commits were found without the change stream"
        );
        place.note_recovered(from).await?;
    }
    Ok(())
}

async fn sequence(place: &mut Place, rows: Vec<Row>) -> Result<(), Ended> {
    let database = place.log.database.clone();
    let wanted: Vec<(&str, &str)> = rows.iter().map(|row| (&*row.collection, &*row.commit)).collect();
    let known = place.known(&wanted).await?;
    let mut commits = Vec::new();
    for row in &rows {
        if known.contains(&(row.collection.clone(), row.commit.clone())) {
            continue;
        }
        let found =
            database.collection::<RawDocumentBuf>(&row.collection).find_one(doc! { "_id": &row.commit }).await?;
        commits.extend(found.map(|document| Incoming::stored(database.name(), &row.collection, document)));
    }
    if commits.is_empty() { Ok(()) } else { place.sequence(commits).await }
}

/// The commits of one collection in order.
struct Source {
    collection: String,
    cursor: Cursor<RawDocumentBuf>,
    row: Option<Row>,
}

impl Source {
    async fn open(place: &Place, collection: String) -> Result<Self, Ended> {
        let running = doc! { "$max": "$createTime", "window": { "documents": ["unbounded", "current"] } };
        let pipeline = [
            doc! { "$project": { "aggregateId": 1, "version": 1, "createTime": 1 } },
            doc! { "$setWindowFields": {
                "partitionBy": "$aggregateId", "sortBy": { "version": 1 }, "output": { "running": running },
            } },
            doc! { "$sort": { "running": 1, "aggregateId": 1, "version": 1 } },
        ];
        let commits = place.log.database.collection::<Document>(&collection);
        let cursor = commits.aggregate(pipeline).allow_disk_use(true).await?.with_type::<RawDocumentBuf>();
        let mut source = Self { collection, cursor, row: None };
        source.advance().await?;
        Ok(source)
    }

    async fn advance(&mut self) -> Result<(), Ended> {
        self.row = None;
        while self.cursor.advance().await? {
            let document = self.cursor.current();
            // One without a text for an id cannot be fetched by it again; the change stream shows such a one to people.
            let Some(commit) = text(document, "_id") else { continue };
            self.row = Some(Row {
                time: integer(document, "running").unwrap_or(i64::MIN),
                collection: self.collection.clone(),
                aggregate: text(document, "aggregateId").unwrap_or_default().to_owned(),
                version: natural(document, "version").unwrap_or(0),
                commit: commit.to_owned(),
            });
            break;
        }
        Ok(())
    }
}
