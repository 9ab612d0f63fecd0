//! Pages of the log, encoded for publishing, and the topics of their events.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use annals_core::relay::{Relay, RelayBatch, RelayTopics};
use annals_core::types::{EventTypes, TypeError};
use annals_core::{
    ByteString, EventLog, Filter, Follower, RecordedEvent, RelayPosition, SequenceNumber, StoreError, TopicDefinition,
};

use super::TenantRelay;
use super::task::Stop;

/// A page of the log that is ready to be published.
pub(super) struct Prepared {
    pub batch: RelayBatch,
    /// The sequence numbers of its messages.
    pub numbers: Vec<SequenceNumber>,
}

impl Prepared {
    pub fn nothing(position: RelayPosition) -> Self {
        Self { batch: RelayBatch { messages: Vec::new(), position }, numbers: Vec::new() }
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
        let incarnation = relay.position().incarnation;
        let message = |event: &RecordedEvent| {
            let topic = routes.topic_of(&event.event_type)?.clone();
            let is_registered = routes.is_registered(event);
            Some(tenant.messages.message(event, &tenant.tenant, incarnation, topic, is_registered))
        };
        let batch = relay.batch(events, self.follower.position(), message);
        let numbers = batch.messages.iter().map(|message| message.sequence_number).collect();
        self.page = None;
        Ok(Prepared { batch, numbers })
    }
}

/// The topics of event types, as looked up by the session.
pub(super) struct Routes {
    pub topics: Arc<RelayTopics>,
    /// Whether messages name the schemas of their events.
    names_schemas: bool,
    pub known: HashMap<ByteString, Option<ByteString>>,
    /// The registered generations of types.
    registered: HashMap<ByteString, HashSet<u32>>,
    /// Topics that have not been checked yet.
    pub new: Vec<TopicDefinition>,
    /// Topics that are known to exist.
    pub created: HashSet<ByteString>,
}

impl Routes {
    pub fn new(topics: Arc<RelayTopics>, names_schemas: bool) -> Self {
        let (known, registered) = (HashMap::new(), HashMap::new());
        Self { topics, names_schemas, known, registered, new: Vec::new(), created: HashSet::new() }
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
                Some(registered) => self.topics.settings.definition(event_type, &registered.category).ok(),
                None => self.topics.topic_of(event_type),
            };
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
