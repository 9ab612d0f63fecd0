//! Transactional publishing: one transaction per batch, with its messages and the position after them.
//!
//! ```text
//!  begin ─▶ send all ─▶ every delivery is known, nothing is in flight ─▶ commit ─▶ visible
//!                          └─ one failed ─▶ abort ─▶ nothing is visible
//! ```
//!
//! The transactional id contains only the store id, not the incarnation, so that a restored store fences the relays of all previous
//! incarnations. INVARIANT: [`open`] fences before it returns, and the position is read afterwards. So no batch of another publisher can
//! follow the position that was read.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annals_core::{BrokerError, Clock, NewMessage, Publisher, PublisherIdentity, RelayPosition, Uuid};
use annals_system::{Instant, SystemClock};
use async_trait::async_trait;
use rdkafka::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode as Kafka;

use crate::cluster::{ASK_MAX, Cluster, Logged, blocking};
use crate::{KafkaOptions, errors, position};

/// The transaction timeout, after which Kafka aborts. It is short, because readers wait for the end of a transaction.
const TRANSACTION_MAX: Duration = Duration::from_secs(20);
/// How long a message is resent before it counts as failed.
const DELIVERY_MAX: Duration = Duration::from_secs(10);
/// The client's limit. A topic's limit is lower, and decides.
const MESSAGE_BYTES_MAX: u32 = 32 * 1024 * 1024;
/// Attempts to send a batch: once together, once message by message, and again if the client purged it.
const PUBLISH_TRIES: usize = 6;
/// Attempts to end a transaction for which no response arrived.
const COMMIT_TRIES: usize = 3;

/// Opens the publisher of a store, and aborts the transactions of all others.
pub async fn open(
    cluster: &Arc<Cluster>,
    identity: &PublisherIdentity,
    given: &KafkaOptions,
) -> Result<KafkaPublisher, BrokerError> {
    let store = identity.store;
    position::create(cluster, store.store_id, given).await?;
    let cluster = Arc::clone(cluster);
    let work = blocking(move || {
        // Checked before fencing, so that an old copy of a restored store disturbs no other publisher.
        let last = position::read(&cluster, store.store_id)?;
        if last.is_some_and(|last| last.incarnation > store.incarnation) {
            return Err(BrokerError::Fenced);
        }
        let mut config = cluster.config();
        let (transaction, delivery) = (TRANSACTION_MAX.as_millis(), DELIVERY_MAX.as_millis());
        config.set("transactional.id", format!("annals-relay-{}", store.store_id));
        config.set("transaction.timeout.ms", transaction.to_string()).set("message.timeout.ms", delivery.to_string());
        config.set("message.max.bytes", MESSAGE_BYTES_MAX.to_string()).set("linger.ms", "0");
        // The same as Kafka's own clients, and as `partition_of` in core.
        config.set("partitioner", "murmur2");
        // Fails early for a topic that does not exist.
        config.set("topic.metadata.propagation.max.ms", "3000");
        let producer = Client::from_config_and_context(&config, Deliveries::default()).map_err(errors::of)?;
        producer.init_transactions(ASK_MAX).map_err(errors::of)?;
        let topic = position::position_topic(store.store_id);
        Ok(Work { cluster, producer, topic, store_id: store.store_id })
    });
    Ok(KafkaPublisher { work: Some(Arc::new(work.await?)) })
}

/// A publisher that has the store's transactional id.
pub struct KafkaPublisher {
    /// `None` once it is dropped.
    work: Option<Arc<Work>>,
}

type Client = ThreadedProducer<Deliveries>;

struct Work {
    cluster: Arc<Cluster>,
    producer: Client,
    topic: String,
    store_id: Uuid,
}

impl KafkaPublisher {
    fn work(&self) -> Result<Arc<Work>, BrokerError> {
        self.work.clone().ok_or_else(|| BrokerError::Unavailable("the publisher is closed".to_owned()))
    }
}

#[async_trait]
impl Publisher for KafkaPublisher {
    async fn position(&mut self) -> Result<Option<RelayPosition>, BrokerError> {
        let work = self.work()?;
        blocking(move || position::read(&work.cluster, work.store_id)).await
    }

    async fn publish(&mut self, batch: Vec<NewMessage>, position: RelayPosition) -> Result<(), BrokerError> {
        let work = self.work()?;
        blocking(move || work.publish(&batch, &position)).await
    }
}

