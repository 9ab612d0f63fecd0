//! Parsing of what a partner sends: a CloudEvent, a record in the layout of `partner_events`, or any other JSON.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, doc};
use bytes::Bytes;

use super::{Deduplicate, PartnerDefinition, Signed, content_digest};
use crate::{Code, Data, Invalid, NewCommit, NewEvent, valid_id, valid_name};

/// The name of the aggregates to which received events are committed if none is configured.
const AGGREGATE: &str = "partner_event";
/// The type of a received event without one.
const EVENT_TYPE: &str = "partner_event_received";

/// A request from a partner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// The headers that authenticate it.
    pub signed: Signed,
    /// The body, byte for byte.
    pub body: Bytes,
}

/// The content of a request's body.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedBody {
    /// `type` or `event_type`.
    pub event_type: String,
    /// `event_version`.
    pub version: String,
    /// `entity_metadata.entity_id`, `entity_id`, `aggregateid` as Annals sends it, or `subject`; otherwise the request's id.
    pub entity_id: String,
    /// `entity_metadata.entity_type`, `entity_type`, or `aggregatename` as Annals sends it; otherwise empty.
    pub entity_type: String,
    /// `data` or `entity_data`; otherwise the whole body.
    pub data: Bson,
}

impl ReceivedBody {
    /// Parses the body of a request with this id.
    ///
    /// # Errors
    /// `not_json`, `invalid_data` for a body that is nested too deeply or not an object, `invalid_integer`, `invalid_name` at the type, or
    /// `invalid_id` at the entity.
    pub fn read(body: &[u8], webhook_id: &str) -> Result<Self, Invalid> {
        let text = std::str::from_utf8(body).map_err(|_| Invalid::new(Code::NotJson, "", "the body is not UTF-8"))?;
        let data = Data::read_json(text).map_err(|invalid| {
            let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok();
            Invalid::new(if is_json { invalid.code } else { Code::NotJson }, "", invalid.message)
        })?;
        let root = data.as_raw();
        let of_entity = match root.get("entity_metadata") {
            Ok(Some(RawBsonRef::Document(entity))) => entity,
            _ => root,
        };
        let event_type = text_of(root, "type").or_else(|| text_of(root, "event_type")).unwrap_or(EVENT_TYPE);
        valid_name("type", event_type)?;
        let entity_id = text_of(of_entity, "entity_id").or_else(|| first_of(root, &["aggregateid", "subject"]));
        let entity_id = entity_id.unwrap_or(webhook_id).to_owned();
        valid_id("entity_id", &entity_id)?;
        let entity_type = text_of(of_entity, "entity_type").or_else(|| text_of(root, "aggregatename"));
        let entity_type = entity_type.unwrap_or_default().to_owned();
        if !entity_type.is_empty() {
            valid_id("entity_type", &entity_type)?;
        }
        let content = ["data", "entity_data"].iter().find_map(|name| root.get(name).ok().flatten());
        let content = match content {
            Some(content) => Bson::try_from(content),
            None => Bson::try_from(RawBsonRef::Document(root)),
        };
        Ok(Self {
            event_type: event_type.to_owned(),
            version: text_of(root, "event_version").unwrap_or("v1").to_owned(),
            entity_id,
            entity_type,
            data: content.map_err(|error| Invalid::new(Code::InvalidData, "", error.to_string()))?,
        })
    }
}

impl Deduplicate {
    /// Returns the key that two events of a partner share if they count as the same, apart from their ids; `None` if only ids count.
    pub fn same(self, partner: &str, body: &ReceivedBody) -> Option<String> {
        let of = match self {
            Self::WebhookId => return None,
            Self::Content => doc! { "data": body.data.clone() },
            Self::Entity => doc! {},
        };
        let entity = [&*body.event_type, &*body.entity_type, &*body.entity_id];
        let all = doc! { "entity": entity.as_slice(), "of": of };
        // Whatever was parsed can be encoded again.
        let bytes = RawDocumentBuf::try_from(&all).map(RawDocumentBuf::into_bytes).unwrap_or_default();
        Some(format!("IN/{partner}/{}", content_digest(&bytes)))
    }
}

fn first_of<'a>(document: &'a RawDocument, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| text_of(document, name))
}

fn text_of<'a>(document: &'a RawDocument, name: &str) -> Option<&'a str> {
    match document.get(name) {
        Ok(Some(RawBsonRef::String(text))) => Some(text),
        _ => None,
    }
}

impl PartnerDefinition {
    /// Returns the commit of a received event. Its request id makes a repeat harmless.
    ///
    /// # Errors
    /// A sentence, if the data cannot be committed.
    pub fn commit(
        &self,
        webhook_id: &str,
        event_type: &str,
        entity_id: &str,
        data: &Bson,
    ) -> Result<NewCommit, String> {
        let document = match data {
            Bson::Document(document) => document.clone(),
            other => doc! { "value": other.clone() },
        };
        let event_type = self.receive.event_type.as_deref().unwrap_or(event_type);
        let event = NewEvent::new(event_type, Data::from_document(&document)?);
        let commit = match &self.receive.aggregate {
            Some(aggregate) => NewCommit::new(aggregate.clone(), entity_id),
            None => NewCommit::new(AGGREGATE, format!("{}/{entity_id}", self.id)),
        };
        let commit = commit.event(event).request_id(request_id(&self.id, webhook_id));
        commit.validate().map(|()| commit).map_err(|invalid| invalid.to_string())
    }
}

