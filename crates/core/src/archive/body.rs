//! Request bodies of the archive's endpoints.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::ArchiveTarget;
use crate::browse::{RETENTION_DAYS, ReplayFilter};
use crate::handlers::Reason;
use crate::limits::REASON_BYTES_MAX;
use crate::{Code, Invalid};

/// The maximum number of rules of a tenant.
pub const RULES_MAX: usize = 1_000;
/// The maximum retention in days.
const DAYS_MAX: u32 = 36_500;

/// The body of `PUT /v1/retention/{category|type}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionBody {
    /// How many days the view keeps an event, 1 to 36,500; null keeps events for ever, and the default is 90.
    #[serde(default = "ninety")]
    pub ttl_days: Option<u32>,
    /// Where events go before they are deleted.
    #[serde(default)]
    pub archive: ArchiveTarget,
    /// Counts what the rule would remove from the view now, and changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The reason, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who sets the rule, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

fn ninety() -> Option<u32> {
    Some(RETENTION_DAYS)
}

fn short(reason: Option<&String>) -> Result<(), Invalid> {
    match reason {
        Some(reason) if reason.len() > REASON_BYTES_MAX => {
            let message = format!("is longer than {REASON_BYTES_MAX} bytes");
            Err(Invalid::new(Code::InvalidBody, "reason", message))
        }
        _ => Ok(()),
    }
}

impl RetentionBody {
    /// Creates a rule without a reason.
    pub fn new(ttl_days: Option<u32>, archive: ArchiveTarget) -> Self {
        Self { ttl_days, archive, dry_run: false, reason: None, by: None }
    }

    /// Checks the retention and the length of the reason.
    ///
    /// # Errors
    /// `invalid_body`, with the name of the field.
    pub fn validate(&self) -> Result<(), Invalid> {
        if let Some(days) = self.ttl_days
            && !(1..=DAYS_MAX).contains(&days)
        {
            let message = format!("{days} is not between 1 and {DAYS_MAX}; null keeps events forever");
            return Err(Invalid::new(Code::InvalidBody, "ttl_days", message));
        }
        short(self.reason.as_ref())
    }
}

/// The body of `PUT /v1/holds/{name}`: the fields of a filter, or the filter under `filter`, and a reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HoldBody {
    /// The events that the hold protects.
    pub filter: ReplayFilter,
    /// The reason, for the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who sets the hold, for the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl<'de> Deserialize<'de> for HoldBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let mut fields = Map::<String, Value>::deserialize(deserializer)?;
        let mut text = |name: &str| match fields.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(D::Error::custom(format!("{name} is not a string"))),
        };
        let (reason, by) = (text("reason")?, text("by")?);
        let filter = match fields.remove("filter") {
            None => Value::Object(fields),
            Some(filter) => match fields.keys().next() {
                None => filter,
                Some(other) => {
                    return Err(D::Error::custom(format!(
                        "{other} cannot be given beside filter; move it into filter"
                    )));
                }
            },
        };
        let filter = serde_json::from_value(filter).map_err(D::Error::custom)?;
        Ok(Self { filter, reason, by })
    }
}

impl HoldBody {
    /// Creates a hold without a reason.
    pub fn new(filter: ReplayFilter) -> Self {
        Self { filter, reason: None, by: None }
    }

    /// Checks that the filter is valid and not empty, and the length of the reason.
    ///
    /// # Errors
    /// `invalid_body`, with the name of the field.
    pub fn validate(&self) -> Result<(), Invalid> {
        if self.filter.is_empty() {
            let message = "is not selective; name events, types, an aggregate, an execution, a user, a service or a \
                           time";
            return Err(Invalid::new(Code::InvalidBody, "filter", message));
        }
        self.filter.validate("filter.").map_err(|error| Invalid { code: Code::InvalidBody, ..error })?;
        short(self.reason.as_ref())
    }

    /// Returns the reason, which may be empty.
    pub fn why(&self) -> Reason {
        Reason { reason: self.reason.clone().unwrap_or_default(), by: self.by.clone() }
    }
}
