//! Detects documents that other software deleted from the middle of `event-log` and `event-log-commits`. The ends of both are compared
//! elsewhere (`reach.rs`); a reader of the log meets a missing entry, but nothing of ours reads `event-log`.
//!
//! The leader compares the number of documents that MongoDB counts in each collection with what the log has written. Only where a count is
//! too low does it search for the first sequence number that is missing: the counts can be wrong after a server crash.
//!
//! ```text
//! sequencer-state: {_id: "missing", found: [{coll, number}]}     removed once the document is there again
//! ```

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use annals_core::{MissingDocument, SequenceNumber};
use annals_system::sleep;
use mongodb::Database;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};

use super::Cluster;
use crate::identity;
use crate::layout::fields::{integer, natural, text};
use crate::layout::names::{ENTRIES, EVENT_LOG, SEQUENCER};
use crate::layout::writer::decimal;
use crate::log::Log;
use crate::refused::message_of;

const ID: &str = "missing";
/// Interval between two turns.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Logs that are compared in a turn, with three small commands each: a cluster may have thousands.
const LOGS: usize = 2;
/// Sequence numbers that are counted together during a search.
const COUNTED_MAX: u64 = 50_000;

/// What is known about the counts of one log.
#[derive(Default)]
struct Counts {
    /// How many more sequence numbers than counted events are known: gaps found by an adoption, and those already reported.
    events_short: Option<u64>,
    /// The commits numbered by this process and the entries counted, as of the last comparison.
    entries: Option<(u64, u64)>,
    /// Whether the last search of each collection found nothing.
    vain: [bool; 2],
}

/// Returns whether the current count is accepted. A count changes before the majority has the change, while a search reads what the
/// majority has. So only a second search that finds nothing means that the count is wrong, as after a crash.
fn settles(found: Option<SequenceNumber>, vain: &mut bool) -> bool {
    let settles = found.is_some() || *vain;
    *vain = !settles;
    settles
}

/// Compares the counts, forever.
pub(super) async fn look(cluster: &Cluster) -> Infallible {
    let mut counts: HashMap<&str, Counts> = HashMap::new();
    let (all, mut turn) = (cluster.logs.len(), 0);
    loop {
        sleep(LOOK_EVERY).await;
        let some = cluster.logs.iter().cycle().skip(turn).take(LOGS.min(all));
        turn = (turn + LOGS) % all.max(1);
        for log in some {
            let counts = counts.entry(log.database.name()).or_default();
            if let Err(error) = compare(log, counts).await {
                tracing::debug!(
                    error = message_of(&error),
                    tenant = log.tenant,
                    "the documents of a log cannot be counted"
                );
            }
        }
    }
}

async fn compare(log: &Log, counts: &mut Counts) -> mongodb::error::Result<()> {
    let database = &log.database;
    for found in found(database).await? {
        if is_there(database, &found).await? {
            forget(database, &found).await?;
            // More documents may be missing after it.
            restored(log, &found.collection).await?;
        }
    }
    // Sequence numbers assigned after this can only make the counts higher.
    let (next, numbered) = (log.numbers.seen(), log.numbered.get());
    let events = database.collection::<Document>(EVENT_LOG).estimated_document_count().await?;
    let entries = database.collection::<Document>(ENTRIES).estimated_document_count().await?;
    let short = next.saturating_sub(events);
    let expected = match counts.events_short {
        Some(known) => known,
        // An adopted log keeps the gaps that it had.
        None if log.adopted.there => short,
        None => 0,
    };
    let mut known = short;
    if short > expected {
        let number = first_missing_event(log, next).await?;
        report(log, EVENT_LOG, number).await?;
        if !settles(number, &mut counts.vain[0]) {
            known = expected;
        }
    } else {
        counts.vain[0] = false;
    }
    counts.events_short = Some(known);
    let lost = counts.entries.is_some_and(|(before, there)| there + (numbered - before) > entries);
    if lost {
        let number = first_missing_entry(log, next).await?;
        report(log, ENTRIES, number).await?;
        if !settles(number, &mut counts.vain[1]) {
            return Ok(());
        }
    } else {
        counts.vain[1] = false;
    }
    counts.entries = Some((numbered, entries));
    Ok(())
}

