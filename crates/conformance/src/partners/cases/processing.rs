//! Commits of received events that the store does not take at once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::partners::{Ending, EventDirection, EventStatus, PartnerEventView};
use annals_core::{Code, CommitError, CommitOutcome, EventLog, NewCommit, StoreError};
use async_trait::async_trait;

use crate::Subject;
use crate::partners::words::{Exchange, P, Scripted, attempts, placed_to, reason};
use crate::tap::{Tap, TappedStore};

/// A log that refuses the next commits of received events for these reasons, one after the other.
struct Unwilling(Mutex<VecDeque<CommitError>>);

impl Unwilling {
    fn with(errors: impl IntoIterator<Item = CommitError>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(errors.into_iter().collect())))
    }

    fn next(&self) -> Option<CommitError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

#[async_trait]
impl Tap for Unwilling {
    async fn commit(&self, log: &dyn EventLog, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        let refused = if &*commit.aggregate.name == "partner_event" { self.next() } else { None };
        match refused {
            Some(error) => Err(error),
            None => log.commit(commit).await,
        }
    }
}

async fn on(log: &Arc<Unwilling>, subject: &dyn Subject) -> Exchange {
    let store = TappedStore::new(subject.open().await).with_log(log);
    let exchange = Exchange::on(Arc::new(store), subject.clock(), Scripted::new());
    exchange.define(placed_to(P)).await;
    exchange
}

/// Receives two events of one entity.
async fn received(exchange: &Exchange) {
    for id in ["first", "second"] {
        let body = format!(r#"{{"type":"moved","subject":"s","data":{{"id":"{id}"}}}}"#);
        exchange.receive(id, &body).await.expect("accepted");
    }
}

fn of<'a>(events: &'a [PartnerEventView], webhook_id: &str) -> &'a PartnerEventView {
    events.iter().find(|event| event.webhook_id.as_deref() == Some(webhook_id)).expect("it was accepted")
}

/// Commits have the states, the delays and the number of attempts of deliveries. The event is not lost, and the next one of its entity
/// follows.
pub async fn a_commit_that_the_store_does_not_take_is_retried_as_a_delivery_is(subject: &dyn Subject) {
    // The first is what MongoDB says without a primary.
    let passing = [
        StoreError::other(Code::Unreachable, "no primary"),
        StoreError::Overloaded,
        StoreError::other(Code::NotReady, "it is being opened"),
        StoreError::DiskFull("no room".to_owned()),
        StoreError::Unreachable("nobody is there".to_owned()),
    ];
    let log = Unwilling::with(passing.map(CommitError::Store));
    let exchange = on(&log, subject).await;
    received(&exchange).await;
    for (attempt, seconds) in [(1, 5_u64), (2, 10), (3, 20), (4, 40)] {
        let failed = |first: &PartnerEventView| first.event_status == EventStatus::Failed && first.attempts == attempt;
        let events = exchange.until(|events| failed(of(events, "first"))).await;
        assert_eq!(of(&events, "first").due_at, Some(exchange.it.now_plus(1_000 * seconds)));
        assert_eq!(of(&events, "second").attempts, 0, "it waits for the earlier one of its entity");
        exchange.advance_seconds(seconds.cast_signed());
    }
    let events = exchange.until(|events| of(events, "first").ended.is_some()).await;
    let first = of(&events, "first");
    assert_eq!((first.ended, first.attempts, first.due_at), (Some(Ending::Exhausted), 5, None));
    assert!(first.last_reason.as_deref().is_some_and(|why| why.contains("nobody is there")), "{first:?}");
    let counted = exchange.it.host.partner_failures().await;
    assert_eq!(counted.iter().map(|it| (it.direction, it.count)).collect::<Vec<_>>(), [(EventDirection::In, 1)]);
    exchange.until(|events| of(events, "second").event_status == EventStatus::Success).await;

    exchange.partners.resend(&first.id, reason()).await.expect("resent");
    exchange.until(|events| of(events, "first").event_status == EventStatus::Success).await;
    let logged = exchange.has_logged(2).await;
    let ids = logged.iter().map(|event| event.data.as_raw().get_str("id").expect("a text"));
    assert_eq!(ids.collect::<Vec<_>>(), ["second", "first"], "each is committed once");
    let stored = exchange.stored().await;
    let stored = stored.iter().find(|record| record.id.to_hex() == first.id).expect("it is stored");
    let times = attempts(stored);
    let gaps: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps[..4], [5_000, 10_000, 20_000, 40_000]);
    assert_eq!((times.len(), &*stored.created_by), (6, P));
}

/// It could not succeed later either.
pub async fn a_commit_that_is_refused_ends_at_once(subject: &dyn Subject) {
    let other = CommitError::AggregateOfOtherTenant { tenant_id: "north".to_owned() };
    let log = Unwilling::with([other, CommitError::Store(StoreError::NotSupported("such a commit".to_owned()))]);
    let exchange = on(&log, subject).await;
    received(&exchange).await;
    let events = exchange.until(|events| events.len() == 2 && events.iter().all(|event| event.ended.is_some())).await;
    for (id, why) in [("first", "north"), ("second", "such a commit")] {
        let event = of(&events, id);
        assert_eq!((event.ended, event.attempts, event.due_at), (Some(Ending::Refused), 1, None));
        assert_eq!(event.event_status, EventStatus::Failed);
        assert!(event.last_reason.as_deref().is_some_and(|reason| reason.contains(why)), "{event:?}");
    }
    assert_eq!(exchange.log().await.len(), 0);
}
