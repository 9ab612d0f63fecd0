//! What is listed and counted, also beside records that other software wrote.

use annals_core::bson::oid::ObjectId;
use annals_core::bson::{DateTime, Document, RawDocumentBuf};
use annals_core::partners::{Ending, EventDirection, EventStatus, EventsQuery, PartnerDefinition};
use annals_core::{Clock, Code, Expected, RecordChange, RecordQuery};

use crate::Subject;
use crate::partners::words::{Exchange, P, Reply, are, placed_to, reason};

/// The collection, as other software names it.
const EVENTS: &str = "partner_events";

/// Behaviour statement 105.
pub async fn statement_105_the_history_of_a_partner_has_its_newest_100_events(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.define(placed_to("q")).await;
    for n in 0..105 {
        exchange.commit(&format!("o-{n}")).await;
        exchange.it.advance(1);
    }
    exchange.until(|events| events.len() == 100).await;
    let mut first = Vec::new();
    loop {
        let page = exchange.partners.events(P, EventsQuery::default()).await.expect("listed");
        let rest = EventsQuery { cursor: page.cursor.clone(), ..EventsQuery::default() };
        let rest = exchange.partners.events(P, rest).await.expect("listed");
        if page.items.len() + rest.items.len() == 105 && page.cursor.is_some() {
            first.extend(page.items);
            break;
        }
        crate::between_looks().await;
    }
    assert!(first.windows(2).all(|pair| pair[0].created >= pair[1].created), "the newest come first");
    assert!(first.iter().all(|event| event.entity_metadata["partnerId"] == P), "only its own");
}

/// Returns a record of a sent event, as other software reads it.
async fn sent_record(exchange: &Exchange) -> Document {
    exchange.commit("a").await;
    exchange.until(|events| are(events, EventStatus::Success)).await;
    let found = exchange.records.find(RecordQuery::new(EVENTS)).await.expect("found");
    Document::try_from(&*found.records[0].document).expect("a document")
}

/// Writes a copy of a record as other software would, with another id and some fields changed. Returns the id.
async fn write_copy(exchange: &Exchange, of: &Document, n: u8, change: impl FnOnce(&mut Document)) -> ObjectId {
    let (mut copy, id) = (of.clone(), ObjectId::from_bytes([n; 12]));
    copy.insert("_id", id);
    change(&mut copy);
    let raw = RawDocumentBuf::try_from(&copy).expect("a document");
    exchange.records.insert(EVENTS, raw).await.expect("inserted");
    id
}

/// Behaviour statement 107.
pub async fn statement_107_what_has_expired_is_removed_and_an_expiry_that_is_text_is_rejected(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    let sent = sent_record(&exchange).await;
    let past = DateTime::from_millis(exchange.it.clock.now().as_millis() - 1_000);
    write_copy(&exchange, &sent, 1, |record| {
        record.insert("expire_at", past);
    })
    .await;
    let text = write_copy(&exchange, &sent, 2, |record| {
        record.insert("expire_at", "2022-06-15T11:34:45.102Z");
    })
    .await;
    while exchange.records.get(EVENTS, &ObjectId::from_bytes([1; 12]).into()).await.expect("reads").is_some() {
        exchange.advance_seconds(1);
        tokio::task::yield_now().await;
    }
    let refused = exchange.partners.event(&text.to_hex()).await.expect_err("text never expires");
    assert_eq!(refused.code(), Code::MalformedDocument);
    let page = exchange.partners.events(P, EventsQuery::default()).await.expect("listed");
    assert_eq!((page.items.len(), page.unreadable), (1, 1));
}

