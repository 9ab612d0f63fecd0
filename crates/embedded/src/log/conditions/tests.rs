//! How often frames are decoded, what the log writer does at most, and that both find what there is.

mod compared;
mod many_terms;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use annals_core::{
    Aggregate, ByteString, CommitError, Data, EventLog, EventPattern, ExpectedVersion, LogQuery, NewCommit, NewEvent,
    NewTransaction,
};
use annals_system::Instant;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::*;
use crate::log::Log;
use crate::log::commit::{encode, room_for};
use crate::log::queue::{Answer, Waiting};
use crate::record::Stamp;
use crate::turn::Turn;

fn event(event_type: &str, tags: &[&str]) -> NewEvent {
    tags.iter().fold(NewEvent::new(event_type.to_owned(), Data::empty()), |event, tag| event.tag(*tag))
}

/// A commit with two tags, on different events: no event matches a pattern with both.
fn spread(n: usize) -> NewCommit {
    NewCommit::new("order", format!("{n}")).event(event("placed", &["x"])).event(event("paid", &["y"]))
}

fn pattern(types: &[&str], tags: &[&str]) -> EventPattern {
    let texts = |texts: &[&str]| texts.iter().map(|text| ByteString::from(*text)).collect();
    EventPattern { types: texts(types), tags: texts(tags) }
}

/// As many patterns as there may be, which every spread commit may match and none does. No two of them are equal, nor are those of
/// conditions with other numbers.
fn wide(n: usize) -> AppendCondition {
    let one = |m: usize| pattern(&["placed", "paid", &format!("other-{n}-{m}")], &["x", "y"]);
    AppendCondition { fail_if: (0..limits::PATTERNS_MAX).map(one).collect(), after: None }
}

/// As many conditions as there may be.
fn widest() -> Vec<AppendCondition> {
    (0..limits::TRANSACTION_COMMITS_MAX).map(wide).collect()
}

/// A commit that wide conditions may match and do not, with much to compare in few bytes.
fn crowded(n: usize) -> NewCommit {
    let texts: Vec<String> = (0..limits::TAGS_MAX - 2).map(|tag| format!("{tag:02}")).collect();
    (0..8).fold(NewCommit::new("order", format!("{n}")), |commit, m| {
        let own = if m % 2 == 0 { "x" } else { "y" };
        let tags: Vec<&str> = texts.iter().map(String::as_str).chain([own]).collect();
        commit.event(event("placed", &tags))
    })
}

/// A request of commits with these conditions, of which nothing was searched.
async fn request(core: &Core, conditions: Vec<AppendCondition>) -> Box<Request> {
    let mut encoded = Vec::new();
    for (n, condition) in conditions.into_iter().enumerate() {
        let commit = NewCommit::new("new", format!("{n}")).event(event("made", &[])).fail_if(condition);
        let commit_id = annals_core::Uuid::from_u128(n as u128 + 1);
        let now = core.options.clock.now();
        let stamp = Stamp { commit_id, digest: 0, now, transaction: None, received: None };
        encoded.push(encode(core, commit, &stamp, &"(0)".into()).expect("it is encoded"));
    }
    let room = room_for(core, 100).await.expect("there is room");
    let mut request = Request::commit_of(encoded.remove(0), None, core.options.clock.now(), room);
    request.others = encoded;
    prepare(core.key, &mut request, &mut Turns::of_search(core)).await;
    request
}

fn run<T>(test: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(test)
}

/// Searches everything, and answers the first match of each commit.
fn search_all(core: &Core, request: &mut Request, work: &mut Work) -> Vec<Option<Match>> {
    let mut pass = Pass::new(core, Look::new(request, work), core.head());
    while pass.step().expect("it is searched") {}
    request.conditions_mut().map(|condition| condition.found()).collect()
}

#[test]
fn a_frame_is_decoded_once_however_many_patterns_of_however_many_conditions_it_may_match() {
    run(async {
        let log = Log::in_memory();
        for n in 0..50 {
            log.commit(spread(n)).await.expect("it is committed");
        }
        let mut request = request(&log.core, widest()).await;
        let mut work = Work::without_limit();
        let found = search_all(&log.core, &mut request, &mut work);
        assert_eq!((found, work.frames), (vec![None; limits::TRANSACTION_COMMITS_MAX], 50));
    });
}

