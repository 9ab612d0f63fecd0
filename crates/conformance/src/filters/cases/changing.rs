//! What a changed definition must preserve: the rules of the Dolittle Runtime, checked before the registration succeeds.

use std::collections::BTreeSet;

use annals_core::filters::{FILTERS, FilterDefinition, FilterError, FilterName, FilterRecord, FilterState, Verdict};
use annals_core::handlers::Reason;
use annals_core::processing::PartitionBy;
use annals_core::{
    Code, Condition, DEFAULT_SCOPE, DEFAULT_TENANT, Expected, Included, RecordedEvent, StreamDefinition, TypedRecords,
    Verdicts,
};
use serde_json::json;

use crate::Subject;
use crate::filters::words::Filtered;
use crate::handlers::opened::Opened;
use crate::unanswered::Unanswered;

fn placed() -> FilterDefinition {
    FilterDefinition::new("orders").types(["placed"])
}

/// Returns a stream of the events 0, 2 and 3 of the type `placed`; event 1 is of the type `paid`.
async fn filled(subject: &dyn Subject) -> Filtered {
    let all = Filtered::of(subject).await;
    for (event_type, id) in [("placed", "a"), ("paid", "a"), ("placed", "b"), ("placed", "a")] {
        all.it.commit(event_type, &[id]).await;
    }
    all.define(placed()).await;
    all.holds("orders", 4, &[(0, None), (2, None), (3, None)]).await;
    all
}

fn events(first: u64) -> (String, Option<u64>) {
    ("events".to_owned(), Some(first))
}

/// The order of its types does not matter.
pub async fn an_unchanged_definition_can_be_put_again(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    let definition = || FilterDefinition::new("orders").types(["placed", "paid"]).partitioned(PartitionBy::Aggregate);
    all.define(definition()).await;
    all.it.commit("placed", &["a"]).await;
    all.filled("orders", 1).await;
    assert!(!all.filters.put(definition()).await.expect("it is unchanged"));
    let same = FilterDefinition::new("orders").types(["paid", "placed"]).partitioned(PartitionBy::Aggregate);
    assert!(!all.filters.put(same).await.expect("it means the same"));
}

/// A filter without a position has nothing to preserve.
pub async fn before_the_first_event_a_definition_may_change_in_any_way(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    all.define(placed()).await;
    let other = FilterDefinition::new("orders").types(["paid"]).partitioned(PartitionBy::Aggregate);
    assert!(!all.filters.put(other).await.expect("nothing was evaluated"));
    all.it.commit("paid", &["a"]).await;
    all.it.commit("placed", &["a"]).await;
    all.holds("orders", 2, &[(0, Some("order/a"))]).await;
}

/// The error names the first event of such a type, and nothing is changed.
pub async fn a_type_that_occurs_cannot_be_added_or_removed(subject: &dyn Subject) {
    let all = filled(subject).await;
    assert_eq!(all.refused(FilterDefinition::new("orders").types(["placed", "paid"])).await, events(1));
    assert_eq!(all.refused(FilterDefinition::new("orders").types(["paid"])).await, events(0));
    assert_eq!(all.refused(FilterDefinition::new("orders")).await, events(1), "every type");
    all.it.commit("paid", &["c"]).await;
    all.it.commit("placed", &["c"]).await;
    all.holds("orders", 6, &[(0, None), (2, None), (3, None), (5, None)]).await;
}

/// From then on, its events are included.
pub async fn a_type_that_does_not_occur_can_be_added_and_removed(subject: &dyn Subject) {
    let all = filled(subject).await;
    let more = FilterDefinition::new("orders").types(["placed", "shipped"]);
    assert!(!all.filters.put(more).await.expect("nothing differs so far"));
    all.it.commit("shipped", &["a"]).await;
    all.holds("orders", 5, &[(0, None), (2, None), (3, None), (4, None)]).await;
    assert_eq!(all.refused(placed()).await, events(4), "now it occurs");
    let other = FilterDefinition::new("orders").types(["placed", "shipped", "sent"]);
    all.filters.put(other).await.expect("added");
    let fewer = FilterDefinition::new("orders").types(["placed", "shipped"]);
    all.filters.put(fewer).await.expect("removed");
}

