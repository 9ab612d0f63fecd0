//! The definition of a partner.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::signature::SigningSecret;
use crate::{ByteString, Code, Condition, Invalid, SequenceNumber, valid_id, valid_name};

/// The longest URL of a partner, in bytes.
const URL_BYTES_MAX: usize = 2_000;
/// The most secrets of a partner, which has several during a rotation.
const SECRETS_MAX: usize = 8;
/// The longest retention, in days.
const RETENTION_DAYS_MAX: u32 = 36_500;

/// Defines a partner: the body of `PUT /v1/partners/{partner}`, with its id.
///
/// ```json
/// {"name": "Example", "url": "https://partner.example/events", "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
///  "select": {"field": "type", "operator": "EQ", "value": "order_placed"}}
/// ```
#[derive(Clone, PartialEq)]
pub struct PartnerDefinition {
    /// Its id.
    pub id: ByteString,
    /// Its name, for people.
    pub name: ByteString,
    /// The URL to which its events are posted; `None` for a partner that only sends.
    pub url: Option<ByteString>,
    /// The signing secrets, newest first; `None` keeps those that are stored. They are never shown.
    pub secrets: Option<Vec<ByteString>>,
    /// Selects the events that are sent to it, by their [document](crate::event_document). Without it, none are sent.
    pub select: Option<Condition>,
    /// Where selection begins if the partner is new.
    pub start: SelectFrom,
    /// The format of what is sent.
    pub format: Format,
    /// How events from the partner are committed.
    pub receive: Receive,
    /// Limits.
    pub limits: Limits,
    /// How long events that succeeded or were cancelled are kept, in days; forever if absent.
    pub retention_days: Option<u32>,
    /// Where these events are copied before they may be deleted.
    pub archive: PartnerArchive,
    /// Whether sending is paused. Events are still selected and received.
    pub paused: bool,
}

/// Where selection begins if a partner is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectFrom {
    /// With the first event after its definition.
    #[default]
    Latest,
    /// With the first event of the log.
    Beginning,
    /// With the event that has this sequence number.
    SequenceNumber(SequenceNumber),
}

/// The format of what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// A CloudEvent in structured mode.
    #[default]
    Cloudevents,
    /// The stored record, without the fields that change over attempts.
    Record,
}

/// Where copies of final events are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartnerArchive {
    /// Nowhere.
    #[default]
    None,
    /// In the collection [`PARTNER_EVENTS_ARCHIVE`](super::PARTNER_EVENTS_ARCHIVE).
    ///
    /// INVARIANT: the copy and the date of expiry are stored in one write.
    Collection,
}

/// Determines which events of a partner count as the same, so that only the first is recorded. A repeated `webhook-id` always counts as
/// the same event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deduplicate {
    /// Only events with the same `webhook-id`.
    #[default]
    WebhookId,
    /// Also events with the same type, entity and data.
    Content,
    /// Also events with the same type and entity: an entity has one event of each type.
    Entity,
}

/// How the events that a partner sends are committed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Receive {
    /// The name of the aggregates to which they are committed; the id is that of the entity. Without it, the aggregates are named
    /// `partner_event`, and their ids begin with the partner's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<ByteString>,
    /// The type of the committed event; that of the received event if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<ByteString>,
    /// Determines which events count as the same.
    pub deduplicate: Deduplicate,
}

/// The limits of a partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The most attempts in flight, 1–256.
    pub concurrency: u32,
    /// The time limit of an attempt, in milliseconds: 100–120,000.
    pub timeout_ms: u32,
    /// The largest body that is accepted, in bytes: at most 8 MiB.
    pub body_bytes: u32,
    /// The number of consecutive failures after which sending stops for a while, 1–10,000.
    pub breaker_failures: u32,
    /// How long sending then stops, in milliseconds: 1,000–3,600,000.
    pub breaker_ms: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { concurrency: 8, timeout_ms: 15_000, body_bytes: 1024 * 1024, breaker_failures: 20, breaker_ms: 30_000 }
    }
}