/// Behaviour statement 108: a record without them is rejected, and hides no other record.
pub async fn statement_108_audit_fields_direction_and_version_are_required_and_data_has_any_shape(
    subject: &dyn Subject,
) {
    let exchange = Exchange::with_partner(subject).await;
    let sent = sent_record(&exchange).await;
    let required = ["created", "createdBy", "lastUpdatedTime", "event_direction", "event_version", "event_status"];
    for (n, field) in required.into_iter().enumerate() {
        assert!(sent.contains_key(field), "{field}");
        let id = write_copy(&exchange, &sent, n as u8 + 1, |record| drop(record.remove(field))).await;
        let refused = exchange.partners.event(&id.to_hex()).await.expect_err(field);
        assert_eq!(refused.code(), Code::MalformedDocument, "{field}");
    }
    let page = exchange.partners.events(P, EventsQuery::default()).await.expect("listed");
    assert_eq!((page.items.len(), page.unreadable), (1, required.len()));
    let shapes = ["null", "7", "\"text\"", "[null,{\"b\":1}]", "{}", "{\"a.b\":{\"$c\":[[]]}}"];
    for (n, shape) in shapes.iter().enumerate() {
        let body = format!(r#"{{"type":"any","subject":"s-{n}","data":{shape}}}"#);
        exchange.receive(&format!("w-{n}"), &body).await.expect(shape);
    }
    let received = EventsQuery { direction: Some(EventDirection::In), ..EventsQuery::default() };
    loop {
        let events = exchange.query(received.clone()).await;
        if events.len() == shapes.len() && are(&events, EventStatus::Success) {
            for (n, shape) in shapes.iter().enumerate() {
                let event = events.iter().find(|event| event.entity_metadata["entity_id"] == format!("s-{n}"));
                let due: serde_json::Value = serde_json::from_str(shape).expect("JSON");
                assert_eq!(event.expect("it is listed").entity_data, due);
            }
            break;
        }
        crate::between_looks().await;
    }
}

/// It is refused until someone corrects it, and does not hold up the next event of its entity.
pub async fn an_event_that_other_software_made_unreadable_waits_for_a_person(subject: &dyn Subject) {
    let exchange = Exchange::of(subject).await;
    exchange.define(PartnerDefinition { paused: true, ..placed_to(P) }).await;
    exchange.commit("a").await;
    let events = exchange.until(|events| are(events, EventStatus::Pending)).await;
    let id = ObjectId::parse_str(&events[0].id).expect("an id");
    let without =
        RecordChange::set_if(EVENTS, id, [("entity_data", true.into())], Expected::Present).unset(["createdBy"]);
    exchange.records.write(vec![without]).await.expect("changed");
    exchange.commit("a").await;
    assert!(!exchange.partners.put(placed_to(P)).await.expect("changed"));
    exchange.until(|events| events.len() == 1 && are(events, EventStatus::Success)).await;
    let counted = exchange.partners.statistics(P).await.expect("counted");
    assert_eq!((counted.out.refused, counted.out.success), (1, 1));
    let refused = exchange.partners.event(&id.to_hex()).await.expect_err("it lacks a field");
    assert_eq!(refused.code(), Code::MalformedDocument);
    assert_eq!(exchange.scripted.requests().len(), 1);

    let corrected = RecordChange::set_if(EVENTS, id, [("createdBy", "annals".into())], Expected::Present);
    exchange.records.write(vec![corrected]).await.expect("changed");
    exchange.partners.resend(&id.to_hex(), reason()).await.expect("resent");
    exchange.until(|events| events.len() == 2 && are(events, EventStatus::Success)).await;
}

/// Each filter is used alone, and all together.
pub async fn events_are_listed_by_direction_status_type_entity_and_day(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.script([Reply::Status(404)]);
    exchange.commit("a").await;
    exchange.until(|events| are(events, EventStatus::Failed)).await;
    exchange.commit("b").await;
    exchange.until(|events| events.iter().any(|event| event.event_status == EventStatus::Success)).await;
    exchange.advance_seconds(24 * 3_600);
    let body = r#"{"event_type":"moved","entity_metadata":{"entity_id":"a","entity_type":"Parcel"},"entity_data":{}}"#;
    exchange.receive("w", body).await.expect("accepted");
    exchange
        .until(|events| events.iter().filter(|event| event.event_status == EventStatus::Success).count() == 2)
        .await;
    let today = i32::try_from(exchange.it.clock.now().as_millis() / 86_400_000).expect("a day");
    let all = EventsQuery::default;
    for (query, due) in [
        (EventsQuery { direction: Some(EventDirection::In), ..all() }, &["moved a"][..]),
        (EventsQuery { direction: Some(EventDirection::Out), ..all() }, &["placed a", "placed b"]),
        (EventsQuery { status: Some(EventStatus::Failed), ..all() }, &["placed a"]),
        (EventsQuery { event_type: Some("placed".into()), ..all() }, &["placed a", "placed b"]),
        (EventsQuery { entity_id: Some("a".into()), ..all() }, &["moved a", "placed a"]),
        (EventsQuery { entity_type: Some("Parcel".into()), ..all() }, &["moved a"]),
        (EventsQuery { day: Some(today), ..all() }, &["moved a"]),
        (EventsQuery { day: Some(today - 1), entity_id: Some("b".into()), ..all() }, &["placed b"]),
        (EventsQuery { day: Some(today + 1), ..all() }, &[]),
        (EventsQuery { ended: Some(Ending::Refused), ..all() }, &["placed a"]),
    ] {
        let events = exchange.query(query.clone()).await;
        let name = |event: &annals_core::partners::PartnerEventView| {
            format!("{} {}", event.event_type, event.entity_metadata["entity_id"].as_str().unwrap_or_default())
        };
        let mut names: Vec<_> = events.iter().map(name).collect();
        names.sort_unstable();
        assert_eq!(names, due, "{query:?}");
    }
}

/// Of two failed events, one whose delay has passed is due and the other is not yet.
pub async fn a_failed_event_is_listed_as_due_once_its_delay_has_passed(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.usually("p.example", Reply::Status(500));
    exchange.commit("a").await;
    exchange.until(|events| are(events, EventStatus::Failed)).await;
    exchange.advance_seconds(3);
    exchange.commit("b").await;
    exchange.until(|events| events.len() == 2 && are(events, EventStatus::Failed)).await;
    // Nobody attempts what becomes due: the other host only reads.
    exchange.it.host.drain().await;
    let reader = exchange.beside();
    let due = async || {
        let events = reader.query(EventsQuery { due: true, ..EventsQuery::default() }).await;
        assert!(events.iter().all(|event| event.event_status == EventStatus::Failed), "{events:?}");
        let entity = |event: &annals_core::partners::PartnerEventView| {
            event.entity_metadata["entity_id"].as_str().expect("an id").to_owned()
        };
        events.iter().map(entity).collect::<Vec<_>>()
    };
    for (seconds, entities) in [(0, vec![]), (2, vec!["a"]), (3, vec!["a", "b"])] {
        exchange.advance_seconds(seconds);
        assert_eq!(due().await, entities, "after {seconds} s more");
    }
    assert_eq!(exchange.scripted.requests().len(), 2);
}

/// The counts are by partner and direction, and serve for alerts.
pub async fn what_failed_for_the_last_time_is_counted_until_someone_decides(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.script([Reply::Status(404), Reply::Status(422)]);
    for id in ["a", "b", "c"] {
        exchange.commit(id).await;
    }
    let ended = |events: &[annals_core::partners::PartnerEventView]| {
        events.iter().filter(|event| event.ended.is_some()).count() == 3
    };
    let events = exchange.until(ended).await;
    let counted = exchange.it.host.partner_failures().await;
    let counted: Vec<_> = counted.iter().map(|it| (&*it.partner, it.direction, it.count)).collect();
    assert_eq!(counted, [(P, EventDirection::Out, 2)]);
    let refused: Vec<_> = events.iter().filter(|event| event.ended == Some(Ending::Refused)).collect();
    exchange.partners.cancel(&refused[0].id, reason()).await.expect("cancelled");
    exchange.partners.resend(&refused[1].id, reason()).await.expect("resent");
    exchange.until(|events| events.iter().filter(|it| it.ended == Some(Ending::Success)).count() == 2).await;
    assert_eq!(exchange.it.host.partner_failures().await, []);
    let page = exchange.records.explain(annals_core::partners::DeliveryRecord::failures()).await.expect("explained");
    assert!(page.index.is_some(), "it is a look-up however many events there are: {page:?}");
}
