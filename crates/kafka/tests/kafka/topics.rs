//! Topics: created with their numbers, and altered only on demand.

use annals_core::{Broker, BrokerError, ByteString, TopicState};

use crate::support::{address, broker_at, settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_created_with_the_numbers_of_its_category_and_one_that_exists_is_left_alone() {
    let settings = settings();
    let broker = broker_at(&address(), &settings);
    for (event_type, category, partitions, days) in
        [("execution_requested", "execution", 6, 7), ("pod_created", "pod", 3, 1), ("user_login", "user", 3, 30)]
    {
        let topic = settings.definition(event_type, category).expect("a category");
        assert_eq!(broker.create_topic(&topic).await, Ok(true), "{event_type}");
        assert_eq!(broker.create_topic(&topic).await, Ok(false), "{event_type} is there already");
        let found = broker.topics(Some(std::slice::from_ref(&topic.name))).await.expect("described");
        let retention_ms = Some(days * 24 * 60 * 60 * 1_000);
        assert_eq!(found, [TopicState { name: topic.name, retention_ms, heads: vec![0; partitions] }]);
    }
    let mut other = settings.definition("pod_created", "pod").expect("a category");
    (other.partitions, other.retention_ms) = (5, Some(7));
    assert_eq!(broker.create_topic(&other).await, Ok(false), "whatever numbers it has");
    let found = broker.topics(Some(&[other.name])).await.expect("described");
    assert_eq!((found[0].partitions(), found[0].retention_ms), (3, Some(86_400_000)));
    let names: Vec<_> = broker.topics(None).await.expect("listed").into_iter().map(|topic| topic.name).collect();
    let expected = ["execution_requested", "pod_created", "user_login"].map(|name| settings.topic_of(name));
    assert_eq!(names, expected, "those of other tests are another tenant's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn differences_are_reported_and_applied_on_demand_and_other_settings_of_the_topic_stay() {
    use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
    let settings = settings();
    let broker = broker_at(&address(), &settings);
    let topic = settings.definition("execution_requested", "execution").expect("a category");
    let mut config = rdkafka::ClientConfig::new();
    let admin: AdminClient<_> = config.set("bootstrap.servers", address()).create().expect("a client");
    let made = NewTopic::new(&topic.name, 2, TopicReplication::Fixed(1)).set("max.message.bytes", "777777");
    admin.create_topics([&made], &AdminOptions::new()).await.expect("made by somebody else");
    let state = async || {
        let found = broker.topics(Some(std::slice::from_ref(&topic.name))).await.expect("described");
        topic.differences(found[0].partitions(), found[0].retention_ms)
    };
    crate::support::until("the topic is known", async || {
        (!broker.topics(Some(std::slice::from_ref(&topic.name))).await.ok()?.is_empty()).then_some(())
    })
    .await;
    let found: Vec<_> = state().await.into_iter().map(|it| it.setting).collect();
    assert_eq!(found, ["partitions"], "its retention is the cluster's default, which is the same seven days");
    let topic_of_a_month = annals_core::TopicDefinition { retention_ms: Some(30 * 86_400_000), ..topic.clone() };
    broker.alter_topic(&topic_of_a_month).await.expect("applied");
    crate::support::until("what was applied is seen", async || {
        let found = broker.topics(Some(std::slice::from_ref(&topic.name))).await.ok()?;
        (found[0].partitions() == 6 && found[0].retention_ms == Some(30 * 86_400_000)).then_some(())
    })
    .await;
    let described = admin.describe_configs([&ResourceSpecifier::Topic(&topic.name)], &AdminOptions::new()).await;
    let described = described.expect("described").remove(0).expect("the topic");
    assert_eq!(described.get("max.message.bytes").and_then(|it| it.value.as_deref()), Some("777777"));
    let mut fewer = topic.clone();
    fewer.partitions = 1;
    assert!(matches!(broker.alter_topic(&fewer).await, Err(BrokerError::Refused(_))));
    let mut unknown = topic;
    unknown.name = ByteString::from("no-such-topic");
    assert_eq!(broker.alter_topic(&unknown).await, Err(BrokerError::UnknownTopic("no-such-topic".into())));
}
