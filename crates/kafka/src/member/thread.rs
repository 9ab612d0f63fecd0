//! The thread of a member. It polls continuously, so that rebalances are served even while no caller asks for messages.

use std::sync::Arc;
use std::time::Duration;

use annals_core::{BrokerError, ByteString};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Kafka;

use super::Shared;
use super::context::Context;
use crate::cluster::ASK_MAX;
use crate::errors;
use crate::read::message;

/// Maximum number of buffered messages.
const BUFFERED_MAX: usize = 1_000;
/// How long the thread waits for room before it pauses the partitions.
const ROOM_MAX: Duration = Duration::from_millis(500);
/// Timeout of one poll. A member that leaves waits for it.
const POLL_MAX: Duration = Duration::from_millis(100);

/// Starts the thread. It ends when the member leaves or is dropped.
pub fn start(consumer: Arc<BaseConsumer<Context>>, shared: Arc<Shared>) -> Result<(), BrokerError> {
    let run = move || {
        poll_all(&consumer, &shared);
        consumer.unsubscribe();
        // Closing the consumer leaves the group. A commit in flight may keep the consumer alive for a moment longer.
        drop(consumer);
        shared.change(|state| state.ended = true);
    };
    let started = std::thread::Builder::new().name("kafka-member".to_owned()).spawn(run);
    started.map(drop).map_err(|error| BrokerError::Unavailable(format!("no thread for a member: {error}")))
}

fn poll_all(consumer: &BaseConsumer<Context>, shared: &Shared) {
    let mut paused = false;
    loop {
        let is_full = {
            let full = |state: &mut super::State| state.messages.len() >= BUFFERED_MAX && !state.leaving;
            let mut state = match paused {
                true => shared.lock(),
                false => shared.wait_while(ROOM_MAX, full),
            };
            if state.leaving {
                return;
            }
            full(&mut state)
        };
        // Partitions assigned in the meantime are paused as well.
        if is_full || paused {
            paused = set_paused(consumer, is_full).unwrap_or(paused);
        }
        match consumer.poll(POLL_MAX) {
            Some(Ok(found)) => {
                let found = message(&found);
                shared.change(|state| {
                    // Messages of a partition that was revoked in the meantime are not delivered.
                    if state.owned.get(&found.at) == Some(&false) {
                        state.messages.push_back(found);
                    }
                });
            }
            Some(Err(error)) => {
                if let Some(error) = told(consumer, error) {
                    shared.change(|state| state.error = Some(error));
                }
            }
            None => {}
        }
    }
}

fn set_paused(consumer: &BaseConsumer<Context>, pause: bool) -> Result<bool, KafkaError> {
    let assignment = consumer.assignment()?;
    match pause {
        true => consumer.pause(&assignment)?,
        false => consumer.resume(&assignment)?,
    }
    Ok(pause)
}

/// Returns the error to report to the caller; `None` for errors from which librdkafka recovers by itself.
fn told(consumer: &BaseConsumer<Context>, error: KafkaError) -> Option<BrokerError> {
    match error.rdkafka_error_code() {
        Some(Kafka::PartitionEOF | Kafka::AutoOffsetReset) => None,
        Some(Kafka::UnknownTopicOrPartition | Kafka::UnknownTopic) => missing(consumer).map(BrokerError::UnknownTopic),
        _ => Some(errors::of(error)),
    }
}

/// Returns the first topic of the subscription that does not exist, since the error does not name it. If all exist, one of them was
/// deleted and recreated: its offsets begin at 0, and this member's position is meaningless there.
fn missing(consumer: &BaseConsumer<Context>) -> Option<ByteString> {
    let subscribed = consumer.subscription().ok()?;
    let names: Vec<ByteString> = subscribed.elements().iter().map(|it| ByteString::from(it.topic())).collect();
    let known = consumer.fetch_metadata(None, ASK_MAX).ok();
    let exists = |name: &ByteString| {
        let mut topics = known.iter().flat_map(|metadata| metadata.topics());
        topics.any(|topic| *topic.name() == **name && topic.error().is_none())
    };
    names.iter().find(|name| !exists(name)).or(names.first()).cloned()
}
