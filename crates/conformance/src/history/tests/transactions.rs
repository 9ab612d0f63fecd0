//! Transactions and append conditions.

use annals_core::{AppendCondition, EventPattern, NewTransaction, TransactionError};

use super::*;
use crate::model::TransactionVerdict;

type Told = Result<Vec<CommitOutcome>, TransactionError>;

impl Scene {
    fn store_all(&mut self, transaction: &NewTransaction) -> Vec<CommitOutcome> {
        let TransactionVerdict::Stored(places) = self.model.judge_transaction(transaction, NOW) else {
            panic!("{transaction:?} cannot be stored")
        };
        let outcome = |(commit, (version, first)): (&NewCommit, (u64, u64))| {
            let id = |n: usize| Uuid::from_u128(u128::from(first) * 1_000 + n as u128);
            let event_ids = (1..=commit.events.len()).map(id).collect();
            CommitOutcome {
                commit_id: id(0),
                version,
                first_sequence_number: Some(first),
                event_ids,
                duplicate: false,
                stage: None,
            }
        };
        let outcomes: Vec<_> = transaction.commits.iter().zip(places).map(outcome).collect();
        let stored = self.model.transact(transaction, NOW, &Ok(outcomes.clone()));
        stored.expect("the verdict is the model's own");
        outcomes
    }

    fn send_all(&self, transaction: &NewTransaction) -> usize {
        self.begin(What::Transact { transaction: Arc::new(transaction.clone()), answer: None })
    }

    fn all_told(&self, transaction: &NewTransaction, told: Told) {
        self.answer_all(self.send_all(transaction), told);
    }

    fn answer_all(&self, call: usize, told: Told) {
        self.end(call, |what| {
            if let What::Transact { answer, .. } = what {
                *answer = Some(told);
            }
        });
    }

    fn all_stored(&mut self, transaction: &NewTransaction) -> Vec<CommitOutcome> {
        let call = self.send_all(transaction);
        let outcomes = self.store_all(transaction);
        self.answer_all(call, Ok(outcomes.clone()));
        outcomes
    }
}

/// Of orders a and b.
fn transfer(n: u64) -> NewTransaction {
    NewTransaction::new([order("a", n), order("b", n)]).request_id("t-1")
}

/// Events 0 and 1.
fn one_transfer() -> (Scene, Vec<CommitOutcome>) {
    let mut scene = Scene::default();
    let outcomes = scene.all_stored(&transfer(1));
    (scene, outcomes)
}

fn duplicates(outcomes: &[CommitOutcome]) -> Vec<CommitOutcome> {
    outcomes.iter().map(|outcome| CommitOutcome { duplicate: true, ..outcome.clone() }).collect()
}

fn excluding(event_type: &str, after: Option<u64>) -> AppendCondition {
    AppendCondition { fail_if: vec![EventPattern { types: vec![event_type.into()], tags: Vec::new() }], after }
}

fn excluded_by(sequence_number: u64) -> CommitError {
    CommitError::AppendConditionFailed { pattern: 0, sequence_number }
}

fn version_conflict(actual_version: u64) -> CommitError {
    CommitError::VersionConflict { expected: "0".into(), actual_version }
}

#[test]
fn a_plain_history_with_transactions_is_good() {
    let (mut scene, outcomes) = one_transfer();
    scene.all_told(&transfer(1), Ok(duplicates(&outcomes)));
    scene.all_told(&transfer(2), Err(CommitError::RequestIdReused { request_id: "t-1".into() }.into()));
    let mut late = transfer(2).request_id("t-2");
    late.commits[1].expected_version = ExpectedVersion::Empty;
    scene.all_told(&late, Err(TransactionError::commit(1, version_conflict(1))));
    let mut expecting = NewTransaction::new([order("c", 1), order("d", 1)]);
    expecting = expecting.expect(order_aggregate("a"), ExpectedVersion::Empty);
    scene.all_told(&expecting, Err(TransactionError::expectation(0, version_conflict(1))));
    scene.told(&order("c", 1).fail_if(excluding("order_changed", Some(0))), Err(excluded_by(1)));
    scene.stored(&order("c", 1).fail_if(excluding("order_changed", Some(1))));
    scene.head(3);
    scene.is_good();
}

#[test]
fn a_transaction_whose_outcome_is_unknown_may_be_there_or_not_but_whole() {
    let mut scene = Scene::default();
    scene.all_told(&transfer(1), Err(StoreError::Failed("as planned".into()).into()));
    scene.is_good();
    scene.store_all(&transfer(1));
    scene.is_good();
    scene.is_bad_with(&scene.model.events()[..1], "nobody sent it");
}

#[test]
fn a_transaction_that_is_torn_apart_is_noticed() {
    let mut scene = Scene::default();
    scene.all_told(&transfer(1), Err(StoreError::Failed("as planned".into()).into()));
    scene.store(&order("a", 1).request_id("t-1"));
    scene.stored(&order("c", 1));
    scene.store(&order("b", 1));
    scene.is_bad("nobody sent it");
}

