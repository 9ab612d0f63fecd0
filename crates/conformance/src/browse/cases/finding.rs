//! What readers find in the view.

use std::collections::BTreeSet;

use annals_core::browse::{BrowseError, BrowseQuery, BrowseSort, EVENTS, ReplayFilter, StatisticsQuery};
use annals_core::bson::{Bson, DateTime, RawDocumentBuf, doc, oid::ObjectId};
use annals_core::{Code, Condition, LogQuery, RecordQuery, Timestamp};
use serde_json::json;

use crate::Subject;
use crate::browse::opened::{Browsed, Sample, of_type, sample};

/// The total is also exact past the end.
pub async fn pages_by_cursor_and_by_skip_have_the_true_total(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 120).await;
    it.commit_many("paid", 3).await;
    let query = BrowseQuery { filter: of_type("placed"), limit: 50, ..BrowseQuery::default() };
    let (mut by_cursor, mut cursor) = (Vec::new(), None);
    for (skip, length, has_more) in [(0, 50, true), (50, 50, true), (100, 20, false), (500, 0, false)] {
        let skipped = it.browse.page(BrowseQuery { skip, ..query.clone() }).await.expect("a page");
        assert_eq!((skipped.items.len(), skipped.total, skipped.has_more), (length, 120, has_more), "{skip}");
        if length > 0 {
            let page = it.browse.page(BrowseQuery { cursor: cursor.take(), ..query.clone() }).await.expect("a page");
            assert_eq!((&page.items, page.total, page.has_more), (&skipped.items, 120, has_more));
            by_cursor.extend(page.items.iter().map(|item| item["n"].as_i64().expect("a number")));
            cursor = page.cursor;
        }
    }
    assert_eq!(by_cursor, (0..120).rev().collect::<Vec<_>>());
}

/// A total of many events costs no more than the caller's limit.
pub async fn a_total_is_counted_as_far_as_it_is_asked_for(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 30).await;
    let counted = async |filter: ReplayFilter, count_up_to: Option<u64>| {
        let page = it.browse.page(BrowseQuery { filter, limit: 5, count_up_to, ..BrowseQuery::default() }).await;
        let page = page.expect("a page");
        (page.items.len(), page.total, page.total_is_bound)
    };
    for filter in [ReplayFilter::default(), of_type("placed")] {
        assert_eq!(counted(filter.clone(), Some(12)).await, (5, 12, true));
        assert_eq!(counted(filter.clone(), Some(31)).await, (5, 30, false));
        assert_eq!(counted(filter.clone(), None).await, (5, 30, false));
        // The number on the page is known without counting.
        assert_eq!(counted(filter, Some(0)).await, (5, 5, true));
    }
    assert_eq!(counted(of_type("paid"), Some(12)).await, (0, 0, false));
}

/// No event comes twice, and none is missing.
pub async fn a_cursor_is_stable_while_events_come(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 10).await;
    let query = BrowseQuery { limit: 4, ..BrowseQuery::default() };
    let first = it.browse.page(query.clone()).await.expect("a page");
    it.commit(Sample { event_type: "later", time: 99_000, data: json!({"n": 99}), ..sample() }).await;
    let rest = it.browse.page(BrowseQuery { cursor: first.cursor, limit: 100, ..query }).await.expect("a page");
    let numbers: Vec<_> = rest.items.iter().map(|item| item["n"].as_i64().expect("a number")).collect();
    assert_eq!(numbers, [5, 4, 3, 2, 1, 0]);
    assert_eq!(rest.total, 11);
}

/// This holds in both directions.
pub async fn events_of_one_time_stand_in_the_order_of_the_log(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    for n in 0..8 {
        it.commit(Sample { data: json!({ "n": n }), time: 5, ..sample() }).await;
    }
    let down = BrowseQuery::default();
    assert_eq!(it.numbers(down).await, [7, 6, 5, 4, 3, 2, 1, 0]);
    let up = BrowseQuery { sort: BrowseSort::parse("timestamp").expect("known"), ..BrowseQuery::default() };
    assert_eq!(it.numbers(up).await, [0, 1, 2, 3, 4, 5, 6, 7]);
}

