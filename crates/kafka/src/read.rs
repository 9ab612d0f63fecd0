//! Converts messages to those of the port, and reads pages of one partition.

use std::sync::Arc;

use annals_core::{
    BrokerError, ByteString, Code, Content, Invalid, Message, MessagePage, ReadMessages, Timestamp, TopicPartition,
    limits,
};
use annals_system::Instant;
use bytes::Bytes;
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message as _};
use rdkafka::{Offset, TopicPartitionList};

use crate::cluster::{ASK_MAX, Cluster, blocking, bounds};
use crate::errors;

/// Reads a page of one partition.
pub async fn page(cluster: &Arc<Cluster>, query: ReadMessages) -> Result<MessagePage, BrokerError> {
    if !(1..=limits::PAGE_MAX).contains(&query.limit) {
        let message = format!("{} is not between 1 and {}", query.limit, limits::PAGE_MAX);
        return Err(Invalid::new(Code::InvalidQuery, "limit", message).into());
    }
    let cluster = Arc::clone(cluster);
    blocking(move || read(&cluster, &query)).await
}

fn read(cluster: &Cluster, query: &ReadMessages) -> Result<MessagePage, BrokerError> {
    let ReadMessages { at, from, limit } = query;
    let reader = cluster.reader("annals.reader")?;
    let partition = i32::try_from(at.partition).unwrap_or(i32::MAX);
    let (low, head) = bounds(&reader, &at.topic, partition)?;
    let (low, head) = (low.cast_unsigned(), head.cast_unsigned());
    let from = (*from).max(low);
    let mut page = MessagePage { messages: Vec::new(), next: from.min(head), head };
    if from >= head {
        return Ok(page);
    }
    let mut from_here = TopicPartitionList::new();
    let offset = Offset::Offset(from.cast_signed());
    from_here.add_partition_offset(&at.topic, partition, offset).map_err(errors::of)?;
    reader.assign(&from_here).map_err(errors::of)?;
    let begun = Instant::now();
    while page.messages.len() < *limit && begun.elapsed() < ASK_MAX {
        match reader.poll(ASK_MAX) {
            Some(Ok(found)) => {
                let found = message(&found);
                page.next = found.offset + 1;
                page.messages.push(found);
            }
            // Only transaction markers remain up to the head.
            Some(Err(KafkaError::PartitionEOF(_))) => {
                page.next = page.head;
                return Ok(page);
            }
            Some(Err(error)) => return Err(errors::of(error)),
            None => break,
        }
    }
    match page.messages.is_empty() {
        true => Err(BrokerError::Unavailable(format!("topic {:?} could not be read in time", at.topic))),
        false => Ok(page),
    }
}

/// Converts a message that librdkafka lends.
pub fn message(found: &BorrowedMessage<'_>) -> Message {
    let headers = found.headers().map(|headers| {
        let text = |name: &str| ByteString::from(name);
        headers.iter().map(|it| (text(it.key), Bytes::copy_from_slice(it.value.unwrap_or_default()))).collect()
    });
    Message {
        at: partition_of(found.topic(), found.partition()),
        offset: found.offset().cast_unsigned(),
        key: found.key().map(Bytes::copy_from_slice),
        time: Timestamp::from_millis(found.timestamp().to_millis().unwrap_or_default()),
        content: Content::Encoded {
            headers: headers.unwrap_or_default(),
            body: Bytes::copy_from_slice(found.payload().unwrap_or_default()),
        },
    }
}

pub fn partition_of(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition { topic: topic.into(), partition: partition.cast_unsigned() }
}
