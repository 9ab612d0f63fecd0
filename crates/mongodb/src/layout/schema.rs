//! Defines which collections have which indexes, and creates them: those of the log when a tenant is opened, those of an aggregate with
//! its first commit.

mod admission;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annals_system::Instant;
use futures_util::future::{join_all, try_join_all};
use mongodb::Database;
use mongodb::bson::doc;
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::creation::{NAMESPACE_EXISTS, create, send};
use super::index::{Forbidden, Index, missing, reconcile, uuid_of_collection};
use super::names::{
    AGGREGATES, BLOCKS, COLLECTIONS, ENTRIES, EVENT_LOG, EVENT_LOG_METADATA, HELD, IDENTITY, SEQUENCER, STREAMS,
    aggregate_of, event_stream,
};
use super::{prepare, register};
use crate::log::heads::Heads;
use crate::options::{Options, Requests};
use crate::refused::{Code, OpenError, asking, code_of};

/// Collections that are checked concurrently.
const LOOKS: usize = 16;
/// Attempts to prepare a collection that other software drops in the meantime.
const TRIES: usize = 20;
/// How long a refusal is also returned to callers that waited for the same collection.
const REFUSED_TIME: Duration = Duration::from_millis(100);

/// The collections of commits of a tenant, or of its prepare keys, whose indexes this process has checked.
///
/// INVARIANT: a collection is identified by its UUID. A collection that other software drops or renames has another UUID afterwards, and
/// an insert that names the old one is refused. So no insert can recreate a collection without its unique indexes.
pub(crate) struct Schema {
    database: Database,
    expected: Vec<Index>,
    forbidden: Vec<Forbidden>,
    create: bool,
    known: Mutex<HashMap<String, Arc<OnceCell<Ready>>>>,
    /// Collections that were not admitted, and when that was last found.
    refused: Mutex<HashMap<String, (Instant, OpenError)>>,
    /// Whether collections are registered, as those of commits are.
    registers: bool,
    /// If the log is open: the id of its store, and the heads of its aggregates.
    log: Option<(Uuid, Arc<Heads>)>,
}

/// A collection whose indexes were checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ready {
    /// The UUID that an insert must name.
    pub(crate) uuid: Uuid,
    /// Whether it replaced another one: its indexes then do not refuse every version in the log.
    pub(crate) replaced: bool,
}

impl Schema {
    pub(crate) fn new(database: Database, options: &Options) -> Self {
        let (expected, forbidden) = event_stream_indexes(options);
        Self {
            database,
            expected,
            forbidden: vec![forbidden],
            create: options.auto_init_schema,
            known: Mutex::default(),
            refused: Mutex::default(),
            registers: true,
            log: None,
        }
    }

    /// Binds it to an open log. No collection is then created in place of one that was dropped together with the log.
    pub(crate) fn of_log(self, store: Uuid, heads: Arc<Heads>) -> Self {
        Self { log: Some((store, heads)), ..self }
    }

    /// Creates the schema of the collections of prepare keys.
    pub(crate) fn of_keys(database: Database, options: &Options) -> Self {
        let create = options.auto_init_schema;
        Self {
            database,
            expected: prepare::indexes(),
            forbidden: Vec::new(),
            create,
            known: Mutex::default(),
            refused: Mutex::default(),
            registers: false,
            log: None,
        }
    }

    /// Compares the indexes of these collections with the expected ones, and creates none.
    ///
    /// # Errors
    /// `unsuitable_server` if an index differs or belongs to the other mode of request ids; `unreachable`.
    pub(crate) async fn inspect(&self, collections: &[String]) -> Result<(), OpenError> {
        for some in collections.chunks(LOOKS) {
            let looks = some.iter().map(|name| missing(&self.database, name, &self.expected, &self.forbidden));
            try_join_all(looks).await?;
        }
        Ok(())
    }

