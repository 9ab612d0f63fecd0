//! Attempts: when they are made, and what is on record.

use annals_core::bson::oid::ObjectId;
use annals_core::bson::{Document, RawDocumentBuf};
use annals_core::partners::{Ending, EventStatus, EventsQuery, Outgoing, PartnerEventRecord, Signed};
use annals_core::{Clock, Condition, RecordQuery, TypedRecords};

use crate::Subject;
use crate::partners::words::{Exchange, P, Reply, are, attempts, header, placed_to, reason, secret};

/// Behaviour statement 102.
pub async fn statement_102_gaps_are_5_10_20_and_40_s_and_the_fifth_failure_is_the_last(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.usually("p.example", Reply::Status(500));
    exchange.commit("a").await;
    for (attempt, seconds) in [(1, 5), (2, 10), (3, 20), (4, 40)] {
        exchange.until(|events| are(events, EventStatus::Failed) && events[0].attempts == attempt).await;
        exchange.advance_seconds(seconds);
    }
    let events = exchange.until(|events| are(events, EventStatus::Failed) && events[0].attempts == 5).await;
    assert_eq!((events[0].ended, events[0].due_at, events[0].last_status), (Some(Ending::Exhausted), None, Some(500)));
    let counted: Vec<_> = exchange.it.host.partner_metrics().into_iter().map(|it| it.retries).collect();
    assert_eq!(counted, [vec![("OUT", 4)]], "the first attempt is no retry");
    let times = attempts(&exchange.stored().await[0]);
    let gaps: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (gap, due) in gaps.iter().zip([5_000, 10_000, 20_000, 40_000]) {
        assert!(*gap >= due, "{gaps:?}");
    }
    exchange.advance_seconds(1_000_000);
    let due = EventsQuery { due: true, ..EventsQuery::default() };
    assert_eq!(exchange.query(due).await, [], "it is never selected again");
    let ended = EventsQuery { ended: Some(Ending::Exhausted), ..EventsQuery::default() };
    assert_eq!(exchange.query(ended).await.len(), 1, "it is visible");
    let statistics = exchange.partners.statistics(P).await.expect("counted");
    assert_eq!((statistics.out.failed, statistics.out.exhausted, statistics.success_rate), (1, 1, Some(0.0)));
    // Once the owner has sent an event of another entity, it has checked what is due.
    exchange.scripted.usually("p.example", Reply::Status(200));
    exchange.commit("b").await;
    exchange.in_time(|events| events.iter().any(|event| event.event_status == EventStatus::Success)).await;
    let of_a = |request: &&Outgoing| {
        let body: serde_json::Value = serde_json::from_slice(&request.body).expect("JSON");
        body["subject"] == "order/a"
    };
    let requests = exchange.scripted.requests();
    assert_eq!((requests.len(), requests.iter().filter(of_a).count()), (6, 5), "the receiver gets no sixth one");
}

/// Behaviour statement 103.
pub async fn statement_103_success_on_the_third_attempt_keeps_the_audit_fields(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.script([Reply::Status(500), Reply::Broken("connection reset"), Reply::Status(200)]);
    exchange.commit("a").await;
    exchange.until(|events| are(events, EventStatus::Failed)).await;
    let before = exchange.stored().await.remove(0);
    exchange.in_time(|events| are(events, EventStatus::Success)).await;
    let after = exchange.stored().await.remove(0);
    assert_eq!(after.entity_metadata.attempts.keys().collect::<Vec<_>>(), ["1", "2", "3"]);
    assert_eq!((&after.created, &after.created_by), (&before.created, &before.created_by));
    assert_eq!((&*after.created_by, &*after.event_version, after.event_day_id), ("annals", "v1", before.event_day_id));
    let millis = |text: &str| text.parse::<i64>().expect("milliseconds");
    assert!(millis(&after.last_updated_time) > millis(&after.created) + 14_000, "{after:?}");
}

/// Behaviour statement 109: records that the layout calls candidates, including those of other software.
pub async fn statement_109_candidates_for_a_retry_have_up_to_four_attempts_or_no_map(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.usually("p.example", Reply::Status(404));
    exchange.commit("a").await;
    exchange.until(|events| are(events, EventStatus::Failed)).await;
    let template = exchange.stored().await.remove(0);
    let events = TypedRecords::<PartnerEventRecord>::declared(exchange.records.clone());
    for count in 0..=5_u8 {
        let mut record = template.clone();
        record.id = ObjectId::from_bytes([count + 1; 12]);
        record.event_type = format!("with-{count}");
        record.entity_metadata.attempts = (1..=count).map(|n| (n.to_string(), "1".into())).collect();
        events.insert(&record).await.expect("inserted");
    }
    // Other software may leave the map out.
    let found = exchange.records.get("partner_events", &template.id.into()).await.expect("reads").expect("it is there");
    let mut without = Document::try_from(&*found.document).expect("a document");
    without.insert("_id", ObjectId::from_bytes([9; 12]));
    without.insert("event_type", "with-no-map");
    without.get_document_mut("entity_metadata").expect("metadata").remove("resilienceAttemptCount");
    let without = RawDocumentBuf::try_from(&without).expect("a document");
    exchange.records.insert("partner_events", without).await.expect("inserted");
    let query = RecordQuery::new("partner_events").matching(PartnerEventRecord::retry_candidates());
    let query = query.matching(Condition::and([
        PartnerEventRecord::retry_candidates(),
        Condition::starts_with("event_type", "with-"),
    ]));
    let (found, _) = events.find(query).await.expect("found");
    let mut types: Vec<_> = found.iter().map(|found| found.value.event_type.as_str()).collect();
    types.sort_unstable();
    assert_eq!(types, ["with-0", "with-1", "with-2", "with-3", "with-4", "with-no-map"]);
}