/// Returns the request id of a commit. Ids have at most 256 bytes, as a partner's id may have alone, so a longer one contains its digest.
fn request_id(partner: &str, webhook_id: &str) -> String {
    let whole = format!("partner/{partner}/{webhook_id}");
    if whole.len() <= crate::limits::ID_BYTES_MAX {
        return whole;
    }
    format!("partner/{partner}/{}", content_digest(webhook_id.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cloudevent_a_record_and_any_other_json_are_read() {
        let read = |json: &str| ReceivedBody::read(json.as_bytes(), "w").expect(json);
        let event = read(r#"{"specversion":"1.0","type":"order_shipped","subject":"o-1","data":{"n":1}}"#);
        assert_eq!(
            (&*event.event_type, &*event.entity_id, &event.data),
            ("order_shipped", "o-1", &doc! { "n": 1_i64 }.into())
        );
        let of_annals = read(
            r#"{"specversion":"1.0","type":"placed","subject":"order/o-1","aggregatename":"order","aggregateid":"o-1","data":{}}"#,
        );
        assert_eq!((&*of_annals.entity_id, &*of_annals.entity_type), ("o-1", "order"));
        let record = read(
            r#"{"event_type":"OR_MGMT","event_version":"v2","entity_metadata":{"entity_id":"o-2","entity_type":"Order"},"entity_data":[1]}"#,
        );
        assert_eq!((&*record.version, &*record.entity_id, &*record.entity_type), ("v2", "o-2", "Order"));
        assert_eq!(record.data, Bson::Array(vec![1_i64.into()]));
        let other = read(r#"{"hello":"world"}"#);
        assert_eq!((&*other.event_type, &*other.entity_id), (EVENT_TYPE, "w"));
        assert_eq!(other.data, doc! { "hello": "world" }.into());
    }

    #[test]
    fn what_cannot_be_an_event_is_refused_with_its_code() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
        let long = format!(r#"{{"type":"a","entity_id":"{}"}}"#, "x".repeat(300));
        for (json, code) in [
            ("", Code::NotJson),
            ("{", Code::NotJson),
            ("[1]", Code::InvalidData),
            (&*deep, Code::InvalidData),
            (r#"{"data":{"n":99999999999999999999}}"#, Code::InvalidInteger),
            (r#"{"type":"a b"}"#, Code::InvalidName),
            (&*long, Code::InvalidId),
        ] {
            let refused = ReceivedBody::read(json.as_bytes(), "w").expect_err("refused");
            assert_eq!(refused.code, code, "{refused}");
        }
    }

    #[test]
    fn what_makes_two_events_the_same_one_is_configured() {
        let read = |json: &str| ReceivedBody::read(json.as_bytes(), "w").expect(json);
        let placed = read(r#"{"type":"moved","subject":"o-1","data":{"to":"a"}}"#);
        let again = read(r#"{"data":{"to":"a"},"subject":"o-1","type":"moved"}"#);
        let later = read(r#"{"type":"moved","subject":"o-1","data":{"to":"b"}}"#);
        let other = read(r#"{"type":"moved","subject":"o-2","data":{"to":"a"}}"#);
        let same =
            |how: Deduplicate, one, two| how.same("p", one).is_some() && how.same("p", one) == how.same("p", two);
        let all = [&again, &later, &other];
        assert_eq!(all.map(|two| same(Deduplicate::WebhookId, &placed, two)), [false, false, false]);
        assert_eq!(all.map(|two| same(Deduplicate::Content, &placed, two)), [true, false, false]);
        assert_eq!(all.map(|two| same(Deduplicate::Entity, &placed, two)), [true, true, false]);
        assert_ne!(Deduplicate::Entity.same("p", &placed), Deduplicate::Entity.same("q", &placed));
    }

    #[test]
    fn a_received_event_becomes_a_commit_to_the_configured_aggregate() {
        let definition = PartnerDefinition::new("p", "Example").receives_into("shipment");
        let commit = definition.commit("w", "shipped", "s-1", &Bson::from(7)).expect("a commit");
        assert_eq!((&*commit.aggregate.name, &*commit.aggregate.id), ("shipment", "s-1"));
        assert_eq!(commit.request_id.as_deref(), Some("partner/p/w"));
        let other = PartnerDefinition::new("p", "Example").commit("w", "shipped", "s-1", &Bson::Null).expect("one");
        assert_eq!((&*other.aggregate.name, &*other.aggregate.id), ("partner_event", "p/s-1"));
        let long = PartnerDefinition::new("p", "E").commit(&"w".repeat(256), "shipped", "s", &Bson::Null);
        assert!(long.is_ok(), "{long:?}");
    }
}
