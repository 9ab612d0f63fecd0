//! Acts of operators on events.

use annals_core::bson::oid::ObjectId;
use annals_core::bson::{RawDocumentBuf, doc};
use annals_core::dead_letters::{LetterQuery, LetterStatus};
use annals_core::partners::{Ending, EventStatus, EventsQuery, PartnerError};
use annals_core::{Code, DEFAULT_TENANT, RecordQuery, RecordType};

use crate::Subject;
use crate::partners::words::{Exchange, P, Reply, are, reason};

/// It gets five more attempts, each on record. Who recorded it and when stays.
pub async fn an_exhausted_event_is_resent_by_hand(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.usually("p.example", Reply::Status(500));
    exchange.commit("a").await;
    let events = exchange.in_time(|events| events.iter().any(|event| event.ended.is_some())).await;
    assert_eq!(events[0].ended, Some(Ending::Exhausted));
    let before = exchange.stored().await.remove(0);
    exchange.it.advance(1);
    let resent = exchange.partners.resend(&events[0].id, reason()).await.expect("resent");
    assert_eq!((resent.ended, &resent.id), (None, &events[0].id));
    exchange.until(|events| events[0].attempts == 6 && are(events, EventStatus::Failed)).await;
    exchange.scripted.usually("p.example", Reply::Status(200));
    let events = exchange.in_time(|events| are(events, EventStatus::Success)).await;
    assert_eq!((events[0].attempts, events[0].ended), (7, Some(Ending::Success)));
    let record = exchange.stored().await.remove(0);
    assert_eq!(record.entity_metadata.attempts.len(), 7, "every attempt is on record");
    assert_eq!((&record.created, &record.created_by), (&before.created, &before.created_by));
    assert!(resent.last_updated_time > before.last_updated_time && record.last_updated_time > resent.last_updated_time);
}

/// An act on the letter is an act on the event.
pub async fn a_delivery_that_failed_for_the_last_time_is_a_dead_letter(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.it.host.start_defined();
    let letters = exchange.it.host.dead_letters(DEFAULT_TENANT).expect("declared");
    let until = async |status: LetterStatus| loop {
        let found = letters.list(LetterQuery { partner: Some(P.into()), ..LetterQuery::default() }).await;
        if let Some(letter) = found.expect("listed").items.into_iter().find(|it| it.status == status) {
            return letter;
        }
        exchange.advance_seconds(1);
        tokio::task::yield_now().await;
    };
    // A record of other software that lacks fields keeps no letter back.
    let malformed = doc! { "_id": ObjectId::from_bytes([1; 12]), "event_status": "FAILED" };
    let malformed = RawDocumentBuf::try_from(&malformed).expect("a document");
    exchange.records.insert("partner_events", malformed).await.expect("inserted");
    exchange.scripted.usually("p.example", Reply::Status(500));
    exchange.commit("a").await;
    exchange.in_time(|events| events.iter().any(|event| event.ended.is_some())).await;
    let letter = until(LetterStatus::Pending).await;
    assert_eq!((letter.attempts, letter.retry_count, letter.partner.as_deref()), (5, 0, Some(P)));
    assert!(letter.error.contains("500"), "{}", letter.error);
    exchange.scripted.usually("p.example", Reply::Status(200));
    letters.retry(&letter.id, reason()).await.expect("retried");
    let retried = until(LetterStatus::Retried).await;
    assert_eq!((retried.id, retried.attempts), (letter.id, 6));
    assert!(are(
        &exchange.partners.events(P, EventsQuery::default()).await.expect("listed").items,
        EventStatus::Success
    ));
    exchange.scripted.usually("p.example", Reply::Status(500));
    exchange.commit("b").await;
    exchange.in_time(|events| events.iter().any(|event| event.ended == Some(Ending::Exhausted))).await;
    let letter = until(LetterStatus::Pending).await;
    letters.discard(&letter.id, reason()).await.expect("given up");
    exchange.in_time(|events| events.iter().any(|event| event.ended == Some(Ending::Cancelled))).await;
}

