//! Reading topics outside any group.

use std::collections::BTreeMap;

use annals_core::relay::RelayedEvent;
use annals_core::{Broker, ByteString, Code, Content, Message, ReadMessages, TopicPartition, partition_of};

use super::Brokered;
use crate::Subject;

pub(super) async fn read_all(broker: &dyn Broker, topic: &str, partition: u32) -> Vec<Message> {
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

/// Returns the type of a message's event, the id of its aggregate, and the version.
fn event_of(message: &Message) -> (ByteString, ByteString, u64) {
    match &message.content {
        Content::Event(event) => (event.event_type.clone(), event.commit.aggregate.id.clone(), event.commit.version),
        Content::Encoded { headers, body } => {
            let event = RelayedEvent::read(headers, body).expect("a message of the relay");
            (event.event_type, event.aggregate.expect("an order").1, event.version)
        }
    }
}

/// This holds whatever else is in the log. Offsets ascend.
pub async fn a_committed_event_is_on_the_topic_of_its_type_once_and_in_order_per_key(subject: &dyn Subject) {
    let it = Brokered::of(subject).await;
    it.register("placed", "execution").await;
    // A category that is not configured has the numbers of the default one.
    it.register("paid", "sales").await;
    let ids = ["a", "b", "c", "d", "e", "f", "g"];
    for _ in 0..3 {
        it.it.commit("placed", &ids).await;
        it.it.commit("paid", &ids[..2]).await;
        it.it.commit("never_registered", &ids[..1]).await;
    }
    it.published().await;
    let mut numbers: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for partition in 0..6 {
        let messages = read_all(&*it.broker, &it.topic("placed"), partition).await;
        assert!(messages.is_sorted_by(|one, next| one.offset < next.offset));
        for message in messages {
            let key = message.key.clone().expect("a key");
            assert_eq!(partition_of(&key, 6), partition);
            let (event_type, id, version) = event_of(&message);
            assert_eq!((&*event_type, &id.as_bytes()[..]), ("placed", &key[..]));
            numbers.entry(id.to_string()).or_default().push(version);
        }
    }
    assert_eq!(numbers.keys().map(String::as_str).collect::<Vec<_>>(), ids);
    assert!(numbers.values().all(|versions| versions.len() == 3 && versions.is_sorted()), "{numbers:?}");
    let mut paid = 0;
    for partition in 0..3 {
        paid += read_all(&*it.broker, &it.topic("paid"), partition).await.len();
    }
    assert_eq!(paid, 6);
    let wrong = ReadMessages { at: TopicPartition { topic: it.topic("paid"), partition: 3 }, from: 0, limit: 10 };
    assert_eq!(it.broker.read(wrong.clone()).await.expect_err("it has three").code(), Code::UnknownTopic);
    let none = ReadMessages { limit: 0, ..wrong };
    assert_eq!(it.broker.read(none).await.expect_err("an empty page is the end").code(), Code::InvalidQuery);
}
