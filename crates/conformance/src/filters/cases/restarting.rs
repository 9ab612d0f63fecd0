//! What remains when a host ends, and how several hosts work together.

use annals_core::bson::rawdoc;
use annals_core::filters::{FILTERS, FilterDefinition, FilterSettlement};
use annals_core::processing::PartitionBy;
use annals_core::{Code, DEFAULT_TENANT};

use crate::Subject;
use crate::closing::Closing;
use crate::filters::words::Filtered;
use crate::handlers::opened::Opened;

fn placed() -> FilterDefinition {
    FilterDefinition::new("orders").types(["placed"])
}

/// Nothing is included twice.
pub async fn a_filter_continues_where_it_was(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    all.define(placed()).await;
    all.it.commit("placed", &["a", "b"]).await;
    all.holds("orders", 2, &[(0, None), (1, None)]).await;
    let all = all.restarted().await;
    all.it.commit("placed", &["c"]).await;
    all.holds("orders", 3, &[(0, None), (1, None), (2, None)]).await;
}

/// It does not restart at once, although its definition can be read.
pub async fn a_filter_pauses_while_its_store_takes_no_verdicts(subject: &dyn Subject) {
    let (store, closing) = Closing::before(subject.open().await);
    let all = Filtered::on(Opened::on(store, subject.clock()));
    all.it.commit("placed", &["a"]).await;
    all.define(placed()).await;
    closing.until_paused(&all.it, &format!("filter/{DEFAULT_TENANT}/orders")).await;
    all.holds("orders", 1, &[(0, None)]).await;
}

/// Events in flight are handed out again.
pub async fn verdicts_that_were_answered_are_not_asked_for_again(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    all.define(placed().remote()).await;
    all.it.commit("placed", &["a", "b"]).await;
    let first = all.pull("orders", 1).await;
    all.settle("orders", vec![FilterSettlement::included(&*first[0].token)]).await;
    assert_eq!(all.pull("orders", 1).await[0].event.sequence_number, 1);
    let all = all.restarted().await;
    let again = all.pull("orders", 10).await;
    assert_eq!(again.iter().map(|it| (it.position, it.attempt)).collect::<Vec<_>>(), [(1, 1)]);
    all.settle("orders", vec![FilterSettlement::in_partition(&*again[0].token, "p")]).await;
    all.holds("orders", 2, &[(0, None), (1, Some("p"))]).await;
}

/// This holds whichever of them evaluates an event.
pub async fn two_hosts_fill_a_stream_once(subject: &dyn Subject) {
    let one = Filtered::of(subject).await;
    let other = Filtered::on(Opened::on(one.it.store.clone(), one.it.clock.clone()));
    one.it.host.start_defined();
    other.it.host.start_defined();
    one.define(placed()).await;
    assert!(!other.filters.put(placed()).await.expect("unchanged"));
    for n in 0..20 {
        let host = if n % 2 == 0 { &one } else { &other };
        host.it.commit("placed", &["a"]).await;
    }
    let expected: Vec<_> = (0..20).map(|n| (n, None)).collect();
    one.holds("orders", 20, &expected).await;
    one.it.host.drain().await;
    other.it.commit("placed", &["a"]).await;
    let expected: Vec<_> = (0..21).map(|n| (n, None)).collect();
    other.holds("orders", 21, &expected).await;
}

/// Other software wrote or changed the definition.
pub async fn a_definition_that_cannot_be_read_keeps_no_other_back(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    all.define(placed()).await;
    let records = all.it.store.records(DEFAULT_TENANT).expect("declared");
    records.insert(FILTERS, rawdoc! { "_id": "alien", "definition": 7 }).await.expect("written");
    let listed = all.filters.list(None, 10).await.expect_err("it is one of them");
    assert_eq!(listed.code(), Code::MalformedDocument, "{listed}");
    let said = listed.to_string();
    assert!(said.contains(FILTERS) && said.contains("\"alien\""), "{said}");
    let all = all.restarted().await;
    all.it.commit("placed", &["a"]).await;
    all.holds("orders", 1, &[(0, None)]).await;
}

/// Each entry follows the definition in force, and none is missing or repeated.
pub async fn a_definition_that_changes_while_events_come_keeps_the_stream_whole(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    let definition = |more: u64| {
        let types = std::iter::once("placed".to_owned()).chain((0..more).map(|n| format!("unused-{n}")));
        FilterDefinition::new("orders").types(types).partitioned(PartitionBy::Aggregate)
    };
    all.define(definition(0)).await;
    let committing = async {
        for _ in 0..30 {
            all.it.commit("placed", &["a"]).await;
        }
    };
    let changing = async {
        for n in 0..10 {
            all.filters.put(definition(n)).await.expect("nothing differs");
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(committing, changing);
    let expected: Vec<_> = (0..30).map(|n| (n, Some("order/a"))).collect();
    all.holds("orders", 30, &expected).await;
}
