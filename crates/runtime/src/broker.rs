//! The embedded broker: topics are views of the log.
//!
//! ```text
//!  log      0 placed  1 paid  2 placed  3 placed            an offset is a sequence number, so offsets of a partition have gaps
//!             │                 │         │
//!  placed/0   0 ────────────────┼─────── 3                  the partition follows from the key, the aggregate's id
//!  placed/1 ──────────────────  2                           messages older than the retention are not shown
//! ```
//!
//! It needs only the log and the records of a tenant, so it works on every store, with as many processes as the store supports.

use std::sync::Arc;

use annals_core::handlers::{DefinitionRecord, FailingRecord, HandlerSource, ProcessorRecord, partitions_of};
use annals_core::processing::Progress;
use annals_core::{
    AggregateFilter, Broker, BrokerError, ByteString, Clock, Code, Condition, Content, EventLog, Expected, Filter,
    GroupMember, GroupOffset, GroupSubscription, Invalid, LogQuery, Message, MessagePage, Publisher, PublisherIdentity,
    ReadMessages, RecordError, RecordedEvent, Records, Stored, Timestamp, TopicDefinition, TopicGroup, TopicPartition,
    TopicRecord, TopicSettings, TopicState, TypedRecords, limits, partition_of,
};
use async_trait::async_trait;

use crate::groups::{GROUPS, processor_of};

/// The most messages that are counted for the lag of a group in a topic.
const LAG_MAX: u64 = 10_000;

/// The embedded broker of one tenant.
pub(crate) struct Views {
    pub log: Arc<dyn EventLog>,
    pub records: Arc<dyn Records>,
    pub clock: Arc<dyn Clock>,
    pub settings: TopicSettings,
}

impl Views {
    fn topics_collection(&self) -> TypedRecords<TopicRecord> {
        TypedRecords::declared(Arc::clone(&self.records))
    }

    async fn stored(&self, name: &str) -> Result<Option<Stored<TopicRecord>>, BrokerError> {
        match self.topics_collection().get(name).await {
            Err(RecordError::UnknownCollection(_)) => Ok(None),
            found => Ok(found?),
        }
    }

    async fn topic(&self, name: &ByteString) -> Result<(TopicRecord, ByteString), BrokerError> {
        let found = self.stored(name).await?.ok_or_else(|| BrokerError::UnknownTopic(name.clone()))?;
        let event_type = self.settings.type_of(name).ok_or_else(|| BrokerError::UnknownTopic(name.clone()))?;
        Ok((found.value, event_type.into()))
    }

    /// Returns the oldest time of the messages that a topic shows.
    fn oldest(&self, topic: &TopicRecord) -> Timestamp {
        let kept = topic.retention_ms().map(|ms| self.clock.now().as_millis().saturating_sub(ms.cast_signed()));
        Timestamp::from_millis(kept.unwrap_or(i64::MIN / 2))
    }

    /// Reads a page of the events of a type. Returns them with the start of the next page and the head.
    async fn events(&self, event_type: &ByteString, from: u64) -> Result<(Vec<RecordedEvent>, u64, u64), BrokerError> {
        let filter = Filter { types: vec![event_type.clone()], ..Filter::default() };
        let query = LogQuery { from: Some(from), limit: limits::PAGE_MAX, backwards: false, filter };
        let page = self.log.read(query).await?;
        Ok((page.events, page.next, page.head))
    }

