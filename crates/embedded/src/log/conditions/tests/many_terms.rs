//! Requests with many patterns and terms: what is found, and how often the index is asked.

use std::collections::BTreeMap;

use annals_core::{RecordedEvent, SequenceNumber};

use super::*;
use crate::Options;
use crate::log::batch::Origin;
use crate::log::queue::Versions;
use crate::terms::{Term, TermKey};

/// Two of them are tags as well.
const TYPES: [&str; 5] = ["a", "b", "k", "p", "never"];
const TAGS: [&str; 12] = ["k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "nowhere", "lost"];

/// Up to `most` texts, some of which may be equal.
fn some(random: &mut fastrand::Rng, of: &[&'static str], most: usize) -> Vec<&'static str> {
    (0..random.usize(0..=most)).map(|_| of[random.usize(0..of.len())]).collect()
}

/// Patterns of which some differ only in the order of their texts, or not at all.
fn patterns(random: &mut fastrand::Rng, most: usize) -> Vec<EventPattern> {
    let mut patterns: Vec<EventPattern> = Vec::new();
    for _ in 0..random.usize(1..=most) {
        let known = patterns.get(random.usize(0..=patterns.len())).cloned();
        let fresh = pattern(&some(random, &TYPES, 4), &some(random, &TAGS, 5));
        let mut next = known.filter(|_| random.bool()).unwrap_or(fresh);
        random.shuffle(&mut next.tags);
        random.shuffle(&mut next.types);
        patterns.push(next);
    }
    patterns
}

/// Whether no event that is committed below matches, although a commit may have the tags.
fn spans_events(pattern: &EventPattern) -> bool {
    let has_any = |of: &[&str]| pattern.tags.iter().any(|tag| of.contains(&&**tag));
    has_any(&TAGS[..5]) && has_any(&TAGS[5..10])
}

/// A commit whose events have tags of either half.
fn mixed(random: &mut fastrand::Rng, n: usize) -> NewCommit {
    let count: usize = random.usize(1..4);
    let events = (0..count).map(|m| {
        let tags = some(random, if m % 2 == 0 { &TAGS[..5] } else { &TAGS[5..10] }, 6);
        event(TYPES[random.usize(0..4)], &tags)
    });
    NewCommit { events: events.collect(), ..NewCommit::new("order", format!("{n}")) }
}

/// Commits until there are several segments, all of them with an index file but the last.
async fn filled(random: &mut fastrand::Rng) -> Log {
    let options = Options { segment_bytes_first: 8_000, segment_bytes_max: 16_000, ..Options::default() };
    let log = Log::in_memory_with(&options);
    let mut n = 0;
    while log.core.view().segments.len() < 4 {
        log.commit(mixed(random, n)).await.expect("it is committed");
        n += 1;
    }
    let in_files = async {
        let number = |segment: Option<&Arc<crate::log::segment::Segment>>| segment.map(|segment| segment.at.number);
        while number(log.core.view().segments.last()) != Some(log.core.view().first_in_memory()) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), in_files).await.expect("the closed segments get their files");
    log
}

/// The first commit whose condition fails, by looking at every event for every pattern.
fn due(all: &[RecordedEvent], conditions: &[AppendCondition]) -> Option<(usize, Match)> {
    let first = |condition: &AppendCondition| {
        condition.fail_if.iter().enumerate().find_map(|(n, pattern)| {
            let matches = |event: &&RecordedEvent| {
                event.sequence_number >= condition.from() && pattern.matches(&event.event_type, &event.tags)
            };
            let found = all.iter().find(matches)?;
            Some(Match { pattern: n, sequence_number: found.sequence_number })
        })
    };
    conditions.iter().enumerate().find_map(|(n, condition)| Some((n, first(condition)?)))
}

/// Searches everything in windows so small that the patterns of their commits take this many words.
fn search_in_windows(core: &Core, request: &mut Request, words: usize, work: &mut Work) -> Vec<Option<Match>> {
    let mut pass = Pass::new(core, Look::new(request, work), core.head());
    pass.words_max = words;
    while pass.step().expect("it is searched") {}
    request.conditions_mut().map(|condition| condition.found()).collect()
}

#[test]
fn in_several_segments_and_windows_a_pass_finds_what_looking_at_every_event_finds() {
    run(async {
        let (mut refused, mut accepted) = (0, 0);
        for seed in 0..5 {
            let mut random = fastrand::Rng::with_seed(seed);
            let log = filled(&mut random).await;
            let query = LogQuery { limit: 1_000, ..LogQuery::default() };
            let all = log.read(query).await.expect("it is read").events;
            assert_eq!(log.core.head(), all.len() as SequenceNumber, "one page has all events");
            for round in 0..60 {
                // Many patterns match soon, and then little else is searched; in other rounds few match, or none.
                let rare = |pattern: &EventPattern| match round % 3 {
                    0 => true,
                    1 => pattern.tags.len() > 3 || spans_events(pattern),
                    _ => spans_events(pattern),
                };
                let conditions: Vec<AppendCondition> = (0..random.usize(1..6))
                    .map(|_| AppendCondition {
                        fail_if: patterns(&mut random, 40).into_iter().filter(rare).collect(),
                        after: random.bool().then(|| random.u64(0..log.core.head())),
                    })
                    .collect();
                let due = due(&all, &conditions);
                let mut request = request(&log.core, conditions).await;
                let words = random.usize(1..200);
                let found = search_in_windows(&log.core, &mut request, words, &mut Work::without_limit());
                let found = found.into_iter().enumerate().find_map(|(n, found)| Some((n, found?)));
                assert_eq!(found, due, "seed {seed}, round {round}, {words} words");
                if due.is_some() { refused += 1 } else { accepted += 1 }
            }
        }
        assert!(refused > 20 && accepted > 20, "{refused} refused, {accepted} accepted");
    });
}

/// The batch that the writer would make of these commits.
async fn batch_of(core: &Core, commits: &[NewCommit]) -> Batch {
    let mut batch = Batch::default();
    for (n, commit) in commits.iter().enumerate() {
        let commit_id = annals_core::Uuid::from_u128(1_000 + n as u128);
        let now = core.options.clock.now();
        let stamp = Stamp { commit_id, digest: 0, now, transaction: None, received: None };
        let encoded = encode(core, commit.clone(), &stamp, &"(0)".into()).expect("it is encoded");
        let room = room_for(core, 100).await.expect("there is room");
        let mut versions = Versions::default();
        versions.push(1);
        let origin = Origin { salt: 1, offset: 0, next: core.head() };
        let waiting = Waiting { request: Request::commit_of(encoded, None, now, room), answer: oneshot::channel().0 };
        batch.append(origin, waiting, versions);
    }
    batch
}

/// A request is searched when a third of the commits is durable and judged when the next third is, with the last one in the batch.
#[test]
fn what_was_added_since_the_search_and_what_is_in_the_batch_fail_the_conditions_that_they_match() {
    run(async {
        const THIRD: usize = 12;
        let mut found_in = [0; 4];
        for seed in 0..4 {
            let mut random = fastrand::Rng::with_seed(seed);
            let commits: Vec<NewCommit> = (0..3 * THIRD).map(|n| mixed(&mut random, n)).collect();
            let (log, whole) = (Log::in_memory(), Log::in_memory());
            for commit in &commits {
                whole.commit(commit.clone()).await.expect("it is committed");
            }
            let query = LogQuery { limit: 1_000, ..LogQuery::default() };
            let all = whole.read(query).await.expect("it is read").events;
            for commit in &commits[..THIRD] {
                log.commit(commit.clone()).await.expect("it is committed");
            }
            let searched = log.core.head();
            let mut requests = Vec::new();
            for round in 0..40 {
                let is_rare = |pattern: &EventPattern| match round % 4 {
                    0 => true,
                    1 => spans_events(pattern),
                    _ => spans_events(pattern) || pattern.tags.len() > 2,
                };
                let conditions: Vec<AppendCondition> = (0..random.usize(1..6))
                    .map(|_| AppendCondition {
                        fail_if: patterns(&mut random, 40).into_iter().filter(is_rare).collect(),
                        after: (random.u8(0..4) > 0).then(|| random.u64(0..all.len() as u64)),
                    })
                    .collect();
                let mut request = request(&log.core, conditions.clone()).await;
                search(&log.core, &mut request).await.expect("it is searched");
                requests.push((conditions, request));
            }
            for commit in &commits[THIRD..2 * THIRD] {
                log.commit(commit.clone()).await.expect("it is committed");
            }
            let durable = log.core.head();
            let mut batch = batch_of(&log.core, &commits[2 * THIRD..]).await;
            let parts = [0..searched as usize, searched as usize..durable as usize, durable as usize..all.len()];
            for (conditions, mut request) in requests {
                // Behind the first condition that fails in one part, nothing is looked for in the next.
                let (mut first, mut part_of_it) = (None, 3);
                for (n, part) in parts.iter().enumerate() {
                    let before = first.map_or(conditions.len(), |(place, _): (usize, Match)| place);
                    if let Some(earlier) = due(&all[part.clone()], &conditions[..before]) {
                        (first, part_of_it) = (Some(earlier), n);
                    }
                }
                found_in[part_of_it] += 1;
                batch.steps_left = BATCH_STEPS;
                let judged = judge(&log.core, &mut request, durable, &mut batch).expect("it costs little");
                assert_eq!(judged, first, "seed {seed}: {conditions:?}");
            }
        }
        assert!(found_in.iter().all(|count| *count > 3), "searched, added, in the batch, nowhere: {found_in:?}");
    });
}

/// Each event matches the pattern before the one that the last event matched.
#[test]
fn events_that_match_one_pattern_after_the_other_cost_the_writer_no_more_than_it_may() {
    run(async {
        const PATTERNS: usize = limits::TRANSACTION_COMMITS_MAX * limits::PATTERNS_MAX;
        let log = Log::in_memory();
        let events = (0..PATTERNS).rev().map(|n| event(&format!("type-{n}"), &[])).collect();
        log.commit(NewCommit { events, ..NewCommit::new("order", "1") }).await.expect("it is committed");
        let of = |n: usize| pattern(&[&format!("type-{n}")], &[]);
        let condition = |first: usize| AppendCondition {
            fail_if: (first..first + limits::PATTERNS_MAX).map(of).collect(),
            after: None,
        };
        let conditions = (0..PATTERNS).step_by(limits::PATTERNS_MAX).map(condition).collect();
        let mut request = request(&log.core, conditions).await;
        let later = judge(&log.core, &mut request, log.core.head(), &mut Batch::default());
        assert!(matches!(later, Err(Stop::Later)), "{later:?}");
        search(&log.core, &mut request).await.expect("it is searched");
        let found = judge(&log.core, &mut request, log.core.head(), &mut Batch::default()).expect("it is judged");
        assert_eq!(found, Some((0, Match { pattern: 0, sequence_number: PATTERNS as u64 - 1 })));
    });
}

#[test]
fn each_term_is_looked_up_once_in_a_window_for_all_patterns() {
    run(async {
        let log = Log::in_memory();
        for n in 0..100 {
            let first = event("placed", &["p", "q", "r", "x"]);
            let commit =
                NewCommit::new("order", format!("{n}")).event(first).event(event("paid", &["p", "q", "r", "y"]));
            log.commit(commit).await.expect("it is committed");
        }
        // Every pattern has the last two tags, which are on different events, and some of the others.
        let tags = |n: usize| {
            let some = ["p", "q", "r"].into_iter().enumerate().filter(|(m, _)| n >> m & 1 == 1).map(|(_, tag)| tag);
            some.chain(["x", "y"]).collect::<Vec<_>>()
        };
        let of = |n: usize| pattern(if n.is_multiple_of(3) { &["placed", "paid"] } else { &["placed"] }, &tags(n));
        let condition = AppendCondition { fail_if: (0..limits::PATTERNS_MAX).map(of).collect(), after: None };
        let mut request = request(&log.core, vec![condition; 4]).await;
        let terms = ["p", "q", "r", "x", "y", "placed", "paid"].len() as u64;
        assert_eq!((request.patterns.count(), request.patterns.terms().len() as u64), (16, terms));
        for (words, windows) in [(1_000, 1), (25, 4), (30, 4)] {
            let mut work = Work::without_limit();
            let found = search_in_windows(&log.core, &mut request, words, &mut work);
            assert_eq!((found, work.frames), (vec![None; 4], 100), "{words} words");
            assert_eq!(work.looked_up, terms * windows, "{words} words");
        }
    });
}

#[test]
fn sets_name_the_commits_that_lists_name_whatever_is_forgotten_between_patterns() {
    const KEY: TermKey = TermKey([3; 16]);
    for seed in 0..30 {
        let mut random = fastrand::Rng::with_seed(seed);
        let patterns = patterns(&mut random, 30);
        let size: u32 = random.u32(1..700);
        let window = 7..7 + size;
        // Some terms are in most commits, some in few, some in none.
        let types = TYPES.iter().map(|name| KEY.event_type(name));
        let terms = types.chain(TAGS.iter().map(|tag| KEY.tag(tag))).collect::<Vec<Term>>();
        let mut postings: BTreeMap<Term, Vec<u32>> = BTreeMap::new();
        for term in terms {
            let one_in = [1, 2, 10, 100, 100_000][random.usize(0..5)];
            postings.insert(term, window.clone().filter(|_| random.u32(0..one_in) == 0).collect());
        }
        let has = |term: Term, commit: u32| postings[&term].binary_search(&commit).is_ok();
        let mut distinct = Patterns::of_size(1_000);
        patterns.iter().enumerate().for_each(|(n, pattern)| distinct.add(KEY, (0, n), pattern));
        let mut listing = Listing::new(window.clone(), &distinct);
        if random.bool() {
            listing.forget_everything();
        }
        let mut asked = Asked::default();
        let mut work = Work::without_limit();
        asked.begin(size as usize, distinct.columns(), &mut work).expect("there is no limit");
        for n in 0..distinct.count() {
            let listed = loop {
                let look_up = |term: Term| Ok(postings[&term].clone());
                let listed = listing.commits(&distinct, n, &mut work, look_up).expect("it is listed");
                if let Some(listed) = listed {
                    break listed;
                }
            };
            asked.put(n, &listed, &mut work).expect("there is no limit");
        }
        for n in 0..distinct.count() {
            for (_, place) in distinct.places(n) {
                let EventPattern { types, tags } = &patterns[*place];
                for (commit, asked) in window.clone().zip((0..size as usize).map(|commit| asked.of(commit))) {
                    let due = (types.is_empty() || types.iter().any(|name| has(KEY.event_type(name), commit)))
                        && tags.iter().all(|tag| has(KEY.tag(tag), commit));
                    assert_eq!(
                        asked[n / 64] >> (n % 64) & 1 == 1,
                        due,
                        "seed {seed}, pattern {place}, commit {commit}"
                    );
                }
            }
        }
    }
}