impl fmt::Debug for PartnerDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartnerDefinition").field("id", &self.id).field("body", &self.shown()).finish()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    name: ByteString,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<ByteString>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secrets: Option<Vec<ByteString>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    select: Option<Condition>,
    #[serde(default)]
    start: SelectFrom,
    #[serde(default)]
    format: Format,
    #[serde(default)]
    receive: Receive,
    #[serde(default)]
    limits: Limits,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_days: Option<u32>,
    #[serde(default)]
    archive: PartnerArchive,
    #[serde(default)]
    paused: bool,
}

impl PartnerDefinition {
    /// Defines a partner to which nothing is sent.
    pub fn new(id: impl Into<ByteString>, name: impl Into<ByteString>) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            url: None,
            secrets: None,
            select: None,
            start: SelectFrom::Latest,
            format: Format::Cloudevents,
            receive: Receive::default(),
            limits: Limits::default(),
            retention_days: None,
            archive: PartnerArchive::None,
            paused: false,
        }
    }

    /// Signs with these secrets, newest first.
    #[must_use]
    pub fn secrets<S: Into<ByteString>>(self, secrets: impl IntoIterator<Item = S>) -> Self {
        Self { secrets: Some(secrets.into_iter().map(Into::into).collect()), ..self }
    }

    /// Posts the events that match the condition to this URL.
    #[must_use]
    pub fn sends(self, url: impl Into<ByteString>, select: Condition) -> Self {
        Self { url: Some(url.into()), select: Some(select), ..self }
    }

    /// Commits the events from the partner to aggregates of this name.
    #[must_use]
    pub fn receives_into(self, aggregate: impl Into<ByteString>) -> Self {
        Self { receive: Receive { aggregate: Some(aggregate.into()), ..self.receive }, ..self }
    }

    /// Reads a definition from JSON.
    ///
    /// # Errors
    /// `not_json`, `invalid_body`, or as [`validate`](Self::validate).
    pub fn read(id: &str, json: &[u8]) -> Result<Self, Invalid> {
        let Body { name, url, secrets, select, start, format, receive, limits, retention_days, archive, paused } =
            crate::wire::parse_json(json)?;
        let id = id.into();
        let definition =
            Self { id, name, url, secrets, select, start, format, receive, limits, retention_days, archive, paused };
        definition.validate()?;
        Ok(definition)
    }

    fn body(&self, secrets: Option<Vec<ByteString>>) -> String {
        let Self { name, url, select, start, format, receive, limits, retention_days, archive, paused, .. } =
            self.clone();
        let body = Body { name, url, secrets, select, start, format, receive, limits, retention_days, archive, paused };
        // A valid definition has only conditions that JSON can express.
        serde_json::to_string(&body).unwrap_or_default()
    }

    /// Writes the definition as JSON, without its id and with its secrets.
    pub fn write(&self) -> String {
        self.body(self.secrets.clone())
    }

    /// Writes the definition as JSON, without its id and its secrets.
    pub fn shown(&self) -> String {
        self.body(None)
    }

    /// Checks names, secrets and limits. Whether the address of the URL is allowed is checked when an event is sent.
    ///
    /// # Errors
    /// `invalid_name`, `invalid_condition` or `invalid_partner`, with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        valid_name("partner", &self.id)?;
        valid_id("name", &self.name)?;
        if let Some(url) = &self.url {
            valid_url(url)?;
        }
        if let Some(secrets) = &self.secrets {
            if secrets.is_empty() || secrets.len() > SECRETS_MAX {
                return refused("secrets", format!("have {} entries; give 1 to {SECRETS_MAX}", secrets.len()));
            }
            for (n, secret) in secrets.iter().enumerate() {
                if let Err(why) = SigningSecret::read(secret) {
                    return refused(&format!("secrets[{n}]"), why);
                }
            }
        }
        if let Some(select) = &self.select {
            if self.url.is_none() {
                return refused("url", "is missing; give the URL to which selected events are posted".to_owned());
            }
            select.validate().and_then(|()| select.judgeable()).map_err(|error| error.inside("select"))?;
        }
        if let Some(aggregate) = &self.receive.aggregate {
            valid_name("receive.aggregate", aggregate)?;
        }
        if let Some(event_type) = &self.receive.event_type {
            valid_name("receive.event_type", event_type)?;
        }
        if self.retention_days.is_some_and(|days| days > RETENTION_DAYS_MAX) {
            return refused("retention_days", format!("is more than {RETENTION_DAYS_MAX}"));
        }
        if self.archive != PartnerArchive::None && self.retention_days.is_none() {
            let message = "is missing; without it events are kept forever, and nothing is archived".to_owned();
            return refused("retention_days", message);
        }
        self.limits.validate()
    }
}

