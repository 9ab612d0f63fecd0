//! The machine beside a model: every partition's events are handled in order, none is lost, and none that was stored as settled is
//! handed out again.

use std::collections::{BTreeMap, HashMap};

use bytestring::ByteString;
use proptest::prelude::*;

use super::*;
use crate::processing::Then;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn event(position: u64, partition: &str) -> Fetched {
    let (sequence_number, partition) = (position + 100, ByteString::from(partition));
    Fetched { position, sequence_number, partition, time: at(0) }
}

fn settings(partitioned: bool) -> Settings {
    let retry = ProcessingRetry { first_ms: 10, factor: 2.0, max_ms: 1_000, jitter: 0.0, ..Default::default() };
    Settings {
        partitioned,
        concurrency: 4,
        batch: 1,
        retry,
        failing_max: super::FAILING_MAX,
        keeps_order: false,
        breaker: 0,
    }
}

fn machine(partitioned: bool, partitions: &[&str]) -> Machine {
    let mut machine = Machine::resume(settings(partitioned), Progress::at(0), [], 0);
    let events = partitions.iter().enumerate().map(|(n, partition)| event(n as u64, partition));
    machine.read(events, partitions.len() as u64);
    machine
}

fn take(machine: &mut Machine, now: i64) -> Vec<Taken> {
    machine.take(10, at(now), at(now + 1_000), "w")
}

fn positions(taken: &[Taken]) -> Vec<u64> {
    taken.iter().map(|taken| taken.event.position).collect()
}

fn fail(machine: &mut Machine, token: u64, now: i64) {
    machine.settle(token, Outcome::Failed { reason: "down".into() }, at(now), 0).expect("in flight");
}

fn done(machine: &mut Machine, token: u64, now: i64) {
    machine.settle(token, Outcome::Done, at(now), 0).expect("in flight");
}

#[test]
fn a_partition_has_one_event_in_flight_and_others_do_not_wait_for_it() {
    let mut machine = machine(true, &["a", "a", "b", "a"]);
    let taken = take(&mut machine, 0);
    assert_eq!(positions(&taken), [0, 2]);
    done(&mut machine, taken[1].token, 1);
    assert_eq!(machine.progress(), &Progress { position: 0, ahead: vec![(2, 3)] });
    done(&mut machine, taken[0].token, 1);
    assert_eq!(machine.progress(), &Progress { position: 1, ahead: vec![(2, 3)] });
    assert_eq!(positions(&take(&mut machine, 1)), [1]);
}

#[test]
fn a_run_of_successes_changes_what_its_settlements_one_by_one_would() {
    let mut single = Machine::resume(Settings { batch: 3, ..settings(true) }, Progress::at(0), [], 0);
    let partitions = ["b", "a", "a", "a", "a"];
    let events = partitions.iter().enumerate().map(|(n, partition)| event(n as u64, partition));
    single.read(events, partitions.len() as u64);
    let taken = take(&mut single, 0);
    assert_eq!(positions(&taken), [0, 1, 2, 3]);
    let tokens: Vec<u64> = taken.iter().map(|taken| taken.token).collect();
    let mut run = single.clone();
    assert_eq!(run.settle_run([tokens[2], tokens[3]], at(1)), 0, "one before them is not settled");
    assert_eq!(run.settle_run([tokens[1], tokens[2]], at(1)), 2);
    done(&mut single, tokens[1], 1);
    done(&mut single, tokens[2], 1);
    assert_eq!((run.progress(), run.room()), (single.progress(), single.room()));
    assert_eq!(run.progress(), &Progress { position: 0, ahead: vec![(1, 3)] });
    assert_eq!(run.settle_run([tokens[0], tokens[3]], at(2)), 1, "the other one is of another batch");
    assert_eq!(run.settle_run([tokens[3]], at(2)), 1);
    done(&mut single, tokens[0], 2);
    done(&mut single, tokens[3], 2);
    assert_eq!((run.progress(), run.room()), (single.progress(), single.room()));
    assert_eq!(run.progress(), &Progress::at(4));
    assert_eq!(run.settle_run([tokens[3]], at(2)), 0, "it was settled before");
    assert!(run.is_idle() && !run.is_in_flight(tokens[3]));
    assert_eq!(positions(&take(&mut run, 2)), [4]);
}

