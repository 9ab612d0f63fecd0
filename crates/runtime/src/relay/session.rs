//! One open publisher: batches are published one after the other, while the next one is being read and encoded.

use std::pin::pin;

use annals_core::relay::{
    HeldRecord, MessageFormat, Relay, RelayBatch, RelayRecord, RelayRefusal, RelayState, STORE_EVERY,
};
use annals_core::{
    BrokerError, ByteString, DEFAULT_SCOPE, Expected, Publisher, PublisherIdentity, SequenceNumber, Timestamp,
    TopicDefinition, TypedRecords,
};
use futures_util::future::{Either, select};

use super::TenantRelay;
use super::pages::{Pages, Prepared, Routes, held};
use super::task::Stop;
use crate::host::{is_set, reached};

/// How often the position is stored for other processes of the store.
const TELL_EVERY: std::time::Duration = std::time::Duration::from_millis(250);

/// The state of an open publisher.
pub(super) struct Session<'r> {
    tenant: &'r TenantRelay,
    publisher: Box<dyn Publisher>,
    relay: Relay,
    routes: Routes,
    last_stored: Timestamp,
    last_told: Option<Timestamp>,
}

impl<'r> Session<'r> {
    /// Publishes until something ends the session. `before` is the state of the previous session, if this process ended that one with an
    /// error.
    pub async fn run(tenant: &'r TenantRelay, before: Option<&Relay>) -> Stop {
        let mut session = match Self::open(tenant, before).await {
            Ok(session) => session,
            Err(stop) => return stop,
        };
        match session.publish_all().await {
            Ok(never) => match never {},
            Err(Stop::Retry(error)) => Stop::Reopen(error, Box::new(session.relay)),
            Err(stop) => stop,
        }
    }

    async fn open(tenant: &'r TenantRelay, before: Option<&Relay>) -> Result<Self, Stop> {
        let store = tenant.shared.store.identity(&tenant.tenant).ok_or(Stop::Done)?;
        let identity = PublisherIdentity { tenant: tenant.tenant.clone(), store };
        let mut publisher = match tenant.broker.publisher(&identity).await {
            Ok(Some(publisher)) => publisher,
            Ok(None) => {
                tenant.is_now(RelayState::Views, None);
                return Err(Stop::Done);
            }
            // Opening fences others; only a later incarnation can fence a publisher that is being opened.
            Err(BrokerError::Fenced) => return Err(RelayRefusal::Later { here: store.incarnation }.into()),
            Err(error) => return Err(Stop::Retry(error)),
        };
        let stored = publisher.position().await.map_err(Stop::Retry)?;
        if let Some(before) = before {
            before.check_alone(stored)?;
        }
        let agree_to = |seen| {
            let since = tenant.shared.store.identity_since(&tenant.tenant, DEFAULT_SCOPE, seen);
            since.map_or(0, |identity| identity.incarnation_start)
        };
        let relay = Relay::resume(store, stored, tenant.log.head().await?, agree_to)?;
        let names_schemas = tenant.messages.format != MessageFormat::Json;
        let mut routes = Routes::new(tenant.topics.borrow().clone(), names_schemas);
        routes.new = routes.topics.named().collect();
        let last_stored = tenant.shared.options.clock.now();
        let mut session = Self { tenant, publisher, relay, routes, last_stored, last_told: None };
        session.create_topics().await?;
        session.announce().await?;
        session.moved(0).await?;
        Ok(session)
    }

    /// Announces on the broker where this incarnation forked from the one that was published before.
    async fn announce(&mut self) -> Result<(), Stop> {
        let Some(batch) = self.relay.announcement() else { return Ok(()) };
        if let Some(fork) = batch.position.fork {
            tracing::warn!(
                tenant = self.tenant.tenant,
                "the store was restored: events {} to {} of incarnation {} were published and are no longer in the log; the relay continues with event {}",
                fork.at,
                fork.published,
                fork.incarnation,
                batch.position.next
            );
        }
        self.publisher.publish(batch.messages, batch.position).await.map_err(Stop::Retry)?;
        self.relay.stored(batch.position);
        Ok(())
    }

