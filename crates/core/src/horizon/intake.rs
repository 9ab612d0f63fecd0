//! The logic of a subscription: it decides which events of its producer's pages are stored, and when to retry. Pure: it reads no clock and
//! does no I/O.
//!
//! ```text
//!            page, in order                        due
//!  connect ─▶ running ─┬──────▶ store, next page    │
//!                      └─ refusal: failing, refused, blocked ─▶ wait, longer each time ─▶ connect
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{HorizonError, Offered};
use crate::processing::{ProcessingRetry, Then};
use crate::{
    ByteString, Code, IncomingEvent, ReceivedBatch, RecordedEvent, SequenceNumber, StreamPosition, Subscription,
    SubscriptionState, Timestamp,
};

/// The delays before a producer is contacted again: 0.2 s, doubled up to 15 s. After a success they start at 0.2 s again.
const RETRY: ProcessingRetry =
    ProcessingRetry { first_ms: 200, factor: 2.0, max_ms: 15_000, jitter: 0.2, attempts: None, then: Then::Block };
/// A batch ends once it contains this many bytes of event data, which leaves room below the limit of a commit.
const BATCH_BYTES: usize = 6 * 1024 * 1024;

/// What a subscription is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntakeState {
    /// It has had no response from its producer yet.
    #[default]
    Connecting,
    /// It receives events.
    Running,
    /// The producer cannot be reached, or the store cannot take events. It retries.
    Failing,
    /// The producer refuses: there is no consent, or the stream is not public. It retries.
    Refused,
    /// The producer is not the origin of the received events. Nothing is stored until it is again.
    Blocked,
    /// No process follows the producer.
    Stopped,
}

/// The origin of the received events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The producer's store.
    pub store_id: Uuid,
    /// Its incarnation.
    pub incarnation: u32,
}

/// The state of a subscription apart from its position.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// What the subscription is doing.
    pub state: IntakeState,
    /// The position up to which the producer's stream has no more events for the subscription.
    pub examined: StreamPosition,
    /// The number of entries of the producer's stream.
    pub head: StreamPosition,
    /// The number of failures in a row.
    pub attempts: u32,
    /// When it retries.
    pub retry_at: Option<Timestamp>,
    /// The reason of the last failure.
    pub last_reason: Option<String>,
    /// When an event was last stored.
    pub last_progress: Option<Timestamp>,
    /// The consent under which the producer sends.
    pub consent: Option<Uuid>,
    /// The name that the producer's microservice gives itself.
    pub microservice: Option<ByteString>,
    /// An observation about the producer, such as a restore.
    pub notice: Option<String>,
}

/// The next action of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Ask the producer for its identity and whether there is a consent.
    Connect,
    /// Wait until this time.
    Wait(Timestamp),
    /// Fetch the pages that begin at this position.
    Take(StreamPosition),
}

/// The reason why a page was not stored or did not arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A later attempt may succeed.
    Failing(String),
    /// The producer refuses.
    Refused(String),
    /// The producer is not the origin of the received events.
    Blocked(String),
}

/// A subscription that this process follows.
#[derive(Debug, Clone)]
pub struct Intake {
    progress: Progress,
    /// Set once the producer has identified itself.
    connected: Option<Connected>,
}

#[derive(Debug, Clone)]
struct Connected {
    subscription: Subscription,
    stored: SubscriptionState,
    origin: Origin,
}

impl Intake {
    /// Starts from the progress that an earlier owner stored. It connects immediately, because an earlier failure may have been that
    /// owner's.
    pub fn new(noted: Progress) -> Self {
        let progress =
            Progress { state: IntakeState::Connecting, attempts: 0, retry_at: None, last_reason: None, ..noted };
        Self { progress, connected: None }
    }

    /// Returns the state of the subscription.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Returns what to do at this time.
    pub fn next(&self, now: Timestamp) -> Next {
        match (&self.connected, self.progress.retry_at) {
            (_, Some(at)) if at > now => Next::Wait(at),
            (Some(_), _) => Next::Take(self.progress.examined),
            (None, _) => Next::Connect,
        }
    }

