//! Topics and their settings.

use annals_core::types::TypeDefinition;
use annals_core::{BrokerError, ByteString, Code, TopicDefinition};
use serde_json::json;

use super::Brokered;
use crate::Subject;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Its name is that of the type.
pub async fn a_registered_type_has_a_topic_with_the_numbers_of_its_category(subject: &dyn Subject) {
    let it = Brokered::of(subject).await;
    for (name, category) in
        [("execution_requested", "execution"), ("pod_created", "pod"), ("user_login", "user"), ("other", "default")]
    {
        it.register(name, category).await;
    }
    let shown = async |name: &str| {
        let topic = it.topics.get(&it.topic(name)).await.expect("created");
        assert_eq!((&topic.name, &*topic.event_type), (&it.topic(name), name));
        assert_eq!(topic.head.len(), topic.partitions as usize);
        assert!(topic.differences.is_empty() && topic.groups.is_empty(), "{topic:?}");
        (topic.category.to_string(), topic.partitions, topic.retention_ms.map(|ms| ms / DAY_MS))
    };
    assert_eq!(shown("execution_requested").await, ("execution".to_owned(), 6, Some(7)));
    assert_eq!(shown("pod_created").await, ("pod".to_owned(), 3, Some(1)));
    assert_eq!(shown("user_login").await, ("user".to_owned(), 3, Some(30)));
    assert_eq!(shown("other").await, ("default".to_owned(), 3, Some(7)));
    let before = it.broker.topics(None).await.expect("listed");
    assert_eq!(before.len(), 4);
    it.topics.create_missing().await.expect("nothing is missing");
    assert_eq!(it.broker.topics(None).await.expect("listed"), before);
    let late = TypeDefinition::new("late", json!({"type": "object"}));
    it.types.put(late).await.expect("registered");
    it.topics.create_missing().await.expect("one is missing");
    let names: Vec<_> = it.broker.topics(None).await.expect("listed").into_iter().map(|it| it.name).collect();
    let expected = ["execution_requested", "late", "other", "pod_created", "user_login"].map(|name| it.topic(name));
    assert_eq!(names, expected);
}

/// A change of the category is reported, and applied on demand.
pub async fn an_existing_topic_is_left_alone_until_its_differences_are_applied(subject: &dyn Subject) {
    let it = Brokered::of(subject).await;
    let name = it.topic("job_done");
    it.register("job_done", "pod").await;
    let definition = TypeDefinition::new("job_done", json!({"type": "object"})).category("execution");
    it.types.put(definition).await.expect("another category");
    it.topics.create_missing().await.expect("nothing is altered");
    let topic = it.topics.get(&name).await.expect("there");
    assert_eq!((topic.partitions, topic.retention_ms), (3, Some(DAY_MS)), "as it was created");
    let differences: Vec<_> = topic.differences.iter().map(|it| (&*it.setting, it.wanted, it.applicable)).collect();
    assert_eq!(differences, [("partitions", Some(6), true), ("retention_ms", Some(7 * DAY_MS), true)]);
    it.topics.apply(&name, "".into()).await.expect_err("it needs a reason");
    let applied = it.topics.apply(&name, "more workers".into()).await.expect("applied");
    assert_eq!((applied.partitions, applied.retention_ms, applied.differences), (6, Some(7 * DAY_MS), Vec::new()));
    let definition = TypeDefinition::new("job_done", json!({"type": "object"})).category("pod");
    it.types.put(definition).await.expect("back again");
    let refused = it.topics.apply(&name, "fewer".into()).await.expect_err("a topic cannot lose partitions");
    assert_eq!(refused.code(), Code::StateConflict);
    let fewer = TopicDefinition { name: name.clone(), category: "pod".into(), partitions: 1, retention_ms: None };
    assert!(matches!(it.broker.alter_topic(&fewer).await, Err(BrokerError::Refused(_))));
    assert!(!it.broker.create_topic(&fewer).await.expect("it exists"));
    assert_eq!(it.topics.get(&name).await.expect("there").partitions, 6);
}

/// Topics are listed by name.
pub async fn topics_are_listed_page_by_page(subject: &dyn Subject) {
    let it = Brokered::of(subject).await;
    assert!(it.topics.list(None, 10).await.expect("listed").items.is_empty());
    for name in ["c", "a", "e", "b", "d"] {
        it.register(name, "default").await;
    }
    let (mut after, mut names) = (None::<ByteString>, Vec::new());
    loop {
        let page = it.topics.list(after.as_deref(), 2).await.expect("listed");
        names.extend(page.items.into_iter().map(|it| it.name.to_string()));
        after = page.cursor;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"].map(|name| it.topic(name).to_string()));
}

/// Each operation refuses it.
pub async fn what_is_unknown_is_refused_by_name(subject: &dyn Subject) {
    let it = Brokered::of(subject).await;
    let name = it.topic("nothing");
    assert_eq!(it.topics.get(&name).await.expect_err("unknown").code(), Code::UnknownTopic);
    let nothing = TopicDefinition { name: name.clone(), category: "default".into(), partitions: 1, retention_ms: None };
    assert_eq!(it.broker.alter_topic(&nothing).await.expect_err("unknown").code(), Code::UnknownTopic);
    assert!(it.broker.group_offsets(&name).await.expect("no offsets").is_empty());
    it.broker.joined_groups(&name).await.map(|groups| assert!(groups.is_empty())).expect("no groups");
    it.broker.delete_group(&name).await.expect("nothing to delete");
}
