//! What a filter includes, and in which partition.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annals_core::filters::{FilterDefinition, FilterState, Verdict};
use annals_core::handlers::HandlerDefinition;
use annals_core::processing::PartitionBy;
use annals_core::{Condition, DEFAULT_TENANT, Data, NewCommit, NewEvent, Reached, RecordedEvent};
use serde_json::json;

use crate::Subject;
use crate::filters::counting::Count;
use crate::filters::words::Filtered;
use crate::handlers::opened::Opened;
use crate::tap::TappedStore;

fn data(value: &serde_json::Value) -> Data {
    Data::from_value(value).expect("a document")
}

/// Existing events are included first, then new ones.
pub async fn a_filter_by_types_includes_their_events_in_order_and_follows_the_log(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    for event_type in ["placed", "paid", "placed", "shipped"] {
        all.it.commit(event_type, &["a"]).await;
    }
    all.define(FilterDefinition::new("orders").types(["placed", "shipped"])).await;
    all.holds("orders", 4, &[(0, None), (2, None), (3, None)]).await;
    all.it.commit("placed", &["b"]).await;
    all.it.commit("paid", &["b"]).await;
    all.holds("orders", 6, &[(0, None), (2, None), (3, None), (4, None)]).await;
    let status = all.status("orders").await;
    assert_eq!((status.position, status.head, status.lag, status.entries), (6, 6, 0, 4));
    assert_eq!((status.state, status.owner.is_some()), (FilterState::Running, true));
    assert_eq!(status.definition, json!({"types": ["placed", "shipped"]}));
}

/// The condition covers data, metadata and all other fields of an event.
pub async fn a_condition_over_data_and_metadata_decides_what_is_included(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    for (n, (event_type, id)) in [("placed", "a"), ("paid", "a"), ("placed", "b")].into_iter().enumerate() {
        let event = NewEvent::new(event_type, data(&json!({"n": n}))).tag(format!("n:{n}"));
        let commit =
            NewCommit { owner_id: Some(format!("owner-{id}").into()), ..NewCommit::new("order", id).event(event) };
        all.it.log.commit(commit.wait_until(Reached::Logged)).await.expect("committed");
    }
    for (stream, condition, expected) in [
        ("by-data", Condition::gte("data.n", 1), vec![1, 2]),
        ("by-type", Condition::eq("type", "paid"), vec![1]),
        ("by-owner", Condition::eq("owner_id", "owner-b"), vec![2]),
        ("by-tag", Condition::eq("tags", "n:1"), vec![1]),
        (
            "by-aggregate",
            Condition::and([Condition::eq("aggregate.name", "order"), Condition::eq("aggregate.id", "a")]),
            vec![0, 1],
        ),
        ("by-none", Condition::eq("data.n", "one"), vec![]),
    ] {
        all.define(FilterDefinition::new(stream).matching(condition)).await;
        let expected: Vec<_> = expected.into_iter().map(|n| (n, None)).collect();
        all.holds(stream, 3, &expected).await;
    }
    let both = FilterDefinition::new("by-both").types(["placed"]).matching(Condition::gte("data.n", 1));
    all.define(both).await;
    all.holds("by-both", 3, &[(2, None)]).await;
}

/// An event without the value is in the stream without a partition. A value that cannot be a partition is represented by a digest.
pub async fn entries_are_partitioned_by_aggregate_or_by_a_path(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    for (id, region) in
        [("a", json!({"of": {"region": "north.1/$"}})), ("b", json!({"of": {"region": 7}})), ("a", json!({}))]
    {
        all.it.commit_data("order", id, &region).await;
    }
    all.define(FilterDefinition::new("by-aggregate").partitioned(PartitionBy::Aggregate)).await;
    all.holds("by-aggregate", 3, &[(0, Some("order/a")), (1, Some("order/b")), (2, Some("order/a"))]).await;
    let by_region = || PartitionBy::Data("of.region".to_owned());
    all.define(FilterDefinition::new("by-region").partitioned(by_region())).await;
    all.holds("by-region", 3, &[(0, Some("north.1/$")), (1, Some("7")), (2, None)]).await;
    for region in ["", "line\nbreak", "00000000-0000-0000-0000-000000000000"] {
        all.it.commit_data("order", "c", &json!({"of": {"region": region}})).await;
    }
    let entries = all.filled("by-region", 6).await;
    let digests: Vec<_> = entries[3..5].iter().map(|entry| entry.partition.as_deref().expect("a digest")).collect();
    assert!(digests[0] != digests[1] && digests.iter().all(|digest| digest.starts_with("digest:")), "{digests:?}");
    assert_eq!(entries[5].partition, None, "the nil UUID is no partition");
}

/// They are excluded before anything else is evaluated.
pub async fn a_public_filter_excludes_events_that_are_not_public(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    for public in [true, false, true] {
        let event = NewEvent { public, ..NewEvent::new("placed", data(&json!({}))) };
        let commit = NewCommit::new("order", "a").event(event).wait_until(Reached::Logged);
        all.it.log.commit(commit).await.expect("committed");
    }
    all.define(FilterDefinition::new("public-orders").types(["placed"]).public()).await;
    all.holds("public-orders", 3, &[(0, None), (2, None)]).await;
    all.define(FilterDefinition::new("orders").types(["placed"])).await;
    all.holds("orders", 3, &[(0, None), (1, None), (2, None)]).await;
    let scoped = FilterDefinition {
        name: annals_core::filters::FilterName::of_scope("other", "p"),
        ..FilterDefinition::new("p")
    };
    all.filters.put(scoped.public()).await.expect_err("only the default scope has public streams");
}

