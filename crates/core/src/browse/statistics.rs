//! Statistics of the last hours.

use serde::{Deserialize, Serialize};

use crate::{Code, Invalid, Timestamp};

/// The event types that count as errors by default.
pub const FAILURE_TYPES: [&str; 8] = [
    "auth_failed",
    "execution_failed",
    "execution_timeout",
    "notification_failed",
    "pod_failed",
    "result_failed",
    "saga_failed",
    "system_error",
];
/// The maximum number of hours that statistics cover.
pub const HOURS_MAX: u32 = 168;

/// A query for statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatisticsQuery {
    /// The number of hours before now, 1 to 168.
    pub hours: u32,
    /// The event types that count as errors; `None` means [`FAILURE_TYPES`].
    pub failure_types: Option<Vec<String>>,
}

impl Default for StatisticsQuery {
    fn default() -> Self {
        Self { hours: 24, failure_types: None }
    }
}

impl StatisticsQuery {
    /// Checks the bounds.
    ///
    /// # Errors
    /// `invalid_query` at `hours`.
    pub fn validate(&self) -> Result<(), Invalid> {
        if (1..=HOURS_MAX).contains(&self.hours) {
            return Ok(());
        }
        let message = format!("{} is not between 1 and {HOURS_MAX}", self.hours);
        Err(Invalid::new(Code::InvalidQuery, "hours", message))
    }

    /// Returns the event types that count as errors.
    pub fn failures(&self) -> Vec<String> {
        self.failure_types.clone().unwrap_or_else(|| FAILURE_TYPES.map(str::to_owned).to_vec())
    }
}

/// Statistics of the events that happened in the last hours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventStatistics {
    /// The number of hours that the statistics cover.
    pub hours: u32,
    /// The start of that time.
    pub since: Timestamp,
    /// The number of events.
    pub total_events: u64,
    /// The ten most frequent event types, most frequent first.
    pub event_types: Vec<TypeCount>,
    /// The number of events in each hour that has any, earliest first.
    pub events_by_hour: Vec<HourCount>,
    /// The ten users with the most events, in descending order.
    pub top_users: Vec<UserCount>,
    /// The percentage of events whose type counts as an error.
    pub error_rate: f64,
    /// The average of `resource_usage.execution_time_wall_seconds` of completed executions, in seconds; 0 if there are none.
    pub avg_processing_time: f64,
    /// The event types that count as errors.
    pub failure_types: Vec<String>,
}

/// The number of events of a type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeCount {
    /// The type.
    pub event_type: String,
    /// The number of events.
    pub count: u64,
}

/// The number of events in an hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HourCount {
    /// The beginning of the hour.
    pub hour: Timestamp,
    /// The number of events.
    pub count: u64,
}

/// The number of events of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserCount {
    /// The user.
    pub user_id: String,
    /// The number of events.
    pub count: u64,
}

/// Returns a percentage, rounded to two decimals.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64 * 10_000.0).round() / 100.0 }
}
