//! Names of collections, and the UUIDs that represent names where the Dolittle Runtime's layouts require UUIDs.

use annals_core::names::{is_public_stream, stream_uuid};
pub(crate) use annals_core::names::{of_scope, uuid_of};
use annals_core::{Code, Invalid};
use mongodb::Database;
use mongodb::bson::doc;
use uuid::Uuid;

/// The events of a tenant in one total order, in the Dolittle Runtime's layout.
pub(crate) const EVENT_LOG: &str = "event-log";
/// The next sequence number of each log, in the Dolittle Runtime's layout.
pub(crate) const EVENT_LOG_METADATA: &str = "event-log-metadata";
/// The number of events that each aggregate has applied, in the Dolittle Runtime's layout.
pub(crate) const AGGREGATES: &str = "aggregates";
/// The sequence numbers of each commit, which `event-log` cannot store.
pub(crate) const ENTRIES: &str = "event-log-commits";
/// The entries of many commits in one document, for readers that start at the beginning of the log.
pub(crate) const BLOCKS: &str = "annals-blocks";
/// The collection, by UUID, that each name of a collection of commits denotes.
pub(crate) const COLLECTIONS: &str = "annals-collections";
/// Held commits, with the reason.
pub(crate) const HELD: &str = "sequencer-held";
/// The sequencer's lease, and the position of each log in the change stream.
pub(crate) const SEQUENCER: &str = "sequencer-state";
/// The identity of the store.
pub(crate) const IDENTITY: &str = "annals-store";
/// The definition of the filter of each stream, in the Dolittle Runtime's layout.
pub(crate) const STREAM_DEFINITIONS: &str = "stream-definitions";
/// The state of each stream, which the Dolittle Runtime's layout cannot store.
pub(crate) const STREAMS: &str = "annals-streams";
/// The context that owns the database, in Wow's layout.
pub(crate) const OWNER: &str = "wow_database_metadata";

/// Suffix of the name of a collection of commits.
pub(crate) const EVENT_STREAM: &str = "_event_stream";
/// Prefix of the collections that MongoDB reserves.
const SYSTEM: &str = "system.";

/// Returns why a collection cannot have this name, if so. The server reserves `system.` and rejects a leading dot. Drivers reject
/// consecutive dots and a trailing dot, so that other software could not open the collection.
pub(crate) fn unfit(collection: &str) -> Option<&'static str> {
    if collection.starts_with(SYSTEM) {
        return Some("begins with \"system.\", which MongoDB keeps for itself");
    }
    if collection.starts_with('.') || collection.ends_with('.') {
        return Some("begins or ends with a dot, which no name of a collection does in MongoDB");
    }
    collection.contains("..").then_some("has two dots side by side, which no name of a collection has in MongoDB")
}

/// Returns the collection of the commits of aggregates of this name.
///
/// # Errors
/// If the name begins with `system.`, which MongoDB reserves.
pub(crate) fn event_stream(aggregate: &str) -> Result<String, Invalid> {
    let collection = format!("{aggregate}{EVENT_STREAM}");
    match unfit(&collection).filter(|_| collection.starts_with(SYSTEM)) {
        Some(why) => Err(unfit_aggregate(aggregate, why)),
        None => Ok(collection),
    }
}

/// Returns the collection for a commit, which may create it. A collection that other software created can be read whatever its name.
///
/// # Errors
/// If no collection can have the name, see [`unfit`].
pub(crate) fn new_event_stream(aggregate: &str) -> Result<String, Invalid> {
    let collection = format!("{aggregate}{EVENT_STREAM}");
    match unfit(&collection) {
        Some(why) => Err(unfit_aggregate(aggregate, why)),
        None => Ok(collection),
    }
}

fn unfit_aggregate(aggregate: &str, why: &str) -> Invalid {
    let message = format!("{aggregate:?} {why}, and commits are in a collection of this name; use another name");
    Invalid::new(Code::InvalidName, "aggregate.name", message)
}

/// Returns the aggregate name of a collection of commits. Collections without a name before the suffix, and those that MongoDB reserves
/// (the buckets of a time series), have no commits.
pub(crate) fn aggregate_of(collection: &str) -> Option<&str> {
    let named = |name: &&str| !name.is_empty() && !name.starts_with(SYSTEM);
    collection.strip_suffix(EVENT_STREAM).filter(named)
}

