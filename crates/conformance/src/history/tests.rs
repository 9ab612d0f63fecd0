//! Hand-made histories: good ones must pass, and each bad one must be rejected for what is bad in it.

mod keys;
mod transactions;

use std::sync::Arc;

use annals_core::{
    AggregateIdsQuery, AggregateQuery, CommitError, CommitOutcome, ExpectedVersion, Filter, KnownAggregate, LogQuery,
    NewCommit, RecordedEvent, StoreError, Timestamp, Uuid, limits,
};

use super::History;
use super::record::{CommitsSeen, PageSeen, What};
use crate::model::{Model, Verdict};
use crate::sample::{event, order, order_aggregate};

/// When everything happens.
const NOW: Timestamp = Timestamp::from_millis(1_000);

type Answer = Result<CommitOutcome, CommitError>;

/// A log that does what it should, and a history that says what the test wants.
#[derive(Default)]
struct Scene {
    model: Model,
    history: History,
}

impl Scene {
    /// Stores a commit and gives its outcome; nobody is told.
    fn store(&mut self, commit: &NewCommit) -> CommitOutcome {
        let Verdict::Stored(version, first) = self.model.judge(commit, NOW) else {
            panic!("{commit:?} cannot be stored")
        };
        let id = |n: usize| Uuid::from_u128(u128::from(first) * 1_000 + n as u128);
        let event_ids = (1..=commit.events.len()).map(id).collect();
        let outcome = CommitOutcome {
            commit_id: id(0),
            version,
            first_sequence_number: Some(first),
            event_ids,
            duplicate: false,
            stage: None,
        };
        let stored = self.model.commit(commit, NOW, &Ok(outcome.clone()));
        stored.expect("the verdict is the model's own");
        outcome
    }

    fn begin(&self, what: What) -> usize {
        self.history.record().begin(&Arc::from("client"), what)
    }

    fn end(&self, call: usize, answer: impl FnOnce(&mut What)) {
        self.history.record().end(call, answer);
    }

    fn send(&self, commit: &NewCommit) -> usize {
        self.begin(What::Commit { commit: Arc::new(commit.clone()), answer: None })
    }

    fn answer(&self, call: usize, told: Answer) {
        self.end(call, |what| {
            if let What::Commit { answer, .. } = what {
                *answer = Some(told);
            }
        });
    }

    fn told(&self, commit: &NewCommit, told: Answer) {
        self.answer(self.send(commit), told);
    }

    /// Stores a commit and tells its sender.
    fn stored(&mut self, commit: &NewCommit) -> CommitOutcome {
        let call = self.send(commit);
        let outcome = self.store(commit);
        self.answer(call, Ok(outcome.clone()));
        outcome
    }

    fn head(&self, told: u64) {
        self.end(self.begin(What::Head { answer: None }), |what| *what = What::Head { answer: Some(told) });
    }

    fn page(&self, query: LogQuery, numbers: &[u64], next: u64, head: u64) {
        let call = self.begin(What::Read { query: query.clone(), answer: None });
        let seen = PageSeen { numbers: numbers.to_vec(), next, head };
        self.end(call, |what| *what = What::Read { query, answer: Some(seen) });
    }

    fn show(&self, event: &RecordedEvent) {
        self.history.record().show(0, event);
    }

    #[track_caller]
    fn is_good(&self) {
        self.history.check_events(self.model.events()).expect("the history is good");
    }

    #[track_caller]
    fn is_bad(&self, because: &str) {
        self.is_bad_with(self.model.events(), because);
    }

    #[track_caller]
    fn is_bad_with(&self, events: &[RecordedEvent], because: &str) {
        let broken = self.history.check_events(events).expect_err("the history is bad");
        assert!(broken.contains(because), "{because:?} was due, not\n{broken}");
    }
}

fn failed() -> Answer {
    Err(StoreError::Failed("as planned".into()).into())
}

fn conflict(actual_version: u64) -> Answer {
    Err(CommitError::VersionConflict { expected: "0".into(), actual_version })
}

fn two_events() -> NewCommit {
    order("a", 1).event(event("t", 2)).request_id("r-1")
}

/// Events 0 and 1 are the first commit of order a, event 2 is the first of order b.
fn two_commits() -> (Scene, CommitOutcome) {
    let mut scene = Scene::default();
    let first = scene.stored(&two_events());
    scene.stored(&order("b", 3).request_id("r-2"));
    (scene, first)
}

#[test]
fn a_plain_history_is_good() {
    let (scene, first) = two_commits();
    scene.told(&two_events(), Ok(CommitOutcome { duplicate: true, ..first }));
    scene.told(&order("a", 9).expect(ExpectedVersion::Empty), conflict(1));
    scene.told(&order("a", 9).request_id("r-1"), Err(CommitError::RequestIdReused { request_id: "r-1".into() }));
    let foreign = NewCommit { tenant_id: Some("t".into()), ..order("a", 9) };
    scene.told(&foreign, Err(CommitError::AggregateOfOtherTenant { tenant_id: "(0)".into() }));
    scene.head(3);
    scene.page(LogQuery::default(), &[0, 1, 2], 3, 3);
    scene.page(LogQuery { backwards: true, limit: 2, ..LogQuery::default() }, &[2, 1], 1, 3);
    scene.model.events().iter().for_each(|event| scene.show(event));
    scene.is_good();
}

