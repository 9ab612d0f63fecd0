//! Definitions of handlers.

use annals_core::Code;
use annals_core::handlers::{Act, HandlerDefinition, HandlerState, PullBody};
use annals_core::processing::PartitionBy;

use crate::Subject;
use crate::handlers::opened::{Opened, seconds};

/// What may change is followed at once.
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

/// Rather than made.
pub async fn what_is_unknown_is_refused_by_name(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    let code = |refused: annals_core::handlers::HandlerError| refused.code();
    assert_eq!(it.handlers.get("h").await.map_err(code), Err(Code::UnknownHandler));
    assert_eq!(it.handlers.pull("h", PullBody::default()).await.map_err(code), Err(Code::UnknownHandler));
    assert_eq!(it.handlers.delete("h", "it is not needed".into()).await.map_err(code), Err(Code::UnknownHandler));
    it.by_aggregate("h").await;
    let retry = it.handlers.act("h", Act::Retry("order/a".into()), "try".into()).await;
    assert_eq!(retry.map_err(code), Err(Code::UnknownPartition));
    assert_eq!(it.handlers.act("h", Act::Pause, " ".into()).await.map_err(code), Err(Code::InvalidBody));
    let invalid = HandlerDefinition { concurrency: 2, ..HandlerDefinition::new("i") };
    assert_eq!(it.handlers.put(invalid).await.map_err(code), Err(Code::InvalidHandler));
}

/// Its failing partitions too.
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

/// By name, each once.
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