#[test]
fn a_run_leaves_what_is_failing_to_settlements_of_their_own() {
    let mut machine = machine(true, &["a"]);
    let taken = take(&mut machine, 0);
    fail(&mut machine, taken[0].token, 0);
    machine.fetched("a", Some(event(0, "a")), 1);
    let again = take(&mut machine, 10);
    assert_eq!(machine.settle_run([again[0].token], at(11)), 0);
    done(&mut machine, again[0].token, 11);
    machine.fetched("a", None, 1);
    assert!(machine.failing("a").is_none());
}

#[test]
fn a_failing_partition_keeps_its_place_and_the_position_moves_past_it() {
    let mut machine = machine(true, &["a", "b", "a", "b"]);
    let taken = take(&mut machine, 0);
    fail(&mut machine, taken[0].token, 5);
    done(&mut machine, taken[1].token, 5);
    let b = take(&mut machine, 5);
    assert_eq!(positions(&b), [3]);
    done(&mut machine, b[0].token, 6);
    assert_eq!(machine.progress().position, 4);
    let failing = machine.failing("a").expect("failing").clone();
    assert_eq!((failing.position, failing.attempts, failing.retry_at), (0, 1, Some(at(15))));
    assert_eq!(machine.changes().failing, [("a".into(), Some(failing))]);
    assert!(take(&mut machine, 14).is_empty(), "not due");
    assert_eq!(machine.wanted(at(15), 10), [Wanted { partition: "a".into(), from: 0, to: 4 }]);
    machine.fetched("a", Some(event(0, "a")), 4);
    let retried = take(&mut machine, 15);
    assert_eq!(
        (positions(&retried), retried[0].attempt, retried[0].last_reason.as_deref()),
        (vec![0], 2, Some("down"))
    );
    done(&mut machine, retried[0].token, 16);
    assert_eq!(machine.wanted(at(16), 10), [Wanted { partition: "a".into(), from: 1, to: 4 }]);
    machine.fetched("a", Some(event(2, "a")), 4);
    let behind = take(&mut machine, 16);
    assert_eq!((positions(&behind), behind[0].attempt), (vec![2], 1));
    done(&mut machine, behind[0].token, 17);
    machine.fetched("a", None, 4);
    assert!(machine.failing("a").is_none());
    assert_eq!(machine.changes().failing, [("a".into(), None)]);
}

#[test]
fn a_partition_of_which_nothing_more_was_read_has_caught_up_with_its_event() {
    let parks = ProcessingRetry { attempts: Some(1), then: Then::Park, ..settings(true).retry };
    let mut parking = machine(true, &["a", "b"]);
    parking.set(Settings { retry: parks, ..settings(true) });
    let taken = take(&mut parking, 0);
    fail(&mut parking, taken[0].token, 0);
    assert!(parking.failing("a").is_none() && parking.wanted(at(0), 10).is_empty());
    let changes = parking.changes();
    assert_eq!(
        (changes.failing, changes.parked.len()),
        (Vec::new(), 1),
        "no record was written that has to be deleted"
    );

    let mut retrying = machine(true, &["a", "b"]);
    let taken = take(&mut retrying, 0);
    fail(&mut retrying, taken[0].token, 0);
    assert_eq!(retrying.changes().failing.len(), 1);
    retrying.fetched("a", Some(event(0, "a")), 2);
    let again = take(&mut retrying, 10);
    let settled = retrying.settle(again[0].token, Outcome::Done, at(11), 0).expect("in flight");
    assert!(retrying.failing("a").is_none());
    retrying.undo(settled);
    assert!(retrying.failing("a").is_some() && take(&mut retrying, 11).is_empty(), "it is in flight again");
    retrying.read([event(2, "a")], 3);
    done(&mut retrying, again[0].token, 12);
    assert_eq!(retrying.wanted(at(12), 10), [Wanted { partition: "a".into(), from: 1, to: 3 }]);
    retrying.fetched("a", Some(event(2, "a")), 3);
    let last = take(&mut retrying, 12);
    assert_eq!(positions(&last), [2]);
    done(&mut retrying, last[0].token, 13);
    retrying.fetched("a", None, 3);
    assert_eq!(retrying.changes().failing, [("a".into(), None)]);
}

