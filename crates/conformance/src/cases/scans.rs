//! Events that are borrowed in a scan, compared with those of a read.

use std::ops::ControlFlow;
use std::sync::Arc;

use annals_core::{
    Code, EventLog, Filter, KeyChanges, NewCommit, RecordedEvent, Reserve, ScanQuery, SequenceNumber, limits,
};

use crate::Subject;
use crate::sample::{commit, event, event_of_bytes, open, order, reopen, whole_log};
use crate::words::{IDS, NAMES, TAGS, TYPES, any_filter, pick};

/// Returns a copy of each event of a scan, up to a limit, and the sequence number to resume from.
async fn lent(log: &Arc<dyn EventLog>, query: ScanQuery, most: usize) -> (Vec<RecordedEvent>, SequenceNumber) {
    let mut events = Vec::new();
    let mut visit = |event: annals_core::EventRef<'_>| {
        events.push(event.to_recorded());
        if events.len() >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let next = log.scan(query.clone(), &mut visit).await.unwrap_or_else(|error| panic!("{query:?}: {error}"));
    (events, next)
}

async fn of_part(log: &Arc<dyn EventLog>, from: u64, to: u64) -> (Vec<u64>, u64) {
    let (events, next) = lent(log, ScanQuery { from, to, ..ScanQuery::default() }, usize::MAX).await;
    (events.iter().map(|event| event.sequence_number).collect(), next)
}

/// A scan returns the same events as a read, complete, also after reopening.
pub async fn a_scan_lends_what_reading_finds(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    let mut first = event("placed", 1).tag("red").tag("日本");
    first.public = true;
    let mut first = first.with_metadata(&serde_json::json!({ "trace": "t" })).expect("strings and numbers");
    first.generation = 7;
    first.id = Some(annals_core::Uuid::from_u128(9));
    first.time = Some(annals_core::Timestamp::from_millis(77));
    let text = |text: &str| Some(text.into());
    let reserve = Reserve::new("user", "eva", annals_core::KeyValue::new("1").expect("a value"));
    let whole = NewCommit {
        command_id: text("c"),
        header: vec![("a".into(), "1".into()), ("b".into(), "".into())],
        tenant_id: text("t"),
        owner_id: text("o"),
        space_id: text("s"),
        correlation_id: text("k"),
        causation_id: text("u"),
        keys: KeyChanges { reserve: vec![reserve], ..KeyChanges::default() },
        ..NewCommit::new("order", "1").event(first).event(event("paid", 2).tag("re"))
    };
    commit(&log, whole.request_id("r")).await;
    commit(&log, order("2", 3).request_id("00000000-0000-4000-8000-0000000000aa")).await;
    commit(&log, order("2", 4)).await;
    commit(&log, order("3", 5).event(event_of_bytes("big", limits::EVENT_BYTES_MAX))).await;
    let events = whole_log(&log).await;
    assert_eq!(lent(&log, ScanQuery::default(), usize::MAX).await, (events.clone(), 6));
    let (_store, log) = reopen(subject, store, log).await;
    assert_eq!(lent(&log, ScanQuery::default(), usize::MAX).await, (events, 6));
}

/// A scan visits its part of the log, up to the head, and reports where it ended.
pub async fn a_scan_ends_where_it_is_told(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    assert_eq!(of_part(&log, 0, u64::MAX).await, (vec![], 0));
    for n in 0..4 {
        commit(&log, order("a", 3 * n).event(event("t", 3 * n + 1)).event(event("t", 3 * n + 2))).await;
    }
    assert_eq!(of_part(&log, 0, u64::MAX).await, ((0..12).collect(), 12));
    assert_eq!(of_part(&log, 4, 8).await, (vec![4, 5, 6, 7], 8));
    assert_eq!(of_part(&log, 4, 5).await, (vec![4], 5));
    assert_eq!(of_part(&log, 11, 12).await, (vec![11], 12));
    assert_eq!(of_part(&log, 5, 5).await, (vec![], 5));
    assert_eq!(of_part(&log, 7, 3).await, (vec![], 3));
    assert_eq!(of_part(&log, 12, u64::MAX).await, (vec![], 12));
    assert_eq!(of_part(&log, 99, u64::MAX).await, (vec![], 12));
}

/// A scan that is stopped has visited nothing after that event, and another one resumes from there.
pub async fn a_scan_that_is_broken_off_goes_on(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for n in 0..40 {
        commit(&log, order("a", 2 * n).event(event("t", 2 * n + 1))).await;
    }
    for most in [1, 2, 3, 50, 79, 80] {
        let (mut numbers, mut from) = (Vec::new(), 0);
        while from < 80 {
            let (events, next) = lent(&log, ScanQuery { from, ..ScanQuery::default() }, most).await;
            assert_eq!(events.len(), most.min(80 - from as usize));
            assert_eq!(next, from + events.len() as u64);
            numbers.extend(events.iter().map(|event| event.sequence_number));
            from = next;
        }
        assert_eq!(numbers, (0..80).collect::<Vec<_>>());
    }
}

/// A scan with any filter, over any part, finds the same as filtering by hand, also after reopening.
pub async fn any_scan_finds_what_filtering_by_hand_finds(subject: &dyn Subject) {
    let mut random = fastrand::Rng::with_seed(21);
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
    let head = all.len() as u64;
    for _ in 0..80 {
        let to = if random.bool() { SequenceNumber::MAX } else { random.u64(0..head + 5) };
        let from = if random.bool() { 0 } else { random.u64(0..head + 5) };
        let query = ScanQuery { from, to, filter: any_filter(random) };
        let most = pick(random, &[1, 3, 100, usize::MAX]);
        let wanted = |event: &&RecordedEvent| (from..to).contains(&event.sequence_number) && query.filter.admits(event);
        let expected: Vec<_> = all.iter().filter(wanted).take(most).cloned().collect();
        let end = match expected.last() {
            Some(last) if expected.len() == most => last.sequence_number + 1,
            _ => to.min(head),
        };
        assert_eq!(lent(log, query.clone(), most).await, (expected, end), "{query:?}, most {most}");
    }
}

/// Scans beside writers visit a prefix, and never a part of a commit.
pub async fn a_scan_beside_writers_visits_a_prefix(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let writer = tokio::spawn({
        let log = log.clone();
        async move {
            for n in 0..200 {
                commit(&log, order(&format!("a-{}", n % 5), 2 * n).event(event("t", 2 * n + 1))).await;
            }
        }
    });
    let mut seen = 0;
    while seen < 400 {
        let (events, next) = lent(&log, ScanQuery::default(), usize::MAX).await;
        assert!(next >= seen, "a scan ends at the head, which never goes back");
        assert_eq!(events.len() as u64, next);
        assert!(next.is_multiple_of(2), "half a commit was lent");
        assert!(events.iter().zip(0..).all(|(event, number)| event.sequence_number == number));
        seen = next;
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer ends well");
}

/// A scan with a filter that cannot match is refused like a read.
pub async fn a_scan_with_a_wrong_filter_is_refused(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let filter = Filter { types: vec!["no name".into()], ..Filter::default() };
    let visited = log.scan(ScanQuery { filter, ..ScanQuery::default() }, &mut |_| ControlFlow::Continue(())).await;
    assert_eq!(visited.expect_err("it is refused").code(), Code::InvalidName);
}
