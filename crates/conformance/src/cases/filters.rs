//! Filtered reads of the log, compared with filtering the whole log by hand.

use std::sync::Arc;

use annals_core::{AggregateFilter, Code, EventLog, Filter, LogQuery, NewCommit, RecordedEvent};

use crate::Subject;
use crate::sample::{commit, event, ns_of, open, order, pages, reopen, whole_log};
use crate::words::{IDS, NAMES, TAGS, TYPES, any_filter, pick};

const NOTHING: [u64; 0] = [];

async fn found(log: &Arc<dyn EventLog>, filter: Filter) -> Vec<u64> {
    ns_of(&pages(log, LogQuery { filter, ..LogQuery::default() }).await)
}

fn of_types(types: &[&str]) -> Filter {
    Filter { types: types.iter().map(|name| (*name).into()).collect(), ..Filter::default() }
}

fn of_tags(tags: &[&str]) -> Filter {
    Filter { tags: tags.iter().map(|tag| (*tag).into()).collect(), ..Filter::default() }
}

fn of_aggregate(name: &str, id: Option<&str>) -> Filter {
    Filter { aggregate: Some(AggregateFilter { name: name.into(), id: id.map(Into::into) }), ..Filter::default() }
}

/// A filter with several types selects events of any of them, in order.
pub async fn several_types_take_any_of_them(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for (n, name) in ["placed", "paid", "place", "placed", "shipped"].into_iter().enumerate() {
        commit(&log, NewCommit::new("order", "a").event(event(name, n as u64))).await;
    }
    assert_eq!(found(&log, of_types(&["placed"])).await, [0, 3]);
    assert_eq!(found(&log, of_types(&["shipped", "placed"])).await, [0, 3, 4]);
    assert_eq!(found(&log, of_types(&["placed", "placed"])).await, [0, 3]);
    assert_eq!(found(&log, of_types(&["pla", "Placed"])).await, NOTHING);
}

/// A filter with several tags selects events that have all of them.
pub async fn several_tags_take_events_with_all_of_them(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for (n, tags) in [&["red"][..], &["red", "blue"], &[], &["blue", "red", "x"], &["redder"]].into_iter().enumerate() {
        let mut tagged = event("t", n as u64);
        tagged.tags = tags.iter().map(|tag| (*tag).into()).collect();
        commit(&log, NewCommit::new("order", "a").event(tagged)).await;
    }
    assert_eq!(found(&log, of_tags(&["red"])).await, [0, 1, 3]);
    assert_eq!(found(&log, of_tags(&["blue", "red"])).await, [1, 3]);
    assert_eq!(found(&log, of_tags(&["blue", "redder"])).await, NOTHING);
}

/// A tag and a type with the same text are independent.
pub async fn a_tag_is_not_a_type(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, NewCommit::new("order", "a").event(event("red", 0).tag("order"))).await;
    commit(&log, NewCommit::new("red", "red").event(event("order", 1).tag("a"))).await;
    assert_eq!(found(&log, of_types(&["red"])).await, [0]);
    assert_eq!(found(&log, of_tags(&["order"])).await, [0]);
    assert_eq!(found(&log, of_aggregate("red", None)).await, [1]);
    assert_eq!(found(&log, of_aggregate("order", Some("a"))).await, [0]);
}

/// A filter selects one aggregate, or all aggregates of a name.
pub async fn an_aggregate_filter_takes_one_or_all_of_a_name(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for (n, (name, id)) in
        [("order", "1"), ("door", "1"), ("order", "2"), ("orders", "1"), ("order", "1")].iter().enumerate()
    {
        commit(&log, NewCommit::new(*name, *id).event(event("t", n as u64))).await;
    }
    assert_eq!(found(&log, of_aggregate("order", None)).await, [0, 2, 4]);
    assert_eq!(found(&log, of_aggregate("order", Some("1"))).await, [0, 4]);
    assert_eq!(found(&log, of_aggregate("order", Some("3"))).await, NOTHING);
    let typed = Filter { types: vec!["other".into()], ..of_aggregate("order", Some("1")) };
    let page = log.read(LogQuery { filter: typed, ..LogQuery::default() }).await.expect("the page is read");
    assert_eq!((page.events.len(), page.next, page.head), (0, 5, 5), "nothing matches, and the true head is told");
}