    /// Returns the messages of failing keys that are below the position of a group and not yet processed.
    async fn failing_of(
        &self,
        group: &str,
        types: &[ByteString],
        position: u64,
    ) -> Result<Vec<RecordedEvent>, BrokerError> {
        let query = TypedRecords::<FailingRecord>::query().matching(partitions_of(&processor_of(group)));
        let failing = TypedRecords::<FailingRecord>::declared(Arc::clone(&self.records));
        let found = match failing.find(query.limit(limits::PAGE_MAX)).await {
            Err(RecordError::UnknownCollection(_)) => return Ok(Vec::new()),
            found => found?.0,
        };
        let mut events = Vec::new();
        for failing in found.into_iter().map(|it| it.value.read()) {
            let Some((name, id)) = failing.partition.split_once('/') else { continue };
            let aggregate = Some(AggregateFilter { name: name.into(), id: Some(id.into()) });
            let filter = Filter { types: types.to_vec(), aggregate, ..Filter::default() };
            let query = LogQuery { from: Some(failing.position), limit: limits::PAGE_MAX, backwards: false, filter };
            let page = self.log.read(query).await?;
            events.extend(page.events.into_iter().take_while(|event| event.sequence_number < position));
        }
        Ok(events)
    }

    /// Returns for each partition of a topic the number of messages that are not processed yet.
    async fn lags(
        &self,
        name: &ByteString,
        progress: &Progress,
        failing: &[RecordedEvent],
    ) -> Result<Vec<u64>, BrokerError> {
        let (topic, event_type) = self.topic(name).await?;
        let (oldest, mut from) = (self.oldest(&topic), progress.position);
        let mut lags = vec![0; topic.partitions() as usize];
        for event in failing.iter().filter(|event| event.event_type == event_type) {
            lags[partition_of(key_of(event), topic.partitions()) as usize] += 1;
        }
        loop {
            let (events, next, head) = self.events(&event_type, from).await?;
            for event in &events {
                if event.time >= oldest && !progress.is_settled(event.sequence_number) {
                    lags[partition_of(key_of(event), topic.partitions()) as usize] += 1;
                }
            }
            if events.is_empty() || next >= head || lags.iter().sum::<u64>() >= LAG_MAX {
                return Ok(lags);
            }
            from = next;
        }
    }
}

/// Returns the key that determines the partition of an event: the id of its aggregate.
fn key_of(event: &RecordedEvent) -> &[u8] {
    event.commit.aggregate.id.as_bytes()
}

fn message(at: &TopicPartition, event: RecordedEvent) -> Message {
    let key = event.commit.aggregate.id.clone().into_bytes();
    Message {
        at: at.clone(),
        offset: event.sequence_number,
        key: Some(key),
        time: event.time,
        content: Content::Event(Box::new(event)),
    }
}

