//! Handles rebalances, on the thread that polls.

use std::sync::Arc;
use std::time::Duration;

use annals_core::{Assigned, GroupStart, GroupStep, TopicPartition};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use super::Shared;
use crate::cluster::{ASK_MAX, Logged};
use crate::read::partition_of;

/// How long a member may take to finish its work on revoked partitions. After that, they are lost to it.
const RELEASE_MAX: Duration = Duration::from_secs(60);

/// The consumer context, which handles rebalances.
pub struct Context {
    pub shared: Arc<Shared>,
    pub start: GroupStart,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        Logged.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        Logged.error(error, reason);
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, what: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        let done = match what {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.assign(consumer, partitions),
            _ => self.revoke(consumer, partitions),
        };
        if let Err(error) = done {
            tracing::warn!(%error, "a rebalance of a consumer group failed; the group rebalances again");
        }
    }
}

impl Context {
    fn assign(&self, consumer: &BaseConsumer<Self>, partitions: &mut TopicPartitionList) -> KafkaResult<()> {
        let offsets = loop {
            match self.offsets(consumer, partitions) {
                Ok(offsets) => break offsets,
                Err(_) if self.shared.lock().leaving => return consumer.incremental_assign(partitions),
                // Without its offset, a partition would be read from the wrong place.
                Err(error) => {
                    tracing::debug!(%error, "committed offsets are asked for again");
                    drop(self.shared.wait_while(Duration::from_millis(200), |state| !state.leaving));
                }
            }
        };
        let mut assigned = Vec::with_capacity(offsets.len());
        for (at, offset) in offsets {
            let from = Offset::Offset(offset.cast_signed());
            partitions.set_partition_offset(&at.topic, at.partition.cast_signed(), from)?;
            assigned.push(Assigned { at, offset });
        }
        self.shared.change(|state| {
            state.owned.extend(assigned.iter().map(|it| (it.at.clone(), false)));
            if !assigned.is_empty() {
                state.steps.push_back(GroupStep::Assigned(assigned));
            }
        });
        consumer.incremental_assign(partitions)
    }

    /// Returns where each partition begins: at its committed offset, or where the group starts.
    fn offsets(
        &self,
        consumer: &BaseConsumer<Self>,
        partitions: &TopicPartitionList,
    ) -> KafkaResult<Vec<(TopicPartition, u64)>> {
        if partitions.count() == 0 {
            return Ok(Vec::new());
        }
        let committed = consumer.committed_offsets(partitions.clone(), ASK_MAX)?;
        let mut offsets = Vec::with_capacity(partitions.count());
        for element in committed.elements() {
            let offset = match element.offset() {
                Offset::Offset(offset) => offset,
                _ => {
                    let (low, high) = consumer.fetch_watermarks(element.topic(), element.partition(), ASK_MAX)?;
                    match self.start {
                        GroupStart::Earliest => low,
                        GroupStart::Latest => high,
                    }
                }
            };
            offsets.push((partition_of(element.topic(), element.partition()), offset.cast_unsigned()));
        }
        Ok(offsets)
    }

    fn revoke(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) -> KafkaResult<()> {
        let lost = consumer.assignment_lost();
        let gone: Vec<TopicPartition> =
            partitions.elements().iter().map(|it| partition_of(it.topic(), it.partition())).collect();
        let waits = self.shared.change(|state| {
            state.messages.retain(|message| !gone.contains(&message.at));
            let waits = !lost && !state.leaving && !gone.is_empty();
            match waits {
                true => state.steps.push_back(GroupStep::Revoked(gone.clone())),
                false => state.steps.extend((!gone.is_empty()).then(|| GroupStep::Lost(gone.clone()))),
            }
            for partition in &gone {
                match (waits, state.owned.get_mut(partition)) {
                    (true, Some(revoking)) => *revoking = true,
                    _ => _ = state.owned.remove(partition),
                }
            }
            waits
        });
        if waits {
            let held = |owned: &std::collections::BTreeMap<TopicPartition, bool>| {
                gone.iter().any(|partition| owned.contains_key(partition))
            };
            let mut state = self.shared.wait_while(RELEASE_MAX, |state| held(&state.owned) && !state.leaving);
            let late: Vec<_> =
                gone.iter().filter(|partition| state.owned.remove(partition).is_some()).cloned().collect();
            if !late.is_empty() {
                state.steps.push_back(GroupStep::Lost(late));
            }
        }
        match consumer.incremental_unassign(partitions) {
            Ok(()) => Ok(()),
            // At the end of a membership the cooperative protocol no longer applies.
            Err(_) => consumer.unassign(),
        }
    }
}
