//! The groups of a tenant. If topics are views of the log, a group is a processor of the log's events.

mod consumer;
mod joined;
mod metrics;

use std::sync::Arc;

use annals_core::groups::{GroupDefinition, GroupError, GroupLag, GroupPage, GroupStatus, Groups};
use annals_core::handlers::{
    Act, Delivery, HandlerDefinition, HandlerStatus, Handlers, PartitionPage, PullBody, Reason, SettleBody,
    SettleResult,
};
use annals_core::{ByteString, UnknownLog};
use async_trait::async_trait;

pub(crate) use annals_core::groups::GROUPS;
pub use consumer::{Consumer, consumer};
pub(crate) use joined::BROKER_PARTITION;
pub use joined::ConsumerStatus;
pub(crate) use metrics::Duplicates;
pub use metrics::GroupMetrics;

use crate::dead_letters::TenantDeadLetters;
use crate::handlers::{Kind, TenantHandlers};
use crate::host::{Host, detached};
use crate::topics::TenantTopics;

/// Returns the name of the processor of a group.
pub(crate) fn processor_of(group: &str) -> String {
    Kind::Groups.processor_of(group)
}

/// The groups of one tenant in this process.
struct TenantGroups {
    processors: Arc<TenantHandlers>,
    topics: Arc<TenantTopics>,
    letters: Arc<TenantDeadLetters>,
}

impl Host {
    /// Returns the groups of a tenant.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn groups(&self, tenant: &str) -> Result<Arc<dyn Groups>, UnknownLog> {
        let (processors, topics) = (self.groups_of(tenant)?, Arc::new(self.views_of(tenant)?));
        Ok(Arc::new(TenantGroups { processors, topics, letters: self.dead_letters_of(tenant)? }))
    }
}

impl TenantGroups {
    async fn shown(&self, processor: HandlerStatus, definition: &HandlerDefinition) -> Result<GroupStatus, GroupError> {
        let group = GroupDefinition::of_handler(definition);
        let mut topics: Vec<GroupLag> = group
            .topics
            .iter()
            .map(|topic| GroupLag { topic: self.topics.settings().topic_of(topic), lag: 0 })
            .collect();
        for offset in self.topics.broker().group_offsets(&group.name).await? {
            if let Some(of_topic) = topics.iter_mut().find(|it| it.topic == offset.at.topic) {
                of_topic.lag += offset.lag;
            }
        }
        let lag = topics.iter().map(|it| it.lag).sum();
        let body = serde_json::from_str(&group.write()).unwrap_or_default();
        let processor = HandlerStatus { lag, definition: body, ..processor };
        Ok(GroupStatus { topics, start: group.start, in_flight: group.in_flight, processor })
    }
}

#[async_trait]
impl Groups for TenantGroups {
    async fn put(&self, definition: GroupDefinition) -> Result<bool, GroupError> {
        definition.validate()?;
        self.letters.start();
        for topic in &definition.topics {
            self.topics.create(topic).await?;
        }
        Ok(self.processors.put(definition.handler()).await?)
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<GroupPage, GroupError> {
        let page = self.processors.list(after, limit).await?;
        let mut items = Vec::with_capacity(page.items.len());
        for status in page.items {
            let definition = self.processors.definition(&status.name).await?;
            items.push(self.shown(status, &definition).await?);
        }
        Ok(GroupPage { items, cursor: page.cursor })
    }

    async fn get(&self, name: &str) -> Result<GroupStatus, GroupError> {
        let definition = self.processors.definition(name).await?;
        let status = self.processors.get(name).await?;
        self.shown(status, &definition).await
    }

    async fn delete(&self, name: &str, reason: Reason) -> Result<(), GroupError> {
        let (processors, letters) = (Arc::clone(&self.processors), Arc::clone(&self.letters));
        let name = name.to_owned();
        let deleting = async move {
            processors.delete(&name, reason.clone()).await?;
            letters.give_up(&processor_of(&name), reason).await
        };
        Ok(detached(deleting).await?)
    }

    async fn pull(&self, name: &str, pull: PullBody) -> Result<Vec<Delivery>, GroupError> {
        Ok(self.processors.pull(name, pull).await?)
    }

    async fn settle(&self, name: &str, settle: SettleBody) -> Result<Vec<SettleResult>, GroupError> {
        Ok(self.processors.settle(name, settle).await?)
    }

    async fn partitions(&self, name: &str, after: Option<&str>, limit: usize) -> Result<PartitionPage, GroupError> {
        Ok(self.processors.partitions(name, after, limit).await?)
    }

    async fn act(&self, name: &str, act: Act, reason: Reason) -> Result<(), GroupError> {
        Ok(self.processors.act(name, act, reason).await?)
    }
}

/// Returns the names of all groups that read a topic.
pub(crate) async fn groups_of_type(
    processors: &TenantHandlers,
    event_type: &str,
) -> Result<Vec<ByteString>, GroupError> {
    let mut names = Vec::new();
    let mut after: Option<ByteString> = None;
    loop {
        let page = processors.defined(after.as_deref()).await?;
        let reads =
            |it: &&HandlerDefinition| GroupDefinition::of_handler(it).topics.iter().any(|name| **name == *event_type);
        names.extend(page.iter().filter(reads).map(|it| it.name.clone()));
        match page.last() {
            Some(last) => after = Some(last.name.clone()),
            None => return Ok(names),
        }
    }
}
