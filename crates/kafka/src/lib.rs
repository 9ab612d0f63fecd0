//! The Kafka adapter of the broker port ([`annals_core::Broker`]). It is a separate crate because it is the only one that builds
//! librdkafka.
//!
//! ```text
//!  KafkaBroker ─┬─ topics.rs     create, describe, alter
//!               ├─ publisher.rs  one transaction for each batch: its messages, and the position on a topic of ours
//!               │    └─ position.rs   what the position topic holds
//!               ├─ member.rs     a group's member: a thread that polls, and hands over what happens
//!               ├─ offsets.rs    offsets of groups
//!               └─ read.rs       pages of one partition
//!  cluster.rs: addresses and settings · errors.rs: what Kafka's errors mean
//! ```
//!
//! Calls of librdkafka block, so they run on tokio's blocking threads, and each member has a thread of its own.

mod cluster;
mod errors;
mod member;
mod offsets;
mod position;
mod publisher;
mod read;
mod topics;

use std::sync::Arc;

use annals_core::{
    Broker, BrokerError, ByteString, GroupMember, GroupOffset, GroupSubscription, MessagePage, OpenError, Publisher,
    PublisherIdentity, ReadMessages, TopicDefinition, TopicGroup, TopicSettings, TopicState,
};
use async_trait::async_trait;

use cluster::Cluster;
pub use position::position_topic;

/// Options for a broker on Kafka.
#[derive(Debug, Clone, Default)]
pub struct KafkaOptions {
    /// The names of the tenant's topics.
    pub settings: TopicSettings,
    /// The replication factor of topics that are created; `None` uses the cluster's default.
    pub replication: Option<i32>,
}

/// The topics of one tenant on a Kafka cluster.
pub struct KafkaBroker {
    cluster: Arc<Cluster>,
    options: KafkaOptions,
}

impl std::fmt::Debug for KafkaBroker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaBroker").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl KafkaBroker {
    /// Creates the broker for the cluster at `kafka://HOST:PORT,HOST:PORT`. Does not connect: each call connects when needed.
    ///
    /// # Errors
    /// `invalid_config` for a URL of another form.
    pub fn open(url: &str, options: KafkaOptions) -> Result<Self, OpenError> {
        Ok(Self { cluster: Arc::new(Cluster::open(url)?), options })
    }
}

#[async_trait]
impl Broker for KafkaBroker {
    async fn create_topic(&self, topic: &TopicDefinition) -> Result<bool, BrokerError> {
        topics::create(&self.cluster, topic, &self.options).await
    }

    async fn topics(&self, names: Option<&[ByteString]>) -> Result<Vec<TopicState>, BrokerError> {
        topics::states(&self.cluster, names, &self.options.settings).await
    }

    async fn alter_topic(&self, topic: &TopicDefinition) -> Result<(), BrokerError> {
        topics::alter(&self.cluster, topic).await
    }

    async fn publisher(&self, identity: &PublisherIdentity) -> Result<Option<Box<dyn Publisher>>, BrokerError> {
        let publisher = publisher::open(&self.cluster, identity, &self.options).await?;
        Ok(Some(Box::new(publisher)))
    }

    async fn join(&self, subscription: GroupSubscription) -> Result<Box<dyn GroupMember>, BrokerError> {
        let names: Vec<ByteString> = subscription.topics.clone();
        let known = topics::partitions(&self.cluster, Some(&names)).await?;
        if let Some(missing) = names.iter().find(|name| !known.iter().any(|(known, _)| known == *name)) {
            return Err(BrokerError::UnknownTopic(missing.clone()));
        }
        Ok(Box::new(member::join(&self.cluster, subscription).await?))
    }

    async fn group_offsets(&self, group: &str) -> Result<Vec<GroupOffset>, BrokerError> {
        offsets::of_group(&self.cluster, group, &self.options.settings).await
    }

    async fn joined_groups(&self, topic: &str) -> Result<Vec<TopicGroup>, BrokerError> {
        offsets::in_topic(&self.cluster, topic).await
    }

    async fn delete_group(&self, group: &str) -> Result<(), BrokerError> {
        offsets::delete(&self.cluster, group).await
    }

    async fn read(&self, query: ReadMessages) -> Result<MessagePage, BrokerError> {
        read::page(&self.cluster, query).await
    }
}