/// Times are truncated to milliseconds, in filters too. Within a millisecond, the order is that of the log.
pub async fn times_with_microseconds_keep_their_milliseconds_and_their_order(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    let text = |second: &str| format!("2026-03-01T12:00:{second}Z");
    for (n, second) in ["00.123999", "00.123001", "00.124000", "00.122999"].into_iter().enumerate() {
        let time = Timestamp::parse(&text(second)).expect("a time").as_millis();
        it.commit(Sample { data: json!({ "n": n }), time, ..sample() }).await;
    }
    let sort = BrowseSort::parse("timestamp").expect("known");
    let page = it.browse.page(BrowseQuery { sort, ..BrowseQuery::default() }).await.expect("a page");
    let found: Vec<_> = page.items.iter().map(|item| (item["n"].as_i64(), item["timestamp"].as_str())).collect();
    let due = ["00.122", "00.123", "00.123", "00.124"].map(text);
    let due: Vec<_> = [3, 0, 1, 2].into_iter().zip(&due).map(|(n, time)| (Some(n), Some(time.as_str()))).collect();
    assert_eq!(found, due);
    let log = it.it.log.read(LogQuery::default()).await.expect("read").events;
    let times: Vec<_> = log.iter().map(|event| event.time.to_string()).collect();
    assert_eq!(times, ["00.123", "00.123", "00.124", "00.122"].map(text));
    let within = json!({ "start_time": text("00.123456"), "end_time": text("00.123456") });
    let filter: ReplayFilter = serde_json::from_value(within).expect("a filter");
    assert_eq!(it.numbers(BrowseQuery { filter, ..BrowseQuery::default() }).await, [1, 0]);
}

async fn mixed(it: &Browsed) {
    for n in 0..24_i64 {
        let event_type = ["placed", "paid", "execution_failed"][n as usize % 3];
        let execution = format!("e-{}", n % 4);
        let data = if n % 2 == 0 { json!({"n": n, "execution_id": execution}) } else { json!({ "n": n }) };
        let user = format!("u-{}", n % 5);
        let service = if n % 6 == 0 { "system-pod" } else { "api" };
        let aggregate = format!("o-{}", n % 3);
        let header: &[(&str, &str)] = &[("user_id", &user), ("service_name", service)];
        it.commit(Sample { event_type, data, aggregate: ("order", &aggregate), time: n * 600_000, header, id: None })
            .await;
    }
}

/// Returns the filters of the behaviour statements.
fn filters() -> Vec<ReplayFilter> {
    let text = |text: &str| Some(text.to_owned());
    let list = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
    let at = |n: i64| Some(Timestamp::from_millis(n * 600_000));
    let none = ReplayFilter::default;
    vec![
        ReplayFilter { event_types: list(&["placed", "paid"]), ..none() },
        ReplayFilter { event_types: list(&["placed", "paid"]), exclude_event_types: list(&["paid"]), ..none() },
        ReplayFilter { execution_id: text("e-2"), ..none() },
        ReplayFilter { aggregate_id: text("o-1"), ..none() },
        ReplayFilter { user_id: text("u-3"), ..none() },
        ReplayFilter { service_name: text("system-pod"), ..none() },
        ReplayFilter { start_time: at(5), end_time: at(9), ..none() },
        ReplayFilter { event_types: list(&["paid"]), start_time: at(5), ..none() },
        ReplayFilter { event_types: list(&["paid"]), user_id: text("u-1"), ..none() },
        ReplayFilter { aggregate_id: text("o-2"), end_time: at(12), ..none() },
        ReplayFilter { event_ids: list(&["x", "00000000-0000-0000-0000-000000000000"]), ..none() },
    ]
}

/// The condition and the query find the same events, even if a filter has unset parts.
pub async fn a_filter_means_what_its_query_of_mongodb_means(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    mixed(&it).await;
    let excluding = ReplayFilter { exclude_event_types: Some(vec!["paid".to_owned()]), ..ReplayFilter::default() };
    let empty = ReplayFilter { event_types: Some(Vec::new()), user_id: Some(String::new()), ..ReplayFilter::default() };
    it.browse.page(BrowseQuery::default()).await.expect("built");
    for filter in filters().into_iter().chain([excluding, empty, ReplayFilter::default()]) {
        let page =
            it.browse.page(BrowseQuery { filter: filter.clone(), ..BrowseQuery::default() }).await.expect("a page");
        let raw = Condition::raw(filter.to_mongo_query());
        let found = it.records.find(RecordQuery::new(EVENTS).matching(raw).limit(1_000)).await.expect("found");
        let numbers: BTreeSet<_> = page.items.iter().map(|item| item["n"].as_i64()).collect();
        let same: BTreeSet<_> = found.records.iter().map(|it| it.document.get_i64("n").ok()).collect();
        assert_eq!(numbers, same, "{filter:?}");
        assert_eq!(page.total, found.records.len() as u64);
    }
    let both = &filters()[6];
    let inclusive = it.numbers(BrowseQuery { filter: both.clone(), ..BrowseQuery::default() }).await;
    assert_eq!(inclusive, [9, 8, 7, 6, 5]);
}

