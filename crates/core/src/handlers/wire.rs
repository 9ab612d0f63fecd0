//! Bodies of pull and settle requests. Deliveries are JSON for people and most programs, and BSON for the Annals client, so that event data
//! keeps its types.

use bson::RawDocument;
use bson::raw::{RawArrayBuf, RawDocumentBuf, cstr};
use serde::{Deserialize, Serialize};

use super::Delivery;
use crate::processing::Outcome;
use crate::trace::TraceContext;
use crate::wire::binary::{FoundWriter, read_found, split_document};
use crate::{Code, Invalid, RecordedEvent, Timestamp};

/// The maximum number of deliveries of one pull.
const PULL_MAX: usize = 1_000;
/// The longest wait of a pull, in milliseconds.
const WAIT_MAX_MS: u64 = 50_000;
/// The shortest and the longest lease, in milliseconds.
const LEASE_MS: std::ops::RangeInclusive<u64> = 100..=12 * 60 * 60 * 1_000;

/// The body of a pull.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PullBody {
    /// The maximum number of deliveries to return, 1–1,000.
    pub max: usize,
    /// How long to wait for the first one, in milliseconds.
    pub wait_ms: u64,
    /// How long the worker has to settle them, in milliseconds.
    pub lease_ms: u64,
    /// The worker's name for itself.
    pub worker: String,
}

impl Default for PullBody {
    fn default() -> Self {
        Self { max: 10, wait_ms: 0, lease_ms: 30_000, worker: String::new() }
    }
}

/// The body of a settlement.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettleBody {
    /// The deliveries, in the order in which they are settled.
    pub results: Vec<Settlement>,
}

/// The result of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settlement {
    /// Its token.
    pub token: String,
    /// Why it failed; absent if it was handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<DeliveryFailure>,
}

/// Why a delivery failed, and when to retry it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveryFailure {
    /// What went wrong.
    pub reason: String,
    /// The delay that the worker asks for instead of the policy's, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Whether no further attempt can succeed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never: bool,
}

/// The result of one settlement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettleResult {
    /// The token.
    pub token: String,
    /// Whether it is settled now.
    pub settled: bool,
    /// Why it is not settled: `lease_lost`, or `out_of_order` if an earlier event of its batch is not settled yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl PullBody {
    /// Checks the limits.
    ///
    /// # Errors
    /// `invalid_body`, with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, message: String| Err(Invalid::new(Code::InvalidBody, path, message));
        if !(1..=PULL_MAX).contains(&self.max) {
            return invalid("max", format!("{} is not between 1 and {PULL_MAX}", self.max));
        }
        if self.wait_ms > WAIT_MAX_MS {
            return invalid("wait_ms", format!("{} is more than {WAIT_MAX_MS}; pull again instead", self.wait_ms));
        }
        if !LEASE_MS.contains(&self.lease_ms) {
            let (least, most) = (LEASE_MS.start(), LEASE_MS.end());
            return invalid("lease_ms", format!("{} is not between {least} and {most}", self.lease_ms));
        }
        if self.worker.len() > crate::limits::ID_BYTES_MAX {
            return invalid("worker", format!("is longer than {} bytes", crate::limits::ID_BYTES_MAX));
        }
        Ok(())
    }
}

impl Settlement {
    /// Returns the settlement of a delivery that was handled.
    pub fn done(token: impl Into<String>) -> Self {
        Self { token: token.into(), failure: None }
    }

    /// Returns the settlement of a delivery that failed; the handler's policy decides when it is retried.
    pub fn failed(token: impl Into<String>, reason: impl Into<String>) -> Self {
        let failure = DeliveryFailure { reason: reason.into(), retry_after_ms: None, never: false };
        Self { token: token.into(), failure: Some(failure) }
    }

    /// Returns the outcome for the processing machine.
    pub fn outcome(&self) -> Outcome {
        match &self.failure {
            None => Outcome::Done,
            Some(DeliveryFailure { reason, never: true, .. }) => Outcome::Never { reason: reason.clone() },
            Some(DeliveryFailure { reason, retry_after_ms: Some(millis), .. }) => {
                Outcome::RetryAfter { reason: reason.clone(), millis: *millis }
            }
            Some(DeliveryFailure { reason, .. }) => Outcome::Failed { reason: reason.clone() },
        }
    }
}

/// Writes deliveries as BSON: a document with their fields, then their events in the form of a page of the log. Fields that a delivery
/// lacks are left out.
pub fn write_deliveries(deliveries: &[Delivery]) -> Vec<u8> {
    let mut first = RawDocumentBuf::new();
    first.append(cstr!("deliveries"), deliveries.iter().map(about).collect::<RawArrayBuf>());
    let mut events = FoundWriter::default();
    for delivery in deliveries {
        delivery.event.lend(|event| events.event(&event));
    }
    let mut out = first.into_bytes();
    out.extend(events.end_of_log(0, 0));
    out
}