fn refused(path: &str, message: String) -> Result<(), Invalid> {
    Err(Invalid::new(Code::InvalidPartner, path, message))
}

fn valid_url(url: &str) -> Result<(), Invalid> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let printable = url.bytes().all(|byte| (0x21..0x7f).contains(&byte));
    match host {
        Some(host) if !host.is_empty() && !host.contains('@') && printable && url.len() <= URL_BYTES_MAX => Ok(()),
        _ => {
            refused("url", "is not a URL such as https://partner.example/events, without user and password".to_owned())
        }
    }
}

impl Limits {
    fn validate(&self) -> Result<(), Invalid> {
        for (name, value, low, high) in [
            ("concurrency", self.concurrency, 1, 256),
            ("timeout_ms", self.timeout_ms, 100, 120_000),
            ("body_bytes", self.body_bytes, 1, 8 * 1024 * 1024),
            ("breaker_failures", self.breaker_failures, 1, 10_000),
            ("breaker_ms", self.breaker_ms, 1_000, 3_600_000),
        ] {
            if !(low..=high).contains(&value) {
                return refused(&format!("limits.{name}"), format!("is {value}; {low} to {high} are allowed"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn a_definition_is_read_as_it_is_written_and_shown_without_its_secrets() {
        let definition = PartnerDefinition::new("p", "Example")
            .sends("https://partner.example/events", Condition::eq("type", "placed"))
            .secrets([SECRET])
            .receives_into("order");
        let read = PartnerDefinition::read("p", definition.write().as_bytes());
        assert_eq!(read, Ok(definition.clone()));
        assert!(!definition.shown().contains("whsec") && !format!("{definition:?}").contains("whsec"));
    }

    #[test]
    fn a_definition_that_cannot_work_is_refused_with_its_path() {
        for (json, path) in [
            (r#"{"name":""}"#, "name"),
            (r#"{"name":"P","url":"ftp://a"}"#, "url"),
            (r#"{"name":"P","url":"https://user:password@a/"}"#, "url"),
            (r#"{"name":"P","url":"https:///x"}"#, "url"),
            (r#"{"name":"P","secrets":[]}"#, "secrets"),
            (r#"{"name":"P","secrets":["whsec_c2hvcnQ="]}"#, "secrets[0]"),
            (r#"{"name":"P","select":{"operator":"ALL"}}"#, "url"),
            (r#"{"name":"P","receive":{"aggregate":"a b"}}"#, "receive.aggregate"),
            (r#"{"name":"P","limits":{"concurrency":0}}"#, "limits.concurrency"),
            (r#"{"name":"P","limits":{"timeout_ms":7}}"#, "limits.timeout_ms"),
            (r#"{"name":"P","retention_days":40000}"#, "retention_days"),
            (r#"{"name":"P","archive":"collection"}"#, "retention_days"),
            (r#"{"name":"P","archive":"files"}"#, "archive"),
            (r#"{"name":"P","receive":{"deduplicate":"never"}}"#, "receive.deduplicate"),
            (r#"{"name":"P","colour":1}"#, "colour"),
        ] {
            let refused = PartnerDefinition::read("p", json.as_bytes()).expect_err(json);
            assert_eq!(refused.path, path, "{json}: {refused}");
        }
    }
}
