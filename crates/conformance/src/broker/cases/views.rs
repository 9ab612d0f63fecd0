//! Cases for brokers on which topics are views of the log.

use annals_core::{BrokerError, DEFAULT_TENANT, GroupStart, GroupSubscription, PublisherIdentity, partition_of};

use super::Brokered;
use super::reading::read_all;
use crate::Subject;

/// The retention is a day for pods.
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

/// Groups do not join either: the processor engine follows the log.
pub async fn nothing_is_published_where_topics_are_views_of_the_log(subject: &dyn Subject) {
    let it = Brokered::of(subject).await;
    let store = it.it.store.identity(DEFAULT_TENANT).expect("declared");
    let identity = PublisherIdentity { tenant: DEFAULT_TENANT.to_owned(), store };
    assert!(it.broker.publisher(&identity).await.expect("nothing to fence").is_none());
    let start = GroupStart::Earliest;
    let subscription = GroupSubscription { group: "g".into(), topics: vec!["a".into()], start, member: "m".to_owned() };
    assert!(matches!(it.broker.join(subscription).await, Err(BrokerError::Refused(_))));
}
