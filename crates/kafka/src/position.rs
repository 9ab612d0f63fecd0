//! The position of a relay: the last message of a compacted topic with one partition. Each store has a topic of its own, to which a single
//! transactional id writes. So after a publisher was opened, the topic has no undecided transaction, and committed readers reach its end.

use annals_core::{BrokerError, RelayPosition, Uuid};
use rdkafka::admin::{NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

use crate::cluster::{ASK_MAX, Cluster, Logged, bounds, is_moving};
use crate::{KafkaOptions, errors, topics};

/// Prefix of the names of position topics.
const PREFIX: &str = "annals.relay.";
/// The key of every position. Compaction keeps the last message of a key.
pub const KEY: &str = "position";
/// How many of the last offsets are read first. A transaction leaves a message and a marker; the rest belongs to aborted transactions.
const TAIL: i64 = 200;

/// Returns the topic of a store's position.
pub fn position_topic(store_id: Uuid) -> String {
    format!("{PREFIX}{store_id}")
}

pub fn is_position_topic(topic: &str) -> bool {
    topic.starts_with(PREFIX)
}

/// Creates the topic unless it exists.
pub async fn create(cluster: &Cluster, store_id: Uuid, given: &KafkaOptions) -> Result<(), BrokerError> {
    let name = position_topic(store_id);
    let replication = TopicReplication::Fixed(given.replication.unwrap_or(-1));
    // Small segments, because only a full segment is compacted.
    let new = NewTopic::new(&name, 1, replication)
        .set("cleanup.policy", "compact")
        .set("segment.bytes", "4194304")
        .set("min.cleanable.dirty.ratio", "0.1");
    topics::create_new(&*cluster.admin()?, new).await.map(drop)
}

/// Reads the last position. Blocks.
pub fn read(cluster: &Cluster, store_id: Uuid) -> Result<Option<RelayPosition>, BrokerError> {
    let topic = position_topic(store_id);
    let reader = cluster.reader("annals.relay")?;
    let (low, high) = bounds(&reader, &topic, 0)?;
    if high <= low {
        return Ok(None);
    }
    // A leader that was just elected may not know its end yet. It is at its end when a read from there finds nothing.
    read_from(&reader, &topic, high)?;
    let tail = low.max(high - TAIL);
    match read_from(&reader, &topic, tail)? {
        None if tail > low => read_from(&reader, &topic, low),
        found => Ok(found),
    }
}

/// Reads the last position from an offset on.
fn read_from(reader: &BaseConsumer<Logged>, topic: &str, from: i64) -> Result<Option<RelayPosition>, BrokerError> {
    let mut from_here = TopicPartitionList::new();
    from_here.add_partition_offset(topic, 0, Offset::Offset(from)).map_err(errors::of)?;
    reader.assign(&from_here).map_err(errors::of)?;
    let mut last = None;
    let mut quiet = 0;
    loop {
        match reader.poll(ASK_MAX) {
            Some(Ok(message)) => {
                let body = message.payload().unwrap_or_default();
                let position = serde_json::from_slice(body).map_err(|error| {
                    let offset = message.offset();
                    BrokerError::Refused(format!("message {offset} of topic {topic:?} is no position: {error}"))
                })?;
                last = Some(position);
            }
            Some(Err(KafkaError::PartitionEOF(_))) => return Ok(last),
            Some(Err(error)) if quiet < 20 && is_passing(&error) => quiet += 1,
            Some(Err(error)) => return Err(errors::of(error)),
            None => {
                return Err(BrokerError::Unavailable(format!("topic {topic:?} could not be read to its end in time")));
            }
        }
    }
}

/// Returns whether librdkafka continues after it has reported this error.
fn is_passing(error: &KafkaError) -> bool {
    use rdkafka::types::RDKafkaErrorCode as Kafka;
    error.rdkafka_error_code().is_some_and(|code| {
        matches!(code, Kafka::BrokerTransportFailure | Kafka::AllBrokersDown | Kafka::Resolve) || is_moving(code)
    })
}