#[async_trait]
impl Broker for Views {
    async fn create_topic(&self, topic: &TopicDefinition) -> Result<bool, BrokerError> {
        let topics = TypedRecords::<TopicRecord>::declare(Arc::clone(&self.records)).await?;
        match topics.insert(&TopicRecord::of(topic)).await {
            Ok(_) => Ok(true),
            Err(RecordError::DuplicateKey { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn topics(&self, names: Option<&[ByteString]>) -> Result<Vec<TopicState>, BrokerError> {
        let condition = names.map_or(Condition::All, |names| Condition::is_in("_id", names.iter().map(|name| &**name)));
        let mut query =
            TypedRecords::<TopicRecord>::query().matching(condition).ascending("_id").limit(limits::PAGE_MAX);
        let head = self.log.head().await?;
        let mut found = Vec::new();
        loop {
            let (page, next) = match self.topics_collection().find(query.clone()).await {
                Err(RecordError::UnknownCollection(_)) => (Vec::new(), None),
                page => page?,
            };
            found.extend(page.into_iter().map(|it| TopicState {
                name: it.value.name.as_str().into(),
                retention_ms: it.value.retention_ms(),
                heads: vec![head; it.value.partitions() as usize],
            }));
            match next {
                Some(cursor) => query = query.after(cursor),
                None => return Ok(found),
            }
        }
    }

    async fn alter_topic(&self, topic: &TopicDefinition) -> Result<(), BrokerError> {
        loop {
            let found = self.stored(&topic.name).await?.ok_or_else(|| BrokerError::UnknownTopic(topic.name.clone()))?;
            if topic.partitions < found.value.partitions() {
                let message = format!(
                    "{:?} has {} partitions, and the partitions of a topic cannot be reduced",
                    &*topic.name, found.value.partitions
                );
                return Err(BrokerError::Refused(message));
            }
            let changed = TopicRecord::of(topic);
            match self.topics_collection().replace_if(&changed, Expected::Revision(found.revision)).await {
                Ok(_) => return Ok(()),
                Err(RecordError::NotAsExpected { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn publisher(&self, _: &PublisherIdentity) -> Result<Option<Box<dyn Publisher>>, BrokerError> {
        Ok(None)
    }

    async fn join(&self, _: GroupSubscription) -> Result<Box<dyn GroupMember>, BrokerError> {
        let message = "the embedded broker has no members that join a group, because its topics are views of the log; pull and settle deliveries instead".to_owned();
        Err(BrokerError::Refused(message))
    }

    async fn group_offsets(&self, group: &str) -> Result<Vec<GroupOffset>, BrokerError> {
        let groups = TypedRecords::<DefinitionRecord>::declared_as(Arc::clone(&self.records), GROUPS);
        let defined = match groups.get(group).await {
            Err(RecordError::UnknownCollection(_)) | Ok(None) => return Ok(Vec::new()),
            found => found?.map(|found| found.value),
        };
        let Some(defined) = defined else { return Ok(Vec::new()) };
        let processors = TypedRecords::<ProcessorRecord>::declared(Arc::clone(&self.records));
        let progress = match processors.get(processor_of(group).as_str()).await {
            Err(RecordError::UnknownCollection(_)) | Ok(None) => Progress::at(defined.start.cast_unsigned()),
            Ok(Some(found)) => found.value.progress(),
            Err(error) => return Err(error.into()),
        };
        let mut topics = match defined.read()?.source {
            HandlerSource::Log { types } => types,
            HandlerSource::Stream(_) => Vec::new(),
        };
        topics.sort();
        let (head, failing) = (self.log.head().await?, self.failing_of(group, &topics, progress.position).await?);
        let mut offsets = Vec::new();
        for event_type in topics {
            let topic = self.settings.topic_of(&event_type);
            for (partition, lag) in self.lags(&topic, &progress, &failing).await?.into_iter().enumerate() {
                let at = TopicPartition { topic: topic.clone(), partition: u32::try_from(partition).unwrap_or(0) };
                offsets.push(GroupOffset { at, offset: progress.position, head, lag });
            }
        }
        Ok(offsets)
    }

    async fn joined_groups(&self, _: &str) -> Result<Vec<TopicGroup>, BrokerError> {
        Ok(Vec::new())
    }

    async fn delete_group(&self, group: &str) -> Result<(), BrokerError> {
        match self.group_offsets(group).await?.is_empty() {
            true => Ok(()),
            false => Err(BrokerError::Refused(format!(
                "group {group:?} is still defined; delete its definition, which also deletes its offsets"
            ))),
        }
    }

    async fn read(&self, query: ReadMessages) -> Result<MessagePage, BrokerError> {
        let ReadMessages { at, from, limit } = query;
        if !(1..=limits::PAGE_MAX).contains(&limit) {
            let message = format!("{limit} is not between 1 and {}", limits::PAGE_MAX);
            return Err(Invalid::new(Code::InvalidQuery, "limit", message).into());
        }
        let (topic, event_type) = self.topic(&at.topic).await?;
        if at.partition >= topic.partitions() {
            return Err(BrokerError::UnknownTopic(at.topic));
        }
        let (oldest, mut from) = (self.oldest(&topic), from);
        let mut messages = Vec::new();
        loop {
            let (events, next, head) = self.events(&event_type, from).await?;
            let at_end = events.is_empty() || next >= head;
            for event in events {
                if event.time < oldest || partition_of(key_of(&event), topic.partitions()) != at.partition {
                    continue;
                }
                let behind = event.sequence_number + 1;
                messages.push(message(&at, event));
                if messages.len() == limit {
                    return Ok(MessagePage { messages, next: behind, head });
                }
            }
            from = next;
            if at_end || !messages.is_empty() {
                return Ok(MessagePage { messages, next: from, head });
            }
        }
    }
}
