//! Shorthands in which the cases are written.

use std::ops::Range;
use std::sync::Arc;

use annals_core::{
    Appended, DEFAULT_SCOPE, DEFAULT_TENANT, EventLog, Included, Store, StreamEntry, StreamEvent, StreamFollower,
    StreamInfo, StreamPage, StreamQuery, Streams, Verdicts, limits,
};

use crate::Subject;
use crate::sample::{commit, event, log_of, order};

/// An open store with its default log and streams.
pub(crate) struct Opened {
    pub store: Arc<dyn Store>,
    pub log: Arc<dyn EventLog>,
    pub streams: Arc<dyn Streams>,
}

pub(crate) async fn open(subject: &dyn Subject) -> Opened {
    let store = subject.open().await;
    let log = log_of(&store, DEFAULT_TENANT);
    let streams = store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("the tenant is declared");
    Opened { store, log, streams }
}

/// Opens the subject and commits this many events, whose `n` are their sequence numbers.
pub(crate) async fn open_with(subject: &dyn Subject, events: u64) -> Opened {
    let opened = open(subject).await;
    write(&opened.log, events).await;
    opened
}

impl Opened {
    /// Closes the store, and opens it again.
    pub async fn reopen(self, subject: &dyn Subject) -> Self {
        self.store.close().await;
        drop(self);
        open(subject).await
    }
}

/// Commits this many events, whose `n` are their sequence numbers.
pub(crate) async fn write(log: &Arc<dyn EventLog>, events: u64) {
    let first = log.head().await.expect("the head is read");
    for chunk in (first..first + events).collect::<Vec<_>>().chunks(100) {
        let rest = chunk[1..].iter().map(|n| event("order_changed", *n));
        let mut all = order("a", chunk[0]);
        all.events.extend(rest);
        commit(log, all).await;
    }
}

/// Returns verdicts on a range that include these events: a number, or a number with a partition.
pub(crate) fn verdicts(
    stream: &str,
    judged: Range<u64>,
    included: impl IntoIterator<Item = impl Into<In>>,
) -> Verdicts {
    let included = included.into_iter().map(|included| included.into().0).collect();
    Verdicts { included, ..Verdicts::new(stream, judged) }
}

/// An event that can be included.
pub(crate) struct In(Included);

impl From<u64> for In {
    fn from(number: u64) -> Self {
        Self(Included::new(number))
    }
}

impl From<(u64, &str)> for In {
    fn from((number, partition): (u64, &str)) -> Self {
        Self(Included::of(number, partition))
    }
}

/// Includes none of the evaluated events.
pub(crate) const NONE: [u64; 0] = [];

/// Appends verdicts that must be accepted.
pub(crate) async fn append(streams: &Arc<dyn Streams>, verdicts: Verdicts) -> Range<u64> {
    let outcome = streams.append(verdicts).await.expect("the verdicts are accepted");
    assert!(!outcome.duplicate, "new verdicts are no duplicate");
    outcome.positions
}

/// Appends verdicts that must be a repeat.
pub(crate) async fn repeat(streams: &Arc<dyn Streams>, verdicts: Verdicts) -> Range<u64> {
    let Appended { positions, duplicate } = streams.append(verdicts).await.expect("the repeat is accepted");
    assert!(duplicate, "a repeat is a duplicate");
    positions
}

pub(crate) async fn read(streams: &Arc<dyn Streams>, query: StreamQuery) -> StreamPage {
    let (limit, partitions) = (query.limit, query.partitions.clone());
    let page = streams.read(query).await.expect("the page is read");
    assert!(page.entries.len() <= limit, "a page keeps its limit");
    assert!(page.entries.iter().all(|entry| partitions.admits(entry.partition.as_deref())));
    page
}

/// Returns every entry that a query finds, page by page.
pub(crate) async fn pages(streams: &Arc<dyn Streams>, mut query: StreamQuery) -> Vec<StreamEntry> {
    let mut entries: Vec<StreamEntry> = Vec::new();
    loop {
        let page = read(streams, query.clone()).await;
        if page.entries.is_empty() {
            return entries;
        }
        entries.extend(page.entries);
        query.from = page.next;
    }
}

/// Returns every entry of a stream, and asserts positions without gaps and ascending sequence numbers.
pub(crate) async fn whole(streams: &Arc<dyn Streams>, stream: &str) -> Vec<StreamEntry> {
    let entries = pages(streams, StreamQuery { limit: limits::PAGE_MAX, ..StreamQuery::new(stream) }).await;
    assert!(entries.iter().zip(0..).all(|(entry, position)| entry.position == position), "positions have no hole");
    assert!(entries.is_sorted_by(|a, b| a.sequence_number < b.sequence_number), "an event is in a stream once");
    entries
}

/// Returns the sequence numbers of a stream.
pub(crate) async fn numbers(streams: &Arc<dyn Streams>, stream: &str) -> Vec<u64> {
    whole(streams, stream).await.iter().map(|entry| entry.sequence_number).collect()
}

pub(crate) async fn info(streams: &Arc<dyn Streams>, stream: &str) -> StreamInfo {
    streams.stream(stream).await.expect("the stream is looked up")
}

/// Returns the head and the progress of a stream.
pub(crate) async fn head_and_progress(streams: &Arc<dyn Streams>, stream: &str) -> (u64, u64) {
    let info = info(streams, stream).await;
    assert_eq!((&*info.name, info.incarnation_start), (stream, 0));
    (info.head, info.progress)
}

/// Returns the sequence numbers of the next `count` events.
pub(crate) async fn follow_until(follower: &mut StreamFollower, count: usize) -> Vec<u64> {
    let mut events: Vec<StreamEvent> = Vec::new();
    while events.len() < count {
        let page = follower.next_page().await.expect("the follower goes on");
        assert!(!page.is_empty(), "a follower waits rather than return nothing");
        assert!(page.len() <= limits::PAGE_MAX, "a follower holds at most a page");
        events.extend(page);
    }
    assert!(events.is_sorted_by(|a, b| a.position < b.position));
    events.iter().map(|event| event.event.sequence_number).collect()
}
