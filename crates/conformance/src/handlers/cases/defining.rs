//! Definitions of handlers.

use annals_core::bson::Bson;
use annals_core::handlers::{Act, HANDLERS, HandlerDefinition, HandlerState, PROCESSORS, PullBody};
use annals_core::processing::PartitionBy;
use annals_core::{Code, DEFAULT_TENANT, limits};

use crate::Subject;
use crate::handlers::opened::{Opened, positions, seconds};
use crate::unanswered::Unanswered;

/// Settings that may change take effect at once.
pub async fn a_definition_is_kept_and_one_that_changes_the_source_is_refused(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    let definition = it.by_aggregate("h").await;
    assert!(!it.handlers.put(definition.clone()).await.expect("the same"), "it is there");
    it.commit("placed", &["a", "b", "c", "d", "e"]).await;
    let in_flight = it.pull_count("h", 4).await;
    let wider = HandlerDefinition { concurrency: 5, ..definition.clone() };
    assert!(!it.handlers.put(wider.clone()).await.expect("allowed"), "it is there");
    assert_eq!(it.pull_count("h", 1).await.len() + in_flight.len(), 5);
    for other in [
        definition.clone().types(["placed"]),
        definition.clone().stream("stream-1"),
        HandlerDefinition { partition_by: PartitionBy::Data("n".to_owned()), ..definition },
    ] {
        let refused = it.handlers.put(other).await.expect_err("refused");
        assert_eq!(refused.code(), Code::HandlerChanged, "{refused}");
    }
    let shown = it.handlers.get("h").await.expect("defined").definition;
    assert_eq!(shown["concurrency"], 5, "{shown}");
}

/// It is refused rather than created.
pub async fn what_is_unknown_is_refused_by_name(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    let code = |refused: annals_core::handlers::HandlerError| refused.code();
    assert_eq!(it.handlers.get("h").await.map_err(code), Err(Code::UnknownHandler));
    assert_eq!(it.handlers.pull("h", PullBody::default()).await.map_err(code), Err(Code::UnknownHandler));
    assert_eq!(it.handlers.delete("h", "it is not needed".into()).await.map_err(code), Err(Code::UnknownHandler));
    it.by_aggregate("h").await;
    let retry = it.handlers.act("h", Act::Retry("order/a".into()), "try".into()).await;
    assert_eq!(retry.map_err(code), Err(Code::UnknownPartition));
    for reason in [" ".to_owned(), "x".repeat(limits::REASON_BYTES_MAX + 1)] {
        assert_eq!(it.handlers.act("h", Act::Pause, reason.into()).await.map_err(code), Err(Code::InvalidBody));
    }
    let invalid = HandlerDefinition { concurrency: 2, ..HandlerDefinition::new("i") };
    assert_eq!(it.handlers.put(invalid).await.map_err(code), Err(Code::InvalidHandler));
}

/// Its failing partitions are forgotten, too.
pub async fn a_deleted_handler_forgets_where_it_was(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    let definition = it.by_aggregate("h").await;
    it.commit("placed", &["a", "b"]).await;
    for delivery in it.pull_count("h", 2).await {
        match delivery.position {
            0 => it.fail("h", &delivery).await,
            _ => it.done("h", &delivery).await,
        }
    }
    it.handlers.delete("h", "it is not needed".into()).await.expect("deleted");
    assert!(it.handlers.get("h").await.is_err());
    it.define(definition).await;
    let status = it.handlers.get("h").await.expect("defined");
    assert_eq!((status.position, status.failing, status.state), (0, 0, HandlerState::Stopped));
    assert_eq!(it.handle_all("h", 2).await.len(), 2);
}

/// More than its definition is deleted: its owner ends, and its position is removed.
pub async fn a_handler_is_deleted_whole_although_the_caller_goes_away(subject: &dyn Subject) {
    let (store, unanswered) = Unanswered::before(subject.open().await, HANDLERS);
    let it = Opened::on(store, subject.clock());
    let definition = it.by_aggregate("h").await;
    it.commit("placed", &["a"]).await;
    it.done("h", &it.pull("h").await[0]).await;
    unanswered.abandon(it.handlers.delete("h", "it is not needed".into())).await;
    let records = it.store.records(DEFAULT_TENANT).expect("declared");
    let processor = Bson::from("handler/h");
    while records.get(PROCESSORS, &processor).await.expect("reads").is_some() {
        crate::between_looks().await;
    }
    let pulled = it.handlers.pull("h", PullBody::default()).await.map_err(|refused| refused.code());
    assert_eq!(pulled, Err(Code::UnknownHandler));
    it.define(definition).await;
    assert_eq!(positions(&it.pull("h").await), [0], "it begins at its start");
}

/// Its owner learns of the change even so.
pub async fn a_changed_definition_is_followed_although_the_caller_goes_away(subject: &dyn Subject) {
    let (store, unanswered) = Unanswered::before(subject.open().await, HANDLERS);
    let it = Opened::on(store, subject.clock());
    let definition = it.by_aggregate("h").await;
    it.commit("placed", &["a", "b", "c", "d", "e"]).await;
    assert_eq!(it.pull_count("h", 4).await.len(), 4, "four partitions at once");
    let wider = HandlerDefinition { concurrency: 5, ..definition };
    unanswered.abandon(it.handlers.put(wider)).await;
    assert_eq!(positions(&it.pull_count("h", 1).await), [4]);
}

/// Handlers are listed by name, each once.
pub async fn handlers_are_listed_page_by_page(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    assert_eq!(it.handlers.list(None, 10).await.expect("reads").items, []);
    for name in ["c", "a", "b"] {
        it.define(HandlerDefinition { retry: seconds(), ..HandlerDefinition::new(name) }).await;
    }
    let first = it.handlers.list(None, 2).await.expect("reads");
    let names: Vec<_> = first.items.iter().map(|item| &*item.name).collect();
    assert_eq!((names, first.cursor.as_deref()), (vec!["a", "b"], Some("b")));
    let second = it.handlers.list(first.cursor.as_deref(), 2).await.expect("reads");
    assert_eq!((second.items.len(), &*second.items[0].name, second.cursor), (1, "c", None));
}