    /// Accepts the producer's identity, given the stored position and the origin of the received events. If the origin is new, returns it;
    /// it must be stored before any event is received.
    ///
    /// # Errors
    /// See [`Refusal`], which the caller passes to [`failed`](Self::failed).
    pub fn connect(
        &mut self,
        subscription: Subscription,
        stored: SubscriptionState,
        known: Option<&Origin>,
        offered: &Offered,
    ) -> Result<Option<Origin>, Refusal> {
        let origin = self.check(known, stored, offered)?;
        let is_new = known != Some(&origin);
        self.progress.microservice = Some(offered.microservice.clone());
        self.progress.consent = Some(offered.consent);
        self.progress.examined = stored.position;
        self.progress.head = offered.head;
        self.connected = Some(Connected { subscription, stored, origin: origin.clone() });
        Ok(is_new.then_some(origin))
    }

    /// Accepts a page that begins at `from`, and returns the batches to store.
    ///
    /// # Errors
    /// See [`Refusal`], which the caller passes to [`failed`](Self::failed).
    pub fn take(&mut self, from: StreamPosition, offered: Offered) -> Result<Vec<ReceivedBatch>, Refusal> {
        let Some(connected) = &self.connected else {
            return Err(Refusal::Failing("a page arrived before the producer identified itself".to_owned()));
        };
        let now = Origin { store_id: offered.identity.store_id, incarnation: offered.identity.incarnation };
        if now != connected.origin || self.progress.microservice.as_ref() != Some(&offered.microservice) {
            // The next connection finds out what that means for the received events.
            return Err(Refusal::Failing("the producer was restored or replaced in the meantime".to_owned()));
        }
        if from != self.progress.examined {
            return Err(Refusal::Failing(format!("a page begins at position {from}, which is not the next position")));
        }
        let beyond = |position: StreamPosition| !(from..offered.next).contains(&position);
        if offered.next < from || offered.events.iter().any(|event| beyond(event.position)) {
            return Err(Refusal::Failing(format!(
                "a page from position {from} holds events outside the range that it declares"
            )));
        }
        let after = connected.stored.sequence_number;
        if let Some(event) = offered.events.first()
            && after.is_some_and(|after| event.sequence_number <= after)
        {
            return Err(Refusal::Blocked(not_ascending(event, after.unwrap_or_default())));
        }
        self.progress.consent = Some(offered.consent);
        let batches = batches(&connected.subscription, connected.stored.position, offered.consent, offered.events);
        self.progress.examined = offered.next;
        self.progress.head = offered.head;
        self.succeeded();
        Ok(batches)
    }

    /// Records that a batch was stored, now or earlier.
    pub fn stored(&mut self, state: SubscriptionState, now: Timestamp) {
        if let Some(connected) = &mut self.connected {
            connected.stored = state;
            self.progress.last_progress = Some(now);
        }
    }

    /// Records that the producer could not be reached, or that its page could not be stored. The next attempt connects again; `random`
    /// varies its time.
    pub fn failed(&mut self, refusal: Refusal, now: Timestamp, random: u64) {
        self.connected = None;
        let (state, reason) = match refusal {
            Refusal::Failing(reason) => (IntakeState::Failing, reason),
            Refusal::Refused(reason) => (IntakeState::Refused, reason),
            Refusal::Blocked(reason) => (IntakeState::Blocked, reason),
        };
        let attempts = self.progress.attempts.saturating_add(1);
        let delay = Duration::from_millis(RETRY.delay_ms(attempts, random));
        (self.progress.state, self.progress.attempts) = (state, attempts);
        (self.progress.last_reason, self.progress.retry_at) = (Some(reason), Some(now.plus(delay)));
    }

    fn succeeded(&mut self) {
        self.progress.state = IntakeState::Running;
        (self.progress.attempts, self.progress.retry_at, self.progress.last_reason) = (0, None, None);
    }

