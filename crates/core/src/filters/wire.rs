//! Bodies of requests that settle a remote filter's events.

use serde::{Deserialize, Serialize};

use super::Verdict;
use crate::handlers::DeliveryFailure;
use crate::{ByteString, Code, Invalid};

/// The body of a settlement.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterSettleBody {
    /// The deliveries, in order.
    pub results: Vec<FilterSettlement>,
}

/// The verdict on a delivery, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterSettlement {
    /// The delivery's token.
    pub token: String,
    /// Whether the event is in the stream; absent if it could not be evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub included: Option<bool>,
    /// Its partition; absent if the definition determines it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<ByteString>,
    /// Why it could not be evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<DeliveryFailure>,
}

impl FilterSettlement {
    /// Returns the verdict that the event is in the stream.
    pub fn included(token: impl Into<String>) -> Self {
        Self { token: token.into(), included: Some(true), partition: None, failure: None }
    }

    /// Returns the verdict that the event is in the stream, in this partition.
    pub fn in_partition(token: impl Into<String>, partition: impl Into<ByteString>) -> Self {
        Self { partition: Some(partition.into()), ..Self::included(token) }
    }

    /// Returns the verdict that the event is not in the stream.
    pub fn excluded(token: impl Into<String>) -> Self {
        Self { included: Some(false), ..Self::included(token) }
    }

    /// Returns the failure of an event that could not be evaluated.
    pub fn failed(token: impl Into<String>, reason: impl Into<String>) -> Self {
        let failure = DeliveryFailure { reason: reason.into(), retry_after_ms: None, never: false };
        Self { token: token.into(), included: None, partition: None, failure: Some(failure) }
    }

    /// Reads the verdict, or the reason why there is none. `partitions` says whether the filter determines partitions itself.
    ///
    /// # Errors
    /// `invalid_body`, at the field that is missing or has no meaning.
    pub fn read(&self, partitions: bool) -> Result<Result<Verdict, &DeliveryFailure>, Invalid> {
        let invalid = |path: &str, message: &str| Err(Invalid::new(Code::InvalidBody, path, message));
        match (self.included, &self.partition, &self.failure) {
            (None, None, Some(failure)) => Ok(Err(failure)),
            (_, _, Some(_)) => invalid("failure", "cannot be combined with a verdict; leave one of them out"),
            (None, _, None) => invalid("included", "is missing; say whether the event is in the stream"),
            (Some(false), Some(_), None) => invalid("partition", "has no meaning for an event that is not included"),
            (Some(true), Some(_), None) if !partitions => {
                invalid("partition", "is determined by the definition's partition_by; leave one of them out")
            }
            (Some(false), None, None) => Ok(Ok(Verdict::Excluded)),
            (Some(true), None, None) => Ok(Ok(Verdict::Included)),
            (Some(true), Some(partition), None) => Ok(Ok(Verdict::InPartition(partition.clone()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settlement_is_a_verdict_or_a_failure() {
        assert_eq!(FilterSettlement::included("t").read(true), Ok(Ok(Verdict::Included)));
        assert_eq!(FilterSettlement::excluded("t").read(true), Ok(Ok(Verdict::Excluded)));
        let in_a = FilterSettlement::in_partition("t", "a");
        assert_eq!(in_a.read(true), Ok(Ok(Verdict::InPartition("a".into()))));
        assert_eq!(in_a.read(false).map_err(|invalid| invalid.path), Err("partition".to_owned()));
        let failed = FilterSettlement::failed("t", "down");
        assert!(matches!(failed.read(true), Ok(Err(failure)) if failure.reason == "down"));
        for (settlement, path) in [
            (FilterSettlement { included: None, ..FilterSettlement::included("t") }, "included"),
            (FilterSettlement { included: Some(true), ..failed }, "failure"),
            (FilterSettlement { included: Some(false), ..in_a }, "partition"),
        ] {
            assert_eq!(settlement.read(true).map_err(|invalid| invalid.path), Err(path.to_owned()));
        }
    }
}
