//! Statistics of the last hours.

use serde::{Deserialize, Serialize};

use crate::{Code, Invalid, Timestamp};

/// The event types that count as errors unless a reader names others.
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
/// Most hours of statistics.
pub const HOURS_MAX: u32 = 168;

/// Which statistics are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatisticsQuery {
    /// How many hours before now, 1 to 168.
    pub hours: u32,
    /// The event types that count as errors; [`FAILURE_TYPES`] when absent.
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
    /// How many hours.
    pub hours: u32,
    /// Since when.
    pub since: Timestamp,
    /// How many events.
    pub total_events: u64,
    /// The ten most frequent event types, the most frequent first.
    pub event_types: Vec<TypeCount>,
    /// Events of each hour that has some, the earliest first.
    pub events_by_hour: Vec<HourCount>,
    /// The ten users with most events, those with most first.
    pub top_users: Vec<UserCount>,
    /// How many of 100 events are of a type that counts as an error.
    pub error_rate: f64,
    /// The average of `resource_usage.execution_time_wall_seconds` of completed executions; 0 without any.
    pub avg_processing_time: f64,
    /// The event types that count as errors.
    pub failure_types: Vec<String>,
}

/// How many events a type has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeCount {
    /// The type.
    pub event_type: String,
    /// How many.
    pub count: u64,
}

/// How many events an hour has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HourCount {
    /// Its beginning.
    pub hour: Timestamp,
    /// How many.
    pub count: u64,
}

/// How many events a user has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserCount {
    /// The user.
    pub user_id: String,
    /// How many.
    pub count: u64,
}

/// Returns how many of 100, with two decimals.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64 * 10_000.0).round() / 100.0 }
}
