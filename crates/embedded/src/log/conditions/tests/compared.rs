//! An event is compared with numbered patterns as it is with each of them alone.

use annals_core::RecordedEvent;

use super::*;
use crate::terms::TermKey;

const KEY: TermKey = TermKey([5; 16]);

/// Texts that are types as well as tags.
fn texts() -> Vec<String> {
    (0..limits::TAGS_MAX + 6).map(|n| format!("text-{n}")).collect()
}

/// As many adjacent texts in any order, and sometimes one of them again.
fn some(random: &mut fastrand::Rng, texts: &[String], count: usize) -> Vec<ByteString> {
    let first = random.usize(0..texts.len());
    let adjacent = texts.iter().cycle().skip(first).take(count);
    let mut some: Vec<ByteString> = adjacent.map(|text| text.as_str().into()).collect();
    if count > 0 && random.bool() {
        some.push(some[random.usize(0..count)].clone());
    }
    random.shuffle(&mut some);
    some
}

/// Patterns with few or many tags, with or without types, of which some are equal but for the order. If each has a type of its own, no two
/// are equal.
fn patterns(random: &mut fastrand::Rng, texts: &[String], count: usize, own_types: bool) -> Vec<EventPattern> {
    let mut patterns: Vec<EventPattern> = Vec::new();
    for n in 0..count {
        let tags = [0, 1, 2, 3, 31, 32, 33, 63, 64][random.usize(0..9)];
        let types = if random.bool() { 0 } else { random.usize(1..5) };
        let fresh = EventPattern { types: some(random, &texts[..8], types), tags: some(random, texts, tags) };
        let known = patterns.get(random.usize(0..8 * count)).cloned();
        let mut next = known.unwrap_or(fresh);
        if own_types {
            next.types.push(format!("own-{n}").into());
        }
        random.shuffle(&mut next.tags);
        patterns.push(next);
    }
    patterns
}

/// An event that has what a pattern asks for, or nearly so.
fn event_near(random: &mut fastrand::Rng, texts: &[String], pattern: &EventPattern, event: &mut RecordedEvent) {
    event.event_type = pattern.types.first().cloned().unwrap_or_else(|| texts[0].as_str().into());
    event.tags.clone_from(&pattern.tags);
    for _ in 0..random.usize(0..4) {
        let one_more = texts[random.usize(0..texts.len())].as_str();
        event.tags.push(if random.bool() { one_more.into() } else { "unknown".into() });
    }
    if random.u8(0..3) == 0 {
        let gone = event.tags.first().cloned();
        event.tags.retain(|tag| Some(tag) != gone.as_ref());
    }
    if random.u8(0..4) == 0 {
        event.event_type = "unknown".into();
    }
}

async fn any_event() -> RecordedEvent {
    let log = Log::in_memory();
    log.commit(spread(0)).await.expect("it is committed");
    log.read(LogQuery { limit: 1, ..LogQuery::default() }).await.expect("it is read").events.remove(0)
}

#[test]
fn at_the_borders_of_words_and_with_as_many_tags_as_there_may_be_each_pattern_matches_as_if_it_were_alone() {
    let (texts, mut event) = (texts(), run(any_event()));
    let (mut matching, mut others) = (0, 0);
    for seed in 0..4 {
        for count in [1, 2, 3, 63, 64, 65, 127, 128, 129, 200] {
            let mut random = fastrand::Rng::with_seed(seed * 1_000 + count as u64);
            let own_types = seed % 2 == 0;
            let patterns = patterns(&mut random, &texts, count, own_types);
            let place = |n: usize| (n / limits::PATTERNS_MAX, n % limits::PATTERNS_MAX);
            let text = |(condition, n): Place| &patterns[condition * limits::PATTERNS_MAX + n];
            let size = |pattern: &EventPattern| 1 + pattern.types.len() + pattern.tags.len();
            let mut distinct = Patterns::of_size(patterns.iter().map(size).sum());
            patterns.iter().enumerate().for_each(|(n, pattern)| distinct.add(KEY, place(n), pattern));
            let places = (0..distinct.count()).map(|n| distinct.places(n).len());
            assert_eq!(places.sum::<usize>(), count, "each pattern is somewhere");
            assert!(!own_types || distinct.count() == count, "no two are equal");
            let mut scratch = Scratch::default();
            for _ in 0..6 {
                let pattern = &patterns[random.usize(0..count)];
                event_near(&mut random, &texts, pattern, &mut event);
                let asked: Vec<u64> = (0..distinct.columns()).map(|_| random.u64(..) | random.u64(..)).collect();
                let mut bits = asked.clone();
                event.lend(|event| {
                    let mut work = Work::without_limit();
                    distinct.retain_matching(&mut bits, &event, &mut scratch, &mut work, text).expect("no limit");
                });
                for n in 0..distinct.count() {
                    let bit = |words: &[u64]| words[n / 64] >> (n % 64) & 1 == 1;
                    for at in distinct.places(n) {
                        let due = bit(&asked) && text(*at).matches(&event.event_type, &event.tags);
                        assert_eq!(bit(&bits), due, "seed {seed}, {count} patterns, {at:?}: {:?}", text(*at));
                        if due { matching += 1 } else { others += 1 }
                    }
                }
            }
        }
    }
    assert!(matching > 100 && others > 100, "{matching} match, {others} do not");
}
