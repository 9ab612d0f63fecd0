//! Which commits of a batch get numbers now, and which are held back. Pure: what it needs to know was looked up before.

use std::collections::{HashMap, HashSet};

use annals_core::{Version, limits};
use mongodb::bson::RawDocument;

use super::held::{Held, HeldCommit};
use super::place::{AggregateKey, Head};
use super::stream::Incoming;
use crate::layout::fields::text;
use crate::layout::foreign::{StoredCommit, read};
use crate::layout::names::aggregate_of;

/// A commit as it came.
pub(super) struct Arrived {
    pub(super) collection: String,
    /// Its `_id`.
    pub(super) commit: String,
    /// What it is, or what is wrong with it.
    pub(super) read: Result<(AggregateKey, StoredCommit), Malformed>,
}

/// A commit that cannot be read.
pub(super) struct Malformed {
    /// The aggregate's name by the collection, and its id as far as there is one.
    key: AggregateKey,
    why: String,
}

impl Arrived {
    pub(super) fn read(incoming: Incoming) -> Self {
        let Incoming { collection, document, .. } = incoming;
        let commit = label(&document);
        let name = aggregate_of(&collection).unwrap_or_default();
        let read = match read(&document, name) {
            Ok(commit) => {
                let aggregate = &commit.info.aggregate;
                Ok(((aggregate.name.to_string(), aggregate.id.to_string()), commit))
            }
            Err(why) => {
                let id = text(&document, "aggregateId").filter(|id| id.len() <= limits::ID_BYTES_MAX);
                Err(Malformed { key: (name.to_owned(), id.unwrap_or_default().to_owned()), why })
            }
        };
        Self { collection, commit, read }
    }
}

/// A commit's `_id` as text: what it is called in messages and in `sequencer-held`.
pub(crate) fn label(document: &RawDocument) -> String {
    match document.get("_id") {
        Ok(Some(id)) => id.as_str().map_or_else(|| format!("{id:?}"), str::to_owned),
        _ => String::new(),
    }
}

/// The lowest version of each aggregate.
pub(super) fn first_versions(arrived: &[Arrived]) -> HashMap<&AggregateKey, Version> {
    let mut first = HashMap::new();
    for (key, commit) in arrived.iter().filter_map(|one| one.read.as_ref().ok()) {
        let lowest = first.entry(key).or_insert(commit.info.version);
        *lowest = commit.info.version.min(*lowest);
    }
    first
}

/// A commit that gets the next numbers.
pub(super) struct Numbered<'a> {
    pub(super) collection: &'a str,
    pub(super) key: &'a AggregateKey,
    pub(super) commit: &'a StoredCommit,
    /// Where its aggregate stands before it.
    pub(super) before: Head,
}

impl Numbered<'_> {
    /// Where its aggregate stands after it.
    pub(super) fn after(&self) -> Head {
        let applied = if self.commit.applied { self.commit.events.len() as u64 } else { 0 };
        Head { version: self.commit.info.version, applied: self.before.applied + applied }
    }
}

/// What is to be written.
#[derive(Default)]
pub(super) struct Batch<'a> {
    /// In the order of their numbers.
    pub(super) numbered: Vec<Numbered<'a>>,
    /// What was not held before.
    pub(super) held: Vec<HeldCommit>,
    /// What was held and is numbered now.
    pub(super) released: Vec<HeldCommit>,
}

impl Batch<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.numbered.is_empty() && self.held.is_empty()
    }
}

