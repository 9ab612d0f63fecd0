//! Decides which commits of a batch get numbers now and which are held. Pure: everything it needs was looked up before.

use std::collections::{HashMap, HashSet};

use annals_core::{SequenceNumber, Version, limits};
use mongodb::bson::RawDocument;

use super::held::{GAP, Held, HeldCommit};
use super::place::{AggregateKey, Head};
use super::stream::Incoming;
use crate::layout::fields::text;
use crate::layout::foreign::{StoredCommit, read};
use crate::layout::names::{aggregate_of, uuid_of};

/// A commit as it arrived.
pub(super) struct Arrived {
    pub(super) collection: String,
    /// Its `_id`.
    pub(super) commit: String,
    /// Its content, or what is wrong with it.
    pub(super) read: Result<(AggregateKey, StoredCommit), Malformed>,
}

/// Maximum length in bytes of a commit's `_id` and aggregate id for it to be numbered: look-ups combine many of them in one query.
const ID_BYTES_MAX: usize = 4096;

/// A commit that cannot be read.
pub(super) struct Malformed {
    /// The aggregate's name according to the collection, and its id if it has one.
    key: AggregateKey,
    why: String,
}

impl Arrived {
    pub(super) fn read(incoming: Incoming) -> Self {
        let Incoming { collection, document, .. } = incoming;
        let commit = label(&document);
        let name = aggregate_of(&collection).unwrap_or_default();
        let read = match read(&document, name).and_then(of_bounded_ids) {
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

fn of_bounded_ids(commit: StoredCommit) -> Result<StoredCommit, String> {
    for (field, id) in [("_id", &*commit.key), ("aggregateId", &*commit.info.aggregate.id)] {
        if id.len() > ID_BYTES_MAX {
            return Err(format!("{field} has {} bytes; at most {ID_BYTES_MAX} are numbered", id.len()));
        }
    }
    Ok(commit)
}

/// Returns a commit's `_id` as text, which names it in messages and in `sequencer-held`. A very long `_id` is shortened to its beginning
/// and a hash that makes it unique.
pub(crate) fn label(document: &RawDocument) -> String {
    let label = match document.get("_id") {
        Ok(Some(id)) => id.as_str().map_or_else(|| format!("{id:?}"), str::to_owned),
        _ => String::new(),
    };
    match label.len() > ID_BYTES_MAX {
        true => format!("{}{CUT}{}", beginning(&label), uuid_of("label", &label)),
        false => label,
    }
}

/// Separates the beginning of a long `_id` from its hash.
const CUT: &str = "…#";
/// Bytes of a long `_id` that its label keeps, at most.
const BEGINNING: usize = 200;

fn beginning(text: &str) -> &str {
    cut(text, BEGINNING)
}

/// Returns a prefix of at most `bytes` bytes that ends at a character boundary.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Returns the beginning of the `_id` for which this shortened label stands; `None` if the label is not shortened.
pub(super) fn begins(label: &str) -> Option<&str> {
    label.rsplit_once(CUT).map(|(beginning, _)| beginning)
}

/// Returns the lowest version of each aggregate.
pub(super) fn first_versions(arrived: &[Arrived]) -> HashMap<&AggregateKey, Version> {
    let mut first = HashMap::new();
    for (key, commit) in arrived.iter().filter_map(|one| one.read.as_ref().ok()) {
        let lowest = first.entry(key).or_insert(commit.info.version);
        *lowest = commit.info.version.min(*lowest);
    }
    first
}

/// A commit that gets the next sequence numbers.
pub(super) struct Numbered<'a> {
    pub(super) collection: &'a str,
    pub(super) key: &'a AggregateKey,
    pub(super) commit: &'a StoredCommit,
    /// The head of its aggregate before it.
    pub(super) before: Head,
}

impl Numbered<'_> {
    /// Returns the head of its aggregate after it.
    pub(super) fn after(&self) -> Head {
        let applied = if self.commit.applied { self.commit.events.len() as u64 } else { 0 };
        Head { version: self.commit.info.version, applied: self.before.applied + applied }
    }
}

/// Maximum length of a reason in bytes: some quote data of other software.
const REASON_BYTES_MAX: usize = 1000;

/// The outcome of an assignment, to be written.
#[derive(Default)]
pub(super) struct Batch<'a> {
    /// In the order of their sequence numbers.
    pub(super) numbered: Vec<Numbered<'a>>,
    /// Commits that become held, or whose reason has changed.
    pub(super) held: Vec<HeldCommit>,
    /// Commits that were held and are numbered now.
    pub(super) released: Vec<HeldCommit>,
}