    /// Checks that the producer is the origin of the received events, up to the last of them.
    fn check(
        &mut self,
        known: Option<&Origin>,
        stored: SubscriptionState,
        offered: &Offered,
    ) -> Result<Origin, Refusal> {
        let blocked = |reason: String| {
            Err(Refusal::Blocked(format!("{reason}; to start over with this producer, receive into another scope")))
        };
        if let Some(pinned) = self.progress.microservice.as_ref().filter(|pinned| **pinned != offered.microservice) {
            return Err(Refusal::Blocked(format!(
                "the producer calls itself {:?}, but the received events are from {pinned:?}; correct the \
                 configuration of the producer, or define the subscription under another name",
                offered.microservice
            )));
        }
        let identity = offered.identity;
        let origin = Origin { store_id: identity.store_id, incarnation: identity.incarnation };
        let last = stored.sequence_number;
        match known {
            Some(known) if known.store_id != origin.store_id => {
                return blocked(format!(
                    "the producer's store is {}, but the received events came from store {}",
                    origin.store_id, known.store_id
                ));
            }
            Some(known) if origin.incarnation < known.incarnation => {
                return blocked(format!(
                    "the producer is at incarnation {}, but the received events came from the later incarnation {}",
                    origin.incarnation, known.incarnation
                ));
            }
            Some(known) if origin.incarnation > known.incarnation => {
                let start = identity.incarnation_start;
                if let Some(last) = last.filter(|last| *last >= start) {
                    return blocked(format!(
                        "the producer was restored to event {start}, but event {last} of its earlier log has already been received"
                    ));
                }
                let notice = format!("the producer was restored to event {start}, which is after every received event");
                self.progress.notice = Some(notice);
            }
            _ => {}
        }
        if last.is_some() && offered.head < stored.position {
            return blocked(format!(
                "the producer's stream ends at position {}, but it was received up to position {}",
                offered.head, stored.position
            ));
        }
        Ok(origin)
    }
}

/// Compares the last received event with the event that the producer now has at its position. Two restores of one backup have the same
/// incarnation, and their logs differ from then on.
///
/// # Errors
/// [`Refusal::Blocked`] if they differ. Data is not compared, because a producer may redact it.
pub fn check_last(received: &RecordedEvent, now: Option<&IncomingEvent>) -> Result<(), Refusal> {
    let number = received.commit.received.as_ref().map(|from| (from.sequence_number, from.position));
    let is_same = |now: &IncomingEvent| {
        number == Some((now.sequence_number, now.position))
            && now.event_type == received.event_type
            && now.time == received.time
            && received.commit.aggregate.event_source() == Some(&*now.source)
    };
    if now.is_some_and(is_same) {
        return Ok(());
    }
    let (number, position) = number.unwrap_or_default();
    Err(Refusal::Blocked(format!(
        "event {number} at position {position} of the producer's stream is not the one that was received there; the \
         producer's log has been replaced; to start over with this producer, receive into another scope"
    )))
}

fn not_ascending(event: &IncomingEvent, after: SequenceNumber) -> String {
    format!(
        "event {} of the producer does not follow event {after}, the last one received; the producer's log has been replaced",
        event.sequence_number
    )
}

/// Splits events into batches that a scope can receive. Together the batches contain every event of the partition from position `from` on.
pub fn batches(
    subscription: &Subscription,
    from: StreamPosition,
    consent: Uuid,
    events: Vec<IncomingEvent>,
) -> Vec<ReceivedBatch> {
    let mut batches: Vec<ReceivedBatch> = Vec::new();
    let mut bytes = 0;
    for event in events {
        let more = event.data.as_bytes().len();
        match batches.last_mut() {
            Some(batch) if bytes + more <= BATCH_BYTES && batch.events.len() < crate::limits::RECEIVED_MAX => {
                bytes += more;
                batch.events.push(event);
            }
            last => {
                let from = last.map_or(from, |batch| batch.next());
                bytes = more;
                batches.push(ReceivedBatch { subscription: subscription.clone(), consent, from, events: vec![event] });
            }
        }
    }
    batches
}

impl From<&HorizonError> for Refusal {
    fn from(error: &HorizonError) -> Self {
        match error.code() {
            Code::MissingConsent | Code::StreamNotPublic | Code::UnknownTenant => Self::Refused(error.to_string()),
            _ => Self::Failing(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
