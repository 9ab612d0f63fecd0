//! Pages of the log, encoded for publishing, and the topics of their events.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use annals_core::relay::{HeldRecord, Relay, RelayBatch, RelayTopics};
use annals_core::types::{EventTypes, TypeError};
use annals_core::{
    ByteString, EventLog, Filter, Follower, RecordedEvent, RelayPosition, SequenceNumber, StoreError, Timestamp,
    TopicDefinition,
};

use super::TenantRelay;
use super::task::Stop;

/// A page of the log that is ready to be published.
pub(super) struct Prepared {
    pub batch: RelayBatch,
    /// The sequence numbers of its messages.
    pub numbers: Vec<SequenceNumber>,
    /// Its events that should be on a topic and cannot. They are stored as held before the position passes them.
    pub held: Vec<HeldRecord>,
}

impl Prepared {
    pub fn nothing(position: RelayPosition) -> Self {
        Self { batch: RelayBatch { messages: Vec::new(), position }, numbers: Vec::new(), held: Vec::new() }
    }
}

/// Returns the record of an event that is on no topic.
pub(super) fn held(event: &RecordedEvent, topic: &str, reason: String, at: Timestamp) -> HeldRecord {
    HeldRecord {
        sequence_number: event.sequence_number.cast_signed(),
        event_id: event.id.to_string(),
        event_type: event.event_type.to_string(),
        topic: topic.to_owned(),
        aggregate: event.commit.aggregate.to_string(),
        reason,
        at: annals_core::bson::DateTime::from_millis(at.as_millis()),
    }
}

/// Reads the log page by page.
///
/// INVARIANT: between two calls, the follower's position is after exactly the events that were prepared and those in `page`.
pub(super) struct Pages {
    follower: Follower,
    /// Events that were read and are not prepared yet, because the call was dropped while their types were being looked up.
    page: Option<Vec<RecordedEvent>>,
}

impl Pages {
    /// Starts at this sequence number.
    pub fn from(log: &Arc<dyn EventLog>, number: SequenceNumber) -> Self {
        Self { follower: Follower::new(Arc::clone(log), number, Filter::default()), page: None }
    }

    /// Waits for the next page and encodes the events to publish. Topics that it is the first to need are added to `routes.new`.
    /// Cancel-safe.
    pub async fn prepare(
        &mut self,
        tenant: &TenantRelay,
        relay: &Relay,
        routes: &mut Routes,
    ) -> Result<Prepared, Stop> {
        let events = match &mut self.page {
            Some(events) => events,
            none => none.insert(self.follower.step().await?),
        };
        routes.learn(&*tenant.types, events).await?;
        let (incarnation, now) = (relay.position().incarnation, tenant.shared.options.clock.now());
        let mut without_topic = Vec::new();
        let message = |event: &RecordedEvent| {
            if let Some(why) = routes.refused.get(&event.event_type) {
                let topic = routes.topics.settings.topic_of(&event.event_type);
                without_topic.push(held(event, &topic, why.clone(), now));
                return None;
            }
            let topic = routes.topic_of(&event.event_type)?.clone();
            let is_registered = routes.is_registered(event);
            Some(tenant.messages.message(event, &tenant.tenant, incarnation, topic, is_registered))
        };
        let batch = relay.batch(events, self.follower.position(), message);
        let numbers = batch.messages.iter().map(|message| message.sequence_number).collect();
        self.page = None;
        Ok(Prepared { batch, numbers, held: without_topic })
    }
}

/// The topics of event types, as looked up by the session.
pub(super) struct Routes {
    pub topics: Arc<RelayTopics>,
    /// Whether messages name the schemas of their events.
    names_schemas: bool,
    known: HashMap<ByteString, Option<ByteString>>,
    /// Why types that should have topics can have none.
    refused: HashMap<ByteString, String>,
    /// The registered generations of types.
    registered: HashMap<ByteString, HashSet<u32>>,
    /// Topics that have not been checked yet.
    pub new: Vec<TopicDefinition>,
    /// Topics that are known to exist.
    pub created: HashSet<ByteString>,
}

impl Routes {
    pub fn new(topics: Arc<RelayTopics>, names_schemas: bool) -> Self {
        let (known, refused, registered) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { topics, names_schemas, known, refused, registered, new: Vec::new(), created: HashSet::new() }
    }

    /// Replaces the topics, and forgets what was looked up.
    pub fn change(&mut self, topics: Arc<RelayTopics>) {
        self.topics = topics;
        self.known.clear();
        self.refused.clear();
        self.new = self.topics.named().filter(|it| !self.created.contains(&it.name)).collect();
    }

    /// Looks up the types of these events. A type without a topic is looked up again for each page, because it may get one at any time.
    /// If messages name schemas, so is a generation without a schema. An error of the registry ends the session, because events of a type
    /// that only seems to have no topic would be skipped permanently.
    async fn learn(&mut self, types: &dyn EventTypes, events: &[RecordedEvent]) -> Result<(), TypeError> {
        let is_unknown = |event: &&RecordedEvent| {
            self.topic_of(&event.event_type).is_none() || self.names_schemas && !self.is_registered(event)
        };
        let unknown: HashSet<&ByteString> = events.iter().filter(is_unknown).map(|event| &event.event_type).collect();
        for event_type in unknown {
            let registered = match types.get(event_type).await {
                Ok(registered) => Some(registered),
                Err(TypeError::Store(error)) if !matches!(error, StoreError::NotSupported(_)) => {
                    return Err(error.into());
                }
                Err(_) => None,
            };
            if let Some(registered) = &registered {
                let generations = registered.generations.iter().map(|it| it.generation).collect();
                self.registered.insert(event_type.clone(), generations);
            }
            if self.topic_of(event_type).is_some() {
                continue;
            }
            let definition = match registered {
                Some(registered) => self.topics.settings.topic_in(event_type, &registered.category).map(Some),
                None => self.topics.topic_of(event_type),
            };
            self.refused.remove(event_type);
            let definition = definition.unwrap_or_else(|invalid| {
                self.refused.insert(event_type.clone(), invalid.message);
                None
            });
            let name = definition.as_ref().map(|topic| topic.name.clone());
            self.known.insert(event_type.clone(), name);
            self.new.extend(definition.filter(|topic| !self.created.contains(&topic.name)));
        }
        Ok(())
    }

    fn topic_of(&self, event_type: &ByteString) -> Option<&ByteString> {
        self.known.get(event_type)?.as_ref()
    }

    fn is_registered(&self, event: &RecordedEvent) -> bool {
        self.registered.get(&event.event_type).is_some_and(|generations| generations.contains(&event.generation))
    }
}