/// Searches a collection again after a missing document was restored.
async fn restored(log: &Log, collection: &str) -> mongodb::error::Result<()> {
    let next = log.numbers.seen();
    let number = match collection {
        EVENT_LOG => first_missing_event(log, next).await?,
        _ => first_missing_entry(log, next).await?,
    };
    report(log, collection, number).await
}

async fn report(log: &Log, collection: &str, number: Option<SequenceNumber>) -> mongodb::error::Result<()> {
    let Some(number) = number else { return Ok(()) };
    let database = log.database.name();
    tracing::error!(
        database,
        collection,
        number,
        "other software has deleted a document of the log; restore it from a backup of the database"
    );
    let state = log.database.collection::<Document>(SEQUENCER);
    let note = doc! { "$addToSet": { "found": noted(collection, number) } };
    state.update_one(doc! { "_id": ID }, note).upsert(true).await.map(drop)
}

fn noted(collection: &str, number: SequenceNumber) -> Document {
    doc! { "coll": collection, "number": number.cast_signed() }
}

async fn forget(database: &Database, found: &MissingDocument) -> mongodb::error::Result<()> {
    let note = doc! { "$pull": { "found": noted(&found.collection, found.sequence_number) } };
    database.collection::<Document>(SEQUENCER).update_one(doc! { "_id": ID }, note).await.map(drop)
}

async fn is_there(database: &Database, found: &MissingDocument) -> mongodb::error::Result<bool> {
    let id = match &*found.collection {
        EVENT_LOG => Bson::from(decimal(found.sequence_number)),
        _ => Bson::Int64(found.sequence_number.cast_signed()),
    };
    let documents = database.collection::<RawDocumentBuf>(&found.collection);
    Ok(documents.find_one(doc! { "_id": id }).projection(doc! { "_id": 1 }).await?.is_some())
}

/// Returns the end of the adopted part, in which sequence numbers may be missing.
async fn beginning(log: &Log) -> mongodb::error::Result<SequenceNumber> {
    Ok(identity::adopted(&log.database).await?.unwrap_or(0))
}

/// Searches `event-log`: by counting ranges, then by halving the first one that has too few documents.
async fn first_missing_event(log: &Log, next: SequenceNumber) -> mongodb::error::Result<Option<SequenceNumber>> {
    let events = log.database.collection::<RawDocumentBuf>(EVENT_LOG);
    let is_whole = async |from: u64, to: u64| {
        let range = doc! { "_id": { "$gte": decimal(from), "$lt": decimal(to) } };
        mongodb::error::Result::Ok(events.count_documents(range).await? == to - from)
    };
    let mut from = beginning(log).await?;
    while from < next {
        let mut to = next.min(from + COUNTED_MAX);
        if is_whole(from, to).await? {
            from = to;
            continue;
        }
        while to - from > 1 {
            let middle = from + (to - from) / 2;
            if is_whole(from, middle).await? { from = middle } else { to = middle }
        }
        return Ok(Some(from));
    }
    Ok(None)
}

/// Searches `event-log-commits`, whose entries must be contiguous.
async fn first_missing_entry(log: &Log, next: SequenceNumber) -> mongodb::error::Result<Option<SequenceNumber>> {
    let mut due = beginning(log).await?;
    let range = doc! { "_id": { "$gte": due.cast_signed(), "$lt": next.cast_signed() } };
    let entries = log.database.collection::<RawDocumentBuf>(ENTRIES);
    let mut found = entries.find(range).sort(doc! { "_id": 1 }).projection(doc! { "n": 1 }).await?;
    while found.advance().await? {
        let entry = found.current();
        if natural(entry, "_id") != Some(due) {
            return Ok(Some(due));
        }
        due += natural(entry, "n").unwrap_or(0);
    }
    Ok((due < next).then_some(due))
}

/// Returns what any leader of this log has found missing.
///
/// # Errors
/// The driver's.
pub(crate) async fn found(database: &Database) -> mongodb::error::Result<Vec<MissingDocument>> {
    let state = database.collection::<RawDocumentBuf>(SEQUENCER);
    let Some(state) = state.find_one(doc! { "_id": ID }).await? else { return Ok(Vec::new()) };
    let all = state.get_array("found").ok().into_iter().flatten().flatten();
    let missing = all.filter_map(|one| {
        let one = one.as_document()?;
        let sequence_number = integer(one, "number").and_then(|number| u64::try_from(number).ok())?;
        Some(MissingDocument { collection: text(one, "coll")?.to_owned(), sequence_number })
    });
    Ok(missing.collect())
}
