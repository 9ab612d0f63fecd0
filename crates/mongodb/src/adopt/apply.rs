//! Executes the plan. Every step is idempotent, so the next adoption continues after an interruption at any point.

use std::sync::Arc;

use annals_core::{Code, OpenError, SequenceNumber, new_uuid};
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::error::{TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::{ClientSession, Database};

use super::{AdoptReport, Place, Plan, Progress, still_writing};
use crate::answers::Answers;
use crate::connect::strict;
use crate::identity::{self, ADOPTED};
use crate::layout::adopted::{Reader, find};
use crate::layout::fields::natural;
use crate::layout::mapping::{Kind, Mapping, NAMES};
use crate::layout::names::{ENTRIES, EVENT_LOG, EVENT_LOG_METADATA, IDENTITY, aggregate_of};
use crate::layout::writer::decimal;
use crate::layout::{entry, owner, schema};
use crate::log::{Adopted, Log, Means};
use crate::options::Options;
use crate::reach;
use crate::refused::asking;
use crate::sequencer::Cluster;
use crate::sequencer::catch_up::Turn;
use crate::sessions::Sessions;

/// Events whose entries are written together.
const BATCH_MAX: usize = 1000;
/// Retry limit for a transaction that the server aborted.
const TRIES: usize = 20;

pub(super) async fn apply(
    place: &Place,
    options: &Options,
    plan: Plan,
    progress: &mut Progress<'_>,
) -> Result<AdoptReport, OpenError> {
    let holder = new_uuid(options.clock.now(), &*options.random).to_string();
    let turn = Turn::take(place.lease.clone(), holder.clone()).await?;
    turn.keep(work(place, options, plan, &turn, holder, progress)).await
}

async fn work(
    place: &Place,
    options: &Options,
    plan: Plan,
    turn: &Turn,
    holder: String,
    progress: &mut Progress<'_>,
) -> Result<AdoptReport, OpenError> {
    let database = &place.database;
    let asked = |error: mongodb::error::Error| asking(database.name(), &error);
    let Plan { mut report, reach, mapping, new_names, unready, there } = plan;
    let takes_in = reach.under_way || reach.events > reach.known() || reach.next.unwrap_or(0) > reach.known();
    // First of all: from here on the database cannot be opened as if it were complete.
    if takes_in {
        begin(database, reach.known()).await.map_err(asked)?;
    }
    if unready {
        prepare(place, options, &report.context, &there).await?;
    }
    let identity = identity::of(database, options).await?;
    if new_names {
        keep_names(database, &mapping, &report).await.map_err(asked)?;
    }
    let log = report.log.clone().unwrap_or_default();
    let all = log.to_take_in + report.commits.iter().map(|found| found.events_to_number).sum::<u64>();
    let mut done = 0;
    if takes_in {
        let reader = Reader { log: EVENT_LOG.to_owned(), store_id: identity.store_id, mapping: Arc::new(mapping) };
        let mut next = reach.known();
        while let Some((behind, count)) = take_in(database, &reader, next).await? {
            next = behind;
            done += count;
            progress(done, all.max(done));
        }
        finish(database, reach.events, next.max(reach.end())).await?;
    }
    identity::begin_log(database).await?;
    let adopted = Adopted::read(database, &identity).await.map_err(asked)?;
    let context = report.context.clone();
    let answers = Arc::new(Answers::new(place.primary.clone(), options.outcome_time));
    let sessions = Sessions::new(place.lease.clone(), &holder);
    let means = Means { answers, sessions, blocks: Arc::default() };
    let log = Log::new(&place.tenant, database.clone(), database.clone(), options, context, adopted, means);
    let cluster = Cluster::new(place.client.clone(), vec![log.clone()], holder, options.lease, options.at_step);
    let head = number(turn, &cluster, &log, &mut |events| progress(done + events, all.max(done + events))).await?;
    report.done = true;
    report.head = Some(head);
    Ok(report)
}

async fn prepare(place: &Place, options: &Options, context: &str, there: &[String]) -> Result<(), OpenError> {
    for name in std::collections::BTreeSet::from([&place.names.events, &place.names.snapshots, &place.names.keys]) {
        owner::claim(&place.client.database(name), context).await?;
    }
    schema::ensure_log(&place.database, there, true).await?;
    let schema = schema::Schema::new(place.database.clone(), &Options { auto_init_schema: true, ..options.clone() });
    for name in there.iter().filter(|name| aggregate_of(name).is_some()) {
        schema.ensure(name).await?;
    }
    Ok(())
}

async fn keep_names(database: &Database, mapping: &Mapping, report: &AdoptReport) -> mongodb::error::Result<()> {
    let names = database.collection::<Document>(NAMES);
    for (kind, list) in [(Kind::Event, &report.names.event_types), (Kind::Aggregate, &report.names.aggregates)] {
        for uuid in list.keys().filter_map(|uuid| uuid.parse().ok()) {
            // A UUID that occurs only in scopes may have no name yet, and get one in a later adoption.
            let Some(name) = mapping.given(kind, uuid) else { continue };
            let document = Mapping::document(kind, uuid, name);
            let id = doc! { "_id": document.get("_id").cloned().unwrap_or_default() };
            // An existing document has the same name, as was checked before.
            names.update_one(id, doc! { "$setOnInsert": { "name": document.get("name") } }).upsert(true).await?;
        }
    }
    Ok(())
}

/// Records that an adoption is in progress.
async fn begin(database: &Database, known: SequenceNumber) -> mongodb::error::Result<()> {
    let set = doc! { "$set": { "underWay": true }, "$setOnInsert": { "head": known as i64 } };
    let store = database.collection::<Document>(IDENTITY);
    store.update_one(doc! { "_id": ADOPTED }, set).upsert(true).await.map(|_| ())
}

/// Writes the entries of the next events. Returns the number after the last of them and their count, or `None` at the end.
async fn take_in(
    database: &Database,
    reader: &Reader,
    from: SequenceNumber,
) -> Result<Option<(SequenceNumber, u64)>, OpenError> {
    let asked = |error: mongodb::error::Error| asking(database.name(), &error);
    let unreadable = |why: String| OpenError::new(Code::CannotAdopt, format!("{}.{EVENT_LOG}: {why}", database.name()));
    let events = database.collection::<RawDocumentBuf>(EVENT_LOG);
    let find_events = events.find(doc! { "_id": { "$gte": from as i64 } }).sort(doc! { "_id": 1 });
    let mut found = find_events.limit(BATCH_MAX as i64).await.map_err(asked)?;
    let (mut entries, mut next) = (Vec::new(), from);
    while found.advance().await.map_err(asked)? {
        let event = find(found.current()).map_err(unreadable)?;
        let commit = reader.commit(&event).map_err(unreadable)?;
        let applied = event.applied.as_ref().map_or(0, |applied| applied.before + 1);
        let entry = entry::write(&commit, database.name(), EVENT_LOG, event.number, applied);
        entries.push(entry.map_err(|error| unreadable(error.to_string()))?);
        next = event.number + 1;
    }
    if entries.is_empty() {
        return Ok(None);
    }
    // In order, so that the entries are complete up to their end.
    database.collection::<RawDocumentBuf>(ENTRIES).insert_many(&entries).ordered(true).await.map_err(asked)?;
    Ok(Some((next, entries.len() as u64)))
}

/// Advances the log's next sequence number past the adopted events, and records the completion in the same transaction.
///
/// # Errors
/// `foreign_numbers` if more numbers were assigned in the meantime; the next adoption includes them.
async fn finish(database: &Database, before: SequenceNumber, next: SequenceNumber) -> Result<(), OpenError> {
    let asked = |error: mongodb::error::Error| asking(database.name(), &error);
    let mut session = database.client().start_session().await.map_err(asked)?;
    for _ in 0..TRIES {
        match attempt(database, &mut session, next).await {
            Ok(now) if now == before => return Ok(()),
            Ok(now) => return Err(OpenError::new(Code::ForeignNumbers, still_writing(database, before, now))),
            Err(error) if error.contains_label(TRANSIENT_TRANSACTION_ERROR) => {}
            // The transaction does not depend on what it reads, so it may be repeated.
            Err(error) if error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) => {}
            Err(error) => return Err(asked(error)),
        }
    }
    let message = format!("database {}: the server gave up a transaction again and again", database.name());
    Err(OpenError::new(Code::Unreachable, message))
}

