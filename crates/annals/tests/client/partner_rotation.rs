//! Secrets that change, and requests that are sent again, with a real server on both ends.

use std::time::Duration;

use annals::partners::{
    EventStatus, Incoming, PartnerDefinition, PartnerError, Partners, Signed, SigningSecret, Unsigned,
};
use annals::{Clock, Data, EventLog, LogQuery, NewCommit, NewEvent, Timestamp};

use crate::partner_faults::{Receiver, status};
use crate::partners::{header, partner, secret, served, succeeded};

/// The signature of a request as a partner with this secret checks it.
fn verified(request: &str, by: &SigningSecret) -> Result<(), Unsigned> {
    let (_, body) = request.split_once("\r\n\r\n").expect("a body");
    let signed = Signed {
        id: header(request, "webhook-id").to_owned(),
        timestamp: header(request, "webhook-timestamp").to_owned(),
        signature: header(request, "webhook-signature").to_owned(),
    };
    let at = Timestamp::from_millis(signed.timestamp.parse::<i64>().expect("seconds") * 1_000);
    signed.verify(std::slice::from_ref(by), at, body.as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_that_are_rotated_between_two_attempts_sign_the_next_one() {
    let receiver = Receiver::start(vec![status("500 Oops"), status("200 OK")]).await;
    let it = served().await;
    let (old, new) = (secret(), SigningSecret::of_bytes(vec![6; 32]));
    let put = async |secrets: &[&SigningSecret]| {
        let definition = partner(&receiver.url()).secrets(secrets.iter().map(|secret| secret.reveal()));
        it.client.partners().put(definition).await.expect("defined");
    };
    put(&[&old]).await;
    let commit = || NewCommit::new("order", "o-1").event(NewEvent::new("placed", Data::empty()));
    it.client.commit(commit()).await.expect("committed");
    while it.events().await.first().is_none_or(|event| event.event_status != EventStatus::Failed) {
        tokio::task::yield_now().await;
    }
    put(&[&new, &old]).await;
    it.in_time(|events| succeeded(events, 1)).await;
    put(&[&new]).await;
    it.client.commit(commit()).await.expect("committed");
    it.in_time(|events| succeeded(events, 2)).await;
    let requests = receiver.requests();
    let by = |secret: &SigningSecret| requests.iter().map(|it| verified(it, secret).is_ok()).collect::<Vec<_>>();
    assert_eq!((by(&old), by(&new)), (vec![true, true, false], vec![false, true, true]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_replayed_adds_nothing_and_is_refused_once_it_is_stale() {
    let it = served().await;
    let partners = it.client.partners();
    let receives = PartnerDefinition { select: None, url: None, ..partner("http://127.0.0.1:9/") };
    partners.put(receives).await.expect("defined");
    let body = r#"{"type":"shipped","subject":"p-1","data":{"n":1}}"#;
    let captured: Incoming = it.signed("w-1", body, it.clock.now());
    let first = partners.receive("acme", captured.clone()).await.expect("accepted");
    for _ in 0..3 {
        it.clock.advance_millis(99_000);
        let again = partners.receive("acme", captured.clone()).await.expect("it is known");
        assert_eq!((&again.id, again.repeated), (&first.id, true));
    }
    it.clock.advance_millis(5_000);
    let stale = partners.receive("acme", captured.clone()).await.expect_err("refused");
    assert_eq!(stale, PartnerError::Signature(Unsigned::Stale));
    // A new time needs a new signature.
    let at = it.clock.now().plus(Duration::from_secs(1)).as_millis() / 1_000;
    let moved = Signed { timestamp: at.to_string(), ..captured.signed.clone() };
    let forged = partners.receive("acme", Incoming { signed: moved, ..captured }).await.expect_err("refused");
    assert_eq!(forged, PartnerError::Signature(Unsigned::Signature));
    it.in_time(|events| succeeded(events, 1)).await;
    assert_eq!(it.client.read(LogQuery::default()).await.expect("reads").events.len(), 1);
}
