//! A partner whose responses a case chooses, and shorthands for the steps of the cases.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annals_core::handlers::Reason;
use annals_core::partners::{
    Accepted, Answered, EventStatus, EventsQuery, Incoming, Outgoing, PartnerDefinition, PartnerError,
    PartnerEventRecord, PartnerEventView, Partners, Sending, Signed, SigningSecret,
};
use annals_core::{
    Clock, Condition, DEFAULT_TENANT, LogQuery, RecordQuery, RecordedEvent, Records, Store, TypedRecords, limits,
};
use annals_runtime::{HostOptions, PartnerKeys, PartnerOptions};
use async_trait::async_trait;
use tokio::sync::watch;

use crate::handlers::opened::Opened;
use crate::{ManualClock, Subject};

/// The partner of most cases.
pub(super) const P: &str = "p";

/// The response of a partner to a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    Status(u16),
    /// A status with `Retry-After` in seconds.
    After(u16, u64),
    /// No response, for this reason.
    Broken(&'static str),
    /// No response until the case releases it.
    Held,
    /// The sender panics.
    Panic,
}

/// Partners at their URLs: the requests they got, and their responses.
pub(super) struct Scripted {
    requests: Mutex<Vec<Outgoing>>,
    replies: Mutex<VecDeque<Reply>>,
    /// The response to requests beyond the script, by a part of the URL.
    usual: Mutex<Vec<(&'static str, Reply)>>,
    count: watch::Sender<usize>,
    held: watch::Sender<bool>,
}

impl Scripted {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            requests: Mutex::default(),
            replies: Mutex::default(),
            usual: Mutex::default(),
            count: watch::Sender::new(0),
            held: watch::Sender::new(true),
        })
    }

    /// Sets the next responses, in order.
    pub fn script(&self, replies: impl IntoIterator<Item = Reply>) {
        locked(&self.replies).extend(replies);
    }

    /// Sets the response of a partner whose URL has this part.
    pub fn usually(&self, part: &'static str, reply: Reply) {
        locked(&self.usual).insert(0, (part, reply));
    }

    pub fn let_go(&self) {
        self.held.send_replace(false);
    }

    pub fn requests(&self) -> Vec<Outgoing> {
        locked(&self.requests).clone()
    }

    /// Waits until `count` requests were sent.
    pub async fn has_got(&self, count: usize) -> Vec<Outgoing> {
        let _ = self.count.subscribe().wait_for(|got| *got >= count).await;
        self.requests()
    }

    fn reply(&self, url: &str) -> Reply {
        if let Some(reply) = locked(&self.replies).pop_front() {
            return reply;
        }
        let usual = locked(&self.usual);
        usual.iter().find(|(part, _)| url.contains(part)).map_or(Reply::Status(200), |(_, reply)| reply.clone())
    }
}

#[async_trait]
impl Sending for Scripted {
    async fn send(&self, request: Outgoing) -> Result<Answered, String> {
        let reply = self.reply(&request.url);
        locked(&self.requests).push(request);
        self.count.send_modify(|count| *count += 1);
        let answered = |status, after: Option<u64>| {
            Ok(Answered { status, retry_after: after.map(Duration::from_secs), said: String::new() })
        };
        match reply {
            Reply::Status(status) => answered(status, None),
            Reply::After(status, seconds) => answered(status, Some(seconds)),
            Reply::Broken(why) => Err(why.to_owned()),
            Reply::Held => {
                let _ = self.held.subscribe().wait_for(|held| !held).await;
                answered(200, None)
            }
            Reply::Panic => panic!("the sender panics"),
        }
    }