/// Returns the number after the last event.
async fn attempt(
    database: &Database,
    session: &mut ClientSession,
    next: SequenceNumber,
) -> mongodb::error::Result<SequenceNumber> {
    session.start_transaction().write_concern(strict()).await?;
    let metadata = database.collection::<Document>(EVENT_LOG_METADATA);
    let moved = doc! { "$max": { "NextEventOffset": decimal(next) } };
    metadata.update_one(doc! { "_id": EVENT_LOG }, moved).upsert(true).session(&mut *session).await?;
    let events = database.collection::<RawDocumentBuf>(EVENT_LOG);
    let last = events.find_one(doc! {}).sort(doc! { "_id": -1 }).session(&mut *session).await?;
    let end = last.as_deref().and_then(|last| natural(last, "_id")).map_or(0, |number| number + 1);
    let done = doc! { "$set": { "head": next as i64 }, "$unset": { "underWay": "" } };
    let store = database.collection::<Document>(IDENTITY);
    store.update_one(doc! { "_id": ADOPTED }, done).session(&mut *session).await?;
    session.commit_transaction().await?;
    Ok(end)
}

/// Assigns sequence numbers to the commits. Returns the number of events in the log.
async fn number(
    turn: &Turn,
    cluster: &Cluster,
    log: &Log,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<SequenceNumber, OpenError> {
    let from = reach::read(&log.database).await.map_err(|error| asking(log.database.name(), &error))?.known();
    let mut heads = log.numbers.subscribe();
    let mut work = std::pin::pin!(turn.bring_up(cluster));
    loop {
        tokio::select! {
            done = &mut work => {
                done?;
                return Ok(log.numbers.seen());
            }
            Ok(()) = heads.changed() => {
                let head = heads.borrow_and_update().unwrap_or(0);
                progress(head.saturating_sub(from));
            }
        }
    }
}