impl Drop for KafkaPublisher {
    fn drop(&mut self) {
        // Closing the client waits for its threads.
        if let Some(work) = self.work.take() {
            std::thread::spawn(move || drop(work));
        }
    }
}

/// Why a batch cannot be committed.
enum Failure {
    /// Messages that are too large, or that share a request with one that is.
    TooLarge(BTreeSet<usize>),
    /// The client purged the whole batch while an earlier transaction was being ended.
    Purged,
    Error(BrokerError),
}

impl Work {
    fn publish(&self, batch: &[NewMessage], position: &RelayPosition) -> Result<(), BrokerError> {
        let mut singly = false;
        for _ in 0..PUBLISH_TRIES {
            match self.transaction(batch, position, singly) {
                Ok(()) => return Ok(()),
                Err(Failure::Error(error)) => return Err(error),
                // Messages share a request, which was refused as a whole. Sending them one by one finds the refused message.
                Err(Failure::TooLarge(messages)) if messages.len() > 1 && !singly => singly = true,
                Err(Failure::TooLarge(messages)) => return Err(self.refused(batch, &messages)),
                Err(Failure::Purged) => {}
            }
        }
        Err(BrokerError::Unavailable("the client cleared the batch away again and again".to_owned()))
    }

    fn refused(&self, batch: &[NewMessage], messages: &BTreeSet<usize>) -> BrokerError {
        let at = messages.first().copied().unwrap_or_default();
        match batch.get(at) {
            Some(message) => {
                let bytes = message.body.len() + message.key.len();
                let reason =
                    format!("its {bytes} bytes with headers are more than max.message.bytes of the topic allows");
                BrokerError::RefusedMessage { at, topic: message.topic.clone(), reason }
            }
            None => BrokerError::Refused(format!("topic {:?} refuses the position", self.topic)),
        }
    }

    fn transaction(&self, batch: &[NewMessage], position: &RelayPosition, singly: bool) -> Result<(), Failure> {
        self.producer.begin_transaction().map_err(|error| Failure::Error(self.broken(&error)))?;
        match self.send_all(batch, position, singly) {
            Ok(()) => self.commit().map_err(Failure::Error),
            Err(failure) => {
                self.abort().map_err(Failure::Error)?;
                Err(failure)
            }
        }
    }

