//! The view's settings and status: whether it is built, and how long it keeps events.

use bson::DateTime;
use serde::{Deserialize, Deserializer, Serialize};

use super::RETENTION_DAYS;
use crate::archive::{HoldRecord, RuleRecord, TypeCategory};
use crate::handlers::Reason;
use crate::projections::{BuildStatus, ProjectionState};
use crate::{Code, Invalid, RecordType, Timestamp, valid_name};

/// The collection of the view's settings.
pub const BROWSE_SETTINGS: &str = "annals-browse";
/// The maximum retention of the view, in days.
const RETENTION_DAYS_MAX: u32 = 36_500;
/// The maximum number of event types that a view leaves out.
const OFF_TYPES_MAX: usize = 1_000;

/// When the view is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViewSwitch {
    /// From the first read on.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// The body of `PUT /v1/events/view`. Absent fields leave a setting unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViewBody {
    /// When the view is built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ViewSwitch>,
    /// How many days the view keeps an event; null keeps events for ever.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub retention_days: Option<Option<u32>>,
    /// The complete list of event types whose events the view leaves out; it replaces the previous list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_types: Option<Vec<String>>,
    /// The reason, for the record.
    pub reason: String,
    /// Who makes the change, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// Distinguishes null from absent.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl ViewBody {
    /// Creates a change of the state alone, or with `None` of nothing.
    pub fn switched(state: Option<ViewSwitch>, reason: &str) -> Self {
        Self { state, retention_days: None, off_types: None, reason: reason.to_owned(), by: None }
    }

    /// Checks the retention, the types and the reason.
    ///
    /// # Errors
    /// `invalid_body`, with the name of the field.
    pub fn validate(&self) -> Result<(), Invalid> {
        if let Some(Some(days)) = self.retention_days
            && !(1..=RETENTION_DAYS_MAX).contains(&days)
        {
            let message = format!("{days} is not between 1 and {RETENTION_DAYS_MAX}; null keeps events forever");
            return Err(Invalid::new(Code::InvalidBody, "retention_days", message));
        }
        let off = self.off_types.as_deref().unwrap_or_default();
        if off.len() > OFF_TYPES_MAX {
            let message = format!("lists {} types; at most {OFF_TYPES_MAX} are allowed", off.len());
            return Err(Invalid::new(Code::InvalidBody, "off_types", message));
        }
        for name in off {
            valid_name("off_types", name)?;
        }
        self.why().validate()
    }

    /// Returns the reason.
    pub fn why(&self) -> Reason {
        Reason { reason: self.reason.clone(), by: self.by.clone() }
    }
}

/// The stored settings of the view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewRecord {
    /// Always `view`.
    #[serde(rename = "_id")]
    pub id: String,
    /// When the view is built.
    pub state: ViewSwitch,
    /// How many days the view keeps an event; null keeps it for ever.
    pub retention_days: Option<i64>,
    /// The reason of the last change.
    pub reason: String,
    /// Who made the last change; null if not stated.
    pub by: Option<String>,
    /// When it was last changed.
    pub at: DateTime,
    /// The event types that the view leaves out, sorted.
    #[serde(default)]
    pub off_types: Vec<String>,
    /// The retention of categories and types.
    #[serde(default)]
    pub rules: Vec<RuleRecord>,
    /// The legal holds: filters of events that must not be deleted.
    #[serde(default)]
    pub holds: Vec<HoldRecord>,
    /// The categories of event types, if a rule applies to a category.
    #[serde(default)]
    pub categories: Vec<TypeCategory>,
    /// Counts changes of retention, excluded types and holds. Documents from before a change must be checked again.
    #[serde(default)]
    pub version: i64,
    /// Counts the deletions by hand.
    #[serde(default)]
    pub deletions: i64,
    /// No event from this sequence number on has been deleted by hand.
    #[serde(default)]
    pub deleted_below: i64,
}

impl RecordType for ViewRecord {
    const COLLECTION: &'static str = BROWSE_SETTINGS;
}

impl Default for ViewRecord {
    fn default() -> Self {
        Self {
            id: Self::ID.to_owned(),
            state: ViewSwitch::Auto,
            retention_days: Some(RETENTION_DAYS.into()),
            reason: String::new(),
            by: None,
            at: DateTime::from_millis(0),
            off_types: Vec::new(),
            rules: Vec::new(),
            holds: Vec::new(),
            categories: Vec::new(),
            version: 0,
            deletions: 0,
            deleted_below: 0,
        }
    }
}

impl ViewRecord {
    /// The id of the only record.
    pub const ID: &'static str = "view";

    /// Returns how many days the view keeps an event; `None` keeps it for ever.
    pub fn days(&self) -> Option<u32> {
        self.retention_days.and_then(|days| u32::try_from(days).ok())
    }

    /// Returns the settings with a change applied.
    #[must_use]
    pub fn changed(self, body: &ViewBody, at: Timestamp) -> Self {
        let retention_days = body.retention_days.map_or(self.retention_days, |days| days.map(i64::from));
        let mut off_types = body.off_types.clone().unwrap_or_else(|| self.off_types.clone());
        off_types.sort();
        off_types.dedup();
        let is_other = retention_days != self.retention_days || off_types != self.off_types;
        Self {
            state: body.state.unwrap_or(self.state),
            version: self.version + i64::from(is_other),
            retention_days,
            off_types,
            reason: body.reason.clone(),
            by: body.by.clone(),
            at: DateTime::from_millis(at.as_millis()),
            ..self
        }
    }
}

/// The state of the view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewStatus {
    /// When the view is built.
    pub state: ViewSwitch,
    /// How many days the view keeps an event; null keeps it for ever.
    pub retention_days: Option<u32>,
    /// The event types that the view leaves out; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub off_types: Vec<String>,
    /// The state of the view's projection; absent while the view does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<ProjectionState>,
    /// The collection that readers see; absent while the view does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    /// Every event below this sequence number is in the view.
    pub position: u64,
    /// The number of events in the log.
    pub head: u64,
    /// Why the view is not healthy; absent while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
    /// The build that will replace the live view once it has caught up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub building: Option<BuildStatus>,
}