/// It is not attempted any more.
pub async fn a_pending_event_is_cancelled(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.script([Reply::Status(500)]);
    exchange.commit("a").await;
    let events = exchange.until(|events| are(events, EventStatus::Failed)).await;
    exchange.partners.cancel(&events[0].id, reason()).await.expect("cancelled");
    exchange.advance_seconds(1_000);
    exchange.commit("b").await;
    exchange.until(|events| events.iter().any(|event| event.event_status == EventStatus::Success)).await;
    assert_eq!(exchange.scripted.requests().len(), 2);
    let statistics = exchange.partners.statistics(P).await.expect("counted");
    assert_eq!((statistics.out.cancelled, statistics.out.success, statistics.success_rate), (1, 1, Some(0.5)));
}

/// The refusal names the state, or the id of an event that does not exist.
pub async fn an_act_that_the_state_does_not_allow_is_refused(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.commit("a").await;
    let events = exchange.until(|events| are(events, EventStatus::Success)).await;
    match exchange.partners.cancel(&events[0].id, reason()).await.expect_err("it succeeded") {
        PartnerError::State { state, .. } => assert_eq!(state, "SUCCESS"),
        other => panic!("{other}"),
    }
    for id in ["0123456789abcdef01234567", "no id"] {
        let unknown = exchange.partners.event(id).await.expect_err("unknown");
        assert_eq!(unknown, PartnerError::UnknownEvent(id.to_owned()));
    }
    let nobody = exchange.partners.events("nobody", EventsQuery::default()).await.expect_err("unknown");
    assert_eq!(nobody, PartnerError::Unknown("nobody".to_owned()));
}

/// The record has who, why and when. The events of a deleted partner can still be found.
pub async fn acts_are_recorded_with_their_reason(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.script([Reply::Status(404)]);
    exchange.commit("a").await;
    let events = exchange.until(|events| are(events, EventStatus::Failed)).await;
    exchange.partners.resend(&events[0].id, reason()).await.expect("resent");
    exchange.until(|events| are(events, EventStatus::Success)).await;
    exchange.it.advance(1);
    exchange.partners.delete(P, reason()).await.expect("deleted");
    assert_eq!(exchange.all().await[0].id, events[0].id);
    assert_eq!(exchange.partners.statistics(P).await.expect("counted").total, 1);
    let acts = RecordQuery::new(<annals_core::handlers::ActRecord as RecordType>::COLLECTION).ascending("at");
    let acts = exchange.records.find(acts).await.expect("found").records;
    let acts: Vec<_> = acts.iter().map(|act| act.document.get_str("act").expect("an act").to_owned()).collect();
    assert_eq!(acts, ["resend", "delete"]);
}

/// There is one act for each change.
pub async fn a_paused_and_resumed_partner_has_an_act_with_the_reason_of_each(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    let switch = async |paused: bool| exchange.partners.switch(P, paused, reason()).await;
    let paused = switch(true).await.expect("paused");
    assert_eq!((paused.state.as_str(), &paused.definition["paused"]), ("paused", &true.into()));
    exchange.it.advance(1);
    assert_eq!(switch(true).await.expect("it is paused").state, "paused");
    assert_eq!(switch(false).await.expect("resumed").state, "running");
    exchange.commit("a").await;
    exchange.until(|events| are(events, EventStatus::Success)).await;
    assert_eq!(exchange.partners.switch(P, true, "".into()).await.expect_err("no reason").code(), Code::InvalidBody);
    let unknown = exchange.partners.switch("nobody", true, reason()).await;
    assert_eq!(unknown.expect_err("unknown"), PartnerError::Unknown("nobody".to_owned()));
    let acts = RecordQuery::new(<annals_core::handlers::ActRecord as RecordType>::COLLECTION).ascending("at");
    let acts = exchange.records.find(acts).await.expect("found").records;
    let told = acts.iter().map(|act| ["act", "reason"].map(|it| act.document.get_str(it).expect("a text").to_owned()));
    let why = reason().reason;
    assert_eq!(told.collect::<Vec<_>>(), [["pause", &*why], ["resume", &*why]]);
}