    /// Sends everything, and waits until all of it is delivered.
    fn send_all(&self, batch: &[NewMessage], position: &RelayPosition, singly: bool) -> Result<(), Failure> {
        let deliveries = self.producer.context();
        deliveries.begin();
        let now = SystemClock.now();
        for (at, message) in batch.iter().enumerate() {
            let mut headers = OwnedHeaders::new_with_capacity(message.headers.len());
            for (name, value) in &message.headers {
                headers = headers.insert(Header { key: name, value: Some(&value[..]) });
            }
            // Kafka refuses timestamps in the future.
            let time = message.time.min(now).as_millis();
            let record =
                BaseRecord::with_opaque_to(&message.topic, at).key(&message.key[..]).payload(&message.body[..]);
            self.send(record.headers(headers).timestamp(time), batch)?;
            if singly {
                self.delivered(batch)?;
            }
        }
        let body = serde_json::to_vec(position).map_err(|error| {
            Failure::Error(BrokerError::Refused(format!("the position cannot be written: {error}")))
        })?;
        let record = BaseRecord::with_opaque_to(&self.topic, batch.len()).key(position::KEY).payload(&body[..]);
        self.send(record.partition(0), batch)?;
        self.delivered(batch)?;
        // A delivered message is in flight for a moment longer, and a commit would wait for it in steps of 100 ms.
        let begun = Instant::now();
        while self.producer.in_flight_count() > 0 && begun.elapsed() < ASK_MAX {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn send<K>(&self, mut record: BaseRecord<'_, K, [u8], usize>, batch: &[NewMessage]) -> Result<(), Failure>
    where
        K: rdkafka::message::ToBytes + ?Sized,
    {
        let deliveries = self.producer.context();
        loop {
            deliveries.sent();
            let (error, again) = match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            deliveries.not_sent();
            match error.rdkafka_error_code() {
                Some(Kafka::QueueFull) => {
                    // The client's queue has room for many batches, so it drains soon.
                    std::thread::park_timeout(Duration::from_millis(1));
                    record = again;
                }
                Some(code) if errors::is_too_large(code) => {
                    return Err(Failure::TooLarge(BTreeSet::from([again.delivery_opaque])));
                }
                Some(code) => return Err(self.failure(again.delivery_opaque, code, batch)),
                None => return Err(Failure::Error(errors::of(error))),
            }
        }
    }

    /// Waits until every message is delivered.
    fn delivered(&self, batch: &[NewMessage]) -> Result<(), Failure> {
        let failed = self.producer.context().until_delivered(DELIVERY_MAX + ASK_MAX);
        let failed = failed.map_err(|()| {
            Failure::Error(BrokerError::Unavailable("messages were neither delivered nor refused in time".to_owned()))
        })?;
        let too_large: BTreeSet<usize> =
            failed.iter().filter(|(_, code)| errors::is_too_large(*code)).map(|(at, _)| *at).collect();
        if !too_large.is_empty() {
            return Err(Failure::TooLarge(too_large));
        }
        // A message purged because of another failure says nothing about the cause.
        let purged = |code: Kafka| matches!(code, Kafka::PurgeQueue | Kafka::PurgeInflight);
        match failed.iter().find(|(_, code)| !purged(*code)) {
            Some((at, code)) => Err(self.failure(*at, *code, batch)),
            None if failed.is_empty() => Ok(()),
            None if self.is_fenced() => Err(Failure::Error(BrokerError::Fenced)),
            None => Err(Failure::Purged),
        }
    }

    fn failure(&self, at: usize, code: Kafka, batch: &[NewMessage]) -> Failure {
        if self.is_fenced() || errors::is_fenced(code) {
            return Failure::Error(BrokerError::Fenced);
        }
        let topic = batch.get(at).map_or(&*self.topic, |message| &*message.topic);
        Failure::Error(errors::of_topic(topic, code))
    }

    fn is_fenced(&self) -> bool {
        self.producer.client().fatal_error().is_some_and(|(code, _)| errors::is_fenced(code))
    }

    /// Returns why a transaction cannot begin: nothing was published, and the client is no longer usable.
    fn broken(&self, error: &KafkaError) -> BrokerError {
        match error.rdkafka_error_code() {
            _ if self.is_fenced() => BrokerError::Fenced,
            Some(code) if errors::is_fenced(code) => BrokerError::Fenced,
            _ => BrokerError::OutcomeUnknown(error.to_string()),
        }
    }

    fn commit(&self) -> Result<(), BrokerError> {
        let mut last = None;
        for _ in 0..COMMIT_TRIES {
            let error = match self.producer.commit_transaction(ASK_MAX) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match &error {
                KafkaError::Transaction(why) if why.txn_requires_abort() => {
                    self.abort()?;
                    return Err(BrokerError::Unavailable(error.to_string()));
                }
                KafkaError::Transaction(why) if why.is_retriable() => last = Some(error),
                // An earlier attempt may have succeeded although its response was lost.
                _ if last.is_some() => return Err(BrokerError::OutcomeUnknown(error.to_string())),
                _ => return Err(self.broken(&error)),
            }
        }
        Err(BrokerError::OutcomeUnknown(last.map_or_else(String::new, |error| error.to_string())))
    }

    fn abort(&self) -> Result<(), BrokerError> {
        self.producer.abort_transaction(ASK_MAX).map_err(|error| self.broken(&error))
    }
}

/// Counts the messages in flight, and records failures.
#[derive(Default)]
struct Deliveries {
    state: Mutex<InFlight>,
    changed: Condvar,
}

#[derive(Default)]
struct InFlight {
    count: usize,
    failed: Vec<(usize, Kafka)>,
}

impl Deliveries {
    fn lock(&self) -> MutexGuard<'_, InFlight> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) {
        *self.lock() = InFlight::default();
    }

    fn sent(&self) {
        self.lock().count += 1;
    }

    fn not_sent(&self) {
        let mut state = self.lock();
        state.count = state.count.saturating_sub(1);
    }

    /// Waits until nothing is in flight, and returns the failures.
    fn until_delivered(&self, at_most: Duration) -> Result<Vec<(usize, Kafka)>, ()> {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, at_most, |state| state.count > 0);
        let (mut state, time) = waited.unwrap_or_else(PoisonError::into_inner);
        if time.timed_out() { Err(()) } else { Ok(std::mem::take(&mut state.failed)) }
    }
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        Logged.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        Logged.error(error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, at: usize) {
        let mut state = self.lock();
        state.count = state.count.saturating_sub(1);
        if let Err((error, _)) = result {
            state.failed.push((at, error.rdkafka_error_code().unwrap_or(Kafka::Unknown)));
        }
        if state.count == 0 {
            self.changed.notify_all();
        }
    }
}