#[test]
fn a_pass_finds_what_looking_at_every_event_for_every_pattern_finds() {
    run(async {
        for seed in 0..40 {
            let mut random = fastrand::Rng::with_seed(seed);
            let log = Log::in_memory();
            let (types, tags) = (["a", "b", "c"], ["x", "y", "z", "w"]);
            let some = |random: &mut fastrand::Rng, of: &[&'static str]| -> Vec<&'static str> {
                of.iter().filter(|_| random.u8(0..3) == 0).copied().collect()
            };
            for n in 0..random.usize(1..60) {
                let events = (0..random.usize(1..4)).map(|_| {
                    let tags = some(&mut random, &tags);
                    event(types[random.usize(0..3)], &tags)
                });
                let commit = NewCommit { events: events.collect(), ..NewCommit::new("order", format!("{}", n % 7)) };
                log.commit(commit.expect(ExpectedVersion::Any)).await.expect("it is committed");
            }
            let conditions: Vec<AppendCondition> = (0..random.usize(1..4))
                .map(|_| AppendCondition {
                    fail_if: (0..random.usize(1..6))
                        .map(|_| pattern(&some(&mut random, &types), &some(&mut random, &tags)))
                        .collect(),
                    after: random.bool().then(|| random.u64(0..80)),
                })
                .collect();
            let all = log.read(LogQuery { limit: 1_000, ..LogQuery::default() }).await.expect("it is read").events;
            let first = |condition: &AppendCondition| {
                condition.fail_if.iter().enumerate().find_map(|(n, pattern)| {
                    let matches = |event: &&annals_core::RecordedEvent| {
                        event.sequence_number >= condition.from() && pattern.matches(&event.event_type, &event.tags)
                    };
                    let found = all.iter().find(matches)?;
                    Some(Match { pattern: n, sequence_number: found.sequence_number })
                })
            };
            let due = conditions.iter().enumerate().find_map(|(n, condition)| Some((n, first(condition)?)));
            let mut request = request(&log.core, conditions).await;
            let found = search_all(&log.core, &mut request, &mut Work::without_limit());
            // Behind the first condition that fails nothing need be found.
            let found = found.into_iter().enumerate().find_map(|(n, found)| Some((n, found?)));
            assert_eq!(found, due, "seed {seed}");
        }
    });
}

async fn judged_by_the_writer(core: &Core, request: Box<Request>) -> Answer {
    let (answer, answered) = oneshot::channel();
    core.queue.push(Waiting { request, answer }).expect("it is queued");
    answered.await.expect("it is answered")
}

#[test]
fn what_was_added_since_the_search_costs_the_writer_no_more_than_it_may() {
    run(async {
        let log = Log::in_memory();
        for n in 0..300 {
            log.commit(crowded(n)).await.expect("it is committed");
        }
        let core = &*log.core;
        assert_eq!(core.view().segments.len(), 1, "the writer searches no other segment");
        let mut due = request(core, widest()).await;
        let mut work = Work::at_most(BATCH_STEPS);
        let mut batch = Batch::default();
        let later = judge(core, &mut due, core.head(), &mut batch);
        assert!(matches!(later, Err(Stop::Later)) && batch.steps_left == 0, "{later:?}");
        assert!(matches!(look_on(core, &mut due, core.head(), &mut batch, &mut work), Err(Stop::Later)));
        // What was counted last, and then not done, may be on top: at most some frames.
        let refused = 10_000;
        assert!(work.spent() <= BATCH_STEPS + refused, "{work:?}");
        // The writer gives it back without a verdict, and has one when the caller has searched.
        let (verdict, mut back) = judged_by_the_writer(core, due).await;
        assert!(matches!(verdict, Ok(None)));
        search(core, &mut back).await.expect("it is searched");
        let (verdict, _) = judged_by_the_writer(core, back).await;
        assert!(matches!(verdict, Ok(Some(super::super::queue::Verdict::Committed { .. }))));
    });
}

#[test]
fn a_usual_condition_is_judged_although_others_of_the_batch_have_cost_all_they_may() {
    run(async {
        let log = Log::in_memory();
        log.commit(spread(0)).await.expect("it is committed");
        let core = &*log.core;
        let usual = || AppendCondition { fail_if: vec![pattern(&["paid"], &["y"])], after: None };
        let mut request = request(core, vec![usual()]).await;
        let mut batch = Batch::default();
        batch.steps_left = 0;
        let found = judge(core, &mut request, core.head(), &mut batch).expect("it is judged");
        assert_eq!(found, Some((0, Match { pattern: 0, sequence_number: 1 })));
    });
}

/// Clients with the widest conditions commit beside each other what each other's conditions may be about.
#[test]
fn wide_conditions_of_many_clients_are_all_answered() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let log = Arc::new(Log::in_memory());
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let log = log.clone();
                tokio::spawn(async move {
                    for n in 0..5 {
                        let part = |part| {
                            let id = format!("{client}-{n}-{part}");
                            NewCommit { aggregate: Aggregate::new("order", id), ..spread(0) }.fail_if(wide(part))
                        };
                        log.transact(NewTransaction::new((0..16).map(part))).await.expect("no event matches");
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.expect("no panic");
        }
        assert_eq!(log.core.head(), 8 * 5 * 16 * 2);
        let both =
            AppendCondition { fail_if: vec![pattern(&["lost"], &[]), pattern(&["placed"], &["x"])], after: None };
        let refused = log.commit(spread(1).fail_if(both)).await.expect_err("it matches");
        assert_eq!(refused, CommitError::AppendConditionFailed { pattern: 1, sequence_number: 0 });
    });
}

