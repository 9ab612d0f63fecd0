//! The message of an event: key, headers and body, and parsing of messages.

use bson::raw::RawBsonRef;
use bytes::Bytes;
use bytestring::ByteString;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;

use crate::{Code, Data, Invalid, NewMessage, RecordedEvent, SequenceNumber, Timestamp};

/// Options for converting events to messages.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MessageOptions {
    /// The form of headers and body.
    pub format: MessageFormat,
    /// The source of the key.
    pub key: MessageKey,
}

/// The form of headers and body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageFormat {
    /// The data as JSON, and everything else in headers under its own names.
    #[default]
    Json,
    /// CloudEvents 1.0, binary mode: the data as JSON, and everything else in `ce_` headers.
    CloudeventsBinary,
    /// CloudEvents 1.0, structured mode: one JSON document that contains the data.
    CloudeventsStructured,
}

/// The source of a message's key. The key determines the partition, and so which messages are in order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum MessageKey {
    /// The id of the aggregate.
    #[default]
    AggregateId,
    /// A string or an integer in the data, by its path; otherwise the id of the aggregate.
    Data(Vec<String>),
}

impl TryFrom<String> for MessageKey {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        if text == "aggregate_id" {
            return Ok(Self::AggregateId);
        }
        let path = text.strip_prefix("data.").map(|path| path.split('.').map(str::to_owned).collect::<Vec<_>>());
        match path.filter(|path| path.iter().all(|step| !step.is_empty())) {
            Some(path) => Ok(Self::Data(path)),
            None => {
                let message = format!("{text:?} is not a key; use \"aggregate_id\" or \"data.PATH\"");
                Err(Invalid::new(Code::InvalidTopic, "key", message))
            }
        }
    }
}

impl From<MessageKey> for String {
    fn from(key: MessageKey) -> Self {
        match key {
            MessageKey::AggregateId => "aggregate_id".to_owned(),
            MessageKey::Data(path) => format!("data.{}", path.join(".")),
        }
    }
}

impl MessageKey {
    pub(super) fn of(&self, event: &RecordedEvent) -> Bytes {
        let found = match self {
            Self::AggregateId => None,
            Self::Data(path) => at_path(event.data.as_raw(), path),
        };
        found.unwrap_or_else(|| event.commit.aggregate.id.clone().into_bytes())
    }
}

fn at_path(document: &bson::raw::RawDocument, path: &[String]) -> Option<Bytes> {
    let (first, rest) = path.split_first()?;
    match (document.get(first).ok()??, rest) {
        (RawBsonRef::Document(inner), [_, ..]) => at_path(inner, rest),
        (RawBsonRef::String(text), []) => Some(Bytes::copy_from_slice(text.as_bytes())),
        (RawBsonRef::Int64(number), []) => Some(number.to_string().into()),
        (RawBsonRef::Int32(number), []) => Some(number.to_string().into()),
        _ => None,
    }
}

const JSON: &str = "application/json";
const CLOUDEVENT: &str = "application/cloudevents+json";

impl MessageOptions {
    /// Returns the message of an event of a tenant and incarnation for this topic. If the generation of its type is registered, a
    /// CloudEvent includes the URI of the data's schema.
    pub fn message(
        &self,
        event: &RecordedEvent,
        tenant: &str,
        incarnation: u32,
        topic: ByteString,
        is_registered: bool,
    ) -> NewMessage {
        let named = Named { event, tenant, incarnation, is_registered };
        let (headers, body) = match self.format {
            MessageFormat::Json => (named.headers(JSON), json(&event.data)),
            MessageFormat::CloudeventsBinary => (named.cloud_headers(), json(&event.data)),
            MessageFormat::CloudeventsStructured => (named.headers(CLOUDEVENT), json(&named)),
        };
        NewMessage {
            topic,
            key: self.key.of(event),
            headers,
            body,
            time: event.time,
            sequence_number: event.sequence_number,
        }
    }
}

/// Serializes to JSON. This cannot fail, because every BSON type has a JSON form.
fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// The attributes of an event in a message, apart from its data.
struct Named<'a> {
    event: &'a RecordedEvent,
    tenant: &'a str,
    incarnation: u32,
    is_registered: bool,
}

