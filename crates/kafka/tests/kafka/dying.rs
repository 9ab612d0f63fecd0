//! A broker that kills its process at a step of the relay.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annals_core::{
    Broker, BrokerError, ByteString, GroupMember, GroupOffset, GroupSubscription, MessagePage, NewMessage, Publisher,
    PublisherIdentity, ReadMessages, RelayPosition, TopicDefinition, TopicGroup, TopicState,
};
use annals_kafka::KafkaBroker;
use async_trait::async_trait;

/// The steps of a relay: topics are created, earlier relays are fenced, the position is read, and batches are published. Each counts twice,
/// before it and after it.
pub struct Dying {
    broker: Arc<KafkaBroker>,
    steps: Arc<Steps>,
}

struct Steps {
    left: AtomicUsize,
}

impl Steps {
    /// Passes a step, or kills this process if it is the one.
    fn pass(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            let _ = Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
        }
    }
}

impl Dying {
    /// Kills the process at this step, counted from 1.
    pub fn at(step: usize, broker: Arc<KafkaBroker>) -> Self {
        Self { broker, steps: Arc::new(Steps { left: AtomicUsize::new(step) }) }
    }
}

#[async_trait]
impl Broker for Dying {
    async fn create_topic(&self, topic: &TopicDefinition) -> Result<bool, BrokerError> {
        self.steps.pass();
        let created = self.broker.create_topic(topic).await;
        self.steps.pass();
        created
    }

    async fn topics(&self, names: Option<&[ByteString]>) -> Result<Vec<TopicState>, BrokerError> {
        self.broker.topics(names).await
    }

    async fn alter_topic(&self, topic: &TopicDefinition) -> Result<(), BrokerError> {
        self.broker.alter_topic(topic).await
    }

    async fn publisher(&self, identity: &PublisherIdentity) -> Result<Option<Box<dyn Publisher>>, BrokerError> {
        self.steps.pass();
        let publisher = self.broker.publisher(identity).await?;
        self.steps.pass();
        Ok(publisher.map(|publisher| {
            Box::new(DyingPublisher { publisher, steps: Arc::clone(&self.steps) }) as Box<dyn Publisher>
        }))
    }

    async fn join(&self, subscription: GroupSubscription) -> Result<Box<dyn GroupMember>, BrokerError> {
        self.broker.join(subscription).await
    }

    async fn group_offsets(&self, group: &str) -> Result<Vec<GroupOffset>, BrokerError> {
        self.broker.group_offsets(group).await
    }

    async fn joined_groups(&self, topic: &str) -> Result<Vec<TopicGroup>, BrokerError> {
        self.broker.joined_groups(topic).await
    }

    async fn delete_group(&self, group: &str) -> Result<(), BrokerError> {
        self.broker.delete_group(group).await
    }

    async fn read(&self, query: ReadMessages) -> Result<MessagePage, BrokerError> {
        self.broker.read(query).await
    }
}

struct DyingPublisher {
    publisher: Box<dyn Publisher>,
    steps: Arc<Steps>,
}

#[async_trait]
impl Publisher for DyingPublisher {
    async fn position(&mut self) -> Result<Option<RelayPosition>, BrokerError> {
        self.steps.pass();
        let position = self.publisher.position().await;
        self.steps.pass();
        position
    }

    async fn publish(&mut self, batch: Vec<NewMessage>, position: RelayPosition) -> Result<(), BrokerError> {
        self.steps.pass();
        let published = self.publisher.publish(batch, position).await;
        self.steps.pass();
        published
    }
}
