//! Bodies of pulling and settling. Deliveries are JSON for people and most programs, and BSON for the client of this product, so that
//! event data arrives with every type.

use bson::{Document, doc};
use serde::{Deserialize, Serialize};

use super::Delivery;
use crate::processing::Outcome;
use crate::trace::TraceContext;
use crate::wire::binary::{FoundWriter, read_found, split_document};
use crate::{Code, Invalid, Timestamp};

/// Most deliveries of one pull.
const PULL_MAX: usize = 1_000;
/// The longest wait of a pull, in milliseconds.
const WAIT_MAX_MS: u64 = 50_000;
/// The shortest and the longest lease, in milliseconds.
const LEASE_MS: std::ops::RangeInclusive<u64> = 100..=12 * 60 * 60 * 1_000;

/// The body of a pull.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PullBody {
    /// Most deliveries wanted, 1–1,000.
    pub max: usize,
    /// How long to wait for the first one, in milliseconds.
    pub wait_ms: u64,
    /// How long the worker has to settle them, in milliseconds.
    pub lease_ms: u64,
    /// What the worker calls itself.
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

/// What became of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settlement {
    /// Its token.
    pub token: String,
    /// Why it failed; absent when it was handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<DeliveryFailure>,
}

/// Why a delivery failed, and when it is to be delivered again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveryFailure {
    /// What went wrong.
    pub reason: String,
    /// The delay that the worker wants instead of the policy's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Whether no further attempt can succeed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never: bool,
}

/// The answer to one result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettleResult {
    /// The token.
    pub token: String,
    /// Whether it is settled now.
    pub settled: bool,
    /// Why it is not: `lease_lost`, or `out_of_order` when an event before it in its batch is not settled yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl PullBody {
    /// Checks the numbers.
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
    /// A delivery that was handled.
    pub fn done(token: impl Into<String>) -> Self {
        Self { token: token.into(), failure: None }
    }

    /// A delivery that failed; the handler's policy decides when it is delivered again.
    pub fn failed(token: impl Into<String>, reason: impl Into<String>) -> Self {
        let failure = DeliveryFailure { reason: reason.into(), retry_after_ms: None, never: false };
        Self { token: token.into(), failure: Some(failure) }
    }

    /// What the processing makes of it.
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

/// Writes deliveries as BSON: a document of what they are, then their events as a page of the log is written.
pub fn write_deliveries(deliveries: &[Delivery]) -> Vec<u8> {
    let about: Vec<Document> = deliveries
        .iter()
        .map(|delivery| {
            doc! {
                "token": &delivery.token,
                "position": delivery.position.cast_signed(),
                "partition": delivery.partition.as_deref(),
                "attempt": i64::from(delivery.attempt),
                "last_reason": delivery.last_reason.as_deref(),
                "until": delivery.until.as_millis(),
                "replay": delivery.replay.as_deref(),
                "topic": delivery.topic.as_deref(),
                "traceparent": delivery.trace.map(|trace| trace.to_string()),
            }
        })
        .collect();
    let mut events = FoundWriter::default();
    for delivery in deliveries {
        delivery.event.lend(|event| events.event(&event));
    }
    // Texts and numbers cannot fail to become BSON.
    let mut out = bson::serialize_to_vec(&doc! { "deliveries": about }).unwrap_or_default();
    out.extend(events.end_of_log(0, 0));
    out
}

/// Reads deliveries as [`write_deliveries`] writes them.
///
/// # Errors
/// A sentence, when the bytes are something else.
pub fn read_deliveries(bytes: &[u8]) -> Result<Vec<Delivery>, String> {
    #[derive(Deserialize)]
    struct Page {
        deliveries: Vec<About>,
    }
    #[derive(Deserialize)]
    struct About {
        token: String,
        position: i64,
        partition: Option<String>,
        attempt: i64,
        last_reason: Option<String>,
        until: i64,
        replay: Option<String>,
        topic: Option<String>,
        traceparent: Option<String>,
    }
    let (first, rest) = split_document(bytes)?.ok_or("the answer is cut off")?;
    let page: Page = bson::deserialize_from_slice(first).map_err(|error| error.to_string())?;
    let mut events = Vec::with_capacity(page.deliveries.len());
    read_found(&bytes::Bytes::copy_from_slice(rest), |commit| events.extend(commit.events))?;
    if events.len() != page.deliveries.len() {
        return Err(format!("{} deliveries came with {} events", page.deliveries.len(), events.len()));
    }
    let deliveries = page.deliveries.into_iter().zip(events).map(|(about, event)| Delivery {
        token: about.token,
        event,
        position: about.position.cast_unsigned(),
        partition: about.partition.map(Into::into),
        attempt: u32::try_from(about.attempt).unwrap_or(u32::MAX),
        last_reason: about.last_reason,
        until: Timestamp::from_millis(about.until),
        replay: about.replay.map(Into::into),
        topic: about.topic.map(Into::into),
        trace: about.traceparent.as_deref().and_then(TraceContext::parse),
    });
    Ok(deliveries.collect())
}