impl Named<'_> {
    fn headers(&self, content_type: &'static str) -> Vec<(ByteString, Bytes)> {
        let (event, commit) = (self.event, &self.event.commit);
        let text = |text: &ByteString| text.clone().into_bytes();
        let mut headers = Vec::with_capacity(14);
        let mut add = |name: &'static str, value: Bytes| headers.push((ByteString::from_static(name), value));
        add("event_id", event.id.to_string().into());
        add("event_type", text(&event.event_type));
        add("generation", event.generation.to_string().into());
        add("sequence_number", event.sequence_number.to_string().into());
        add("incarnation", self.incarnation.to_string().into());
        add("tenant", Bytes::copy_from_slice(self.tenant.as_bytes()));
        if commit.aggregate.event_source().is_none() {
            add("aggregate_name", text(&commit.aggregate.name));
            add("aggregate_id", text(&commit.aggregate.id));
            add("version", commit.version.to_string().into());
        }
        add("time", event.time.to_string().into());
        for (name, value) in [("correlation_id", &commit.correlation_id), ("causation_id", &commit.causation_id)] {
            if let Some(value) = value {
                add(name, text(value));
            }
        }
        if let Some(parent) = self.traceparent() {
            add("traceparent", parent);
        }
        add("content-type", Bytes::from_static(content_type.as_bytes()));
        headers
    }

    /// Returns the attributes of the CloudEvents specification in the form of its Kafka binding.
    fn cloud_headers(&self) -> Vec<(ByteString, Bytes)> {
        let mut headers: Vec<(ByteString, Bytes)> = self
            .attributes()
            .into_iter()
            .map(|(name, value)| (format!("ce_{name}").into(), Bytes::from(value)))
            .collect();
        headers.push((ByteString::from_static("content-type"), Bytes::from_static(JSON.as_bytes())));
        headers
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        let (event, commit) = (self.event, &self.event.commit);
        let aggregate = &commit.aggregate;
        let mut attributes = vec![
            ("specversion", "1.0".to_owned()),
            ("id", event.id.to_string()),
            ("source", format!("/annals/{}", self.tenant)),
            ("type", event.event_type.to_string()),
            ("time", event.time.to_string()),
            ("generation", event.generation.to_string()),
            // Integers in CloudEvents have 32 bits, so this is a string.
            ("sequence", event.sequence_number.to_string()),
            ("incarnation", self.incarnation.to_string()),
        ];
        if self.is_registered {
            attributes.push(("dataschema", self.data_schema()));
        }
        match aggregate.event_source() {
            Some(source) => attributes.push(("subject", source.to_string())),
            None => {
                attributes.push(("subject", format!("{}/{}", aggregate.name, aggregate.id)));
                attributes.push(("aggregatename", aggregate.name.to_string()));
                attributes.push(("aggregateid", aggregate.id.to_string()));
                attributes.push(("version", commit.version.to_string()));
            }
        }
        for (name, value) in [("correlationid", &commit.correlation_id), ("causationid", &commit.causation_id)] {
            attributes.extend(value.as_ref().map(|value| (name, value.to_string())));
        }
        let parent = self.traceparent().and_then(|parent| String::from_utf8(parent.to_vec()).ok());
        attributes.extend(parent.map(|parent| ("traceparent", parent)));
        attributes
    }

    /// Returns the URI of the schema: the tenant, and the path under which the API serves the type. CloudEvents requires an absolute URI.
    /// A relay does not know the addresses of servers, so the scheme is `annals`. Names of registered types need no escaping.
    fn data_schema(&self) -> String {
        let Self { event, tenant, .. } = self;
        format!("annals://{tenant}/v1/types/{}?generation={}", event.event_type, event.generation)
    }

    /// Returns the trace to which the event belongs: its own, or its commit's.
    fn traceparent(&self) -> Option<Bytes> {
        const NAME: &str = "traceparent";
        let own = self.event.metadata.as_ref().and_then(|metadata| match metadata.data().as_raw().get(NAME) {
            Ok(Some(RawBsonRef::String(text))) => Some(Bytes::copy_from_slice(text.as_bytes())),
            _ => None,
        });
        let of_commit = || self.event.commit.header.iter().find(|(key, _)| key.eq_ignore_ascii_case(NAME));
        own.or_else(|| of_commit().map(|(_, value)| value.clone().into_bytes()))
    }
}

impl Serialize for Named<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.attributes() {
            map.serialize_entry(name, &value)?;
        }
        map.serialize_entry("datacontenttype", JSON)?;
        map.serialize_entry("data", &self.event.data)?;
        map.end()
    }
}