#[test]
fn a_record_that_is_to_be_deleted_is_deleted_even_if_its_partition_fails_and_ends_once_more() {
    let mut machine = machine(true, &["a"]);
    let taken = take(&mut machine, 0);
    fail(&mut machine, taken[0].token, 0);
    assert_eq!(machine.changes().failing.len(), 1);
    machine.fetched("a", Some(event(0, "a")), 1);
    let again = take(&mut machine, 10);
    done(&mut machine, again[0].token, 11);
    machine.set(Settings {
        retry: ProcessingRetry { attempts: Some(1), then: Then::Park, ..settings(true).retry },
        ..settings(true)
    });
    machine.read([event(1, "a")], 2);
    let next = take(&mut machine, 12);
    fail(&mut machine, next[0].token, 12);
    let changes = machine.changes();
    assert_eq!((changes.failing, changes.parked.len()), (vec![("a".into(), None)], 1));
}

#[test]
fn without_partitions_a_failing_event_holds_up_all_that_follow() {
    let mut machine = machine(false, &[NO, NO, NO]);
    let first = take(&mut machine, 0);
    assert_eq!(positions(&first), [0]);
    fail(&mut machine, first[0].token, 0);
    assert!(take(&mut machine, 9).is_empty());
    assert_eq!(machine.progress().position, 0);
    let again = take(&mut machine, 10);
    assert_eq!((positions(&again), again[0].attempt), (vec![0], 2));
    done(&mut machine, again[0].token, 11);
    assert_eq!((machine.progress().position, positions(&take(&mut machine, 11))), (1, vec![1]));
}

const NO: &str = crate::processing::NO_PARTITION;

#[test]
fn without_partitions_a_restart_reads_the_failed_event_again_and_keeps_its_attempts() {
    let mut machine = machine(false, &[NO, NO]);
    let first = take(&mut machine, 0);
    fail(&mut machine, first[0].token, 0);
    let changes = machine.changes();
    let failing = changes.failing.into_iter().filter_map(|(_, state)| state);
    let mut restarted = Machine::resume(settings(false), changes.progress, failing, 50);
    restarted.read([event(0, NO), event(1, NO)], 2);
    assert!(take(&mut restarted, 9).is_empty());
    let again = take(&mut restarted, 10);
    assert_eq!((positions(&again), again[0].attempt), (vec![0], 2));
    done(&mut restarted, again[0].token, 11);
    assert_eq!(positions(&take(&mut restarted, 11)), [1]);
}

#[test]
fn after_the_last_attempt_a_partition_blocks_or_its_event_is_parked() {
    for then in [Then::Block, Then::Park] {
        let mut machine = machine(true, &["a", "a"]);
        let retry = ProcessingRetry { attempts: Some(1), then, ..settings(true).retry };
        machine.set(Settings { retry, ..settings(true) });
        let taken = take(&mut machine, 0);
        fail(&mut machine, taken[0].token, 0);
        let changes = machine.changes();
        let failing = machine.failing("a").cloned().expect("blocked, or catching up");
        match then {
            Then::Block => {
                assert_eq!((failing.retry_at, failing.position, changes.parked.len()), (None, 0, 0));
                assert_eq!(machine.retry("a", at(3)), Ok(()));
                machine.fetched("a", Some(event(0, "a")), 2);
                assert_eq!(positions(&take(&mut machine, 3)), [0]);
            }
            Then::Park => {
                assert_eq!((failing.position, changes.parked[0].event.position), (1, 0));
                assert_eq!(changes.parked[0].reason, "down");
                machine.fetched("a", Some(event(1, "a")), 2);
                assert_eq!(positions(&take(&mut machine, 3)), [1]);
            }
        }
    }
}

#[test]
fn the_worker_chooses_the_delay_or_says_never() {
    let mut machine = machine(true, &["a", "b"]);
    let taken = take(&mut machine, 0);
    let later = Outcome::RetryAfter { reason: "busy".into(), millis: 700 };
    machine.settle(taken[0].token, later, at(0), 0).expect("in flight");
    machine.settle(taken[1].token, Outcome::Never { reason: "bad".into() }, at(0), 0).expect("in flight");
    assert_eq!(machine.failing("a").and_then(|failing| failing.retry_at), Some(at(700)));
    assert_eq!(machine.failing("b").and_then(|failing| failing.retry_at), None);
}

