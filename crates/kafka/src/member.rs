//! A member of a group: a thread polls the consumer and passes on messages and rebalances, which callers receive here.
//!
//! ```text
//!  thread: poll ─┬─ message ─▶ buffer ──────────────────────────▶ next
//!                ├─ assigned: committed offsets ─▶ step ────────▶ next
//!                └─ revoked ─▶ step ─▶ waits ◀── release ◀─ commit of what is done
//! ```
//!
//! It uses the classic protocol with cooperative rebalances. Partitions that stay with a member are not interrupted, and a revoked one
//! continues elsewhere after its member has released it. Heartbeats come from librdkafka's own threads, so a member that works for long
//! stays in its group.
//! long stays in its group.

mod context;
mod thread;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annals_core::{
    BrokerError, GroupMember, GroupStart, GroupStep, GroupSubscription, Message, PartitionOffset, TopicPartition,
};
use async_trait::async_trait;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::types::RDKafkaErrorCode as Kafka;
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::Notify;

use crate::cluster::{Cluster, blocking};
use crate::errors;
use context::Context;

/// How often, and at which interval, a commit is retried during a rebalance.
const COMMIT_TRIES: usize = 100;
const COMMIT_PAUSE: Duration = Duration::from_millis(50);
/// The session timeout: a member without a heartbeat for this time is considered dead. Brokers allow at least 6 s.
const SESSION_MS: &str = "10000";

/// Joins a group.
pub async fn join(cluster: &Arc<Cluster>, subscription: GroupSubscription) -> Result<KafkaMember, BrokerError> {
    let cluster = Arc::clone(cluster);
    let GroupSubscription { group, topics, start, member } = subscription;
    let shared = Arc::new(Shared::default());
    let context = Context { shared: Arc::clone(&shared), start };
    let consumer = blocking(move || {
        let mut config = cluster.config();
        config.set("group.id", &*group).set("client.id", format!("annals-{member}"));
        config.set("partition.assignment.strategy", "cooperative-sticky");
        config.set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
        config.set("isolation.level", "read_committed").set("session.timeout.ms", SESSION_MS);
        config.set("heartbeat.interval.ms", "1000").set("queued.max.messages.kbytes", "16384");
        // New partitions, and topics that were deleted and recreated, are noticed within seconds instead of minutes.
        config.set("topic.metadata.refresh.interval.ms", "3000").set("topic.metadata.propagation.max.ms", "3000");
        config.set(
            "auto.offset.reset",
            match start {
                GroupStart::Earliest => "earliest",
                GroupStart::Latest => "latest",
            },
        );
        let consumer = BaseConsumer::from_config_and_context(&config, context).map_err(errors::of)?;
        let topics: Vec<&str> = topics.iter().map(|topic| &**topic).collect();
        consumer.subscribe(&topics).map_err(errors::of)?;
        Ok(Arc::new(consumer))
    });
    let consumer = consumer.await?;
    thread::start(Arc::clone(&consumer), Arc::clone(&shared))?;
    Ok(KafkaMember { consumer, shared })
}

/// A member whose consumer is polled by a thread.
pub struct KafkaMember {
    consumer: Arc<BaseConsumer<Context>>,
    shared: Arc<Shared>,
}

/// The state shared by the thread and the callers.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The thread waits on it for partitions to be released, and for room.
    changed: Condvar,
    /// Callers wait on it for steps.
    woken: Notify,
}