    fn check(&self, url: &str) -> Result<(), String> {
        if url.contains("10.0.0.1") { Err("10.0.0.1 is not a public address".to_owned()) } else { Ok(()) }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A store with a host whose partners are scripted.
pub(super) struct Exchange {
    pub it: Opened,
    pub scripted: Arc<Scripted>,
    pub partners: Arc<dyn Partners>,
    pub records: Arc<dyn Records>,
}

impl Exchange {
    pub async fn of(subject: &dyn Subject) -> Self {
        Self::on(subject.open().await, subject.clock(), Scripted::new())
    }

    pub fn on(store: Arc<dyn Store>, clock: Arc<ManualClock>, scripted: Arc<Scripted>) -> Self {
        let sending: Arc<dyn Sending> = scripted.clone();
        let partners = PartnerOptions { sending, keys: Some(PartnerKeys::for_development()) };
        let it = Opened::with(store, clock, HostOptions { partners, ..HostOptions::default() });
        let partners = it.host.partners(DEFAULT_TENANT).expect("declared");
        let records = it.store.records(DEFAULT_TENANT).expect("declared");
        Self { it, scripted, partners, records }
    }

    /// Starts another host on the same store.
    pub fn beside(&self) -> Self {
        Self::on(self.it.store.clone(), self.it.clock.clone(), self.scripted.clone())
    }

    /// Continues on the same store with a new host that runs the existing definitions, as after a restart.
    pub async fn restarted(self) -> Self {
        self.it.host.drain().await;
        let next = Self::on(self.it.store.clone(), self.it.clock.clone(), self.scripted.clone());
        next.it.host.start_defined();
        next
    }

    /// Opens it with a partner that gets events of type `placed`.
    pub async fn with_partner(subject: &dyn Subject) -> Self {
        let exchange = Self::of(subject).await;
        exchange.define(placed_to(P)).await;
        exchange
    }

    pub async fn define(&self, definition: PartnerDefinition) {
        assert!(self.partners.put(definition).await.expect("defined"), "it is new");
    }

    pub async fn commit(&self, id: &str) {
        self.it.commit("placed", &[id]).await;
    }

    pub async fn all(&self) -> Vec<PartnerEventView> {
        self.query(EventsQuery::default()).await
    }

    pub async fn query(&self, query: EventsQuery) -> Vec<PartnerEventView> {
        self.partners.events(P, query).await.expect("listed").items
    }

    /// Returns the stored records, by the time at which they were recorded.
    pub async fn stored(&self) -> Vec<PartnerEventRecord> {
        let events = TypedRecords::<PartnerEventRecord>::declared(self.records.clone());
        let query = RecordQuery::new("partner_events").ascending("created").limit(limits::PAGE_MAX);
        events.find(query).await.expect("found").0.into_iter().map(|found| found.value).collect()
    }

    /// Waits until the events of the partner satisfy `is`. Time stands still.
    pub async fn until(&self, is: impl Fn(&[PartnerEventView]) -> bool) -> Vec<PartnerEventView> {
        loop {
            let events = self.all().await;
            if is(&events) {
                return events;
            }
            crate::between_looks().await;
        }
    }

    /// Does the same while time passes between attempts: an attempt that takes longer than its lease would be repeated.
    pub async fn in_time(&self, is: impl Fn(&[PartnerEventView]) -> bool) -> Vec<PartnerEventView> {
        loop {
            let events = self.all().await;
            if is(&events) {
                return events;
            }
            match events.iter().any(|event| event.event_status == EventStatus::Processing) {
                true => crate::between_looks().await,
                false => self.it.advance(100),
            }
            tokio::task::yield_now().await;
        }
    }

    pub fn advance_seconds(&self, seconds: i64) {
        self.it.advance(seconds * 1_000);
    }

    /// Returns a request that the partner has signed now.
    pub fn signed(&self, id: &str, body: &str) -> Incoming {
        let signed = Signed::sign(&[secret(1)], id, self.it.clock.now(), body.as_bytes());
        Incoming { signed, body: body.to_owned().into() }
    }

    pub async fn receive(&self, id: &str, body: &str) -> Result<Accepted, PartnerError> {
        self.partners.receive(P, self.signed(id, body)).await
    }

    pub async fn log(&self) -> Vec<RecordedEvent> {
        self.it.log.read(LogQuery::default()).await.expect("reads").events
    }

    /// Waits until the log has `count` events.
    pub async fn has_logged(&self, count: usize) -> Vec<RecordedEvent> {
        loop {
            let events = self.log().await;
            if events.len() >= count {
                return events;
            }
            crate::between_looks().await;
        }
    }
}

/// Returns a partner that gets events of type `placed`.
pub(super) fn placed_to(id: &'static str) -> PartnerDefinition {
    PartnerDefinition::new(id, "Example")
        .sends(format!("https://{id}.example/events"), Condition::eq("type", "placed"))
        .secrets([secret(1).reveal()])
}

pub(super) fn secret(byte: u8) -> SigningSecret {
    SigningSecret::of_bytes(vec![byte; 24])
}

pub(super) fn reason() -> Reason {
    Reason { reason: "a test".to_owned(), by: Some("eva".to_owned()) }
}

pub(super) fn header<'a>(request: &'a Outgoing, name: &str) -> &'a str {
    request.headers.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
}

pub(super) fn are(events: &[PartnerEventView], status: EventStatus) -> bool {
    !events.is_empty() && events.iter().all(|event| event.event_status == status)
}

/// Returns the times of the attempts of a record, in order.
pub(super) fn attempts(record: &PartnerEventRecord) -> Vec<i64> {
    let map = &record.entity_metadata.attempts;
    let time = |n: usize| map.get_str(n.to_string()).expect("an attempt").parse().expect("milliseconds");
    (1..=map.len()).map(time).collect()
}