/// Returns the fields of a delivery apart from its event.
fn about(delivery: &Delivery) -> RawDocumentBuf {
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("token"), &*delivery.token);
    out.append(cstr!("position"), delivery.position.cast_signed());
    out.append(cstr!("attempt"), i64::from(delivery.attempt));
    out.append(cstr!("until"), delivery.until.as_millis());
    let texts = [
        (cstr!("partition"), delivery.partition.as_deref()),
        (cstr!("last_reason"), delivery.last_reason.as_deref()),
        (cstr!("replay"), delivery.replay.as_deref()),
        (cstr!("topic"), delivery.topic.as_deref()),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            out.append(name, text);
        }
    }
    if let Some(trace) = delivery.trace {
        let text = trace.to_string();
        out.append(cstr!("traceparent"), &*text);
    }
    out
}

/// Reads deliveries that [`write_deliveries`] wrote.
///
/// # Errors
/// A sentence, if the bytes are something else.
pub fn read_deliveries(bytes: &[u8]) -> Result<Vec<Delivery>, String> {
    let (first, rest) = split_document(bytes)?.ok_or("the response is truncated")?;
    let first = RawDocument::from_bytes(first).map_err(|error| error.to_string())?;
    let mut events = Vec::new();
    read_found(&bytes::Bytes::copy_from_slice(rest), |commit| events.extend(commit.events))?;
    let mut events = events.into_iter();
    let mut deliveries = Vec::with_capacity(events.len());
    for about in first.get_array("deliveries").map_err(|error| error.to_string())? {
        let about = about.map_err(|error| error.to_string())?;
        let about = about.as_document().ok_or("a delivery that is not a document")?;
        let event = events.next().ok_or("a delivery without its event")?;
        deliveries.push(read_delivery(about, event)?);
    }
    match events.len() {
        0 => Ok(deliveries),
        more => Err(format!("{more} events without deliveries")),
    }
}

fn read_delivery(about: &RawDocument, event: RecordedEvent) -> Result<Delivery, String> {
    let (mut token, mut position, mut attempt, mut until) = (None, None, None, None);
    let (mut partition, mut last_reason, mut replay, mut topic, mut trace) = (None, None, None, None, None);
    for field in about {
        let (name, value) = field.map_err(|error| error.to_string())?;
        match name.as_str() {
            "token" => token = value.as_str(),
            "position" => position = value.as_i64(),
            "attempt" => attempt = value.as_i64(),
            "until" => until = value.as_i64(),
            "partition" => partition = value.as_str(),
            "last_reason" => last_reason = value.as_str(),
            "replay" => replay = value.as_str(),
            "topic" => topic = value.as_str(),
            "traceparent" => trace = value.as_str(),
            // A field of a newer server.
            _ => {}
        }
    }
    let lacks = |what: &str| format!("a delivery without its {what}");
    Ok(Delivery {
        token: token.ok_or_else(|| lacks("token"))?.to_owned(),
        event,
        position: position.ok_or_else(|| lacks("position"))?.cast_unsigned(),
        partition: partition.map(Into::into),
        attempt: u32::try_from(attempt.ok_or_else(|| lacks("attempt"))?).unwrap_or(u32::MAX),
        last_reason: last_reason.map(str::to_owned),
        until: Timestamp::from_millis(until.ok_or_else(|| lacks("until"))?),
        replay: replay.map(Into::into),
        topic: topic.map(Into::into),
        trace: trace.and_then(TraceContext::parse),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Aggregate, CommitInfo, Data};

    fn event(sequence_number: u64) -> RecordedEvent {
        let time = Timestamp::from_millis(1_000);
        RecordedEvent {
            sequence_number,
            ordinal: 0,
            id: uuid::Uuid::from_u128(7),
            event_type: "placed".into(),
            generation: 1,
            data: Data::from_json(r#"{"total":1}"#).expect("data"),
            tags: Vec::new(),
            public: false,
            metadata: None,
            time,
            commit: Arc::new(CommitInfo {
                commit_id: uuid::Uuid::from_u128(u128::from(sequence_number)),
                request_id: Some("r".into()),
                ..CommitInfo::first_of(Aggregate::new("order", "o-1"), time)
            }),
        }
    }

    #[test]
    fn deliveries_come_back_with_what_they_have_and_without_what_they_lack() {
        let bare = Delivery {
            token: "1.h".to_owned(),
            event: event(3),
            position: 3,
            partition: None,
            attempt: 1,
            last_reason: None,
            until: Timestamp::from_millis(5_000),
            replay: None,
            topic: None,
            trace: None,
        };
        let trace = TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        assert!(trace.is_some());
        let full = Delivery {
            token: "2.h".to_owned(),
            event: event(4),
            position: 4,
            partition: Some("order/o-1".into()),
            attempt: 2,
            last_reason: Some("down".to_owned()),
            replay: Some("r-1".into()),
            topic: Some("placed".into()),
            trace,
            ..bare.clone()
        };
        let deliveries = vec![bare, full];
        let written = write_deliveries(&deliveries);
        assert_eq!(read_deliveries(&written), Ok(deliveries));
        assert!(read_deliveries(&written[..written.len() - 1]).is_err(), "it is cut off");
        let mut less = RawDocumentBuf::new();
        less.append(cstr!("deliveries"), RawArrayBuf::new());
        let events_only: Vec<u8> = less.as_bytes().iter().chain(split(&written)).copied().collect();
        assert!(read_deliveries(&events_only).is_err(), "events without deliveries");
    }

    /// The events behind the first document.
    fn split(written: &[u8]) -> &[u8] {
        split_document(written).expect("a document").expect("whole").1
    }
}