/// Results are sorted by time, as pages are.
pub async fn every_filter_uses_an_index(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    mixed(&it).await;
    it.browse.page(BrowseQuery::default()).await.expect("built");
    for filter in filters() {
        let query = BrowseQuery { filter, limit: 10, ..BrowseQuery::default() };
        let explained = it.records.explain(query.records(EVENTS)).await.expect("explained");
        assert!(explained.index.is_some(), "{query:?}: {explained:?}");
    }
    let search = BrowseQuery { search: Some("api".to_owned()), ..BrowseQuery::default() };
    let explained = it.records.explain(search.records(EVENTS)).await.expect("explained");
    assert_eq!(explained.index.as_deref(), Some("idx_text_search"), "{explained:?}");
}

/// Events come in ascending order on request, and without system events on request.
pub async fn an_execution_is_found_by_its_id_and_by_its_aggregate(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    let named = json!({"n": 1, "execution_id": "e-1"});
    it.commit(Sample { data: named, time: 1, ..sample() }).await;
    it.commit(Sample { data: json!({"n": 2}), aggregate: ("execution", "e-1"), time: 2, ..sample() }).await;
    let header: &[_] = &[("service_name", "system-pod")];
    it.commit(Sample { data: json!({"n": 3}), aggregate: ("execution", "e-1"), time: 3, header, ..sample() }).await;
    it.commit(Sample { data: json!({"n": 4, "execution_id": "e-2"}), time: 4, ..sample() }).await;
    let query = BrowseQuery {
        execution: Some("e-1".to_owned()),
        sort: BrowseSort::parse("timestamp").expect("known"),
        ..BrowseQuery::default()
    };
    assert_eq!(it.numbers(query.clone()).await, [1, 2, 3]);
    let without = it.browse.page(BrowseQuery { exclude_system: true, ..query }).await.expect("a page");
    assert_eq!((without.items.len(), without.total), (2, 2));
}

/// An underscore joins words, a hyphen separates them, and a match of one of several words is enough.
pub async fn a_search_finds_whole_words(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    let header: &[_] = &[("service_name", "system-pod"), ("user_id", "ada")];
    it.commit(Sample { event_type: "execution_requested", data: json!({"n": 1}), time: 1, header, ..sample() }).await;
    it.commit(Sample { event_type: "saga_started", data: json!({"n": 2, "script": "hidden"}), time: 2, ..sample() })
        .await;
    let found =
        async |words: &str| it.numbers(BrowseQuery { search: Some(words.to_owned()), ..BrowseQuery::default() }).await;
    assert_eq!(found("execution_requested").await, [1]);
    assert_eq!(found("execution").await, [0_i64; 0]);
    assert_eq!(found("pod").await, [1]);
    assert_eq!(found("ada saga_started").await, [2, 1]);
    assert_eq!(found("hidden").await, [0_i64; 0]);
}

/// They are checked before anything is read.
pub async fn bounds_of_pages_are_checked(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    let refused = async |query: BrowseQuery| match it.browse.page(query).await {
        Err(BrowseError::Invalid(invalid)) => (invalid.code, invalid.path),
        other => panic!("{other:?}"),
    };
    let at = |path: &str| (Code::InvalidQuery, path.to_owned());
    assert_eq!(refused(BrowseQuery { limit: 0, ..BrowseQuery::default() }).await, at("limit"));
    assert_eq!(refused(BrowseQuery { limit: 1_001, ..BrowseQuery::default() }).await, at("limit"));
    assert_eq!(refused(BrowseQuery { skip: 100_001, ..BrowseQuery::default() }).await, at("skip"));
    for hours in [0, 169] {
        let refused = it.browse.statistics(StatisticsQuery { hours, failure_types: None }).await;
        assert!(matches!(refused, Err(BrowseError::Invalid(invalid)) if invalid.path == "hours"));
    }
}

