//! Consumers in Rust, with typed events.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use annals_core::groups::{GroupDefinition, GroupError, Groups, Guard, GuardSettings};
use annals_core::processing::ProcessingRetry;
use annals_core::{ByteString, GroupStart, Invalid, RecordedEvent, StoredEvent, Upcasters};
use async_trait::async_trait;
use futures_util::future::{BoxFuture, FutureExt};
use serde::de::DeserializeOwned;

use crate::handler::{Effects, HandleFailure, Handler};
use crate::host::Host;

type Function = Arc<dyn Fn(RecordedEvent) -> BoxFuture<'static, Result<(), HandleFailure>> + Send + Sync>;

/// A consumer of topics in a group. Create one with [`consumer`].
pub struct Consumer {
    definition: GroupDefinition,
    functions: HashMap<ByteString, Function>,
    upcasters: Upcasters,
    skips_replays: bool,
}

/// Creates a consumer of these topics in a group, from the earliest message on.
///
/// ```
/// # use annals_runtime::{Host, HostOptions, consumer};
/// # use serde::Deserialize;
/// #[derive(Deserialize)]
/// struct Completed {
///     execution_id: String,
///     exit_code: i32,
/// }
///
/// # async fn example(host: &Host) -> Result<(), annals_core::groups::GroupError> {
/// consumer("result-processor", ["execution_completed"])
///     .on("execution_completed", |event, data: Completed| async move {
///         println!("{} of {} ended with {}", event.id, data.execution_id, data.exit_code);
///         Ok(())
///     })
///     .run(host, "default")
///     .await
/// # }
/// ```
pub fn consumer<T: Into<ByteString>>(group: impl Into<ByteString>, topics: impl IntoIterator<Item = T>) -> Consumer {
    let definition = GroupDefinition::new(group, topics);
    Consumer { definition, functions: HashMap::new(), upcasters: Upcasters::new(), skips_replays: false }
}

impl Consumer {
    /// Processes messages of one of the topics: `process` receives the event and its data. Data that cannot be decoded as `D` fails
    /// permanently: the event's key waits for an operator, or the retry policy parks it. Events of other types that a replay sends to the
    /// topic are processed as well.
    #[must_use]
    pub fn on<D, F>(
        mut self,
        topic: impl Into<ByteString>,
        process: impl Fn(RecordedEvent, D) -> F + Send + Sync + 'static,
    ) -> Self
    where
        D: DeserializeOwned + Send + 'static,
        F: Future<Output = Result<(), HandleFailure>> + Send + 'static,
    {
        let function = move |event: RecordedEvent| match event.data.decode::<D>() {
            Ok(data) => process(event, data).boxed(),
            Err(error) => {
                let reason = format!("the data of event {} is not a valid {}: {error}", event.id, &*event.event_type);
                async move { Err(HandleFailure::never(reason)) }.boxed()
            }
        };
        self.functions.insert(topic.into(), Arc::new(function));
        self
    }

    /// Skips every message that a replay sends again, as a success and without calling a function: for work that cannot be undone, such
    /// as sending mail. The replay counts those messages as sent.
    #[must_use]
    pub fn skip_replays(mut self) -> Self {
        self.skips_replays = true;
        self
    }

    /// Sets where the group begins. Only the first definition of the group decides this.
    #[must_use]
    pub fn start(mut self, start: GroupStart) -> Self {
        self.definition.start = start;
        self
    }

    /// Sets the most keys that are processed concurrently.
    #[must_use]
    pub fn in_flight(mut self, keys: u32) -> Self {
        self.definition.in_flight = keys;
        self
    }

    /// Sets the retry policy for failed messages.
    #[must_use]
    pub fn retry(mut self, retry: ProcessingRetry) -> Self {
        self.definition.retry = retry;
        self
    }

    /// Delivers only one of the messages that this guard considers equivalent, and passes the others once it has succeeded. Keys are
    /// remembered for an hour.
    #[must_use]
    pub fn guard(mut self, by: Guard) -> Self {
        self.definition.guard = Some(GuardSettings::new(by));
        self
    }

    /// Upgrades older events before their functions receive them, after the upcasters of the registry. An event that they discard counts
    /// as processed.
    #[must_use]
    pub fn upcasting(mut self, upcasters: Upcasters) -> Self {
        self.upcasters = upcasters;
        self
    }

    /// Defines the group, and processes its messages in this process for as long as the host runs. If the host publishes the tenant's
    /// events to an external broker, the consumer joins the group there; else the group follows the log.
    ///
    /// # Errors
    /// `invalid_group` for a topic without a function; else as [`Groups::put`].
    pub async fn run(self, host: &Host, tenant: &str) -> Result<(), GroupError> {
        let Self { definition, functions, upcasters, skips_replays } = self;
        if let Some(topic) = definition.topics.iter().find(|topic| !functions.contains_key(*topic)) {
            let message = format!("topic {:?} has no function; add one with `on`", &**topic);
            return Err(Invalid::new(annals_core::Code::InvalidGroup, "topics", message).into());
        }
        if let Some(on) = host.copies(tenant) {
            return host.join(tenant, on, (definition, Functions { functions, upcasters, skips_replays })).await;
        }
        let unknown = |error: annals_core::UnknownLog| Invalid::new(error.code(), "tenant", error.to_string());
        let groups: Arc<dyn Groups> = host.groups(tenant).map_err(unknown)?;
        groups.put(definition.clone()).await?;
        host.groups_of(tenant)
            .map_err(unknown)?
            .work(definition.handler(), Arc::new(Functions { functions, upcasters, skips_replays }))?;
        Ok(())
    }
}

/// The functions of a consumer, by topic.
pub(super) struct Functions {
    functions: HashMap<ByteString, Function>,
    upcasters: Upcasters,
    skips_replays: bool,
}

impl Functions {
    /// Calls the function of an event's type with the event in its newest generation; if there is none, that of the topic to which a
    /// replay sent the event. An event that the upcasters discard counts as processed.
    pub fn call(
        &self,
        event: &RecordedEvent,
        topic: Option<&ByteString>,
    ) -> BoxFuture<'static, Result<(), HandleFailure>> {
        let event = match self.upcast(event) {
            Ok(Some(event)) => event,
            Ok(None) => return async { Ok(()) }.boxed(),
            Err(failure) => return async { Err(failure) }.boxed(),
        };
        let of_type = self.functions.get(&event.event_type);
        match of_type.or_else(|| self.functions.get(topic?)) {
            Some(function) => function(event),
            None => {
                let reason = format!("the consumer has no function for topic {:?}", &*event.event_type);
                async move { Err(HandleFailure::never(reason)) }.boxed()
            }
        }
    }

    fn upcast(&self, event: &RecordedEvent) -> Result<Option<RecordedEvent>, HandleFailure> {
        let upcast = self.upcasters.apply(StoredEvent::from(event)).map_err(HandleFailure::never)?;
        Ok(upcast.map(|StoredEvent { event_type, generation, data }| RecordedEvent {
            event_type,
            generation,
            data,
            ..event.clone()
        }))
    }
}

#[async_trait]
impl Handler for Functions {
    async fn handle(&self, events: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure> {
        if self.skips_replays && effects.replay().is_some() {
            return Ok(());
        }
        for event in events {
            self.call(event, effects.attempt.topic.as_ref()).await?;
        }
        Ok(())
    }
}