/// Its sequence numbers are those of the log. Its progress follows that of the other stream, even if that includes nothing.
pub async fn a_filter_evaluates_the_events_of_another_stream(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    for (event_type, id) in [("placed", "a"), ("paid", "a"), ("placed", "b"), ("placed", "a")] {
        all.it.commit(event_type, &[id]).await;
    }
    all.define(FilterDefinition::new("placed").types(["placed"])).await;
    let of_a = FilterDefinition::new("of-a").from_stream("placed").matching(Condition::eq("aggregate.id", "a"));
    all.define(of_a).await;
    all.holds("of-a", 4, &[(0, None), (3, None)]).await;
    let status = all.status("of-a").await;
    assert_eq!((status.position, status.head, status.lag), (3, 3, 0), "in positions of its source");
    all.it.commit("paid", &["a"]).await;
    all.it.commit("placed", &["a"]).await;
    all.holds("of-a", 6, &[(0, None), (3, None), (5, None)]).await;
}

/// It moves once a second at most, so that a filter that includes nothing costs next to nothing.
pub async fn a_position_moves_over_events_that_are_not_included(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    all.define(FilterDefinition::new("none").types(["nothing"])).await;
    for _ in 0..3 {
        all.it.commit("placed", &["a"]).await;
    }
    all.holds("none", 3, &[]).await;
    let status = all.until("none", true, |status| status.lag == 0).await;
    assert_eq!((status.position, status.entries, status.lag_seconds), (3, 0, 0));
}

/// Only events that can match are read, both when the stream is filled and when its definition changes.
pub async fn a_sparse_filter_reads_only_what_the_index_leads_to(subject: &dyn Subject) {
    let inner = subject.open().await;
    let count = Arc::new(Count::default());
    let store = Arc::new(TappedStore::new(inner).with_log(&count));
    let all = Filtered::on(Opened::on(store, subject.clock()));
    for n in 0..20_u64 {
        let many =
            (0..50).fold(NewCommit::new("order", "a"), |commit, _| commit.event(crate::sample::event("placed", n)));
        let rare = crate::sample::event("paid", n).tag(if n == 7 { "vip" } else { "other" });
        all.it.log.commit(many.event(rare).wait_until(Reached::Logged)).await.expect("committed");
    }
    let before = count.get();
    all.define(FilterDefinition::new("paid").types(["paid"])).await;
    assert_eq!(all.filled("paid", 1_020).await.len(), 20);
    let read = count.get() - before;
    assert!(read <= 20, "{read} events were read for 20 of 1,020");
    let before = count.get();
    all.define(FilterDefinition::new("vip").matching(Condition::eq("tags", "vip"))).await;
    assert_eq!(all.filled("vip", 1_020).await.len(), 1);
    let read = count.get() - before;
    assert!(read <= 1, "{read} events were read for 1 of 1,020");
    let before = count.get();
    all.filters.put(FilterDefinition::new("paid").types(["paid", "absent"])).await.expect("nothing differs");
    assert_eq!(all.refused(FilterDefinition::new("paid").types(["absent"])).await, ("events".to_owned(), Some(50)));
    let read = count.get() - before;
    assert!(read <= 20, "{read} events were read to compare definitions");
}

/// The function is in Rust, in the process of the host.
pub async fn a_function_decides_what_is_included_and_in_which_partition(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    all.it.commit("placed", &["a", "b", "c", "a"]).await;
    let function = |event: &RecordedEvent| match &*event.commit.aggregate.id {
        "a" => Verdict::InPartition("first".into()),
        "b" => Verdict::Excluded,
        _ => Verdict::Included,
    };
    let definition = FilterDefinition::new("orders").types(["placed"]);
    all.it.host.filter(DEFAULT_TENANT, definition, function).await.expect("defined");
    all.holds("orders", 4, &[(0, Some("first")), (2, None), (3, Some("first"))]).await;
}

/// The event is attempted again, and the reason is shown.
pub async fn a_function_that_panics_holds_its_filter_and_no_event_is_skipped(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    all.it.commit("placed", &["a", "b", "c"]).await;
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&attempts);
    let function = move |event: &RecordedEvent| {
        let is_bad = &*event.commit.aggregate.id == "b" && counted.fetch_add(1, Ordering::SeqCst) < 2;
        assert!(!is_bad, "it is not ready");
        Verdict::Included
    };
    all.it.host.filter(DEFAULT_TENANT, FilterDefinition::new("orders"), function).await.expect("defined");
    let failing = all.until("orders", false, |status| status.state == FilterState::Failing).await;
    assert_eq!((failing.position, failing.attempts), (1, Some(1)));
    assert!(failing.last_reason.is_some_and(|reason| reason.contains("it is not ready")));
    all.holds("orders", 3, &[(0, None), (1, None), (2, None)]).await;
    let well = all.until("orders", false, |status| status.state == FilterState::Running).await;
    assert_eq!((well.last_reason, attempts.load(Ordering::SeqCst)), (None, 3));
}

/// The handler works in the stream's positions.
pub async fn a_handler_processes_the_stream_of_a_filter(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    all.define(FilterDefinition::new("orders").types(["placed"])).await;
    all.it.define(HandlerDefinition::new("h").stream("orders")).await;
    for event_type in ["paid", "placed", "paid", "placed"] {
        all.it.commit(event_type, &["a"]).await;
    }
    all.filled("orders", 4).await;
    for (position, sequence_number) in [(0, 1), (1, 3)] {
        let deliveries = all.it.pull("h").await;
        let got: Vec<_> = deliveries.iter().map(|it| (it.position, it.event.sequence_number)).collect();
        assert_eq!(got, [(position, sequence_number)]);
        all.it.done("h", &deliveries[0]).await;
    }
}