#[test]
fn the_earliest_of_several_retries_decides_how_long_to_wait() {
    let mut machine = machine(true, &["a", "b"]);
    let taken = take(&mut machine, 0);
    assert_eq!(machine.next_retry(at(0)), None, "nothing has failed");
    for (taken, millis) in taken.iter().zip([700, 300]) {
        let later = Outcome::RetryAfter { reason: "busy".into(), millis };
        machine.settle(taken.token, later, at(0), 0).expect("in flight");
    }
    assert_eq!(machine.next_retry(at(0)), Some(at(300)));
    assert_eq!(machine.next_retry(at(300)), Some(at(700)), "the earlier one is due");
    assert_eq!(machine.next_retry(at(700)), None, "both are due");
}

#[test]
fn a_retry_that_is_due_goes_before_a_new_event() {
    let mut machine = machine(true, &["a", "b", "c"]);
    machine.set(Settings { concurrency: 1, ..settings(true) });
    let first = take(&mut machine, 0);
    assert_eq!(positions(&first), [0]);
    fail(&mut machine, first[0].token, 0);
    machine.fetched("a", Some(event(0, "a")), 3);
    let new = take(&mut machine, 9);
    assert_eq!(positions(&new), [1], "the retry is not due");
    done(&mut machine, new[0].token, 10);
    let retried = take(&mut machine, 10);
    assert_eq!((positions(&retried), retried[0].attempt), (vec![0], 2), "the event of c waits");
    done(&mut machine, retried[0].token, 11);
    machine.fetched("a", None, 3);
    assert_eq!(positions(&take(&mut machine, 11)), [2]);
}

#[test]
fn a_lease_that_ends_is_a_failure_and_its_token_is_lost() {
    let mut machine = machine(true, &["a"]);
    let taken = take(&mut machine, 0);
    assert_eq!(machine.next_lease_end(), Some(at(1_000)));
    assert_eq!(machine.expire(at(999), 0), 0);
    assert_eq!(machine.expire(at(1_000), 0), 1);
    assert_eq!(machine.failing("a").map(|failing| failing.attempts), Some(1));
    let late = machine.settle(taken[0].token, Outcome::Done, at(1_001), 0);
    assert_eq!(late.map(|settled| settled.event), Err(SettleError::LeaseLost));
}

#[test]
fn a_batch_is_settled_in_order_and_a_failure_releases_what_follows() {
    let mut machine = machine(true, &["a", "a", "a"]);
    machine.set(Settings { batch: 3, ..settings(true) });
    let taken = take(&mut machine, 0);
    assert_eq!(positions(&taken), [0, 1, 2]);
    let early = machine.settle(taken[1].token, Outcome::Done, at(0), 0).map(|settled| settled.event);
    assert_eq!(early, Err(SettleError::OutOfOrder));
    done(&mut machine, taken[0].token, 0);
    fail(&mut machine, taken[1].token, 0);
    let late = machine.settle(taken[2].token, Outcome::Done, at(0), 0).map(|settled| settled.event);
    assert_eq!(late, Err(SettleError::LeaseLost));
    assert_eq!(machine.failing("a").map(|failing| failing.position), Some(1));
}

#[test]
fn a_success_that_is_undone_is_in_flight_again() {
    let mut machine = machine(true, &["a", "a"]);
    let before = machine.progress().clone();
    let taken = take(&mut machine, 0);
    let settled = machine.settle(taken[0].token, Outcome::Done, at(0), 0).expect("in flight");
    machine.undo(settled);
    assert_eq!(machine.progress(), &before);
    assert!(take(&mut machine, 0).is_empty(), "its partition is in flight");
    fail(&mut machine, taken[0].token, 0);
    assert_eq!(machine.failing("a").map(|failing| failing.position), Some(0));
}