#[derive(Default)]
struct State {
    /// Changes of the assignment, in order.
    steps: VecDeque<GroupStep>,
    messages: VecDeque<Message>,
    /// The partitions of this member, and whether each is being revoked.
    owned: BTreeMap<TopicPartition, bool>,
    /// The number of the last commit that may still be retried. A caller can abandon a commit while it is retried.
    commits: u64,
    error: Option<BrokerError>,
    /// Whether the member leaves, or was dropped.
    leaving: bool,
    /// Whether the thread has ended.
    ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes all waiters.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.notify_all();
        self.woken.notify_one();
        changed
    }

    /// Blocks the thread while the condition holds, at most this long.
    fn wait_while(&self, at_most: Duration, condition: impl FnMut(&mut State) -> bool) -> MutexGuard<'_, State> {
        let waited = self.changed.wait_timeout_while(self.lock(), at_most, condition);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl State {
    fn next(&mut self, room: usize) -> Option<Result<GroupStep, BrokerError>> {
        if let Some(step) = self.steps.pop_front() {
            return Some(Ok(step));
        }
        if let Some(error) = self.error.take() {
            return Some(Err(error));
        }
        let count = self.messages.len().min(room);
        (count > 0).then(|| Ok(GroupStep::Messages(self.messages.drain(..count).collect())))
    }

    fn check_owned(&self, offsets: &[PartitionOffset]) -> Result<(), BrokerError> {
        match offsets.iter().find(|offset| !self.owned.contains_key(&offset.at)) {
            Some(other) => Err(not_assigned(&other.at)),
            None => Ok(()),
        }
    }

    /// Refuses a commit if a newer one has begun, or if a partition was released: it could move the committed offset back.
    fn check_current(&self, number: u64, offsets: &[PartitionOffset]) -> Result<(), BrokerError> {
        if self.commits != number {
            return Err(BrokerError::Unavailable("a newer commit has begun".to_owned()));
        }
        self.check_owned(offsets)
    }
}

fn not_assigned(at: &TopicPartition) -> BrokerError {
    BrokerError::NotAssigned(at.topic.clone(), at.partition)
}

#[async_trait]
impl GroupMember for KafkaMember {
    async fn next(&mut self, room: usize) -> Result<GroupStep, BrokerError> {
        loop {
            let next = self.shared.lock().next(room);
            if let Some(next) = next {
                // The thread may be waiting for room.
                self.shared.changed.notify_all();
                return next;
            }
            self.shared.woken.notified().await;
        }
    }

    async fn commit(&mut self, offsets: &[PartitionOffset]) -> Result<(), BrokerError> {
        let Some(first) = offsets.first() else { return Ok(()) };
        let number = {
            let mut state = self.shared.lock();
            state.check_owned(offsets)?;
            state.commits += 1;
            state.commits
        };
        let mut list = TopicPartitionList::new();
        for PartitionOffset { at, offset } in offsets {
            let offset = Offset::Offset(offset.cast_signed());
            list.add_partition_offset(&at.topic, at.partition.cast_signed(), offset).map_err(errors::of)?;
        }
        let (consumer, shared, lost) = (Arc::clone(&self.consumer), Arc::clone(&self.shared), not_assigned(&first.at));
        let offsets = offsets.to_vec();
        blocking(move || commit(&consumer, &list, &lost, || shared.lock().check_current(number, &offsets))).await
    }

    async fn release(&mut self, partitions: &[TopicPartition]) -> Result<(), BrokerError> {
        self.shared.change(|state| {
            for partition in partitions {
                state.owned.remove(partition);
            }
            state.commits += 1;
        });
        Ok(())
    }

    async fn leave(self: Box<Self>) -> Result<(), BrokerError> {
        self.shared.change(|state| state.leaving = true);
        let shared = Arc::clone(&self.shared);
        // The thread leaves the group before it ends.
        drop(self);
        blocking(move || {
            let state = shared.wait_while(crate::cluster::ASK_MAX, |state| !state.ended);
            match state.ended {
                true => Ok(()),
                false => Err(BrokerError::Unavailable("the group was not told in time".to_owned())),
            }
        })
        .await
    }
}

impl Drop for KafkaMember {
    fn drop(&mut self) {
        self.shared.change(|state| state.leaving = true);
    }
}

/// Commits, and retries while the group rebalances. Calls `may_try` before each attempt.
fn commit(
    consumer: &BaseConsumer<Context>,
    list: &TopicPartitionList,
    lost: &BrokerError,
    may_try: impl Fn() -> Result<(), BrokerError>,
) -> Result<(), BrokerError> {
    for _ in 0..COMMIT_TRIES {
        may_try()?;
        let Err(error) = consumer.commit(list, CommitMode::Sync) else { return Ok(()) };
        match error.rdkafka_error_code() {
            // A new generation begins, in which the member may still have the partitions.
            Some(Kafka::RebalanceInProgress) => std::thread::park_timeout(COMMIT_PAUSE),
            Some(
                Kafka::IllegalGeneration | Kafka::UnknownMemberId | Kafka::AssignmentLost | Kafka::FencedInstanceId,
            ) => return Err(lost.clone()),
            _ => return Err(errors::of(error)),
        }
    }
    Err(BrokerError::Unavailable("the group rebalances".to_owned()))
}
