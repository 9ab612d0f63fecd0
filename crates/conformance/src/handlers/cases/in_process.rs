//! Handlers in Rust, and the effects that are stored with their success.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use annals_core::bson::{Bson, rawdoc};
use annals_core::handlers::{HandlerDefinition, Handlers, PartitionStatus};
use annals_core::processing::{PartitionBy, ProcessingRetry};
use annals_core::trace::{BegunSpan, EndedSpan, Spans, TRACEPARENT, TraceContext};
use annals_core::{
    Aggregate, AggregateQuery, Collection, DEFAULT_TENANT, Expected, NewCommit, RecordChange, RecordedEvent, Records,
};
use annals_runtime::{Effects, HandleFailure, Handler, HostOptions, RetryWish};
use async_trait::async_trait;

use crate::Subject;
use crate::handlers::opened::Opened;
use crate::sample::event;

const COUNTS: &str = "counts";

/// Counts the events of each aggregate in a record, and fails at intervals.
struct Counting {
    records: Arc<dyn Records>,
    calls: AtomicU64,
    fails_every: u64,
}

impl Counting {
    async fn new(it: &Opened, fails_every: u64) -> Arc<Self> {
        let records = it.store.records(DEFAULT_TENANT).expect("declared");
        records.declare(Collection::new(COUNTS)).await.expect("declared");
        Arc::new(Self { records, calls: AtomicU64::new(0), fails_every })
    }

    async fn count(&self, id: &str) -> Option<i64> {
        let record = self.records.get(COUNTS, &Bson::from(id)).await.expect("reads")?;
        Some(record.document.get_i64("count").expect("a number"))
    }
}