#[test]
fn a_commit_whose_outcome_is_unknown_may_be_there_or_not() {
    let mut scene = Scene::default();
    scene.told(&order("a", 1).request_id("r-1"), failed());
    scene.is_good();
    let commit = order("b", 1).request_id("r-1");
    scene.told(&commit, failed());
    scene.store(&commit);
    scene.is_good();
    let never_answered = order("c", 1).request_id("r-1");
    scene.send(&never_answered);
    scene.store(&never_answered);
    scene.is_good();
}

#[test]
fn an_acknowledged_commit_that_is_gone_is_noticed() {
    let (scene, _) = two_commits();
    scene.is_bad_with(&scene.model.events()[..2], "it was acknowledged but is gone");
}

#[test]
fn half_a_commit_is_noticed() {
    let (scene, _) = two_commits();
    scene.is_bad_with(&scene.model.events()[..1], "otherwise than it is stored");
}

#[test]
fn a_hole_is_noticed() {
    let (scene, _) = two_commits();
    scene.is_bad_with(&scene.model.events()[1..], "stands at position 0");
}

#[test]
fn a_commit_that_nobody_sent_is_noticed() {
    let mut scene = Scene::default();
    scene.store(&order("a", 1).request_id("r-1"));
    scene.is_bad("nobody sent it");
}

#[test]
fn a_refused_commit_that_is_stored_is_noticed() {
    let mut scene = Scene::default();
    let commit = order("a", 1).request_id("r-1");
    scene.told(&commit, Err(StoreError::DiskFull("as planned".into()).into()));
    scene.store(&commit);
    scene.is_bad("all who did were refused");
}

#[test]
fn a_commit_stored_with_other_content_is_noticed() {
    let (scene, _) = two_commits();
    let mut events = scene.model.events().to_vec();
    events[2].tags.push("tag".into());
    scene.is_bad_with(&events, "what is stored differs");
}

#[test]
fn a_wrong_outcome_is_noticed() {
    let mut scene = Scene::default();
    let call = scene.send(&order("a", 1));
    let outcome = scene.store(&order("a", 1));
    scene.answer(call, Ok(CommitOutcome { version: 2, ..outcome }));
    scene.is_bad("told otherwise than it is stored");
}

#[test]
fn a_repeat_acknowledged_as_new_is_noticed() {
    let (scene, first) = two_commits();
    scene.told(&two_events(), Ok(first));
    scene.is_bad("acknowledged as new 2 times");
}

#[test]
fn a_repeat_of_other_content_or_of_nothing_is_noticed() {
    let (scene, first) = two_commits();
    let duplicate = CommitOutcome { duplicate: true, ..first };
    scene.told(&order("a", 7).request_id("r-1"), Ok(duplicate.clone()));
    scene.is_bad("the first had other content");
    let (scene, _) = two_commits();
    scene.told(&order("a", 1).request_id("r-9"), Ok(duplicate));
    scene.is_bad("the first is not there");
}

#[test]
fn a_request_committed_twice_is_noticed() {
    let mut scene = Scene::default();
    scene.stored(&order("a", 1).request_id("r-1"));
    scene.stored(&order("a", 2).request_id("r-2"));
    let mut events = scene.model.events().to_vec();
    Arc::make_mut(&mut events[1].commit).request_id = Some("r-1".into());
    scene.is_bad_with(&events, "repeats the request");
}

#[test]
fn a_version_conflict_without_a_reason_is_noticed() {
    let (scene, _) = two_commits();
    scene.told(&order("a", 1).expect(ExpectedVersion::Exact(1)), conflict(1));
    scene.is_bad("1 admits 1");
    let (scene, _) = two_commits();
    scene.told(&order("a", 1).expect(ExpectedVersion::Exact(5)), conflict(0));
    scene.is_bad("was known to be at 1");
    let (scene, _) = two_commits();
    scene.told(&order("a", 1).expect(ExpectedVersion::Empty), conflict(2));
    scene.is_bad("the version it was told is gone");
}

#[test]
fn a_version_judged_before_request_or_tenant_is_noticed() {
    let (scene, _) = two_commits();
    scene.told(&order("a", 1).request_id("r-1").expect(ExpectedVersion::Empty), conflict(1));
    scene.is_bad("its request id should have been judged first");
    let (scene, _) = two_commits();
    let foreign = NewCommit { tenant_id: Some("t".into()), ..order("a", 1) };
    scene.told(&foreign.expect(ExpectedVersion::Empty), conflict(1));
    scene.is_bad("refused for its tenantId");
}

#[test]
fn a_commit_accepted_at_the_wrong_version_is_noticed() {
    let mut scene = Scene::default();
    scene.stored(&order("a", 1));
    let call = scene.send(&order("a", 2).expect(ExpectedVersion::Empty));
    let outcome = scene.store(&order("a", 2));
    scene.answer(call, Ok(outcome));
    scene.is_bad("the version before was 1");
}

