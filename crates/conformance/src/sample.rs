//! Shorthands in which the cases are written.

use std::sync::Arc;

use annals_core::{
    Aggregate, AggregateQuery, AppendCondition, CommitError, CommitOutcome, DEFAULT_SCOPE, DEFAULT_TENANT, Data,
    EventLog, EventPattern, LogQuery, NewCommit, NewEvent, NewTransaction, RecordedCommit, RecordedEvent,
    SequenceNumber, Store, TransactionError, Version, limits,
};

use crate::Subject;
use crate::logged::Logged;

/// Opens the subject. Also returns the store, because a log need not outlive it.
pub(crate) async fn open(subject: &dyn Subject) -> (Arc<dyn Store>, Arc<dyn EventLog>) {
    let store = subject.open().await;
    let log = log_of(&store, DEFAULT_TENANT);
    (store, log)
}

pub(crate) fn log_of(store: &Arc<dyn Store>, tenant: &str) -> Arc<dyn EventLog> {
    Logged::over(store.log(tenant, DEFAULT_SCOPE).expect("the tenant is declared"))
}

/// Closes the store, and opens it again.
pub(crate) async fn reopen(
    subject: &dyn Subject,
    store: Arc<dyn Store>,
    log: Arc<dyn EventLog>,
) -> (Arc<dyn Store>, Arc<dyn EventLog>) {
    store.close().await;
    drop((store, log));
    open(subject).await
}

pub(crate) fn data(value: serde_json::Value) -> Data {
    Data::from_value(&value).expect("sample data is an object")
}

/// Returns an event whose data is `{"n": n}`.
pub(crate) fn event(event_type: &str, n: u64) -> NewEvent {
    NewEvent::new(event_type, data(serde_json::json!({ "n": n })))
}

/// Returns a commit of an order with one event, whose data is `{"n": n}`.
pub(crate) fn order(id: &str, n: u64) -> NewCommit {
    NewCommit::new("order", id).event(event("order_changed", n))
}

pub(crate) fn order_aggregate(id: &str) -> Aggregate {
    Aggregate::new("order", id)
}

/// Returns an event whose BSON has exactly this many bytes.
pub(crate) fn event_of_bytes(event_type: &str, bytes: usize) -> NewEvent {
    let around = data(serde_json::json!({ "x": "" })).as_bytes().len();
    let event = NewEvent::new(event_type, data(serde_json::json!({ "x": "y".repeat(bytes - around) })));
    assert_eq!(event.data.as_bytes().len(), bytes);
    event
}

/// Commits what must be accepted.
pub(crate) async fn commit(log: &Arc<dyn EventLog>, commit: NewCommit) -> CommitOutcome {
    let outcome = log.commit(commit).await.expect("the commit is accepted");
    assert!(!outcome.duplicate, "a new commit is no duplicate");
    outcome
}

/// Commits what must be refused.
pub(crate) async fn refused(log: &Arc<dyn EventLog>, commit: NewCommit) -> CommitError {
    log.commit(commit).await.expect_err("the commit is refused")
}

/// Returns the sequence number of a commit's first event.
pub(crate) fn number(outcome: &CommitOutcome) -> SequenceNumber {
    outcome.first_sequence_number.expect("the commit was waited for until it was logged")
}

/// Runs a transaction that must be accepted.
pub(crate) async fn transact(log: &Arc<dyn EventLog>, transaction: NewTransaction) -> Vec<CommitOutcome> {
    let count = transaction.commits.len();
    let outcomes = log.transact(transaction).await.expect("the transaction is accepted");
    assert_eq!(outcomes.len(), count, "each commit has an outcome");
    assert!(!outcomes.iter().any(|outcome| outcome.duplicate), "a new transaction is no duplicate");
    outcomes
}

/// Runs a transaction that must be refused.
pub(crate) async fn refused_together(log: &Arc<dyn EventLog>, transaction: NewTransaction) -> TransactionError {
    log.transact(transaction).await.expect_err("the transaction is refused")
}

/// Returns a pattern that matches events with one of these types and all of these tags.
pub(crate) fn pattern(types: &[&str], tags: &[&str]) -> EventPattern {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).into()).collect();
    EventPattern { types: texts(types), tags: texts(tags) }
}

pub(crate) fn unless(patterns: &[EventPattern], after: Option<SequenceNumber>) -> AppendCondition {
    AppendCondition { fail_if: patterns.to_vec(), after }
}

/// Asserts that it was refused with a conflict at this version.
#[track_caller]
pub(crate) fn assert_conflict(result: &Result<CommitOutcome, CommitError>, at: Version) {
    match result {
        Err(CommitError::VersionConflict { actual_version, .. }) => assert_eq!(*actual_version, at),
        other => panic!("a version conflict at {at} was due, not {other:?}"),
    }
}

/// Returns every event of the log, read page by page.
pub(crate) async fn whole_log(log: &Arc<dyn EventLog>) -> Vec<RecordedEvent> {
    pages(log, LogQuery { limit: limits::PAGE_MAX, ..LogQuery::default() }).await
}

/// Returns every event on all pages of a query.
pub(crate) async fn pages(log: &Arc<dyn EventLog>, mut query: LogQuery) -> Vec<RecordedEvent> {
    let mut events = Vec::new();
    loop {
        let page = log.read(query.clone()).await.expect("the page is read");
        assert!(page.events.len() <= query.limit, "a page keeps its limit");
        if page.events.is_empty() {
            return events;
        }
        events.extend(page.events);
        query.from = Some(page.next);
    }
}

/// Returns every commit of an aggregate, read page by page.
pub(crate) async fn commits_of(log: &Arc<dyn EventLog>, aggregate: Aggregate) -> Vec<RecordedCommit> {
    let mut query = AggregateQuery { limit: limits::PAGE_MAX, ..AggregateQuery::new(aggregate) };
    let mut commits: Vec<RecordedCommit> = Vec::new();
    loop {
        let page = log.read_aggregate(query.clone()).await.expect("the aggregate is read");
        let Some(last) = page.commits.last() else { return commits };
        query.from_version = last.info.version + 1;
        commits.extend(page.commits);
    }
}

pub(crate) async fn version_of(log: &Arc<dyn EventLog>, aggregate: Aggregate) -> Version {
    log.read_aggregate(AggregateQuery::last(aggregate)).await.expect("the aggregate is read").version
}

/// Returns the `n` of an event created by [`event`].
pub(crate) fn n_of(event: &RecordedEvent) -> u64 {
    let n = event.data.as_raw().get_i64("n").expect("the event has an n");
    u64::try_from(n).expect("n is not negative")
}

/// Returns the `n` of each event.
pub(crate) fn ns_of(events: &[RecordedEvent]) -> Vec<u64> {
    events.iter().map(n_of).collect()
}

/// Asserts sequence numbers from 0 without gaps, and adjacent events in each commit with ordinals from 0 without gaps.
#[track_caller]
pub(crate) fn assert_in_order(events: &[RecordedEvent]) {
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event.sequence_number, index as u64, "sequence numbers have no hole");
        let first_of_commit = event.ordinal == 0;
        let goes_on = index > 0
            && events[index - 1].commit.commit_id == event.commit.commit_id
            && events[index - 1].ordinal + 1 == event.ordinal;
        assert!(first_of_commit || goes_on, "event {index} stands apart from its commit");
    }
}
