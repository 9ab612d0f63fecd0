//! Reading topics outside of any group.

use std::collections::BTreeMap;

use annals_core::{
    Broker, BrokerError, Code, Content, DEFAULT_TENANT, GroupStart, GroupSubscription, Message, PublisherIdentity,
    ReadMessages, TopicPartition, partition_of,
};

use super::Brokered;
use crate::Subject;

async fn read_all(broker: &dyn Broker, topic: &str, partition: u32) -> Vec<Message> {
    let at = TopicPartition { topic: topic.into(), partition };
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let page = broker.read(ReadMessages { at: at.clone(), from, limit: 3 }).await.expect("read");
        assert!(page.next >= from && page.next <= page.head, "{} of {}", page.next, page.head);
        if page.messages.is_empty() {
            return all;
        }
        from = page.next;
        all.extend(page.messages);
    }
}

/// Whatever else is in the log, and with offsets that ascend.
pub async fn a_committed_event_is_on_the_topic_of_its_type_once_and_in_order_per_key(subject: &dyn Subject) {
    let it = Brokered::of(subject).await;
    it.register("placed", "execution").await;
    it.register("paid", "default").await;
    let ids = ["a", "b", "c", "d", "e", "f", "g"];
    for _ in 0..3 {
        it.it.commit("placed", &ids).await;
        it.it.commit("paid", &ids[..2]).await;
        it.it.commit("never_registered", &ids[..1]).await;
    }
    let mut numbers: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for partition in 0..6 {
        let messages = read_all(&*it.broker, "placed", partition).await;
        assert!(messages.is_sorted_by(|one, next| one.offset < next.offset));
        for message in messages {
            let key = message.key.expect("a key");
            assert_eq!(partition_of(&key, 6), partition);
            let Content::Event(event) = message.content else { panic!("the event itself") };
            assert_eq!((&*event.event_type, &event.commit.aggregate.id.as_bytes()[..]), ("placed", &key[..]));
            numbers.entry(event.commit.aggregate.id.to_string()).or_default().push(event.commit.version);
        }
    }
    assert_eq!(numbers.keys().map(String::as_str).collect::<Vec<_>>(), ids);
    assert!(numbers.values().all(|versions| versions.len() == 3 && versions.is_sorted()), "{numbers:?}");
    let mut paid = 0;
    for partition in 0..3 {
        paid += read_all(&*it.broker, "paid", partition).await.len();
    }
    assert_eq!(paid, 6);
    let wrong = ReadMessages { at: TopicPartition { topic: "paid".into(), partition: 3 }, from: 0, limit: 10 };
    assert_eq!(it.broker.read(wrong.clone()).await.expect_err("it has three").code(), Code::UnknownTopic);
    let none = ReadMessages { limit: 0, ..wrong };
    assert_eq!(it.broker.read(none).await.expect_err("an empty page is the end").code(), Code::InvalidQuery);
}

/// A day for pods.
pub async fn messages_older_than_the_retention_are_not_shown(subject: &dyn Subject) {
    let it = Brokered::of(subject).await;
    it.register("pod_created", "pod").await;
    it.it.commit("pod_created", &["a"]).await;
    it.it.advance(20 * 60 * 60 * 1_000);
    it.it.commit("pod_created", &["a"]).await;
    let partition = partition_of(b"a", 3);
    assert_eq!(read_all(&*it.broker, "pod_created", partition).await.len(), 2);
    it.it.advance(10 * 60 * 60 * 1_000);
    let left = read_all(&*it.broker, "pod_created", partition).await;
    assert_eq!(left.iter().map(|message| message.offset).collect::<Vec<_>>(), [1], "the log keeps both");
    assert_eq!(it.it.log.head().await.expect("read"), 2);
}

/// And groups do not join: the processor engine follows the log.
pub async fn nothing_is_published_where_topics_are_views_of_the_log(subject: &dyn Subject) {
    let it = Brokered::of(subject).await;
    let store = it.it.store.identity(DEFAULT_TENANT).expect("declared");
    let identity = PublisherIdentity { tenant: DEFAULT_TENANT.to_owned(), store };
    assert!(it.broker.publisher(&identity).await.expect("nothing to fence").is_none());
    let start = GroupStart::Earliest;
    let subscription = GroupSubscription { group: "g".into(), topics: vec!["a".into()], start, member: "m".to_owned() };
    assert!(matches!(it.broker.join(subscription).await, Err(BrokerError::Refused(_))));
}
