//! The collections that the change stream shows: those of commits, and what is held back.
//!
//! Exact names are compared by the server for a fraction of what a pattern costs: a filter by the end of a name becomes an expression,
//! evaluated for each event, entry and aggregate that the sequencer itself writes, to throw it away (figures: decision 0020).

use std::collections::BTreeSet;

use futures_util::future::try_join_all;
use mongodb::bson::{Bson, Document, doc};

use super::Cluster;
use crate::layout::names::{EVENT_STREAM, HELD};

/// Beyond so many collections the names alone are compared, and the databases by whoever gets the change: the server compares one after
/// the other.
const PAIRS_MAX: usize = 64;

/// Namespaces, by database and collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Watched {
    databases: BTreeSet<String>,
    collections: BTreeSet<(String, String)>,
}

impl Watched {
    /// Those that there are now.
    pub(super) async fn of(cluster: &Cluster) -> mongodb::error::Result<Self> {
        let databases: BTreeSet<_> = cluster.logs.iter().map(|log| log.database.name().to_owned()).collect();
        let mut watched = Self { databases, collections: BTreeSet::new() };
        for some in cluster.logs.chunks(16) {
            let named = some.iter().map(|log| log.database.list_collection_names().into_future());
            for (log, names) in some.iter().zip(try_join_all(named).await?) {
                let database = log.database.name();
                watched.collections.insert((database.to_owned(), HELD.to_owned()));
                names.iter().for_each(|name| _ = watched.add(database, name));
            }
        }
        Ok(watched)
    }

    /// Adds a collection if it is one of commits here, and says whether it is new.
    pub(super) fn add(&mut self, database: &str, collection: &str) -> bool {
        self.databases.contains(database)
            && collection.ends_with(EVENT_STREAM)
            && self.collections.insert((database.to_owned(), collection.to_owned()))
    }

    /// Whether changes of it are meant: the filter may show others of the same name, and all that are renamed.
    pub(super) fn has(&self, database: &str, collection: &str) -> bool {
        self.databases.contains(database) && (collection == HELD || collection.ends_with(EVENT_STREAM))
    }

    /// The stage of the change stream that lets them through, and whatever gets a name.
    pub(super) fn filter(&self) -> Document {
        const CHANGES: [&str; 5] = ["insert", "update", "replace", "delete", "drop"];
        const NAMING: [&str; 2] = ["create", "rename"];
        let (field, values): (&str, Vec<Bson>) = if self.collections.len() <= PAIRS_MAX {
            let pair = |(database, collection): &(String, String)| doc! { "db": database, "coll": collection }.into();
            ("ns", self.collections.iter().map(pair).collect())
        } else {
            let names: BTreeSet<_> = self.collections.iter().map(|(_, collection)| collection).collect();
            ("ns.coll", names.into_iter().map(Bson::from).collect())
        };
        let changes = doc! { field: { "$in": values }, "operationType": { "$in": CHANGES.to_vec() } };
        doc! { "$match": { "$or": [changes, { "operationType": { "$in": NAMING.to_vec() } }] } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(count: usize) -> Watched {
        let databases = BTreeSet::from(["a".to_owned()]);
        let mut watched = Watched { databases, collections: BTreeSet::new() };
        (0..count).for_each(|n| assert!(watched.add("a", &format!("n{n:03}{EVENT_STREAM}"))));
        watched
    }

    #[test]
    fn only_collections_of_commits_of_our_databases_are_added_and_once() {
        let mut watched = watched(1);
        for (database, collection) in [("a", "n000_event_stream"), ("a", "event-log"), ("b", "x_event_stream")] {
            assert!(!watched.add(database, collection), "{database}.{collection}");
        }
        assert!(
            watched.add("a", "x_event_stream")
                && watched.has("a", "x_event_stream")
                && !watched.has("b", "x_event_stream")
        );
    }

    #[test]
    fn few_collections_are_named_whole_and_many_by_their_names() {
        let changes = |count| {
            let filter = watched(count).filter();
            let either = filter.get_document("$match").and_then(|all| all.get_array("$or")).expect("both").clone();
            assert_eq!(either[1], Bson::from(doc! { "operationType": { "$in": ["create", "rename"] } }));
            either[0].as_document().expect("a document").clone()
        };
        let few = changes(2);
        let first = doc! { "db": "a", "coll": "n000_event_stream" };
        assert_eq!(few.get_document("ns").and_then(|ns| ns.get_array("$in")).expect("pairs")[0], Bson::from(first));
        let many = changes(PAIRS_MAX + 1);
        let names = many.get_document("ns.coll").and_then(|names| names.get_array("$in")).expect("names");
        assert_eq!((names.len(), &names[0]), (PAIRS_MAX + 1, &Bson::from("n000_event_stream")));
    }
}
