//! Finds commits that are older than the change stream in the collections, and assigns numbers in an order that is consistent with every
//! aggregate. Each aggregate is in order of version; aggregates are merged by the running maximum of createTime.
//!
//! The server sorts, with its disk if needed. This process holds one row of each collection and one batch of commits.

use std::collections::HashMap;

use mongodb::Cursor;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};

use super::Ended;
use super::assign::label;
use super::place::Place;
use super::stream::Incoming;
use crate::layout::fields::{integer, natural, text};
use crate::layout::names::{aggregate_of, collections};

/// Commits that are looked up in the log together.
const BATCH_MAX: usize = 1000;
/// Commits that are fetched and sequenced together, and their bytes; a single commit is accepted whatever its size.
const FETCH_MAX: usize = 500;
const FETCH_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The position of a commit in the order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    /// The greatest createTime of its aggregate so far.
    time: i64,
    collection: String,
    aggregate: String,
    version: u64,
    /// Its `_id` as text, whatever its type.
    commit: String,
}

/// A commit that may be missing from the log.
#[derive(Debug)]
struct Row {
    order: Order,
    id: Bson,
    bytes: usize,
}

impl Row {
    fn place(&self) -> (&str, &str) {
        (&self.order.collection, &self.order.commit)
    }
}

/// Assigns numbers to all commits that are in the collections and not in the log.
pub(super) async fn bring_up(place: &mut Place) -> Result<(), Ended> {
    let mut sources = Vec::new();
    for collection in collections(&place.log.database).await? {
        if aggregate_of(&collection).is_some() {
            sources.push(Source::open(place, collection).await?);
        }
    }
    let from = place.next;
    let mut batch = Vec::new();
    // Merge of sorted sources. There are few collections, so the minimum is found by a linear search.
    let order = |source: &Source| source.row.as_ref().map(|row| row.order.clone());
    while let Some(least) = sources.iter_mut().filter(|source| source.row.is_some()).min_by_key(|source| order(source))
    {
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
    let wanted: Vec<(&str, &str)> = rows.iter().map(Row::place).collect();
    let known = place.known(&wanted).await?;
    let is_missing = |row: &&Row| !known.contains(&(row.order.collection.clone(), row.order.commit.clone()));
    let missing: Vec<&Row> = rows.iter().filter(is_missing).collect();
    for piece in pieces(&missing) {
        let mut found = fetch(place, piece).await?;
        let database = place.log.database.name().to_owned();
        // A commit that is no longer there was deleted a moment ago.
        let commits = piece.iter().filter_map(|row| {
            let document = found.remove(&row.place())?;
            Some(Incoming::stored(&database, &row.order.collection, document))
        });
        let commits = commits.collect();
        place.sequence(commits).await?;
    }
    Ok(())
}

/// Splits the rows into pieces that fit into memory together with what is made of them.
fn pieces<'a, 'b>(rows: &'b [&'a Row]) -> Vec<&'b [&'a Row]> {
    let (mut pieces, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, row) in rows.iter().enumerate() {
        if at > start && (at - start >= FETCH_MAX || bytes + row.bytes > FETCH_BYTES_MAX) {
            pieces.push(&rows[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += row.bytes;
    }
    if start < rows.len() {
        pieces.push(&rows[start..]);
    }
    pieces
}

/// Fetches the commits of these rows, with one query per collection.
async fn fetch<'a>(place: &Place, rows: &[&'a Row]) -> Result<HashMap<(&'a str, &'a str), RawDocumentBuf>, Ended> {
    let mut by_collection: HashMap<&str, HashMap<&str, &'a Row>> = HashMap::new();
    for row in rows {
        let (collection, commit) = row.place();
        by_collection.entry(collection).or_default().insert(commit, row);
    }
    let mut fetched = HashMap::with_capacity(rows.len());
    for (collection, rows) in by_collection {
        let ids: Vec<Bson> = rows.values().map(|row| row.id.clone()).collect();
        let commits = place.log.database.collection::<RawDocumentBuf>(collection);
        let mut found = commits.find(doc! { "_id": { "$in": ids } }).await?;
        while found.advance().await? {
            let document = found.current();
            if let Some(row) = rows.get(&*label(document)) {
                fetched.insert(row.place(), document.to_owned());
            }
        }
    }
    Ok(fetched)
}

/// The commits of one collection, in order.
struct Source {
    collection: String,
    cursor: Cursor<RawDocumentBuf>,
    row: Option<Row>,
}

impl Source {
    async fn open(place: &Place, collection: String) -> Result<Self, Ended> {
        let running = doc! { "$max": "$createTime", "window": { "documents": ["unbounded", "current"] } };
        // Other software may store any value in these fields; the server refuses to partition by an array, or to sort by several.
        let text = doc! { "$cond": [{ "$eq": [{ "$type": "$aggregateId" }, "string"] }, "$aggregateId", ""] };
        let number = |field: &str| doc! { "$cond": [{ "$isNumber": field }, field, 0] };
        let pipeline = [
            doc! { "$project": {
                "aggregateId": text, "version": number("$version"), "createTime": number("$createTime"),
                "bytes": { "$bsonSize": "$$ROOT" },
            } },
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
        if self.cursor.advance().await? {
            let document = self.cursor.current();
            let order = Order {
                time: integer(document, "running").unwrap_or(i64::MIN),
                collection: self.collection.clone(),
                aggregate: text(document, "aggregateId").unwrap_or_default().to_owned(),
                version: natural(document, "version").unwrap_or(0),
                commit: label(document),
            };
            let id = document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok()).unwrap_or(Bson::Null);
            let bytes = natural(document, "bytes").unwrap_or(0) as usize;
            self.row = Some(Row { order, id, bytes });
        }
        Ok(())
    }
}