#[async_trait]
impl Handler for Counting {
    async fn handle(&self, events: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure> {
        let id = events[0].commit.aggregate.id.clone();
        let count = self.count(&id).await.unwrap_or(0) + events.len() as i64;
        effects.change(RecordChange::put(COUNTS, rawdoc! { "_id": &*id, "count": count }));
        // Fails after the effect was requested, and before it was applied.
        match self.calls.fetch_add(1, Ordering::SeqCst) % self.fails_every {
            0 => Err(HandleFailure::new("this time it fails")),
            1 => panic!("this time it panics"),
            _ => Ok(()),
        }
    }
}

fn soon() -> ProcessingRetry {
    ProcessingRetry { first_ms: 1, max_ms: 1, factor: 1.0, jitter: 0.0, ..ProcessingRetry::default() }
}

fn definition(name: &str) -> HandlerDefinition {
    HandlerDefinition { retry: soon(), ..HandlerDefinition::new(name).partitioned(PartitionBy::Aggregate, 4) }
}

/// Advances the clock until the handler has reached `position` and nothing is failing.
async fn until_handled(it: &Opened, handlers: &Arc<dyn Handlers>, name: &str, position: u64) {
    loop {
        it.advance(10);
        let status = handlers.get(name).await.expect("defined");
        if status.position >= position && status.failing == 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// The batch that stores the position also stores the effect.
pub async fn effects_happen_exactly_once_whatever_fails_and_restarts(subject: &dyn Subject) {
    let mut it = Opened::of(subject).await;
    let ids = ["a", "b", "a", "c", "b", "a", "a", "c"];
    for round in 1..=3 {
        it.commit("placed", &ids).await;
        let counting = Counting::new(&it, 4).await;
        it.host.handle(DEFAULT_TENANT, definition("h"), Arc::clone(&counting)).await.expect("defined");
        until_handled(&it, &it.handlers, "h", ids.len() as u64 * round).await;
        for (id, each) in [("a", 4), ("b", 2), ("c", 2)] {
            assert_eq!(counting.count(id).await, Some(each * round.cast_signed()), "{id} after round {round}");
        }
        it = it.restarted().await;
    }
}

/// The event fails with the error of the store.
pub async fn a_refused_effect_fails_its_event_and_nothing_of_it_happens(subject: &dyn Subject) {
    struct Refused;
    #[async_trait]
    impl Handler for Refused {
        async fn handle(&self, _: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure> {
            effects.change(RecordChange::put(COUNTS, rawdoc! { "_id": "one", "count": 1_i64 }));
            let absent = RecordChange::replace_if(COUNTS, rawdoc! { "_id": "two" }, Expected::Present);
            effects.change(absent);
            Ok(())
        }
    }
    let it = Opened::of(subject).await;
    let counting = Counting::new(&it, 2).await;
    it.commit("placed", &["a"]).await;
    let late = ProcessingRetry { first_ms: 60_000, ..ProcessingRetry::default() };
    it.host
        .handle(DEFAULT_TENANT, HandlerDefinition { retry: late, ..definition("h") }, Refused)
        .await
        .expect("defined");
    let failing = loop {
        let page = it.handlers.partitions("h", None, 10).await.expect("reads").items;
        if let Some(failing) = page.into_iter().next() {
            break failing;
        }
        crate::between_looks().await;
    };
    assert!(failing.reason.contains("effects were refused"), "{}", failing.reason);
    assert_eq!((failing.position, counting.count("one").await), (0, None));
}

/// Polls until the only failing partition has failed this often. Each poll lets `millis` milliseconds pass.
async fn failed(it: &Opened, attempts: u32, millis: i64) -> PartitionStatus {
    loop {
        it.advance(millis);
        let page = it.handlers.partitions("h", None, 10).await.expect("reads").items;
        if let Some(failing) = page.into_iter().find(|failing| failing.attempts == attempts) {
            return failing;
        }
        crate::between_looks().await;
    }
}

/// It chooses a delay, or never, whatever the policy says.
pub async fn a_handler_in_rust_chooses_when_its_event_comes_again(subject: &dyn Subject) {
    struct Choosing;
    #[async_trait]
    impl Handler for Choosing {
        async fn handle(&self, _: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure> {
            match effects.attempt() {
                1 => Err(HandleFailure { reason: "busy".to_owned(), retry: RetryWish::After(7_000) }),
                _ => Err(HandleFailure::never("unreadable")),
            }
        }
    }
    let it = Opened::of(subject).await;
    it.commit("placed", &["a"]).await;
    it.host.handle(DEFAULT_TENANT, definition("h"), Choosing).await.expect("defined");
    // The clock stands still. The policy's delay is 1 ms.
    let first = failed(&it, 1, 0).await;
    assert_eq!((&*first.reason, first.retry_at), ("busy", Some(it.now_plus(7_000))));
    it.advance(7_000);
    let second = failed(&it, 2, 10).await;
    assert_eq!((&*second.reason, second.retry_at), ("unreadable", None));
}

/// The reason contains the message of the panic.
pub async fn a_panic_is_a_failure(subject: &dyn Subject) {
    struct Panicking;
    #[async_trait]
    impl Handler for Panicking {
        async fn handle(&self, _: &[RecordedEvent], _: &mut Effects) -> Result<(), HandleFailure> {
            panic!("out of ink")
        }
    }
    let it = Opened::of(subject).await;
    it.commit("placed", &["a"]).await;
    it.host.handle(DEFAULT_TENANT, definition("h"), Panicking).await.expect("defined");
    loop {
        let status = it.handlers.get("h").await.expect("defined");
        if let Some(reason) = status.last_reason {
            assert_eq!((reason.as_str(), status.failing), ("the handler panicked: out of ink", 1));
            return;
        }
        crate::between_looks().await;
    }
}

/// The handler ran again after it had committed.
pub async fn commits_of_a_handler_are_made_once(subject: &dyn Subject) {
    struct Answering(Arc<Counting>);
    #[async_trait]
    impl Handler for Answering {
        async fn handle(&self, events: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure> {
            for of in events {
                let invoice = NewCommit::new("invoice", "i").event(event("invoiced", of.sequence_number));
                effects.commit(of, invoice);
            }
            // Refused at first, so the commit is made and the success is not stored.
            if self.0.calls.fetch_add(1, Ordering::SeqCst) == 0 {
                effects.change(RecordChange::replace_if(COUNTS, rawdoc! { "_id": "none" }, Expected::Present));
            }
            Ok(())
        }
    }
    let it = Opened::of(subject).await;
    let calls = Counting::new(&it, 2).await;
    it.commit("placed", &["a", "a"]).await;
    let handler = Answering(Arc::clone(&calls));
    // At first both come together. Then the one that failed comes alone.
    let definition = HandlerDefinition { batch: 2, ..definition("h").types(["placed"]) };
    it.host.handle(DEFAULT_TENANT, definition, handler).await.expect("defined");
    until_handled(&it, &it.handlers, "h", 2).await;
    let invoices = it.log.read_aggregate(AggregateQuery::new(Aggregate::new("invoice", "i"))).await.expect("reads");
    assert_eq!((invoices.version, calls.calls.load(Ordering::SeqCst)), (2, 3));
}

/// The attempt is dropped, and the event is attempted again. The handler sees the number of the attempt and the reason for it.
pub async fn an_attempt_that_hangs_past_its_time_counts_as_failed(subject: &dyn Subject) {
    struct Hanging(Arc<AtomicU64>);
    #[async_trait]
    impl Handler for Hanging {
        async fn handle(&self, _: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure> {
            self.0.fetch_add(1, Ordering::SeqCst);
            if effects.attempt() == 1 {
                std::future::pending::<()>().await;
            }
            assert!(effects.last_reason().is_some_and(|reason| reason.contains("lease")), "{effects:?}");
            Ok(())
        }

        fn attempt_max(&self) -> std::time::Duration {
            std::time::Duration::from_secs(5)
        }
    }
    let it = Opened::of(subject).await;
    it.commit("placed", &["a"]).await;
    let calls = Arc::new(AtomicU64::new(0));
    it.host.handle(DEFAULT_TENANT, definition("h"), Hanging(Arc::clone(&calls))).await.expect("defined");
    until_handled(&it, &it.handlers, "h", 1).await;
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

/// Commits an invoice for each event, and fails the first attempt.
struct Invoicing(AtomicU64);

#[async_trait]
impl Handler for Invoicing {
    async fn handle(&self, events: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure> {
        assert!(effects.trace().is_some(), "its event names a span");
        for of in events {
            effects.commit(of, NewCommit::new("invoice", "i").event(event("invoiced", of.sequence_number)));
        }
        if self.0.fetch_add(1, Ordering::SeqCst) == 0 { Err(HandleFailure::new("out of paper")) } else { Ok(()) }
    }
}

/// Commits an order as part of a span, and lets it be handled. Returns the span that the invoice names.
async fn invoiced(it: &Opened, order: TraceContext) -> TraceContext {
    let mut commit = NewCommit::new("order", "a").event(event("placed", 0)).wait_until(annals_core::Reached::Logged);
    order.note(&mut commit);
    it.log.commit(commit).await.expect("committed");
    let handler = Invoicing(AtomicU64::new(0));
    it.host.handle(DEFAULT_TENANT, definition("h").types(["placed"]), handler).await.expect("defined");
    until_handled(it, &it.handlers, "h", 1).await;
    let invoices = it.log.read_aggregate(AggregateQuery::new(Aggregate::new("invoice", "i"))).await.expect("reads");
    TraceContext::of_header(&invoices.commits[0].info.header).expect("the invoice names a span")
}

const ORDER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// If no spans are recorded, the commit is part of the span that the event's commit named.
pub async fn commits_of_a_handler_continue_the_trace_of_their_event(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    let order = TraceContext::parse(ORDER).expect("valid");
    assert_eq!(invoiced(&it, order).await, order);
    let log = it.log.read(annals_core::LogQuery::default()).await.expect("reads");
    assert_eq!(log.events[1].commit.header, [(TRACEPARENT.into(), ORDER.into())]);
}

/// Keeps every span.
#[derive(Default)]
struct Kept {
    ids: AtomicU64,
    ended: Mutex<Vec<EndedSpan>>,
}

impl Spans for Kept {
    fn begin(&self, parent: Option<TraceContext>) -> Option<BegunSpan> {
        let id = 1 + self.ids.fetch_add(1, Ordering::SeqCst);
        let context = parent.map_or_else(|| TraceContext::root(id.into(), id), |parent| parent.child(id));
        Some(BegunSpan { context, parent, began: 0 })
    }

    fn end(&self, span: EndedSpan) {
        self.ended.lock().expect("sound").push(span);
    }

    fn dropped(&self) -> u64 {
        0
    }
}

/// Each attempt has a span, with its outcome.
pub async fn every_delivery_is_a_span_between_the_commits_before_and_after_it(subject: &dyn Subject) {
    let kept = Arc::new(Kept::default());
    let options = HostOptions { spans: Some(Arc::clone(&kept) as Arc<dyn Spans>), ..HostOptions::default() };
    let it = Opened::with(subject.open().await, subject.clock(), options);
    let order = TraceContext::parse(ORDER).expect("valid");
    let invoice = invoiced(&it, order).await;
    let ended = kept.ended.lock().expect("sound");
    let shown = ended.iter().map(|span| (&*span.name, span.begun.parent, span.failure.as_deref())).collect::<Vec<_>>();
    assert_eq!(shown, [("handle h", Some(order), Some("out of paper")), ("handle h", Some(order), None)]);
    assert_eq!(ended[1].begun.context, invoice, "the commit is part of the attempt that made it");
    assert_ne!(ended[0].begun.context, invoice);
}