#[test]
fn an_order_against_real_time_is_noticed() {
    let mut scene = Scene::default();
    let early = scene.store(&order("a", 1));
    scene.stored(&order("b", 2));
    // Sent after b was acknowledged, stored before it.
    scene.told(&order("a", 1), Ok(early));
    scene.is_bad("it stands below 2, which was told before it was sent");
}

#[test]
fn a_head_that_goes_back_or_knows_the_future_is_noticed() {
    let (scene, _) = two_commits();
    scene.head(2);
    scene.is_bad("although 3 was told before");
    let mut scene = Scene::default();
    scene.head(1);
    scene.stored(&order("a", 1));
    scene.is_bad("knows of what was sent at");
    let scene = Scene::default();
    scene.head(1);
    scene.is_bad("the log ends at 0");
}

#[test]
fn a_commit_that_comes_back_after_a_restart_did_not_show_it_is_noticed() {
    let mut scene = Scene::default();
    let commit = order("a", 1).request_id("r-1");
    scene.told(&commit, failed());
    scene.history.restarted();
    scene.head(0);
    scene.store(&commit);
    scene.is_bad("nobody sent it, or all who did were refused");
}

#[test]
fn an_event_that_was_shown_and_is_gone_or_changed_is_noticed() {
    let (scene, _) = two_commits();
    scene.model.events().iter().for_each(|event| scene.show(event));
    scene.is_bad_with(&scene.model.events()[..2], "event 2 was shown but is gone");
    let changed = RecordedEvent { generation: 9, ..scene.model.events()[0].clone() };
    scene.show(&changed);
    scene.is_bad("but earlier as");
}

#[test]
fn a_page_that_leaves_out_adds_or_ends_early_is_noticed() {
    let read = |query: LogQuery, numbers: &[u64], next| {
        let (scene, _) = two_commits();
        scene.page(query, numbers, next, 3);
        scene
    };
    let all = LogQuery::default;
    let backwards = || LogQuery { backwards: true, ..LogQuery::default() };
    read(all(), &[0, 2], 3).is_bad("there are [0, 1, 2]");
    read(all(), &[0, 1], 3).is_bad("there are [0, 1, 2]");
    read(all(), &[0, 1, 2], 4).is_bad("does not lie between");
    read(all(), &[], 0).is_bad("an empty page is the end");
    read(backwards(), &[0, 1, 2], 0).is_bad("there are [2, 1, 0]");
    read(LogQuery { limit: 2, ..all() }, &[0, 1, 2], 3).is_bad("over its limit");
    let only_t = Filter { types: vec!["t".into()], ..Filter::default() };
    read(LogQuery { filter: only_t, ..all() }, &[0], 3).is_bad("there are [1]");
}

#[test]
fn a_wrong_read_of_an_aggregate_is_noticed() {
    let read = |version, commits: &[(u64, u64, usize)]| {
        let (scene, _) = two_commits();
        let query = AggregateQuery { limit: limits::PAGE_MAX, ..AggregateQuery::new(order_aggregate("a")) };
        let call = scene.begin(What::ReadAggregate { query: query.clone(), answer: None });
        let seen = CommitsSeen { version, commits: commits.to_vec() };
        scene.end(call, |what| *what = What::ReadAggregate { query, answer: Some(seen) });
        scene
    };
    read(1, &[(1, 0, 2)]).is_good();
    read(0, &[]).is_bad("version 1 was known");
    read(1, &[]).is_bad("there are [(1, 0, 2)]");
    read(1, &[(1, 0, 1)]).is_bad("there are [(1, 0, 2)]");
    read(2, &[(1, 0, 2)]).is_bad("the version is gone");
}

#[test]
fn a_wrong_look_up_or_list_is_noticed() {
    let exists = |request: &str, told| {
        let (scene, _) = two_commits();
        let ask = |answer| What::RequestExists { aggregate: order_aggregate("a"), request_id: request.into(), answer };
        let call = scene.begin(ask(None));
        scene.end(call, |what| *what = ask(Some(told)));
        scene
    };
    exists("r-1", true).is_good();
    exists("r-1", false).is_bad("was known");
    exists("r-2", true).is_bad("it is not there");
    let listed = |ids: &[&str]| {
        let (scene, _) = two_commits();
        let known = |id: &&str| KnownAggregate { id: (*id).into(), tenant_id: "(0)".into() };
        let query = AggregateIdsQuery { name: "order".into(), after: None, limit: 10 };
        let ids = ids.iter().map(known).collect();
        let call = scene.begin(What::AggregateIds { query: query.clone(), answer: None });
        scene.end(call, |what| *what = What::AggregateIds { query, answer: Some(ids) });
        scene
    };
    listed(&["a", "b"]).is_good();
    listed(&["b"]).is_bad("order/a was known and is left out");
    listed(&["b", "a"]).is_bad("out of order");
    listed(&["a", "b", "c"]).is_bad("should not be listed");
}