/// If it does not, the error names the first event that only one of the two includes.
pub async fn a_condition_may_change_as_long_as_it_includes_the_same(subject: &dyn Subject) {
    let all = filled(subject).await;
    let of_ids = |ids: &[&str]| placed().matching(Condition::is_in("aggregate.id", ids.iter().copied()));
    assert!(!all.filters.put(of_ids(&["a", "b"])).await.expect("it includes the same"));
    assert_eq!(all.refused(of_ids(&["a"])).await, events(2));
    assert_eq!(
        all.refused(FilterDefinition::new("orders").matching(Condition::eq("aggregate.id", "a"))).await,
        events(1)
    );
    all.it.commit("placed", &["c", "a"]).await;
    all.holds("orders", 6, &[(0, None), (2, None), (3, None), (5, None)]).await;
    assert_eq!(all.refused(placed()).await, events(4));
}

/// This holds whatever the events are.
pub async fn partitions_publicness_and_kind_cannot_change(subject: &dyn Subject) {
    let all = filled(subject).await;
    for (definition, setting) in [
        (placed().partitioned(PartitionBy::Aggregate), "partitioned"),
        (placed().public(), "public"),
        (FilterDefinition { partition_by: Some(PartitionBy::None), ..placed().remote() }, "kind"),
        (placed().from_stream("other"), "source"),
    ] {
        assert_eq!(all.refused(definition).await, (setting.to_owned(), Some(0)), "{setting}");
    }
    let refused = all.filters.put(placed().public()).await.expect_err("it is private");
    assert_eq!(refused.code(), Code::FilterChanged);
    assert_eq!(all.status("orders").await.definition, json!({"types": ["placed"]}));
}

/// The same events in other partitions are another stream.
pub async fn a_changed_partition_key_is_refused_at_the_first_entry(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    all.it.commit_data("order", "a", &json!({"id": "order/a"})).await;
    all.it.commit_data("order", "b", &json!({"id": "other"})).await;
    all.define(placed().partitioned(PartitionBy::Aggregate)).await;
    all.holds("orders", 2, &[(0, Some("order/a")), (1, Some("order/b"))]).await;
    assert_eq!(all.refused(placed().partitioned(PartitionBy::Data("id".to_owned()))).await, events(1));
    assert_eq!(all.refused(placed().partitioned(PartitionBy::Data("none".to_owned()))).await, events(0));
}

/// Its entries stay.
pub async fn a_deleted_filter_is_defined_again_only_as_its_stream_says(subject: &dyn Subject) {
    let all = filled(subject).await;
    let name = FilterName::new("orders");
    all.filters.delete(&name, Reason::from("a test")).await.expect("deleted");
    assert!(matches!(all.filters.get(&name).await, Err(FilterError::Unknown(_))));
    all.it.commit("placed", &["c"]).await;
    all.holds("orders", 4, &[(0, None), (2, None), (3, None)]).await;
    assert_eq!(all.refused(FilterDefinition::new("orders").types(["paid"])).await, events(0));
    all.define(placed()).await;
    all.holds("orders", 5, &[(0, None), (2, None), (3, None), (4, None)]).await;
}

/// Its owner ends, rather than evaluating events of a filter that is not defined.
pub async fn a_filter_is_deleted_whole_although_the_caller_goes_away(subject: &dyn Subject) {
    let (store, unanswered) = Unanswered::before(subject.open().await, FILTERS);
    let all = Filtered::on(Opened::on(store, subject.clock()));
    all.define(placed()).await;
    all.it.commit("placed", &["a"]).await;
    all.holds("orders", 1, &[(0, None)]).await;
    let name = FilterName::new("orders");
    unanswered.abandon(all.filters.delete(&name, Reason::from("a test"))).await;
    let task = format!("filter/{DEFAULT_TENANT}/orders");
    while all.it.host.tasks().iter().any(|running| running.name == task) {
        crate::between_looks().await;
    }
    all.it.commit("placed", &["b"]).await;
    assert_eq!(all.streams.stream("orders").await.expect("reads").progress, 1);
}

/// The caller does not wait for the answer.
pub async fn a_filter_is_run_although_the_caller_that_defined_it_goes_away(subject: &dyn Subject) {
    let (store, unanswered) = Unanswered::before(subject.open().await, FILTERS);
    let all = Filtered::on(Opened::on(store, subject.clock()));
    unanswered.abandon(all.filters.put(placed())).await;
    all.it.commit("placed", &["a"]).await;
    all.holds("orders", 1, &[(0, None)]).await;
}

