//! Reads and deletes committed offsets of groups.

use std::sync::Arc;

use annals_core::{BrokerError, ByteString, GroupOffset, ReadMessages, TopicGroup, TopicSettings};
use rdkafka::consumer::Consumer;
use rdkafka::types::RDKafkaErrorCode as Kafka;
use rdkafka::{Offset, TopicPartitionList};

use crate::cluster::{ASK_MAX, Cluster, blocking, bounds, options};
use crate::read::{page, partition_of};
use crate::{errors, topics};

/// Up to this lag, messages are counted exactly; beyond it, transaction markers count as messages.
const COUNTED_MAX: u64 = 1_000;

/// Returns the committed offsets of a group in the tenant's topics.
pub async fn of_group(
    cluster: &Arc<Cluster>,
    group: &str,
    settings: &TopicSettings,
) -> Result<Vec<GroupOffset>, BrokerError> {
    let mut known = topics::partitions(cluster, None).await?;
    known.retain(|(name, _)| topics::is_of(settings, name));
    of_group_in(cluster, group, &known).await
}

/// Returns the groups with committed offsets in a topic, with the lag of each.
pub async fn in_topic(cluster: &Arc<Cluster>, topic: &str) -> Result<Vec<TopicGroup>, BrokerError> {
    let known = topics::partitions(cluster, Some(&[topic.into()])).await?;
    let admin = cluster.admin()?;
    let names = blocking(move || {
        let groups = admin.inner().fetch_group_list(None, ASK_MAX).map_err(errors::of)?;
        Ok(groups.groups().iter().map(|group| group.name().to_owned()).collect::<Vec<_>>())
    });
    let mut groups = Vec::new();
    for group in names.await? {
        let offsets = of_group_in(cluster, &group, &known).await?;
        if !offsets.is_empty() {
            let lag = offsets.iter().map(|offset| offset.lag).sum();
            groups.push(TopicGroup { group: group.into(), lag });
        }
    }
    groups.sort_by(|one, other| one.group.cmp(&other.group));
    Ok(groups)
}

async fn of_group_in(
    cluster: &Arc<Cluster>,
    group: &str,
    topics: &[(ByteString, u32)],
) -> Result<Vec<GroupOffset>, BrokerError> {
    let mut asked = TopicPartitionList::new();
    for (name, count) in topics {
        for partition in 0..*count {
            asked.add_partition(name, partition.cast_signed());
        }
    }
    if asked.count() == 0 {
        return Ok(Vec::new());
    }
    let (asking, group) = (Arc::clone(cluster), group.to_owned());
    let mut offsets = blocking(move || {
        let reader = asking.reader(&group)?;
        let committed = reader.committed_offsets(asked, ASK_MAX).map_err(errors::of)?;
        let mut offsets = Vec::new();
        for element in committed.elements() {
            let Offset::Offset(offset) = element.offset() else { continue };
            let at = bounds(&reader, element.topic(), element.partition())?;
            let (offset, head) = (offset.cast_unsigned(), at.1.cast_unsigned());
            let lag = head.saturating_sub(offset.max(at.0.cast_unsigned()));
            offsets.push(GroupOffset { at: partition_of(element.topic(), element.partition()), offset, head, lag });
        }
        Ok(offsets)
    })
    .await?;
    for offset in offsets.iter_mut().filter(|offset| (1..=COUNTED_MAX).contains(&offset.lag)) {
        let limit = usize::try_from(COUNTED_MAX).unwrap_or(usize::MAX);
        let query = ReadMessages { at: offset.at.clone(), from: offset.offset, limit };
        offset.lag = page(cluster, query).await?.messages.len() as u64;
    }
    Ok(offsets)
}

/// Deletes the offsets of a group without members.
pub async fn delete(cluster: &Cluster, group: &str) -> Result<(), BrokerError> {
    let deleted = cluster.admin()?.delete_groups(&[group], &options()).await.map_err(errors::of)?;
    for group in deleted {
        match group {
            Ok(_) | Err((_, Kafka::GroupIdNotFound | Kafka::UnknownGroup)) => {}
            Err((name, Kafka::NonEmptyGroup)) => {
                return Err(BrokerError::Refused(format!("group {name:?} has members; stop them first")));
            }
            Err((name, code)) => return Err(BrokerError::Unavailable(format!("group {name:?}: {code}"))),
        }
    }
    Ok(())
}