/// What a client of a measurement does again and again, beside the commits of others.
#[derive(Debug, Clone, Copy)]
enum Beside {
    /// Nothing but to take its turns on the threads of the runtime.
    Turns,
    /// Transactions with the widest conditions, on all of the log or on what was added since the last commit.
    Conditions { on_all: bool },
}

/// The time that 99 of 100 small commits take at most beside as many such clients.
async fn p99(log: &Arc<Log>, beside: Beside, round: usize) -> Duration {
    let ended = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let (log, ended) = (log.clone(), ended.clone());
            tokio::spawn(async move {
                let conditions = widest();
                while !ended.load(Ordering::Relaxed) {
                    let Beside::Conditions { on_all } = beside else {
                        let turn = Turn::begin();
                        while !turn.is_over() {}
                        tokio::task::yield_now().await;
                        continue;
                    };
                    let after = (!on_all).then(|| log.core.head().saturating_sub(1));
                    let part = |part: usize| {
                        let id = format!("{client}-{part}");
                        let condition = AppendCondition { after, ..conditions[part].clone() };
                        NewCommit { aggregate: Aggregate::new("wide", id), ..spread(0) }.fail_if(condition)
                    };
                    let all = NewTransaction::new((0..limits::TRANSACTION_COMMITS_MAX).map(part));
                    log.transact(all).await.expect("no event matches");
                }
            })
        })
        .collect();
    let mut took = Vec::new();
    for n in 0..COMMITS {
        let commit = NewCommit { aggregate: Aggregate::new("other", format!("{beside:?}-{round}-{n}")), ..spread(0) };
        let begun = Instant::now();
        log.commit(commit).await.expect("it is committed");
        took.push(begun.elapsed());
    }
    ended.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.expect("no panic");
    }
    took.sort_unstable();
    took[COMMITS * 99 / 100 - 1]
}

const COMMITS: usize = 300;

/// Compared with clients that only take their turns, in the same minute, because this machine does other things as well: those delay a
/// round, and none makes it faster.
#[test]
fn the_slowest_commits_of_others_wait_for_wide_conditions_no_longer_than_for_any_other_work() {
    const LONGER: u32 = 5;
    const ROUNDS: usize = 6;
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let log = Arc::new(Log::in_memory());
        for n in 0..1_000 {
            log.commit(spread(n)).await.expect("it is committed");
        }
        for on_all in [true, false] {
            let mut measured = Vec::new();
            for round in 0..ROUNDS {
                let turns = p99(&log, Beside::Turns, round).await;
                let beside = p99(&log, Beside::Conditions { on_all }, round).await;
                measured.push((turns, beside));
                if beside <= turns * LONGER {
                    break;
                }
            }
            let fair = measured.last().is_some_and(|(turns, beside)| *beside <= *turns * LONGER);
            assert!(fair, "p99 beside turns and beside conditions, {on_all}: {measured:?}");
        }
    });
}