/// The function is part of the definition: it is called for the events that were evaluated.
pub async fn a_changed_function_is_refused_at_the_first_event_that_differs(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    all.it.commit("placed", &["a", "b", "a"]).await;
    let of = |id: &'static str| {
        move |event: &RecordedEvent| {
            if *event.commit.aggregate.id == *id { Verdict::Included } else { Verdict::Excluded }
        }
    };
    let definition = || FilterDefinition::new("orders");
    all.it.host.filter(DEFAULT_TENANT, definition(), of("a")).await.expect("defined");
    all.holds("orders", 3, &[(0, None), (2, None)]).await;
    all.it.host.filter(DEFAULT_TENANT, definition(), of("a")).await.expect("it decides alike");
    let refused = all.it.host.filter(DEFAULT_TENANT, definition(), of("b")).await.expect_err("it decides differently");
    assert!(matches!(refused, FilterError::Changed { first_difference: Some(0), .. }), "{refused}");
    let panics = |_: &RecordedEvent| -> Verdict { panic!("it cannot tell") };
    let refused = all.it.host.filter(DEFAULT_TENANT, definition(), panics).await.expect_err("it cannot be compared");
    assert!(refused.to_string().contains("it cannot tell"), "{refused}");
    let over_http = FilterDefinition { kind: annals_core::filters::FilterKind::Function, ..definition() };
    assert_eq!(all.filters.put(over_http).await.expect_err("it has no function").code(), Code::InvalidFilter);
}

/// Its client is not asked again about the events it has evaluated.
pub async fn an_unchanged_remote_filter_is_registered_again_and_a_changed_one_refused(subject: &dyn Subject) {
    use annals_core::filters::FilterSettlement;
    let all = Filtered::of(subject).await;
    all.define(placed().remote()).await;
    all.it.commit("placed", &["a"]).await;
    all.it.commit("paid", &["a"]).await;
    let pulled = all.pull("orders", 1).await;
    all.settle("orders", vec![FilterSettlement::in_partition(&*pulled[0].token, "p")]).await;
    assert!(!all.filters.put(placed().remote()).await.expect("it is unchanged"));
    all.filled("orders", 2).await;
    let both = FilterDefinition::new("orders").types(["placed", "paid"]).remote();
    assert_eq!(all.refused(both).await, events(1), "the client was not shown event 1");
    all.filters
        .put(FilterDefinition::new("orders").types(["placed", "absent"]).remote())
        .await
        .expect("nothing differs");
    assert_eq!(all.refused(placed()).await.0, "partitioned");
    assert_eq!(all.refused(placed().partitioned(PartitionBy::Aggregate)).await.0, "kind");
    all.it.commit("placed", &["b"]).await;
    assert_eq!(all.pull("orders", 10).await[0].event.sequence_number, 2);
}

