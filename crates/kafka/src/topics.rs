//! Creates, describes and alters topics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use annals_core::{BrokerError, ByteString, TopicDefinition, TopicSettings, TopicState};
use annals_system::sleep;
use rdkafka::admin::{
    AdminClient, AlterConfig, ConfigResource, ConfigSource, NewPartitions, NewTopic, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::types::RDKafkaErrorCode as Kafka;

use crate::KafkaOptions;
use crate::cluster::{ASK_MAX, Cluster, Logged, blocking, bounds_of, options};
use crate::errors;
use crate::position::is_position_topic;

const RETENTION: &str = "retention.ms";
/// How often, and at which interval, the brokers are asked whether they know of a change.
const KNOWN_TRIES: usize = 100;
const KNOWN_PAUSE: Duration = Duration::from_millis(30);

/// Creates a topic unless it exists. Returns whether it was created.
pub async fn create(
    cluster: &Arc<Cluster>,
    topic: &TopicDefinition,
    given: &KafkaOptions,
) -> Result<bool, BrokerError> {
    let retention = topic.retention_ms.map_or_else(|| "-1".to_owned(), |ms| ms.to_string());
    let partitions = i32::try_from(topic.partitions).unwrap_or(i32::MAX);
    let replication = TopicReplication::Fixed(given.replication.unwrap_or(-1));
    let new = NewTopic::new(&topic.name, partitions, replication).set(RETENTION, &retention);
    let created = create_new(&*cluster.admin()?, new).await?;
    if created {
        until_known(cluster, topic).await?;
    }
    Ok(created)
}

/// Waits until the brokers know a topic with at least the partitions of its definition. They acknowledge a change before all of them know
/// it.
///
/// # Errors
/// `Unavailable` after [`KNOWN_TRIES`].
async fn until_known(cluster: &Arc<Cluster>, topic: &TopicDefinition) -> Result<(), BrokerError> {
    for _ in 0..KNOWN_TRIES {
        let known = partitions(cluster, Some(std::slice::from_ref(&topic.name))).await?;
        if known.first().is_some_and(|(_, count)| *count >= topic.partitions) {
            return Ok(());
        }
        sleep(KNOWN_PAUSE).await;
    }
    Err(not_known(&topic.name, &format!("{} partitions", topic.partitions)))
}

/// Returns the error for a change that the cluster acknowledged and does not show.
fn not_known(topic: &str, change: &str) -> BrokerError {
    BrokerError::Unavailable(format!(
        "it acknowledged that topic {topic:?} has {change}, but does not show that after {KNOWN_TRIES} requests"
    ))
}

/// Creates a topic unless one of its name exists. Returns whether it was created.
pub async fn create_new(admin: &AdminClient<Logged>, topic: NewTopic<'_>) -> Result<bool, BrokerError> {
    match admin.create_topics([&topic], &options()).await.map_err(errors::of)?.pop() {
        Some(Ok(_)) => Ok(true),
        Some(Err((_, Kafka::TopicAlreadyExists))) => Ok(false),
        Some(Err((name, code))) => Err(errors::of_topic(&name, code)),
        None => Err(BrokerError::Unavailable("the cluster did not report whether it created the topic".to_owned())),
    }
}

/// Returns the existing topics among these names, with their partition counts; all topics if `names` is `None`.
pub async fn partitions(
    cluster: &Arc<Cluster>,
    names: Option<&[ByteString]>,
) -> Result<Vec<(ByteString, u32)>, BrokerError> {
    let (admin, names) = (cluster.admin()?, names.map(<[ByteString]>::to_vec));
    blocking(move || {
        let metadata = admin.inner().fetch_metadata(None, ASK_MAX).map_err(errors::of)?;
        let wanted = |name: &str| names.as_ref().is_none_or(|names| names.iter().any(|wanted| **wanted == *name));
        let found = metadata.topics().iter().filter(|topic| topic.error().is_none() && wanted(topic.name()));
        let mut found: Vec<_> = found
            .map(|topic| (ByteString::from(topic.name()), u32::try_from(topic.partitions().len()).unwrap_or(0)))
            .collect();
        found.sort();
        Ok(found)
    })
    .await
}

/// Returns the state of the existing topics among these names; of all topics of the tenant if `names` is `None`.
pub async fn states(
    cluster: &Arc<Cluster>,
    names: Option<&[ByteString]>,
    settings: &TopicSettings,
) -> Result<Vec<TopicState>, BrokerError> {
    let mut found = partitions(cluster, names).await?;
    if names.is_none() {
        found.retain(|(name, _)| is_of(settings, name));
    }
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let configs = describe(cluster, found.iter().map(|(name, _)| &**name)).await?;
    let admin = cluster.admin()?;
    blocking(move || {
        let mut states = Vec::with_capacity(found.len());
        for (name, count) in found {
            let mut heads = Vec::new();
            for partition in 0..count {
                let ask = || admin.inner().fetch_watermarks(&name, partition.cast_signed(), ASK_MAX);
                heads.push(bounds_of(&name, ask)?.1.cast_unsigned());
            }
            let retention = configs.get(&*name).and_then(|config| config.get(RETENTION)?.value.as_deref());
            // Kafka writes -1 if messages are kept forever.
            let retention_ms = retention.and_then(|text| text.parse().ok());
            states.push(TopicState { name, retention_ms, heads });
        }
        Ok(states)
    })
    .await
}

/// Returns whether a topic belongs to the tenant: Kafka's internal topics and our position topics do not.
pub fn is_of(settings: &TopicSettings, topic: &str) -> bool {
    !topic.starts_with("__") && !is_position_topic(topic) && settings.type_of(topic).is_some()
}

async fn describe<'n>(
    cluster: &Cluster,
    names: impl Iterator<Item = &'n str>,
) -> Result<BTreeMap<String, ConfigResource>, BrokerError> {
    let names: Vec<&str> = names.collect();
    let asked: Vec<_> = names.iter().map(|name| ResourceSpecifier::Topic(name)).collect();
    let admin = cluster.admin()?;
    let described = admin.describe_configs(&asked, &options()).await.map_err(errors::of)?;
    let mut configs = BTreeMap::new();
    for (name, config) in names.into_iter().zip(described) {
        configs.insert(name.to_owned(), config.map_err(|code| errors::of_topic(name, code))?);
    }
    Ok(configs)
}