    /// Prepares the collection, once per process and before the process's first insert. Returns the UUID that an insert must name.
    ///
    /// # Errors
    /// `unsuitable_server`, `unreachable`; `not_ready` for a collection that replaced another one, until the sequencer has numbered the
    /// commits of that one; `store_damaged` if the log was dropped. The next call retries.
    pub(crate) async fn ensure(&self, collection: &str) -> Result<Ready, OpenError> {
        let cell = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.entry(collection.to_owned()).or_default().clone()
        };
        let ready = cell.get_or_try_init(async || {
            // For callers that queued behind the one that was refused.
            if let Some(refusal) = self.refused_lately(collection) {
                return Err(refusal);
            }
            let made = self.make_ready(collection).await;
            if let Err(refusal) = made.as_ref()
                && refusal.code == Code::NotReady
            {
                let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
                refused.insert(collection.to_owned(), (Instant::now(), refusal.clone()));
            }
            made
        });
        ready.await.copied()
    }

    fn refused_lately(&self, collection: &str) -> Option<OpenError> {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|_, (when, _)| when.elapsed() < REFUSED_TIME);
        refused.get(collection).map(|(_, refusal)| refusal.clone())
    }

    /// Forgets a collection, if it has this UUID.
    pub(crate) fn forget(&self, collection: &str, uuid: Uuid) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(collection).is_some_and(|cell| cell.get().is_some_and(|ready| ready.uuid == uuid)) {
            known.remove(collection);
        }
    }

    /// Checks the known collections again, and forgets those whose indexes differ: other software may drop an index of a collection that
    /// stays.
    ///
    /// # Errors
    /// `unreachable`.
    pub(crate) async fn look_again(&self) -> Result<(), OpenError> {
        let known: Vec<(String, Uuid)> = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.iter().filter_map(|(name, cell)| Some((name.clone(), cell.get()?.uuid))).collect()
        };
        for some in known.chunks(LOOKS) {
            let looks = some.iter().map(|(name, _)| missing(&self.database, name, &self.expected, &self.forbidden));
            for ((name, uuid), missing) in some.iter().zip(join_all(looks).await) {
                let is_whole = match missing {
                    Ok(missing) => missing.is_empty(),
                    Err(error) if error.code == Code::Unreachable => return Err(error),
                    Err(_) => false,
                };
                if !is_whole {
                    let database = self.database.name();
                    tracing::error!(database, collection = name, "indexes were dropped or changed by other software");
                    self.forget(name, *uuid);
                }
            }
        }
        Ok(())
    }

    async fn make_ready(&self, collection: &str) -> Result<Ready, OpenError> {
        let place = format!("{}.{collection}", self.database.name());
        let asked = |error: mongodb::error::Error| asking(&place, &error);
        for _ in 0..TRIES {
            self.log_is_there().await?;
            // Read before the UUID: a later registration may be that of a later collection.
            let registered = register::read(&self.database, collection).await.map_err(asked)?;
            let reconcile =
                async || reconcile(&self.database, collection, &self.expected, &self.forbidden, self.create).await;
            let uuid = async || uuid_of_collection(&self.database, collection).await.map_err(asked);
            let mut before = uuid().await?;
            if before.is_none() {
                reconcile().await?;
                before = uuid().await?;
            }
            let Some(before) = before else { continue };
            // Between two reads of the same UUID, because the collection may be replaced by one whose indexes are still being built.
            reconcile().await?;
            if uuid().await? != Some(before) {
                continue;
            }
            // The whole database may have been dropped before the collection was created.
            self.log_is_there().await?;
            let admitted = match self.registers {
                true => self.admitted(collection, before, registered).await?,
                false => Some(Ready { uuid: before, replaced: false }),
            };
            let Some(ready) = admitted else { continue };
            // INVARIANT: no head cached before this point is used with the new collection.
            if let (Some((_, heads)), Some(aggregate)) = (&self.log, aggregate_of(collection)) {
                heads.forget(aggregate);
            }
            return Ok(ready);
        }
        let message = format!("{place}: it is repeatedly dropped or renamed while its indexes are created");
        Err(OpenError::new(Code::UnsuitableServer, message))
    }
}