/// A stream that it filled has a definition in the layout, and no other.
pub async fn what_another_software_defined_is_kept(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    for event_type in ["placed", "paid"] {
        all.it.commit(event_type, &["a"]).await;
    }
    let definitions = all.it.store.stream_definitions(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
    let types = BTreeSet::from([definitions.type_id("placed")]);
    let stored = StreamDefinition { partitioned: false, public: false, types: Some(types) };
    definitions.put("orders", stored).await.expect("stored");
    all.streams.append(Verdicts::new("orders", 0..2).include(Included::new(0))).await.expect("appended");
    assert_eq!(all.refused(placed().partitioned(PartitionBy::Aggregate)).await.0, "partitioned");
    assert_eq!(all.refused(placed().public()).await.0, "partitioned", "in the layout a public stream is partitioned");
    assert_eq!(all.refused(placed().matching(Condition::eq("data.n", 0))).await.0, "kind");
    assert_eq!(all.refused(FilterDefinition::new("orders").types(["placed", "paid"])).await, events(1));
    all.define(FilterDefinition::new("orders").types(["placed", "absent"])).await;
    all.it.commit("placed", &["b"]).await;
    all.holds("orders", 3, &[(0, None), (2, None)]).await;
}

/// A definition that the layout cannot express is stored as remote.
pub async fn definitions_are_stored_in_the_layout(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    let definitions = all.it.store.stream_definitions(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
    let types = |names: &[&str]| Some(names.iter().map(|name| definitions.type_id(name)).collect::<BTreeSet<_>>());
    let by = PartitionBy::Aggregate;
    for (definition, partitioned, public, types) in [
        (FilterDefinition::new("a").types(["placed", "paid"]), false, false, types(&["paid", "placed"])),
        (FilterDefinition::new("b").types(["placed"]).partitioned(by.clone()), true, false, types(&["placed"])),
        (FilterDefinition::new("c").types(["placed"]).matching(Condition::eq("data.n", 1)), false, false, None),
        (FilterDefinition::new("d").types(["placed"]).public(), true, true, None),
        (FilterDefinition::new("e").remote(), true, false, None),
        (FilterDefinition::new("f").partitioned(PartitionBy::None).remote(), false, false, None),
    ] {
        let stream = definition.name.stream.clone();
        all.define(definition).await;
        let stored = definitions.get(&stream).await.expect("reads");
        assert_eq!(stored, Some(StreamDefinition { partitioned, public, types }), "{stream}");
    }
    all.filters.delete(&FilterName::new("a"), Reason::from("a test")).await.expect("deleted");
    assert_eq!(definitions.get("a").await.expect("reads"), None);
}

/// The error has the name or the path.
pub async fn what_is_unknown_or_invalid_is_refused(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    let name = FilterName::new("orders");
    for refused in [
        all.filters.get(&name).await.expect_err("unknown"),
        all.filters.delete(&name, Reason::from("a test")).await.expect_err("unknown"),
        all.filters.pull(&name, annals_core::handlers::PullBody::default()).await.expect_err("unknown"),
    ] {
        assert_eq!(refused.code(), Code::UnknownFilter);
    }
    let of_scope = FilterDefinition { name: FilterName::of_scope("nowhere", "orders"), ..placed() };
    assert_eq!(all.filters.put(of_scope).await.expect_err("there is no such scope").code(), Code::UnknownScope);
    let invalid = all.filters.put(FilterDefinition::new("orders").types(["a b"])).await.expect_err("no name");
    assert_eq!(invalid.code(), Code::InvalidName);
    all.define(placed()).await;
    let refused = all.filters.delete(&name, Reason::from(" ")).await.expect_err("without a reason");
    assert_eq!(refused.code(), Code::InvalidBody);
}

/// Filters are listed by key.
pub async fn filters_are_listed_page_by_page(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    assert_eq!(all.filters.list(None, 10).await.expect("listed").items, []);
    for stream in ["c", "a", "b"] {
        all.define(FilterDefinition::new(stream).types(["placed"])).await;
    }
    let first = all.filters.list(None, 2).await.expect("listed");
    let names =
        |page: &annals_core::filters::FilterPage| page.items.iter().map(|it| it.stream.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&first), ["a", "b"]);
    let rest = all.filters.list(first.cursor.as_deref(), 2).await.expect("listed");
    assert_eq!((names(&rest), rest.cursor), (vec!["c".to_owned()], None));
}

/// Another process may append by the definition that it knows while that is changed. Nothing is appended after such verdicts. The filter
/// recovers once the definition of those verdicts is put.
pub async fn verdicts_of_an_earlier_definition_stop_the_filter_and_are_named(subject: &dyn Subject) {
    let all = filled(subject).await;
    all.it.host.drain().await;
    all.it.commit("shipped", &["a"]).await;
    // The definition was changed after it was compared with the verdicts below 4, and another process appended by the earlier one.
    let records = all.it.store.records(DEFAULT_TENANT).expect("declared");
    let filters = TypedRecords::<FilterRecord>::declared(records);
    let stored = filters.get("orders").await.expect("reads").expect("there").value;
    let changed = FilterDefinition::new("orders").types(["placed", "shipped"]);
    let changed = FilterRecord { definition: changed.write(), verify_from: Some(4), ..stored };
    filters.replace_if(&changed, Expected::Present).await.expect("written");
    all.streams.append(Verdicts::new("orders", 4..5)).await.expect("appended");
    let all = all.restarted().await;
    let blocked = all.until("orders", true, |status| status.state == FilterState::Blocked).await;
    assert!(blocked.last_reason.is_some_and(|reason| reason.contains("event 4")));
    all.it.commit("placed", &["b"]).await;
    assert_eq!(all.status("orders").await.progress, 5, "nothing was appended");
    assert!(!all.filters.put(placed()).await.expect("the verdicts are of this one"));
    all.holds("orders", 6, &[(0, None), (2, None), (3, None), (5, None)]).await;
}
