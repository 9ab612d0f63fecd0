//! Definition and deletion of groups.

use annals_core::Code;
use annals_core::groups::GroupDefinition;
use annals_core::handlers::{HandlerDefinition, PullBody, SettleBody};

use super::Grouped;
use crate::Subject;

/// The order of topics does not matter, and the settings for handing out messages may change.
pub async fn a_definition_is_kept_and_one_that_changes_the_topics_is_refused(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    let definition = GroupDefinition::new("g", ["placed", "paid"]);
    assert!(it.groups.put(definition.clone()).await.expect("defined"));
    let turned = GroupDefinition { in_flight: 3, ..GroupDefinition::new("g", ["paid", "placed"]) };
    assert!(!it.groups.put(turned).await.expect("the same topics"));
    let it = it.restarted().await;
    let status = it.status("g").await;
    assert_eq!((status.in_flight, &*status.processor.name), (3, "g"));
    let other = it.groups.put(GroupDefinition::new("g", ["placed"])).await.expect_err("other topics");
    assert_eq!(other.code(), Code::GroupChanged);
    assert!(other.to_string().contains("list of topics"), "{other}");
    let none = it.groups.put(GroupDefinition::new("g", Vec::<&str>::new())).await.expect_err("no topics");
    assert_eq!(none.code(), Code::InvalidGroup);
    let names: Vec<_> =
        it.groups.list(None, 10).await.expect("listed").items.into_iter().map(|it| it.processor.name).collect();
    assert_eq!(names, ["g"]);
}

/// Each operation refuses it.
pub async fn what_is_unknown_is_refused_by_name(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    let unknown = Code::UnknownGroup;
    assert_eq!(it.groups.get("nothing").await.expect_err("unknown").code(), unknown);
    assert_eq!(it.groups.pull("nothing", PullBody::default()).await.expect_err("unknown").code(), unknown);
    assert_eq!(it.groups.settle("nothing", SettleBody::default()).await.expect_err("unknown").code(), unknown);
    assert_eq!(it.groups.delete("nothing", "why not".into()).await.expect_err("unknown").code(), unknown);
    assert_eq!(it.groups.partitions("nothing", None, 1).await.expect_err("unknown").code(), unknown);
}

/// Each has its own position.
pub async fn groups_and_handlers_of_one_name_are_different(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    it.it.define(HandlerDefinition::new("same")).await;
    it.define("same", &["placed"]).await;
    it.it.commit("placed", &["a"]).await;
    assert_eq!(it.process_all("same").await, [0]);
    assert_eq!(it.it.handlers.get("same").await.expect("defined").position, 0);
    assert_eq!(it.it.handlers.list(None, 10).await.expect("listed").items.len(), 1);
    it.groups.delete("same", "only the group".into()).await.expect("deleted");
    assert_eq!(it.it.handle_all("same", 1).await, [0]);
}

/// A new group of its name begins where its definition says.
pub async fn a_deleted_group_forgets_where_it_was(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    it.define("g", &["placed"]).await;
    it.it.commit("placed", &["a"]).await;
    it.process_all("g").await;
    it.groups.delete("g", "".into()).await.expect_err("it needs a reason");
    it.groups.delete("g", "nobody consumes".into()).await.expect("deleted");
    assert_eq!(it.groups.get("g").await.expect_err("deleted").code(), Code::UnknownGroup);
    it.define("g", &["placed"]).await;
    assert_eq!(it.process_all("g").await, [0]);
}