impl Batch<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.numbered.is_empty() && self.held.is_empty() && self.released.is_empty()
    }
}

/// A commit by its collection and `_id`.
pub(super) type CommitKey = (String, String);

/// Why well-formed commits cannot get the next sequence numbers.
#[derive(Default)]
pub(super) struct Obstacles {
    /// Commits whose versions the log has passed without them, with the commit that has the version in the log, if there is one.
    pub(super) late: HashMap<CommitKey, Option<Taken>>,
    /// Commits that could not be written, with the reason.
    pub(super) refused: HashMap<CommitKey, String>,
}

/// The commit that has a version in the log, and its first sequence number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) commit: String,
    pub(super) first: SequenceNumber,
}

/// Assigns numbers to each commit whose predecessor has numbers. A commit that arrives too early is held, and so are only the later
/// commits of its aggregate. A malformed commit is held as well, which leaves a gap before its successors.
pub(super) fn assign<'a>(
    arrived: &'a [Arrived],
    heads: &HashMap<AggregateKey, Head>,
    held: &Held,
    obstacles: &Obstacles,
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
            reason: cut(&reason, REASON_BYTES_MAX).to_owned(),
        };
        let before = held.find(&one.collection, &one.commit);
        let refused = match &one.read {
            Err(Malformed { key, why }) => hold(key, 0, format!("malformed: {why}")),
            Ok((key, commit)) => {
                let head = moved.get(key).or_else(|| heads.get(key)).copied().unwrap_or_default();
                let version = commit.info.version;
                let place = (one.collection.clone(), one.commit.clone());
                let unwritten = obstacles.refused.get(&place);
                if version == head.version + 1 && unwritten.is_none() {
                    let numbered = Numbered { collection: &one.collection, key, commit, before: head };
                    moved.insert(key, numbered.after());
                    batch.numbered.push(numbered);
                    batch.released.extend(before.cloned());
                    continue;
                }
                let came = format!("version {version} came when the log had version {}", head.version);
                match (unwritten, obstacles.late.get(&place)) {
                    (Some(why), _) if version == head.version + 1 => hold(key, version, why.clone()),
                    _ if version > head.version => hold(key, version, format!("{GAP}{came}")),
                    (_, Some(None)) => {
                        hold(key, version, format!("late: {came}, from which on versions were accepted"))
                    }
                    (_, Some(Some(Taken { commit, first }))) => {
                        let commit = beginning(commit);
                        let why =
                            format!("taken: {came}, whose version {version} is commit {commit:?} at number {first}");
                        hold(key, version, why)
                    }
                    // Already in the log.
                    (_, None) => continue,
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
        let batch = assign(&arrived, &HashMap::new(), &Held::default(), &Obstacles::default());
        assert_eq!(numbered(&batch), ["1", "2", "3"]);
        assert!(batch.held.is_empty());
        assert_eq!(batch.numbered[2].after(), Head { version: 2, applied: 4 });
    }

    #[test]
    fn a_gap_holds_back_its_own_aggregate_only() {
        let arrived = [commit("1", "a", 2), commit("2", "b", 1), commit("3", "a", 3)];
        let batch = assign(&arrived, &HashMap::new(), &Held::default(), &Obstacles::default());
        assert_eq!(numbered(&batch), ["2"]);
        assert_eq!(batch.held.iter().map(|held| &*held.commit).collect::<Vec<_>>(), ["1", "3"]);
        assert!(batch.held[0].reason.starts_with("gap"));
    }

    #[test]
    fn what_is_in_the_log_already_is_left_out() {
        let heads = HashMap::from([(("order".to_owned(), "a".to_owned()), Head { version: 1, applied: 2 })]);
        let arrived = [commit("1", "a", 1), commit("2", "a", 2), commit("2", "a", 2)];
        let batch = assign(&arrived, &heads, &Held::default(), &Obstacles::default());
        assert_eq!(numbered(&batch), ["2"]);
        assert_eq!(batch.numbered[0].after(), Head { version: 2, applied: 4 });
    }

    #[test]
    fn a_version_that_the_log_has_passed_is_held_with_what_has_it() {
        let heads = HashMap::from([(("order".to_owned(), "a".to_owned()), Head { version: 3, applied: 3 })]);
        let place = |commit: &str| ("order_event_stream".to_owned(), commit.to_owned());
        let taken = Taken { commit: "first".to_owned(), first: 17 };
        let late = HashMap::from([(place("2"), None), (place("3"), Some(taken))]);
        let arrived = [commit("2", "a", 2), commit("3", "a", 3), commit("4", "a", 4)];
        let obstacles = Obstacles { late, ..Obstacles::default() };
        let batch = assign(&arrived, &heads, &Held::default(), &obstacles);
        assert_eq!(numbered(&batch), ["4"], "the aggregate goes on");
        let reasons: Vec<_> = batch.held.iter().map(|held| &*held.reason).collect();
        assert!(reasons[0].starts_with("late: version 2 came when the log had version 3"), "{reasons:?}");
        assert!(reasons[1].starts_with("taken: ") && reasons[1].contains("\"first\" at number 17"), "{reasons:?}");
    }

    #[test]
    fn a_commit_that_cannot_be_written_is_held_and_only_its_aggregate_with_it() {
        let refused = HashMap::from([(("order_event_stream".to_owned(), "1".to_owned()), "too large: x".to_owned())]);
        let arrived = [commit("1", "a", 1), commit("2", "a", 2), commit("3", "b", 1)];
        let obstacles = Obstacles { refused, ..Obstacles::default() };
        let batch = assign(&arrived, &HashMap::new(), &Held::default(), &obstacles);
        assert_eq!(numbered(&batch), ["3"]);
        let reasons: Vec<_> = batch.held.iter().map(|held| held.reason.split(':').next()).collect();
        assert_eq!(reasons, [Some("too large"), Some("gap")]);
    }

    #[test]
    fn a_long_id_is_called_by_its_beginning_and_is_not_numbered() {
        let of = |id: &str| commit(id, "a", 1);
        let (one, other) = (format!("{}1", "é".repeat(5000)), format!("{}2", "é".repeat(5000)));
        assert!(of(&one).read.is_err() && commit("1", &one, 1).read.is_err());
        assert_ne!(of(&one).commit, of(&other).commit);
        assert!(of(&one).commit.len() < 300);
        assert!(begins(&of(&one).commit).is_some_and(|beginning| one.starts_with(beginning)));
        assert_eq!((of("x").commit, begins("x")), ("x".to_owned(), None));
    }

    #[test]
    fn a_malformed_commit_is_held_with_what_is_wrong() {
        let document = doc! { "_id": 7, "aggregateId": "a", "version": 1 };
        let document = RawDocumentBuf::try_from(&document).expect("encodes");
        let arrived = [Arrived::read(Incoming::stored("db", "order_event_stream", document))];
        let batch = assign(&arrived, &HashMap::new(), &Held::default(), &Obstacles::default());
        assert!(batch.numbered.is_empty());
        let held = &batch.held[0];
        assert!(held.reason.starts_with("malformed: _id"), "{}", held.reason);
        assert_eq!((held.aggregate.clone(), held.version), (("order".to_owned(), "a".to_owned()), 0));
    }
}
