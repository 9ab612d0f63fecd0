//! Pages of the log as they are published, and the topics of their events.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use annals_core::relay::{Relay, RelayBatch, RelayTopics};
use annals_core::types::{EventTypes, TypeError};
use annals_core::{
    ByteString, EventLog, Filter, Follower, RecordedEvent, RelayPosition, SequenceNumber, StoreError, TopicDefinition,
};

use super::TenantRelay;
use super::task::Stop;

/// A page of the log as it is published.
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
/// INVARIANT: between two calls the follower stands behind every event that was prepared and those of `page`, and behind no other one.
pub(super) struct Pages {
    follower: Follower,
    /// What was read and is not prepared yet: its types were being looked up when the call was dropped.
    page: Option<Vec<RecordedEvent>>,
}

impl Pages {
    /// Begins with the event of this number.
    pub fn from(log: &Arc<dyn EventLog>, number: SequenceNumber) -> Self {
        Self { follower: Follower::new(Arc::clone(log), number, Filter::default()), page: None }
    }

    /// Waits for the next page and encodes what is published of it. Topics that it is the first to need are in `routes.new`. Cancelling
    /// loses nothing.
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

/// The topics of event types, as the session has looked them up.
pub(super) struct Routes {
    pub topics: Arc<RelayTopics>,
    /// Whether messages name the schemas of their events.
    names_schemas: bool,
    pub known: HashMap<ByteString, Option<ByteString>>,
    /// The registered generations of types.
    registered: HashMap<ByteString, HashSet<u32>>,
    /// Topics that were not looked at yet.
    pub new: Vec<TopicDefinition>,
    /// Topics that exist.
    pub created: HashSet<ByteString>,
}

impl Routes {
    pub fn new(topics: Arc<RelayTopics>, names_schemas: bool) -> Self {
        let (known, registered) = (HashMap::new(), HashMap::new());
        Self { topics, names_schemas, known, registered, new: Vec::new(), created: HashSet::new() }
    }

    /// Looks up the types of these events. A type that has no topic is looked up again for each page, because it may get one at any time.
    /// So is a generation without a schema, where messages name schemas. A registry that does not answer ends it: a type that only seems
    /// to have no topic would be passed for good.
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