#[test]
fn successes_of_a_batch_that_are_undone_are_in_flight_again_in_their_order() {
    for count in 1..=3 {
        let mut machine = machine(true, &["a", "a", "a"]);
        machine.set(Settings { batch: 3, ..settings(true) });
        let before = machine.progress().clone();
        let taken = take(&mut machine, 0);
        let settled: Vec<_> = taken[..count]
            .iter()
            .map(|taken| machine.settle(taken.token, Outcome::Done, at(0), 0).expect("in flight"))
            .collect();
        settled.into_iter().rev().for_each(|one| machine.undo(one));
        assert_eq!(machine.progress(), &before);
        assert!(take(&mut machine, 0).is_empty(), "its partition is in flight");
        taken.iter().for_each(|taken| done(&mut machine, taken.token, 0));
        assert_eq!((machine.progress().position, machine.is_idle()), (3, true));
    }
}

#[test]
fn events_that_reached_nobody_are_handed_out_again_with_the_same_attempt() {
    let mut machine = machine(true, &["a", "a", "b"]);
    machine.set(Settings { batch: 2, ..settings(true) });
    let taken = take(&mut machine, 0);
    assert_eq!(positions(&taken), [0, 1, 2]);
    machine.release(&taken, at(0));
    let again = take(&mut machine, 0);
    assert_eq!((positions(&again), again[0].attempt), (vec![0, 1, 2], 1));
    fail(&mut machine, again[0].token, 0);
    machine.fetched("a", Some(event(0, "a")), 3);
    let retried = take(&mut machine, 10);
    machine.release(&retried, at(10));
    let once_more = take(&mut machine, 10);
    assert_eq!((positions(&once_more), once_more[0].attempt), (vec![0], 2));
}