/// Inside a commit only the matching events are found, each with its own sequence number and ordinal.
pub async fn events_of_one_commit_are_filtered_one_by_one(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let events = (0..30).map(|n| event(TYPES[n as usize % 3], n)).collect();
    commit(&log, NewCommit { events, ..NewCommit::new("order", "a") }).await;
    let read = pages(&log, LogQuery { limit: 4, filter: of_types(&["paid"]), ..LogQuery::default() }).await;
    assert_eq!(ns_of(&read), (0..30).filter(|n| n % 3 == 1).collect::<Vec<_>>());
    assert!(read.iter().all(|event| event.sequence_number == u64::from(event.ordinal)));
}

/// Any filter, from any position, in either direction and with any limit, finds the same as filtering the whole log by hand. This also
/// holds after reopening, and across every change of segment.
pub async fn any_filter_finds_what_filtering_by_hand_finds(subject: &dyn Subject) {
    let mut random = fastrand::Rng::with_seed(20);
    let (store, log) = open(subject).await;
    let mut n = 0;
    for _ in 0..400 {
        let mut new = NewCommit::new(pick(&mut random, NAMES), pick(&mut random, IDS));
        for _ in 0..random.usize(1..5) {
            let mut one = event(pick(&mut random, TYPES), n);
            one.tags = TAGS.iter().filter(|_| random.u8(0..3) == 0).map(|tag| (*tag).into()).collect();
            new = new.event(one);
            n += 1;
        }
        commit(&log, new).await;
    }
    let all = whole_log(&log).await;
    compare(&mut random, &log, &all).await;
    let (_store, log) = reopen(subject, store, log).await;
    compare(&mut random, &log, &all).await;
}

async fn compare(random: &mut fastrand::Rng, log: &Arc<dyn EventLog>, all: &[RecordedEvent]) {
    for _ in 0..150 {
        let query = LogQuery {
            from: random.bool().then(|| random.u64(0..all.len() as u64 + 5)),
            limit: pick(random, &[1, 2, 10, 1_000]),
            backwards: random.bool(),
            filter: any_filter(random),
        };
        let from = query.from.unwrap_or(if query.backwards { u64::MAX } else { 0 });
        let admitted = all.iter().filter(|event| query.filter.admits(event));
        let expected: Vec<_> = if query.backwards {
            admitted.rev().filter(|event| event.sequence_number < from).cloned().collect()
        } else {
            admitted.filter(|event| event.sequence_number >= from).cloned().collect()
        };
        let page = log.read(query.clone()).await.expect("the page is read");
        assert_eq!(page.events[..], expected[..page.events.len()], "{query:?}");
        assert_eq!(page.events.is_empty(), expected.is_empty(), "{query:?}");
        if query.limit > 2 || expected.len() < 50 {
            assert_eq!(pages(log, query.clone()).await, expected, "{query:?}");
        }
    }
}

/// A filter that can match nothing because its names, ids or tags cannot occur is refused, and the error says why.
pub async fn a_filter_that_cannot_match_is_refused(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1)).await;
    for (filter, code) in [
        (of_types(&["no name"]), Code::InvalidName),
        (of_types(&[""]), Code::InvalidName),
        (of_tags(&[""]), Code::InvalidId),
        (of_tags(&["a\0"]), Code::InvalidId),
        (of_aggregate("", None), Code::InvalidName),
        (of_aggregate("order", Some("")), Code::InvalidId),
    ] {
        let query = LogQuery { filter, ..LogQuery::default() };
        assert_eq!(log.read(query.clone()).await.expect_err("it is refused").code(), code, "{query:?}");
    }
}