    async fn publish_all(&mut self) -> Result<std::convert::Infallible, Stop> {
        let mut following = self.pages();
        let mut topics = self.tenant.topics.subscribe();
        let mut prepared = None;
        loop {
            if topics.has_changed().unwrap_or(false) {
                // The prepared batch used the previous topics.
                let changed = topics.borrow_and_update().clone();
                self.routes.change(changed);
                self.create_topics().await?;
                (prepared, following) = (None, self.pages());
            }
            let mut next = match prepared.take() {
                Some(next) => next,
                None => self.until_prepared(&mut following).await?,
            };
            self.create_topics().await?;
            self.hold_all(std::mem::take(&mut next.held)).await?;
            let since_stored = self.now().since(self.last_stored);
            if !self.relay.is_due(&next.batch, since_stored) {
                self.relay.passed(next.batch.position);
                self.moved(0).await?;
                continue;
            }
            match self.publish(next, &mut following).await? {
                Outcome::Published(following_batch) => prepared = following_batch,
                Outcome::Held => following = self.pages(),
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.tenant.shared.options.clock.now()
    }

    fn pages(&self) -> Pages {
        Pages::from(&self.tenant.log, self.relay.position().next)
    }

    /// Waits for events, and stores the position once a second while it advances without any.
    async fn until_prepared(&mut self, following: &mut Pages) -> Result<Prepared, Stop> {
        let now = self.now();
        // If the clock was set back, do not wait until it reaches the old time again.
        self.last_stored = self.last_stored.min(now);
        let store_at = self.last_stored.plus(STORE_EVERY);
        let (clock, mut draining) = (&self.tenant.shared.options.clock, self.tenant.shared.stop.subscribe());
        let mut topics = self.tenant.topics.subscribe();
        let position = self.relay.position();
        let behind = self.relay.is_behind(position);
        tokio::select! {
            biased;
            () = is_set(&mut draining) => Err(Stop::Done),
            prepared = following.prepare(self.tenant, &self.relay, &mut self.routes) => Ok(prepared?),
            _ = topics.changed() => Ok(Prepared::nothing(position)),
            () = reached(&**clock, now, store_at), if behind => Ok(Prepared::nothing(position)),
        }
    }

    /// Publishes a batch while preparing the next one.
    async fn publish(&mut self, next: Prepared, following: &mut Pages) -> Result<Outcome, Stop> {
        let Prepared { batch: RelayBatch { messages, position }, numbers, .. } = next;
        let count = messages.len() as u64;
        let mut ahead = self.relay.clone();
        ahead.passed(position);
        self.relay.attempts(position);
        let outcome = {
            let publishing = pin!(self.publisher.publish(messages, position));
            let preparing = pin!(following.prepare(self.tenant, &ahead, &mut self.routes));
            match select(publishing, preparing).await {
                // Whatever was read of the next page is kept in `following`.
                Either::Left((published, _)) => published.map(|()| None),
                Either::Right((prepared, publishing)) => match publishing.await {
                    Ok(()) => Ok(Some(prepared?)),
                    Err(error) => Err(error),
                },
            }
        };
        match outcome {
            Ok(prepared) => {
                self.relay.stored(position);
                self.last_stored = self.now();
                self.moved(count).await?;
                Ok(Outcome::Published(prepared))
            }
            Err(BrokerError::RefusedMessage { at, topic, reason }) if at < numbers.len() => {
                self.hold(numbers[at], topic, reason).await?;
                Ok(Outcome::Held)
            }
            Err(error) => Err(Stop::Retry(error)),
        }
    }

    /// Holds an event. This is stored before any later event is published.
    async fn hold(&mut self, number: SequenceNumber, topic: ByteString, reason: String) -> Result<(), Stop> {
        let query = annals_core::LogQuery { from: Some(number), limit: 1, ..annals_core::LogQuery::default() };
        let event = self.tenant.log.read(query).await?.events.into_iter().next();
        let event = event.ok_or_else(|| Stop::Failed(format!("event {number} is no longer in the log")))?;
        tracing::error!(
            tenant = self.tenant.tenant,
            "event {number} ({}, {}) is not on topic {topic:?}: {reason}; it is held, and publishing continues after it",
            event.id,
            event.event_type
        );
        self.tenant.store_held(&[held(&event, &topic, reason, self.now())]).await?;
        self.relay.hold(number);
        Ok(())
    }

    /// Holds events whose types can have no topic.
    async fn hold_all(&mut self, all: Vec<HeldRecord>) -> Result<(), Stop> {
        let Some(first) = all.first() else { return Ok(()) };
        tracing::error!(
            tenant = self.tenant.tenant,
            "{} events from number {} on are on no topic, the first because of its type {:?}: {}; they are held, and publishing continues after them",
            all.len(),
            first.sequence_number,
            first.event_type,
            first.reason
        );
        self.tenant.store_held(&all).await?;
        Ok(())
    }

    /// Creates topics that are not known to exist, and reports existing ones that differ from their definitions.
    async fn create_topics(&mut self) -> Result<(), Stop> {
        let mut existing = Vec::new();
        for topic in std::mem::take(&mut self.routes.new) {
            if self.routes.created.contains(&topic.name) {
                continue;
            }
            match self.tenant.broker.create_topic(&topic).await.map_err(Stop::Retry)? {
                true => tracing::info!(tenant = self.tenant.tenant, topic = &*topic.name, "created a topic"),
                false => existing.push(topic.clone()),
            }
            self.routes.created.insert(topic.name);
        }
        report_differences(self.tenant, &existing).await.map_err(Stop::Retry)
    }

    /// Reports the progress.
    async fn moved(&mut self, published: u64) -> Result<(), Stop> {
        let (position, tenant) = (self.relay.position(), self.tenant);
        tenant.status.send_modify(|status| {
            (status.position, status.fork) = (position.next, position.fork);
            (status.state, status.last_error) = (RelayState::Publishing, None);
            status.published += published;
        });
        let now = self.now();
        let is_told = self.last_told.is_some_and(|told| now.since(told) < TELL_EVERY);
        if is_told || !tenant.shared.store.is_shared() {
            return Ok(());
        }
        self.last_told = Some(now);
        let record = RelayRecord {
            id: RelayRecord::ID.to_owned(),
            owner: tenant.shared.process.clone(),
            incarnation: i64::from(position.incarnation),
            position: position.next.cast_signed(),
        };
        let record = TypedRecords::replacement(&record, Expected::AbsentOr(annals_core::Condition::All))?;
        tenant.records.write(vec![record]).await?;
        Ok(())
    }
}

/// The result of publishing a batch.
enum Outcome {
    /// It was published; the next batch may be prepared already.
    Published(Option<Prepared>),
    /// One of its events is held; the rest is read again.
    Held,
}

/// Logs where topics differ from their definitions. Nothing is altered.
async fn report_differences(relay: &TenantRelay, existing: &[TopicDefinition]) -> Result<(), BrokerError> {
    if existing.is_empty() {
        return Ok(());
    }
    let names: Vec<ByteString> = existing.iter().map(|topic| topic.name.clone()).collect();
    for state in relay.broker.topics(Some(&names)).await? {
        let Some(wanted) = existing.iter().find(|topic| topic.name == state.name) else { continue };
        for difference in wanted.differences(state.partitions(), state.retention_ms) {
            tracing::warn!(
                tenant = relay.tenant,
                "topic {:?} has {} {:?}, but its category specifies {:?}; using the topic as it is",
                &*state.name,
                difference.setting,
                difference.actual,
                difference.wanted
            );
        }
    }
    Ok(())
}