/// Returns Wow's five indexes in the order in which Wow creates them, then the optional ones. The order determines which index the server
/// reports if a document violates several, so the version precedes the request.
fn event_stream_indexes(options: &Options) -> (Vec<Index>, Forbidden) {
    const PER_AGGREGATE: Forbidden = &["aggregateId", "requestId"];
    const GLOBAL: Forbidden = &["requestId"];
    let (request, forbidden) = match options.requests {
        Requests::PerAggregate => (Index::unique("aggregateId_1_requestId_1", PER_AGGREGATE), GLOBAL),
        Requests::Global => (Index::unique("requestId_1", GLOBAL), PER_AGGREGATE),
    };
    let mut indexes = vec![
        Index::hashed("aggregateId_hashed", "aggregateId"),
        Index::unique("aggregateId_1_version_1", &["aggregateId", "version"]),
        request,
        Index::hashed("tenantId_hashed", "tenantId"),
        Index::hashed("ownerId_hashed", "ownerId"),
    ];
    if options.optional_indexes {
        indexes.push(Index::ascending("idx_create_time", &["createTime"]));
        indexes.push(Index::ascending("idx_event_type_time", &["body.name", "createTime"]));
    }
    (indexes, forbidden)
}

/// Returns the fields of commits that have an index which makes a look-up by one value selective.
pub(crate) fn indexed_fields_of_commits(options: &Options) -> Vec<&'static str> {
    let mut fields = vec!["_id", "aggregateId", "tenantId", "ownerId"];
    if options.requests == Requests::Global {
        fields.push("requestId");
    }
    if options.optional_indexes {
        fields.push("body.name");
    }
    fields
}

/// Returns the collections of a tenant's log with their indexes.
fn log_collections() -> Vec<(&'static str, Vec<Index>)> {
    let version = Index {
        unique: true,
        partial: Some(doc! { "Aggregate.WasAppliedByAggregate": true }),
        ..Index::ascending(
            "aggregate_version_index",
            &["Aggregate.TypeId", "Metadata.EventSource", "Aggregate.Version"],
        )
    };
    let source = Index::ascending("Metadata.EventSource_1", &["Metadata.EventSource"]);
    let aggregate = Index::unique("EventSource_1_AggregateType_1", &["EventSource", "AggregateType"]);
    let entries = vec![
        Index::unique("commit_1", &["coll", "commit"]),
        Index::unique("aggregate_1", &["aggregate", "id", "version"]),
        Index::ascending("types_1", &["types", "_id"]),
        // Most commits have no tags, and need no entry in this index.
        Index { partial: Some(doc! { "tags": { "$exists": true } }), ..Index::ascending("tags_1", &["tags", "_id"]) },
    ];
    let plain = [EVENT_LOG_METADATA, SEQUENCER, HELD, IDENTITY, BLOCKS, COLLECTIONS].map(|name| (name, Vec::new()));
    let streams = vec![stream_states()];
    let mut all =
        vec![(EVENT_LOG, vec![source, version]), (AGGREGATES, vec![aggregate]), (ENTRIES, entries), (STREAMS, streams)];
    all.extend(plain);
    all
}

/// Creates what a tenant's log needs, since nothing can be created inside a transaction.
///
/// # Errors
/// `unsuitable_server` or `unreachable`.
pub(crate) async fn ensure_log(database: &Database, there: &[String], create: bool) -> Result<(), OpenError> {
    let all = log_collections();
    if create {
        // The others are created with their indexes: the server builds an index of an existing collection, even of an empty one, in two
        // phases.
        let alone = all.iter().filter(|(name, indexes)| indexes.is_empty() || CLUSTERED.contains(name));
        let missing = alone.map(|(name, _)| *name).filter(|name| !there.iter().any(|there| there == name));
        try_join_all(missing.map(|name| create_collection(database, name))).await?;
    }
    let indexed = all.iter().filter(|(_, indexes)| !indexes.is_empty());
    try_join_all(indexed.map(|(name, indexes)| reconcile(database, name, indexes, &[], create))).await.map(|_| ())
}

/// Returns how many collections and indexes `ensure_log` and the first commit to each of these collections would create. Writes nothing.
///
/// # Errors
/// `unsuitable_server` for an index that differs, `unreachable`.
pub(crate) async fn lacking(
    database: &Database,
    there: &[String],
    commits: &[String],
    options: &Options,
) -> Result<usize, OpenError> {
    let all = log_collections();
    let mut count = all.iter().filter(|(name, _)| !there.iter().any(|there| there == name)).count();
    for (name, indexes) in all.iter().filter(|(_, indexes)| !indexes.is_empty()) {
        count += missing(database, name, indexes, &[]).await?.len();
    }
    let (expected, forbidden) = event_stream_indexes(options);
    for name in commits {
        count += missing(database, name, &expected, &[forbidden]).await?.len();
    }
    Ok(count)
}