#[test]
fn a_head_inside_of_a_transaction_or_commit_is_noticed() {
    let (mut scene, _) = one_transfer();
    scene.head(2);
    scene.is_good();
    let call = scene.begin(What::Head { answer: None });
    scene.stored(&two_events());
    scene.end(call, |what| *what = What::Head { answer: Some(3) });
    scene.is_bad("3 lies inside of");
    let mut scene = Scene::default();
    let (sent, read) = (scene.send_all(&transfer(1)), scene.begin(What::Head { answer: None }));
    let outcomes = scene.store_all(&transfer(1));
    scene.end(read, |what| *what = What::Head { answer: Some(1) });
    scene.answer_all(sent, Ok(outcomes));
    scene.is_bad("1 lies inside of");
}

#[test]
fn a_commit_that_is_shown_before_the_others_of_its_transaction_is_noticed() {
    let mut scene = Scene::default();
    let sent = scene.send_all(&transfer(1));
    let outcomes = scene.store_all(&transfer(1));
    let query = AggregateQuery::new(order_aggregate("a"));
    let call = scene.begin(What::ReadAggregate { query: query.clone(), answer: None });
    let seen = CommitsSeen { version: 1, commits: vec![(1, 0, 1)] };
    scene.end(call, |what| *what = What::ReadAggregate { query, answer: Some(seen) });
    scene.head(1);
    scene.answer_all(sent, Ok(outcomes));
    scene.is_bad("although 2 was told before");
}

#[test]
fn a_commit_taken_for_a_whole_transaction_is_noticed() {
    let (scene, outcomes) = one_transfer();
    let first = duplicates(&outcomes).swap_remove(0);
    scene.told(&order("a", 1).request_id("t-1"), Ok(first));
    scene.is_bad("the first was of 2 commits");
    let (scene, _) = one_transfer();
    let reused = CommitError::RequestIdReused { request_id: "t-1".into() };
    scene.told(&order("a", 1).request_id("t-1"), Err(reused.clone()));
    scene.is_good();
    scene.all_told(&transfer(1), Err(reused.into()));
    scene.is_bad("it has the same content and is a repeat");
}

#[test]
fn a_repeat_with_outcomes_left_out_or_of_others_is_noticed() {
    let (scene, outcomes) = one_transfer();
    scene.all_told(&transfer(1), Ok(duplicates(&outcomes[..1])));
    scene.is_bad("1 outcomes were told");
    let (scene, outcomes) = one_transfer();
    let mut mixed = duplicates(&outcomes);
    mixed.swap(0, 1);
    scene.all_told(&transfer(1), Ok(mixed));
    scene.is_bad("told otherwise than it is stored");
}

#[test]
fn a_refusal_that_names_the_wrong_part_is_noticed() {
    let mut late = transfer(2).request_id("t-2");
    late.commits[1].expected_version = ExpectedVersion::Empty;
    for (told, because) in [
        (TransactionError::from(version_conflict(1)), "Whole expects no version"),
        (TransactionError::commit(0, version_conflict(1)), "any admits 1"),
        (TransactionError::commit(2, version_conflict(1)), "Unheard expects no version"),
        (TransactionError::expectation(0, version_conflict(1)), "Unheard expects no version"),
    ] {
        let (scene, _) = one_transfer();
        scene.all_told(&late, Err(told));
        scene.is_bad(because);
    }
}

#[test]
fn an_expectation_that_did_not_hold_is_noticed() {
    let mut scene = Scene::default();
    scene.stored(&order("c", 1));
    let expecting = transfer(1).expect(order_aggregate("c"), ExpectedVersion::Empty);
    let call = scene.send_all(&expecting);
    let outcomes = scene.store_all(&transfer(1));
    scene.answer_all(call, Ok(outcomes));
    scene.is_bad("the version before was 1, of order/c");
}

#[test]
fn a_commit_accepted_against_its_append_condition_is_noticed() {
    let mut scene = Scene::default();
    scene.stored(&order("a", 1));
    let excluded = order("b", 1).fail_if(excluding("order_changed", None));
    let call = scene.send(&excluded);
    let outcome = scene.store(&order("b", 1));
    scene.answer(call, Ok(outcome));
    scene.is_bad("its append condition excludes event 0");
}

#[test]
fn an_append_condition_refused_without_a_reason_is_noticed() {
    let (scene, _) = one_transfer();
    scene.told(&order("c", 1), Err(excluded_by(0)));
    scene.is_bad("it has no append condition");
    let (scene, _) = one_transfer();
    scene.told(&order("c", 1).fail_if(excluding("order_changed", Some(0))), Err(excluded_by(0)));
    scene.is_bad("is not excluded");
    let (scene, _) = one_transfer();
    scene.told(&order("c", 1).fail_if(excluding("other", None)), Err(excluded_by(0)));
    scene.is_bad("is not excluded");
    let (scene, _) = one_transfer();
    scene.told(&order("c", 1).fail_if(excluding("order_changed", None)), Err(excluded_by(2)));
    scene.is_bad("is gone");
}

#[test]
fn a_version_judged_before_an_append_condition_is_noticed() {
    let (scene, _) = one_transfer();
    let both = order("a", 1).fail_if(excluding("order_changed", None)).expect(ExpectedVersion::Empty);
    scene.told(&both, conflict(1));
    scene.is_bad("it should have been refused because of event 0");
}
