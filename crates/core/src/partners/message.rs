//! The body of a delivery, which is the same for every attempt.

use bson::raw::RawDocumentBuf;
use bson::{Bson, Document, doc};
use bytes::Bytes;

use super::{DeliveryRecord, Format, PartnerEventRecord};
use crate::{DocumentView, Timestamp};

/// The media type of a CloudEvent in structured mode.
pub const CLOUDEVENT: &str = "application/cloudevents+json";
/// The media type of a partner event record.
pub const JSON: &str = "application/json";

/// Returns the media type and the body of an event for a partner.
///
/// # Errors
/// A sentence, if the data cannot be written.
pub fn message(
    format: Format,
    tenant: &str,
    event: &PartnerEventRecord,
    delivery: &DeliveryRecord,
) -> Result<(&'static str, Bytes), String> {
    let (media_type, document) = match format {
        Format::Cloudevents => (CLOUDEVENT, cloudevent(tenant, event, delivery)),
        Format::Record => (JSON, record(event)),
    };
    let raw = RawDocumentBuf::try_from(&document).map_err(|error| error.to_string())?;
    let body = serde_json::to_vec(&DocumentView(&raw)).map_err(|error| error.to_string())?;
    Ok((media_type, body.into()))
}

/// Builds a CloudEvent whose attributes have the same names as those of the relay to a broker.
fn cloudevent(tenant: &str, event: &PartnerEventRecord, delivery: &DeliveryRecord) -> Document {
    let entity = &event.entity_metadata;
    let mut out = doc! { "specversion": "1.0" };
    let id = delivery.source.as_ref().map_or_else(|| event.id.to_hex(), |source| source.event_id.clone());
    out.extend(doc! { "id": id, "source": format!("/annals/{tenant}"), "type": event.event_type.as_str() });
    out.insert("subject", format!("{}/{}", entity.entity_type, entity.entity_id));
    if let Some(source) = &delivery.source {
        out.insert("time", Timestamp::from_millis(source.time.timestamp_millis()).to_string());
        out.insert("generation", event.event_version.trim_start_matches('v'));
        // Integers in CloudEvents have 32 bits, so these are strings.
        out.insert("sequence", source.sequence_number.to_string());
        out.insert("version", source.version.to_string());
        out.extend(source.correlation_id.iter().map(|id| ("correlationid".to_owned(), Bson::from(id.as_str()))));
    }
    out.insert("aggregatename", entity.entity_type.as_str());
    out.insert("aggregateid", entity.entity_id.as_str());
    out.extend(delivery.replay.iter().map(|replay| ("replay".to_owned(), Bson::from(replay.as_str()))));
    out.insert("datacontenttype", JSON);
    out.insert("data", event.entity_data.clone());
    out
}

fn record(event: &PartnerEventRecord) -> Document {
    let entity = &event.entity_metadata;
    doc! {
        "_id": event.id.to_hex(),
        "event_day_id": event.event_day_id,
        "event_version": event.event_version.as_str(),
        "event_type": event.event_type.as_str(),
        "event_direction": event.event_direction.as_str(),
        "entity_metadata": {
            "partnerId": entity.partner_id.as_str(),
            "partnerName": entity.partner_name.as_str(),
            "entity_id": entity.entity_id.as_str(),
            "entity_type": entity.entity_type.as_str(),
        },
        "entity_data": event.entity_data.clone(),
        "created": event.created.as_str(),
        "createdBy": event.created_by.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use bson::DateTime;

    use super::*;
    use crate::partners::{EventDirection, NewPartnerEvent, Source};

    #[test]
    fn a_message_keeps_the_order_of_the_data_and_does_not_change_over_attempts() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let new = NewPartnerEvent {
            direction: EventDirection::Out,
            version: "v2".into(),
            event_type: "placed".into(),
            partner: ("p".into(), "Example".into()),
            entity: ("o-1".into(), "order".into()),
            data: doc! { "z": 1_i64, "a": { "y": true, "b": "ü" } }.into(),
            by: "annals".into(),
        };
        let mut event = new.record(now, 1);
        let key = DeliveryRecord::key_out("p", "e", None);
        let mut delivery = DeliveryRecord::new(key, event.id, EventDirection::Out, "p", now);
        delivery.source = Some(Source {
            event_id: "e".into(),
            sequence_number: 7,
            version: 3,
            time: DateTime::from_millis(1_700_000_000_000),
            correlation_id: None,
        });
        let (media_type, body) = message(Format::Cloudevents, "default", &event, &delivery).expect("written");
        let due = r#"{"specversion":"1.0","id":"e","source":"/annals/default","type":"placed","subject":"order/o-1","time":"2023-11-14T22:13:20.000Z","generation":"2","sequence":"7","version":"3","aggregatename":"order","aggregateid":"o-1","datacontenttype":"application/json","data":{"z":1,"a":{"y":true,"b":"ü"}}}"#;
        assert_eq!((media_type, std::str::from_utf8(&body).expect("text")), (CLOUDEVENT, due));
        event.entity_metadata.attempts = doc! { "1": "1700000000000" };
        event.last_updated_time = "1700000000001".into();
        delivery.attempt = 1;
        assert_eq!(message(Format::Cloudevents, "default", &event, &delivery).expect("written").1, body);
        let (_, record) = message(Format::Record, "default", &event, &delivery).expect("written");
        let text = std::str::from_utf8(&record).expect("text");
        assert!(text.contains(r#""entity_data":{"z":1,"a":{"#) && !text.contains("resilience"), "{text}");
    }
}