/// Gives a topic the partition count and retention of its definition.
///
/// # Errors
/// `Unavailable` also if the cluster acknowledges the change, but does not show it within a few seconds.
pub async fn alter(cluster: &Arc<Cluster>, topic: &TopicDefinition) -> Result<(), BrokerError> {
    let name = &topic.name;
    let known = partitions(cluster, Some(std::slice::from_ref(name))).await?;
    let (_, count) = known.first().ok_or_else(|| BrokerError::UnknownTopic(name.clone()))?;
    if topic.partitions < *count {
        let message = format!("topic {name:?} has {count} partitions and cannot be reduced to {}", topic.partitions);
        return Err(BrokerError::Refused(message));
    }
    let admin = cluster.admin()?;
    if topic.partitions > *count {
        let more = NewPartitions::new(name, topic.partitions as usize);
        let made = admin.create_partitions([&more], &options()).await.map_err(errors::of)?;
        made.into_iter().try_for_each(|made| made.map(drop).map_err(|(name, code)| errors::of_topic(&name, code)))?;
        until_known(cluster, topic).await?;
    }
    // The request replaces all settings of the topic, so its other own settings are sent again.
    let configs = describe(cluster, std::iter::once(&**name)).await?;
    let own = configs.get(&**name).into_iter().flat_map(|config| &config.entries);
    let own = own.filter(|entry| entry.source == ConfigSource::DynamicTopic && entry.name != RETENTION);
    let retention = topic.retention_ms.map_or_else(|| "-1".to_owned(), |ms| ms.to_string());
    let mut change = AlterConfig::new(ResourceSpecifier::Topic(name)).set(RETENTION, &retention);
    for entry in own {
        if let Some(value) = &entry.value {
            change = change.set(&entry.name, value);
        }
    }
    let altered = admin.alter_configs([&change], &options()).await.map_err(errors::of)?;
    altered.into_iter().try_for_each(|altered| altered.map(drop).map_err(|(_, code)| errors::of_topic(name, code)))?;
    for _ in 0..KNOWN_TRIES {
        let known = describe(cluster, std::iter::once(&**name)).await?;
        let value = known.get(&**name).and_then(|config| config.get(RETENTION)?.value.as_deref());
        if value == Some(&*retention) {
            return Ok(());
        }
        sleep(KNOWN_PAUSE).await;
    }
    Err(not_known(name, &format!("{RETENTION} {retention}")))
}
