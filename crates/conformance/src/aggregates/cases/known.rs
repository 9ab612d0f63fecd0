//! What is known about an aggregate besides its state.

use annals_core::{Code, Effect, Tags};
use annals_runtime::Request;

use super::Opened;
use crate::Subject;
use crate::aggregates::counter::add;

/// The values of the first commits stay until a later commit names others.
pub async fn owner_space_and_operators_are_those_that_commits_named_last(subject: &dyn Subject) {
    let Opened { _store, counters, .. } = Opened::of(subject).await;
    let first = Request::new("c-1").tenant_id("t").owner("eva").space("s-1").operator("otto");
    let first = counters.handle(first, add(1)).await.expect("taken").aggregate.info;
    counters.handle(Request::new("c-1").owner("ida").operator("uwe"), add(1)).await.expect("taken");
    let last = counters.handle("c-1", add(1)).await.expect("taken");
    let info = counters.load("c-1").await.expect("loads").info;
    assert_eq!(info, last.aggregate.info);
    assert_eq!((&*info.tenant_id, &*info.owner_id, &*info.space_id), ("t", "ida", "s-1"));
    assert_eq!((&*info.first_operator, &*info.operator, info.first_time), ("otto", "", first.time));
    let commit_id = last.outcome.expect("committed").commit_id.to_string();
    assert_eq!((info.version, &*info.commit_id, info.deleted), (3, &*commit_id, false));
}

/// Its tags, owner and space are as they were set, and a change without effect is not committed.
pub async fn a_deleted_aggregate_takes_no_commands_until_it_is_recovered(subject: &dyn Subject) {
    let opened = Opened::of(subject).await;
    let counters = &opened.counters;
    let none = counters.apply("c-1", Effect::Deleted).await.expect_err("there is none");
    assert_eq!(none.code(), Some(Code::VersionConflict));
    counters.handle("c-1", add(1)).await.expect("taken");
    let deleted = counters.apply("c-1", Effect::Deleted).await.expect("deleted").aggregate;
    assert!(deleted.info.deleted);
    assert_eq!(counters.apply("c-1", Effect::Deleted).await.expect("is so").outcome, None);
    let refused = counters.handle("c-1", add(1)).await.expect_err("deleted");
    assert_eq!(refused.code(), Some(Code::AggregateDeleted));
    let refused = counters.apply("c-1", Effect::OwnerTransferred("ida".to_owned())).await.expect_err("deleted");
    assert_eq!(refused.code(), Some(Code::AggregateDeleted));
    counters.apply("c-1", Effect::Recovered).await.expect("recovered");
    let tags = Tags::from([("region".to_owned(), vec!["eu".to_owned()])]);
    counters.apply("c-1", Effect::TagsApplied(tags.clone())).await.expect("tagged");
    counters.apply("c-1", Effect::OwnerTransferred("ida".to_owned())).await.expect("transferred");
    counters.apply("c-1", Effect::SpaceTransferred("s-2".to_owned())).await.expect("transferred");
    let info = counters.handle("c-1", add(1)).await.expect("taken").aggregate.info;
    assert_eq!((info.deleted, info.version, &*info.owner_id, &*info.space_id), (false, 7, "ida", "s-2"));
    assert_eq!(info.tags, tags);
    assert_eq!(opened.load("c-1").await.info, info);
}

/// A command for it is decided from the initial state.
pub async fn an_aggregate_of_another_tenant_id_is_not_seen_and_its_id_cannot_be_taken(subject: &dyn Subject) {
    let Opened { _store, counters, .. } = Opened::of(subject).await;
    counters.handle(Request::new("c-1").tenant_id("a"), add(9_999)).await.expect("taken");
    let other = counters.handle(Request::new("c-1").tenant_id("b"), add(9_999)).await.expect_err("taken by a");
    assert_eq!(other.code(), Some(Code::AggregateOfOtherTenant));
    let refused = counters.handle(Request::new("c-1").tenant_id("a"), add(9_999)).await.expect_err("seen");
    assert_eq!(refused.to_string(), "19998 is too much");
}