/// An event that a consumer parsed from a message in any of the formats.
#[derive(Debug, Clone, PartialEq)]
pub struct RelayedEvent {
    /// Its id.
    pub id: Uuid,
    /// Its type.
    pub event_type: ByteString,
    /// The generation of the type's schema.
    pub generation: u32,
    /// Its sequence number in the log.
    pub sequence_number: SequenceNumber,
    /// The incarnation of its store.
    pub incarnation: u32,
    /// The name and the id of its aggregate; `None` for events without an aggregate.
    pub aggregate: Option<(ByteString, ByteString)>,
    /// The aggregate's version after its commit; 0 if there is no aggregate.
    pub version: u64,
    /// When it happened.
    pub time: Timestamp,
    /// The operation that it belongs to.
    pub correlation_id: Option<ByteString>,
    /// Its direct cause.
    pub causation_id: Option<ByteString>,
    /// The trace to which it belongs.
    pub traceparent: Option<ByteString>,
    /// Its content.
    pub data: Data,
}

impl RelayedEvent {
    /// Parses a message that a relay published.
    ///
    /// # Errors
    /// A sentence that names what is missing or wrong, for example in a message from another producer.
    pub fn read(headers: &[(ByteString, Bytes)], body: &Bytes) -> Result<Self, String> {
        let text = std::str::from_utf8(body).map_err(|_| "the body is not UTF-8".to_owned())?;
        let header = |name: &str| {
            let value = headers.iter().find(|(key, _)| **key == *name).map(|(_, value)| value)?;
            ByteString::try_from(value.clone()).ok()
        };
        if header("content-type").as_deref() == Some(CLOUDEVENT) {
            let event: Structured = serde_json::from_str(text).map_err(|error| error.to_string())?;
            return event.event();
        }
        let data = || Data::read_json(text).map_err(|invalid| format!("the body: {}", invalid.message));
        match header("ce_id") {
            Some(_) => {
                let wanted = |name: &str| header(&format!("ce_{name}"));
                read(&wanted, &CLOUD_NAMES, data()?)
            }
            None => read(&header, &OWN_NAMES, data()?),
        }
    }
}

/// The names of id, type, sequence number, aggregate name, aggregate id, correlation and causation.
type Names = [&'static str; 7];
const OWN_NAMES: Names =
    ["event_id", "event_type", "sequence_number", "aggregate_name", "aggregate_id", "correlation_id", "causation_id"];
const CLOUD_NAMES: Names = ["id", "type", "sequence", "aggregatename", "aggregateid", "correlationid", "causationid"];

fn read(value: &dyn Fn(&str) -> Option<ByteString>, names: &Names, data: Data) -> Result<RelayedEvent, String> {
    let [id, event_type, sequence, aggregate_name, aggregate_id, correlation, causation] = *names;
    let wanted = |name: &str| value(name).ok_or_else(|| format!("{name:?} is missing"));
    let number = |name: &str| match value(name) {
        Some(text) => text.parse::<u64>().map_err(|_| format!("{name:?} is {text:?}, which is not a whole number")),
        None => Ok(0),
    };
    let small = |name: &str| number(name).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    let id = wanted(id)?;
    Ok(RelayedEvent {
        id: Uuid::parse_str(&id).map_err(|_| format!("{id:?} is not a UUID"))?,
        event_type: wanted(event_type)?,
        generation: small("generation")?,
        sequence_number: wanted(sequence).and_then(|_| number(sequence))?,
        incarnation: small("incarnation")?,
        aggregate: value(aggregate_name).zip(value(aggregate_id)),
        version: number("version")?,
        time: Timestamp::parse(&wanted("time")?)?,
        correlation_id: value(correlation),
        causation_id: value(causation),
        traceparent: value("traceparent"),
        data,
    })
}

/// A CloudEvent in structured mode.
#[derive(Deserialize)]
struct Structured {
    #[serde(default)]
    data: Option<Data>,
    #[serde(flatten)]
    attributes: std::collections::BTreeMap<String, serde_json::Value>,
}

impl Structured {
    fn event(self) -> Result<RelayedEvent, String> {
        let Self { data, attributes } = self;
        let value = |name: &str| match attributes.get(name)? {
            serde_json::Value::String(text) => Some(ByteString::from(text.as_str())),
            serde_json::Value::Number(number) => Some(number.to_string().into()),
            _ => None,
        };
        read(&value, &CLOUD_NAMES, data.ok_or("\"data\" is missing")?)
    }
}