#[test]
fn failing_partitions_hold_no_events_and_a_delay_has_an_end() {
    let names: Vec<_> = (0..50).map(|n| format!("p{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut machine = machine(true, &names);
    machine.set(Settings { concurrency: 50, ..settings(true) });
    for taken in machine.take(50, at(0), at(1_000), "w") {
        let outcome = Outcome::RetryAfter { reason: "x".repeat(100_000), millis: u64::MAX };
        machine.settle(taken.token, outcome, at(0), 0).expect("in flight");
    }
    assert_eq!((machine.needed().len(), machine.all_failing().count()), (0, 50));
    let state = machine.failing("p7").expect("failing");
    assert!(state.retry_at.is_some_and(|at| at.is_writable()) && state.reason.len() < 5_000);
}

#[test]
fn what_comes_back_late_does_not_end_the_flight_of_another_worker() {
    let mut machine = machine(true, &["a"]);
    let first = take(&mut machine, 0);
    machine.expire(at(1_000), 0);
    machine.fetched("a", Some(event(0, "a")), 1);
    let second = take(&mut machine, 2_000);
    assert_eq!(second.len(), 1);
    machine.release(&first, at(2_000));
    assert!(take(&mut machine, 2_000).is_empty(), "it is in flight");
    done(&mut machine, second[0].token, 2_000);
}

#[test]
fn an_operator_acts_on_a_failing_partition_only() {
    let mut machine = machine(true, &["a"]);
    assert_eq!(machine.retry("a", at(0)), Err(ActError::NotFailing));
    let taken = take(&mut machine, 0);
    fail(&mut machine, taken[0].token, 0);
    machine.fetched("a", Some(event(0, "a")), 1);
    let again = take(&mut machine, 10);
    assert_eq!(machine.park_event("a", None, "broken".into(), at(10)), Err(ActError::InFlight));
    fail(&mut machine, again[0].token, 10);
    assert_eq!(machine.park_event("a", Some(1), "broken".into(), at(10)), Err(ActError::AnotherEvent(0)));
    assert_eq!(machine.park_event("a", Some(0), "broken".into(), at(10)), Ok(0));
    let parked = &machine.changes().parked[0];
    assert_eq!((parked.attempts, parked.act.as_deref()), (2, Some("broken")));
}

/// A source, what was handled of it, and what is stored: a crash goes back to that.
struct World {
    source: Vec<Fetched>,
    stored: (Progress, HashMap<ByteString, Failing>),
    machine: Machine,
    in_hand: Vec<Taken>,
    handled: BTreeMap<ByteString, Vec<u64>>,
    now: i64,
    settings: Settings,
}

impl World {
    fn new(settings: Settings, partitions: &[u8]) -> Self {
        let name = |n: u8| if settings.partitioned { format!("p{n}") } else { NO.to_owned() };
        let source = partitions.iter().enumerate().map(|(at, n)| event(at as u64 * 2, &name(*n))).collect();
        let machine = Machine::resume(settings, Progress::at(0), [], 0);
        let stored = (Progress::at(0), HashMap::new());
        Self { source, stored, machine, in_hand: Vec::new(), handled: BTreeMap::new(), now: 0, settings }
    }

    fn store(&mut self) {
        let changes = self.machine.changes();
        self.stored.0 = changes.progress;
        for (name, state) in changes.failing {
            match state {
                Some(state) => self.stored.1.insert(name, state),
                None => self.stored.1.remove(&name),
            };
        }
    }

    fn read(&mut self, count: usize) {
        let from = self.machine.read_to();
        let page: Vec<_> = self.source.iter().filter(|event| event.position >= from).take(count).cloned().collect();
        let end = self.source.len() as u64 * 2;
        let next = if page.len() == count { page.last().map_or(end, |last| last.position + 1) } else { end };
        self.machine.read(page, next.max(from));
    }

    fn catch_up(&mut self) {
        for wanted in self.machine.wanted(at(self.now), 4) {
            let range = wanted.from..wanted.to.max(wanted.from);
            let next = self.source.iter().find(|it| it.partition == wanted.partition && range.contains(&it.position));
            self.machine.fetched(&wanted.partition, next.cloned(), wanted.to);
        }
    }

    fn settle(&mut self, which: usize, good: bool) {
        if self.in_hand.is_empty() {
            return;
        }
        let taken = self.in_hand.remove(which % self.in_hand.len());
        let outcome = if good { Outcome::Done } else { Outcome::Failed { reason: "no".into() } };
        if self.machine.settle(taken.token, outcome, at(self.now), 0).is_ok() {
            if good {
                self.handled.entry(taken.event.partition).or_default().push(taken.event.position);
            }
            self.store();
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Read(count) => self.read(*count),
            Step::Take(count) => {
                self.catch_up();
                let (now, until) = (at(self.now), at(self.now + 500));
                self.in_hand.extend(self.machine.take(*count, now, until, "w"));
            }
            Step::Settle(which, good) => self.settle(*which, *good),
            Step::Wait(millis) => {
                self.now += millis;
                if self.machine.expire(at(self.now), 0) > 0 {
                    self.store();
                }
            }
            Step::Crash => {
                let (progress, failing) = self.stored.clone();
                self.machine = Machine::resume(self.settings, progress, failing.into_values(), 1_000_000);
                self.in_hand.clear();
            }
        }
    }

    /// Lets everything succeed from now on, until nothing is left.
    fn finish(&mut self) {
        for _ in 0..self.source.len() * 20 + 100 {
            self.now += 2_000;
            self.machine.expire(at(self.now), 0);
            self.read(1_000);
            self.step(&Step::Take(100));
            while !self.in_hand.is_empty() {
                self.settle(0, true);
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Read(usize),
    Take(usize),
    Settle(usize, bool),
    Wait(i64),
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1..6_usize).prop_map(Step::Read),
        4 => (1..6_usize).prop_map(Step::Take),
        6 => (0..8_usize, any::<bool>()).prop_map(|(which, good)| Step::Settle(which, good)),
        2 => (0..600_i64).prop_map(Step::Wait),
        1 => Just(Step::Crash),
    ];
    proptest::collection::vec(step, 0..120)
}

proptest! {
    #[test]
    fn every_partition_is_handled_in_order_exactly_once_whatever_fails_and_crashes(
        partitions in proptest::collection::vec(0..4_u8, 0..40),
        steps in steps(),
        partitioned in any::<bool>(),
        concurrency in 1..4_usize,
        batch in 1..4_usize,
    ) {
        let settings = Settings { partitioned, concurrency, batch, ..settings(partitioned) };
        let mut world = World::new(settings, &partitions);
        for step in &steps {
            world.step(step);
        }
        world.finish();
        let mut expected: BTreeMap<ByteString, Vec<u64>> = BTreeMap::new();
        for event in &world.source {
            expected.entry(event.partition.clone()).or_default().push(event.position);
        }
        // Each success was stored with its progress, so a crash repeats none.
        prop_assert_eq!(&world.handled, &expected);
        prop_assert_eq!(world.machine.progress(), &Progress::at(partitions.len() as u64 * 2));
        prop_assert_eq!(world.machine.all_failing().count(), 0);
    }
}
