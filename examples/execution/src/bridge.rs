//! The SSE bridge: the events of executions and notifications, for browsers.
//!
//! ```text
//!  log ─▶ one follower ─▶ hub: by execution, by user ─▶ a bounded buffer for each stream ─▶ stream.rs ─▶ client
//!                                                          │ full: the stream is cut off from the hub,
//!                                                          └─ and reads on from the log, then subscribes again
//! ```
//!
//! INVARIANT: no event is lost or sent twice. A stream subscribes before it reads the state, and sends an event only if its sequence number
//! is greater than that of the last one.

mod stream;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annals::runtime::Host;
use annals::{ByteString, EventLog, Filter, Follower, ReadError, RecordedEvent, Records, SequenceNumber, StoreError};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::events::{self, AGGREGATE, NOTIFICATION_CREATED, POD};
use crate::lines::Lines;
use crate::scheduler::stopped;
use crate::users::Users;
pub(crate) use stream::routes;

/// The event types that a stream of an execution carries in addition to those of its pod, as in Integr8sCode.
pub const BRIDGED: [&str; 10] = [
    events::REQUESTED,
    events::QUEUED,
    events::STARTED,
    "execution_running",
    events::COMPLETED,
    events::FAILED,
    events::TIMEOUT,
    events::CANCELLED,
    events::RESULT_STORED,
    events::RESULT_FAILED,
];

/// The event types after which no more is sent about an execution.
pub const LAST: [&str; 5] =
    [events::RESULT_STORED, events::RESULT_FAILED, events::FAILED, events::TIMEOUT, events::CANCELLED];

/// Most events buffered for a client before its stream is cut off from the hub.
const BUFFER: usize = 64;

/// The subject that a stream subscribes to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Topic {
    Execution(String),
    User(String),
}

/// The state that all streams of one process share.
pub(crate) struct Bridge {
    pub(crate) log: Arc<dyn EventLog>,
    /// Where the hub begins: no stream has read an earlier state.
    pub(crate) from: SequenceNumber,
    pub(crate) records: Arc<dyn Records>,
    pub(crate) host: Host,
    pub(crate) users: Users,
    pub(crate) lines: Lines,
    /// How often an idle stream sends a comment.
    pub(crate) ping: Duration,
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) hub: Hub,
}

/// Passes events to the streams that subscribed.
#[derive(Default)]
pub(crate) struct Hub(Mutex<Subscribed>);

#[derive(Default)]
struct Subscribed {
    streams: HashMap<Topic, Vec<mpsc::Sender<Arc<RecordedEvent>>>>,
    /// Events and subscriptions since the last sweep.
    since_sweep: usize,
}

impl Subscribed {
    /// Counts events and subscriptions, and after every 1,000 removes the streams whose clients have gone. Publishing alone would keep
    /// those of topics that get no more events.
    fn count(&mut self, more: usize) {
        const SWEEP_AFTER: usize = 1_000;
        self.since_sweep += more;
        if self.since_sweep > SWEEP_AFTER {
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        self.since_sweep = 0;
        self.streams.retain(|_, streams| {
            streams.retain(|stream| !stream.is_closed());
            !streams.is_empty()
        });
    }
}

impl Hub {
    fn locked(&self) -> MutexGuard<'_, Subscribed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to a topic. The receiver gets its events from now on, and is closed once it lags by more than the buffer.
    fn subscribe(&self, topic: Topic) -> mpsc::Receiver<Arc<RecordedEvent>> {
        let (sender, receiver) = mpsc::channel(BUFFER);
        let mut subscribed = self.locked();
        subscribed.count(1);
        subscribed.streams.entry(topic).or_default().push(sender);
        receiver
    }

    /// Publishes an event without waiting: a stream whose buffer is full reads from the log instead.
    fn publish(&self, event: &RecordedEvent) {
        let Some(topic) = topic_of(event) else { return };
        let mut subscribed = self.locked();
        let Some(streams) = subscribed.streams.get_mut(&topic) else { return };
        let event = Arc::new(event.clone());
        streams.retain(|stream| stream.try_send(Arc::clone(&event)).is_ok());
        if streams.is_empty() {
            subscribed.streams.remove(&topic);
        }
    }

    #[cfg(test)]
    fn streams(&self) -> usize {
        self.locked().streams.values().map(Vec::len).sum()
    }
}

fn topic_of(event: &RecordedEvent) -> Option<Topic> {
    if &*event.event_type == NOTIFICATION_CREATED {
        let data: Value = event.data.decode().ok()?;
        return Some(Topic::User(data["user_id"].as_str()?.to_owned()));
    }
    let aggregate = &event.commit.aggregate;
    (&*aggregate.name == AGGREGATE).then(|| Topic::Execution(aggregate.id.to_string()))
}

/// Returns the event types that streams of executions carry.
fn types() -> Vec<ByteString> {
    BRIDGED.into_iter().chain(POD).map(ByteString::from_static).collect()
}

impl Bridge {
    /// Follows the log until `stopping` is set.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            () = self.follow() => {}
            () = stopped(&mut stopping) => {}
        }
    }

    async fn follow(&self) {
        let mut types = types();
        types.push(ByteString::from_static(NOTIFICATION_CREATED));
        let filter = Filter { types, ..Filter::default() };
        let mut follower = Follower::new(Arc::clone(&self.log), self.from, filter);
        loop {
            match follower.next_page().await {
                Ok(page) => {
                    page.iter().for_each(|event| self.hub.publish(event));
                    self.hub.locked().count(page.len());
                }
                Err(ReadError::Store(StoreError::Closed)) => return,
                Err(error) => {
                    self.lines.print(format!("! the log cannot be read for browsers; retrying: {error}")).await;
                    self.host.clock().sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