/// The record has the time of the attempt, and the state PROCESSING.
pub async fn an_attempt_is_on_record_before_it_is_sent(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.script([Reply::Held]);
    exchange.commit("a").await;
    exchange.scripted.has_got(1).await;
    let record = exchange.stored().await.remove(0);
    assert_eq!(
        (record.event_status, attempts(&record)),
        (EventStatus::Processing, vec![exchange.it.clock.now().as_millis()])
    );
    let id = record.id.to_hex();
    for refused in [exchange.partners.resend(&id, reason()).await, exchange.partners.cancel(&id, reason()).await] {
        assert_eq!(refused.expect_err("it is being attempted").code().as_str(), "partner_event_state");
    }
    exchange.scripted.let_go();
    exchange.until(|events| are(events, EventStatus::Success)).await;
}

/// The receiver can recognise a repeat, and every attempt has a signature of its own.
pub async fn an_event_has_one_id_and_one_body_over_attempts(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.script([Reply::Broken("the answer was lost"), Reply::Status(503)]);
    exchange.commit("a").await;
    let events = exchange.in_time(|events| are(events, EventStatus::Success)).await;
    let requests = exchange.scripted.requests();
    assert_eq!(requests.len(), 3);
    for request in &requests {
        assert_eq!((header(request, "webhook-id"), &request.body), (&*events[0].id, &requests[0].body));
        let signed = Signed {
            id: header(request, "webhook-id").to_owned(),
            timestamp: header(request, "webhook-timestamp").to_owned(),
            signature: header(request, "webhook-signature").to_owned(),
        };
        assert_eq!(signed.verify(&[secret(1)], exchange.it.clock.now(), &request.body), Ok(()));
    }
    assert_ne!(header(&requests[0], "webhook-timestamp"), header(&requests[2], "webhook-timestamp"));
}

/// It is honoured if it is longer than the delay.
pub async fn retry_after_is_honoured(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.script([Reply::After(429, 60)]);
    exchange.commit("a").await;
    let failed = exchange.until(|events| are(events, EventStatus::Failed)).await;
    assert_eq!(failed[0].due_at, Some(exchange.it.now_plus(60_000)));
    exchange.advance_seconds(60);
    exchange.until(|events| are(events, EventStatus::Success)).await;
}

/// A repetition could not succeed either.
pub async fn a_refusal_that_cannot_heal_ends_at_once(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.script([Reply::Status(422)]);
    exchange.commit("a").await;
    let events = exchange.until(|events| are(events, EventStatus::Failed)).await;
    assert_eq!((events[0].ended, events[0].attempts, events[0].due_at), (Some(Ending::Refused), 1, None));
}

/// After a while it lets one event through, and all once that one succeeds.
pub async fn a_partner_that_fails_in_a_row_is_left_alone_for_a_while(subject: &dyn Subject) {
    let exchange = Exchange::of(subject).await;
    let mut definition = placed_to(P);
    (definition.limits.breaker_failures, definition.limits.concurrency) = (3, 1);
    exchange.define(definition).await;
    exchange.scripted.usually("p.example", Reply::Status(503));
    for id in ["a", "b", "c", "d", "e"] {
        exchange.commit(id).await;
    }
    exchange.scripted.has_got(3).await;
    loop {
        let status = exchange.partners.get(P).await.expect("defined");
        if status.state == "failing" {
            assert_eq!(status.retry_at, Some(exchange.it.now_plus(30_000)));
            break;
        }
        crate::between_looks().await;
    }
    let untouched = exchange.all().await.iter().filter(|event| event.event_status == EventStatus::Pending).count();
    assert_eq!((exchange.scripted.requests().len(), untouched), (3, 2), "two keep their attempts");
    exchange.scripted.usually("p.example", Reply::Status(200));
    exchange.in_time(|events| are(events, EventStatus::Success)).await;
    assert_eq!(exchange.partners.get(P).await.expect("defined").state, "running");
}