/// A commit gets its numbers when the one before it has them. One that comes too early is held back, and with it only what comes later
/// of the same aggregate; a malformed one as well, because what is behind it has a gap before it.
///
/// `late` are those, by collection and `_id`, whose versions the log has passed without them.
pub(super) fn assign<'a>(
    arrived: &'a [Arrived],
    heads: &HashMap<AggregateKey, Head>,
    held: &Held,
    late: &HashSet<(String, String)>,
) -> Batch<'a> {
    let mut batch = Batch::default();
    let mut moved: HashMap<&AggregateKey, Head> = HashMap::new();
    let mut seen = HashSet::new();
    for one in arrived {
        if !seen.insert((&one.collection, &one.commit)) {
            continue;
        }
        let hold = |key: &AggregateKey, version: Version, reason: String| HeldCommit {
            collection: one.collection.clone(),
            commit: one.commit.clone(),
            aggregate: key.clone(),
            version,
            reason,
        };
        let before = held.find(&one.collection, &one.commit);
        let refused = match &one.read {
            Err(Malformed { key, why }) => hold(key, 0, format!("malformed: {why}")),
            Ok((key, commit)) => {
                let head = moved.get(key).or_else(|| heads.get(key)).copied().unwrap_or_default();
                let version = commit.info.version;
                if version == head.version + 1 {
                    let numbered = Numbered { collection: &one.collection, key, commit, before: head };
                    moved.insert(key, numbered.after());
                    batch.numbered.push(numbered);
                    batch.released.extend(before.cloned());
                    continue;
                }
                let came = format!("version {version} came when the log had version {}", head.version);
                if version > head.version {
                    hold(key, version, format!("gap: {came}"))
                } else if late.contains(&(one.collection.clone(), one.commit.clone())) {
                    hold(key, version, format!("late: {came}, from which on versions were accepted"))
                } else {
                    // In the log already: the unique index allows one commit of a version.
                    continue;
                }
            }
        };
        if before.is_none_or(|before| before.reason != refused.reason) {
            batch.held.push(refused);
        }
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::{RawDocumentBuf, doc};

    fn commit(id: &str, aggregate: &str, version: i32) -> Arrived {
        let document = doc! {
            "_id": id, "aggregateId": aggregate, "version": version, "createTime": 1_i64, "requestId": id,
            "body": [{ "name": "placed", "body": {} }, { "name": "paid", "body": {} }],
        };
        let document = RawDocumentBuf::try_from(&document).expect("encodes");
        Arrived::read(Incoming::stored("db", "order_event_stream", document))
    }

    fn numbered(batch: &Batch<'_>) -> Vec<String> {
        batch.numbered.iter().map(|one| one.commit.key.clone()).collect()
    }

    #[test]
    fn commits_are_numbered_in_the_order_in_which_they_come() {
        let arrived = [commit("1", "a", 1), commit("2", "b", 1), commit("3", "a", 2)];
        let batch = assign(&arrived, &HashMap::new(), &Held::default(), &HashSet::new());
        assert_eq!(numbered(&batch), ["1", "2", "3"]);
        assert!(batch.held.is_empty());
        assert_eq!(batch.numbered[2].after(), Head { version: 2, applied: 4 });
    }

    #[test]
    fn a_gap_holds_back_its_own_aggregate_only() {
        let arrived = [commit("1", "a", 2), commit("2", "b", 1), commit("3", "a", 3)];
        let batch = assign(&arrived, &HashMap::new(), &Held::default(), &HashSet::new());
        assert_eq!(numbered(&batch), ["2"]);
        assert_eq!(batch.held.iter().map(|held| &*held.commit).collect::<Vec<_>>(), ["1", "3"]);
        assert!(batch.held[0].reason.starts_with("gap"));
    }

    #[test]
    fn what_is_in_the_log_already_is_left_out() {
        let heads = HashMap::from([(("order".to_owned(), "a".to_owned()), Head { version: 1, applied: 2 })]);
        let arrived = [commit("1", "a", 1), commit("2", "a", 2), commit("2", "a", 2)];
        let batch = assign(&arrived, &heads, &Held::default(), &HashSet::new());
        assert_eq!(numbered(&batch), ["2"]);
        assert_eq!(batch.numbered[0].after(), Head { version: 2, applied: 4 });
    }

    #[test]
    fn a_malformed_commit_is_held_with_what_is_wrong() {
        let document = doc! { "_id": 7, "aggregateId": "a", "version": 1 };
        let document = RawDocumentBuf::try_from(&document).expect("encodes");
        let arrived = [Arrived::read(Incoming::stored("db", "order_event_stream", document))];
        let batch = assign(&arrived, &HashMap::new(), &Held::default(), &HashSet::new());
        assert!(batch.numbered.is_empty());
        let held = &batch.held[0];
        assert!(held.reason.starts_with("malformed: _id"), "{}", held.reason);
        assert_eq!((held.aggregate.clone(), held.version), (("order".to_owned(), "a".to_owned()), 0));
    }
}