/// The most frequent come first, and at most ten.
pub async fn statistics_count_types_users_hours_and_failures(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    let hour = 3_600_000;
    it.it.clock.advance_millis(100 * hour);
    let now = annals_core::Clock::now(&*it.it.clock).as_millis() / hour * hour;
    for n in 0..12 {
        for _ in 0..=n {
            let event_type = format!("type_{n:02}");
            let user = format!("u-{n:02}");
            it.commit(Sample { event_type: &event_type, time: now - hour, header: &[("user_id", &user)], ..sample() })
                .await;
        }
    }
    for wall in [1.0, 2.5] {
        let data = json!({"resource_usage": {"execution_time_wall_seconds": wall}});
        it.commit(Sample { event_type: "execution_completed", data, time: now - 2 * hour, ..sample() }).await;
    }
    for _ in 0..20 {
        it.commit(Sample { event_type: "execution_failed", time: now - 2 * hour, ..sample() }).await;
    }
    it.commit(Sample { event_type: "old", time: now - 50 * hour, ..sample() }).await;
    let found = it.browse.statistics(StatisticsQuery::default()).await.expect("counted");
    assert_eq!((found.total_events, found.event_types.len(), found.top_users.len()), (100, 10, 10));
    assert_eq!((&*found.event_types[0].event_type, found.event_types[0].count), ("execution_failed", 20));
    assert_eq!((&*found.event_types[1].event_type, found.event_types[1].count), ("type_11", 12));
    assert_eq!((&*found.top_users[0].user_id, found.top_users[0].count), ("u-11", 12));
    let hours: Vec<_> = found.events_by_hour.iter().map(|it| (it.hour.as_millis(), it.count)).collect();
    assert_eq!(hours, [(now - 2 * hour, 22), (now - hour, 78)]);
    assert_eq!((found.error_rate, found.avg_processing_time), (20.0, 1.75));
    let own = StatisticsQuery { failure_types: Some(vec!["type_11".to_owned()]), ..StatisticsQuery::default() };
    assert_eq!(it.browse.statistics(own).await.expect("counted").error_rate, 12.0);
}

/// These are the earliest ten, without the event itself, and none of an aggregate of another name.
pub async fn an_event_is_shown_with_others_of_its_aggregate(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    let mut ids = Vec::new();
    for n in 0..13 {
        ids.push(it.commit(Sample { data: json!({ "n": n }), time: n, ..sample() }).await.to_string());
    }
    it.commit(Sample { aggregate: ("cart", "o-1"), ..sample() }).await;
    let found = it.browse.event(&ids[3]).await.expect("found");
    assert_eq!(found.event["n"], 3);
    assert_eq!(found.event["timestamp"], "1970-01-01T00:00:00.003Z");
    let related: Vec<_> = found.related.iter().map(|it| it.event_id.clone()).collect();
    let due: Vec<_> = ids.iter().filter(|id| **id != ids[3]).take(10).cloned().collect();
    assert_eq!(related, due);
    assert_eq!(found.timeline, found.related[..5]);
    let unknown = it.browse.event("nothing").await;
    assert_eq!(unknown, Err(BrowseError::UnknownEvent("nothing".to_owned())));
}

/// Neither other events without an aggregate nor those of the same type are related. Other software writes such documents, with or
/// without a null.
pub async fn an_event_without_an_aggregate_has_no_related_ones(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 3).await;
    it.browse.page(BrowseQuery::default()).await.expect("built");
    for n in 0..4_u8 {
        let time = DateTime::from_millis(n.into());
        let id = ObjectId::from_bytes([9 + n; 12]);
        let mut alone =
            doc! { "_id": id, "event_id": format!("x-{n}"), "event_type": "placed", "timestamp": time, "metadata": {} };
        if n % 2 == 0 {
            alone.insert("aggregate_id", Bson::Null);
        }
        it.records.insert(EVENTS, RawDocumentBuf::try_from(&alone).expect("BSON")).await.expect("inserted");
    }
    for id in ["x-1", "x-2"] {
        let found = it.browse.event(id).await.expect("found");
        assert!(found.related.is_empty() && found.timeline.is_empty(), "{found:?}");
    }
}