/// Lists the collections of a database, without views. A view is never written to, has no indexes, and is no collection of commits
/// whatever its name.
///
/// # Errors
/// Errors of the driver.
pub(crate) async fn collections(database: &Database) -> mongodb::error::Result<Vec<String>> {
    database.list_collection_names().filter(doc! { "type": "collection" }).await
}

/// Returns the collection of a stream's entries, in the Dolittle Runtime's layout: `public-stream-<id>` if the stream is public, which its
/// name may also say, otherwise `stream-<id>`.
pub(crate) fn stream_collection(name: &str, public: bool) -> String {
    let kind = if public || is_public_stream(name) { "public-stream" } else { "stream" };
    format!("{kind}-{}", stream_uuid(name))
}

/// Returns the UUID of a scope, from which the names of its collections are formed.
pub(crate) fn scope_uuid(name: &str) -> Uuid {
    uuid_of("scope", name)
}

/// Returns the id of an event that other software stored without one.
pub(crate) fn id_of_event(commit: Uuid, ordinal: usize) -> Uuid {
    Uuid::new_v5(&commit, ordinal.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_a_uuid_is_used_as_it_is_and_others_stay_the_same_for_ever() {
        let id = Uuid::from_u128(0x0192_f000_0000_7000_8000_0000_0000_0001);
        assert_eq!(uuid_of("event", &id.to_string()), id);
        assert_eq!(uuid_of("event", "order_placed").to_string(), "f6501ea0-dd05-5e7d-8a21-05525b42831f");
        assert_ne!(uuid_of("event", "order"), uuid_of("aggregate", "order"));
    }

    #[test]
    fn a_stream_keeps_the_name_that_the_layout_has_and_others_get_one_for_ever() {
        let id = "323bcdb2-5bbd-4f13-a7c3-b19bc2cc2452";
        for name in [format!("stream-{id}"), format!("public-stream-{id}")] {
            assert_eq!(stream_collection(&name, false), name);
        }
        assert_eq!(stream_collection(id, false), format!("stream-{id}"));
        assert_eq!(stream_collection(id, true), format!("public-stream-{id}"));
        assert_eq!(stream_collection("orders", true), "public-stream-5d71be96-23a6-5b7d-bc44-713a9695d47b");
        assert_eq!(stream_collection("orders", false), "stream-5d71be96-23a6-5b7d-bc44-713a9695d47b");
        assert_eq!(stream_collection("public-stream-1", false), "public-stream-db196105-4bba-5670-a6f2-ca1373aa1a0a");
        let upper = format!("stream-{}", id.to_uppercase());
        let names = ["s", "S", "stream-1", "stream-10", "public-stream-1", &upper, &id.replace('-', "")];
        let collections: std::collections::BTreeSet<_> =
            names.iter().map(|name| stream_collection(name, false)).collect();
        assert_eq!(collections.len(), names.len(), "{collections:?}");
    }

    #[test]
    fn a_scope_s_collections_are_named_after_its_uuid() {
        let scope = scope_uuid("0a1b2c3d-0000-4000-8000-00000000abcd");
        assert_eq!(of_scope(scope, EVENT_LOG), "x-0a1b2c3d-0000-4000-8000-00000000abcd-event-log");
        assert_eq!(scope_uuid("inbox").to_string(), "8fa873a7-137d-526b-8de4-20023f197926");
        assert_eq!(aggregate_of(&of_scope(scope, EVENT_LOG)), None);
    }

    #[test]
    fn a_collection_is_told_by_its_end() {
        assert_eq!(event_stream("order").as_deref(), Ok("order_event_stream"));
        assert_eq!(aggregate_of("order_event_stream"), Some("order"));
        assert_eq!(aggregate_of("_event_stream"), None);
        assert_eq!(aggregate_of("system.buckets.order_event_stream"), None);
        assert_eq!(aggregate_of("order_snapshot"), None);
        assert_eq!(event_stream("system.users").expect_err("kept for MongoDB").code, Code::InvalidName);
        assert_eq!(event_stream("a.b..c").as_deref(), Ok("a.b..c_event_stream"), "what is there is read");
        for (name, rule) in [("system.users", "system."), ("a.b..c", "side by side")] {
            let refused = new_event_stream(name).expect_err(name);
            assert!(refused.code == Code::InvalidName && refused.message.contains(rule), "{refused}");
        }
        assert_eq!((unfit("a.b_c"), unfit("systems.x")), (None, None));
        assert!(unfit("a.").is_some() && unfit(".a").is_some());
    }
}