/// Creates the Dolittle Runtime's two indexes of a scope's log, neither of which is unique, and the index of its streams' states.
///
/// # Errors
/// `unsuitable_server` or `unreachable`.
pub(crate) async fn ensure_scope(database: &Database, log: &str, states: &str, create: bool) -> Result<(), OpenError> {
    let indexes = [
        Index::ascending("Metadata.EventSource_1", &["Metadata.EventSource"]),
        Index::ascending("Metadata.EventSource_1_Aggregate.TypeId_1", &["Metadata.EventSource", "Aggregate.TypeId"]),
    ];
    reconcile(database, log, &indexes, &[], create).await?;
    reconcile(database, states, &[stream_states()], &[], create).await
}

/// Creates what receiving into a scope needs: the Dolittle Runtime's index of subscriptions, and ours, which prevents that an event of a
/// subscription is in the log twice.
///
/// # Errors
/// `unsuitable_server` or `unreachable`.
pub(crate) async fn ensure_received(
    database: &Database,
    subscriptions: &str,
    arrivals: &str,
    create: bool,
) -> Result<(), OpenError> {
    const KEY: &[&str] = &["Microservice", "Tenant", "Stream", "Partition"];
    const EXTERNAL: &[&str] = &["microservice", "tenant", "stream", "partition", "external"];
    let standing = Index::unique("Microservice_1_Tenant_1_Stream_1_Partition_1", KEY);
    reconcile(database, subscriptions, &[standing], &[], create).await?;
    reconcile(database, arrivals, &[Index::unique("subscription_1_external_1", EXTERNAL)], &[], create).await
}

/// Returns the index that prevents two streams from sharing a collection.
fn stream_states() -> Index {
    Index::unique("collection_1", &["collection"])
}

/// Creates the Dolittle Runtime's four indexes of a stream, and ours: a partition is read in order of position, which the Runtime's index
/// on the partition does not support.
///
/// # Errors
/// `unsuitable_server` or `unreachable`.
pub(crate) async fn ensure_stream(database: &Database, collection: &str, create: bool) -> Result<(), OpenError> {
    let indexes = [
        Index::unique("Metadata.EventLogSequenceNumber_1", &["Metadata.EventLogSequenceNumber"]),
        Index::ascending("Metadata.EventSource_1", &["Metadata.EventSource"]),
        Index::ascending("Partition_1", &["Partition"]),
        Index::ascending("Metadata.EventSource_1_Aggregate.TypeId_1", &["Metadata.EventSource", "Aggregate.TypeId"]),
        Index::ascending("Partition_1__id_1", &["Partition", "_id"]),
    ];
    reconcile(database, collection, &indexes, &[], create).await
}

/// Collections that are created clustered by `_id`, so that documents are stored in order of sequence number. There is no separate index
/// of `_id` to maintain, and a range read is sequential. Readers see no difference.
const CLUSTERED: [&str; 2] = [EVENT_LOG, ENTRIES];

async fn create_collection(database: &Database, collection: &str) -> Result<(), OpenError> {
    let mut create = create(collection);
    if CLUSTERED.contains(&collection) {
        create.insert("clusteredIndex", doc! { "key": { "_id": 1 }, "unique": true });
    }
    match send(database, create).await {
        Err(error) if code_of(&error) != Some(NAMESPACE_EXISTS) => {
            Err(asking(&format!("{}.{collection}", database.name()), &error))
        }
        _ => Ok(()),
    }
}

/// Prepares the collection of an aggregate's commits. Returns its name, and the UUID that an insert must name.
pub(crate) async fn ready(schema: &Schema, aggregate: &str) -> Result<(String, Ready), annals_core::CommitError> {
    let collection = event_stream(aggregate)?;
    let ready = schema.ensure(&collection).await.map_err(crate::refused::not_ready)?;
    Ok((collection, ready))
}
