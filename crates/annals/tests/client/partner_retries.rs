//! Retries of a partner that is a real HTTP server: how they end, and what a clock that jumps does to them.

use std::time::Duration;

use annals::partners::{Ending, EventStatus, EventsQuery, PartnerEventView, Partners};
use annals::{Data, EventLog, NewCommit, NewEvent};

use crate::partner_faults::{Behaviour, Receiver, status};
use crate::partners::{Served, header, partner, served, succeeded, times};

async fn commit(it: &Served, order: &str) {
    let commit = NewCommit::new("order", order).event(NewEvent::new("placed", Data::empty()));
    it.client.commit(commit).await.expect("committed");
}

/// Waits until the events are as they should be, while time stands still.
async fn until(it: &Served, is: impl Fn(&[PartnerEventView]) -> bool) -> Vec<PartnerEventView> {
    let waiting = async {
        loop {
            let events = it.events().await;
            if is(&events) {
                return events;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it happens in time")
}

/// A redirect, a timeout, an endless response, a reset and a server error each count as an attempt. There is no sixth.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_a_partner_never_takes_is_exhausted_after_five_attempts() {
    let elsewhere = Receiver::start(vec![status("200 OK")]).await;
    let moved = format!("HTTP/1.1 307 Moved\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", elsewhere.url());
    let behaviours = vec![
        Behaviour::Answers(moved),
        Behaviour::Hangs,
        Behaviour::Drips,
        Behaviour::Resets,
        status("503 Busy"),
        status("200 OK"),
    ];
    let receiver = Receiver::start(behaviours).await;
    let it = served().await;
    let mut definition = partner(&receiver.url());
    definition.limits.timeout_ms = 500;
    it.client.partners().put(definition).await.expect("defined");
    commit(&it, "o-1").await;
    for (attempt, seconds) in [(1, 5), (2, 10), (3, 20), (4, 40)] {
        let failed = |event: &PartnerEventView| event.attempts == attempt && event.event_status == EventStatus::Failed;
        until(&it, |events| events.iter().any(failed)).await;
        it.clock.advance_millis(1_000 * seconds);
    }
    let events = until(&it, |events| events.iter().any(|event| event.ended.is_some())).await;
    let event = &events[0];
    assert_eq!((event.event_status, event.ended), (EventStatus::Failed, Some(Ending::Exhausted)));
    assert_eq!((event.attempts, event.last_status, event.due_at), (5, Some(503), None));
    let times = times(event);
    let gaps: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [5_000, 10_000, 20_000, 40_000]);
    let requests = receiver.requests();
    let ids = requests.iter().filter(|request| header(request, "webhook-id") == event.id).count();
    assert_eq!((requests.len(), ids), (4, 4), "the reset one was not read");
    assert_eq!(elsewhere.requests().len(), 0, "the redirect is not followed");
    it.clock.advance_millis(1_000_000);
    let due = EventsQuery { due: true, ..EventsQuery::default() };
    assert_eq!(it.client.partners().events("acme", due).await.expect("listed").items, []);
    let statistics = it.client.partners().statistics("acme").await.expect("counted");
    assert_eq!((statistics.out.exhausted, statistics.success_rate), (1, Some(0.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_makes_a_partner_wait_and_sends_it_nothing_twice() {
    const HOUR_MS: i64 = 3_600_000;
    let receiver = Receiver::start(vec![status("500 Oops"), status("200 OK")]).await;
    let it = served().await;
    it.client.partners().put(partner(&receiver.url())).await.expect("defined");
    commit(&it, "o-1").await;
    let failed = until(&it, |events| events.iter().any(|it| it.event_status == EventStatus::Failed)).await.remove(0);
    it.clock.advance_millis(-HOUR_MS);
    commit(&it, "o-2").await;
    let success = |events: &[PartnerEventView]| events.iter().any(|it| it.event_status == EventStatus::Success);
    let events = until(&it, success).await;
    let waiting = events.iter().find(|event| event.id == failed.id).expect("it is kept");
    assert_eq!((waiting.attempts, waiting.due_at), (1, failed.due_at), "it waits for the time that it was promised");
    it.clock.advance_millis(2 * HOUR_MS);
    until(&it, |events| succeeded(events, 2)).await;
    let requests = receiver.requests();
    let ids: Vec<_> = requests.iter().map(|request| header(request, "webhook-id")).collect();
    assert_eq!((ids.len(), ids[0]), (3, &*failed.id));
    assert!(ids[1] != ids[0] && ids[2] == ids[0], "{ids:?}");
    let at = |n: usize| header(&requests[n], "webhook-timestamp").parse::<i64>().expect("seconds");
    assert_eq!((at(1) - at(0), at(2) - at(1)), (-3_600, 7_200), "each is signed with the time that the clock shows");
}
