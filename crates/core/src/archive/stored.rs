//! Stored records of retention. Rules and holds are part of the browse view's settings, so that one version check covers all of them.

use bson::DateTime;
use serde::{Deserialize, Serialize};

use crate::RecordType;
use crate::browse::ReplayFilter;

/// The collection of the archive's state.
pub const ARCHIVE_STATE: &str = "annals-archive";

/// Where events go before they are deleted from the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArchiveTarget {
    /// Nowhere.
    #[default]
    None,
    /// Into the collection `events_archive`.
    Collection,
    /// Into files of the archive's folder.
    Files,
}

impl ArchiveTarget {
    /// Returns its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Collection => "collection",
            Self::Files => "files",
        }
    }
}

/// What a rule applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleKind {
    /// All types of a category that have no rule of their own.
    Category,
    /// One event type.
    Type,
}

/// A stored rule: how long events of a category or a type are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleRecord {
    /// The category or the type.
    pub name: String,
    /// Whether the rule is for a category or a type.
    pub kind: RuleKind,
    /// How many days the view keeps an event; null keeps it for ever.
    pub ttl_days: Option<i64>,
    /// Where events go before they are deleted.
    pub archive: ArchiveTarget,
    /// The reason.
    pub reason: Option<String>,
    /// Who set the rule.
    pub by: Option<String>,
    /// When the rule was set.
    pub at: DateTime,
}

/// A stored hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HoldRecord {
    /// Its name.
    pub name: String,
    /// The events that it protects.
    pub filter: ReplayFilter,
    /// The reason.
    pub reason: Option<String>,
    /// Who set it.
    pub by: Option<String>,
    /// When the hold was set.
    pub at: DateTime,
}

/// The category of a type, copied from the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeCategory {
    /// The type.
    pub name: String,
    /// Its category.
    pub category: String,
}

/// The state of the archive.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ArchiveStateRecord {
    /// Always `state`.
    #[serde(rename = "_id")]
    pub id: String,
    /// The builds of the view whose documents all expire as the settings say.
    pub settled: Vec<SettledRecord>,
    /// The number of events that retention has archived.
    pub archived: i64,
    /// The number of events that are due and not yet archived.
    pub waiting: i64,
    /// How many of these the archive refused because of their content.
    pub refused: i64,
    /// When an event was last archived.
    pub last_archived: Option<DateTime>,
    /// Why the archive cannot be written; null while it can.
    pub failure: Option<String>,
    /// When the failures began.
    pub failing_since: Option<DateTime>,
}

/// A build of the view whose documents all expire as this version of the settings says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledRecord {
    /// The number of the build.
    pub build: i64,
    /// The version of the settings.
    pub version: i64,
}

impl RecordType for ArchiveStateRecord {
    const COLLECTION: &'static str = ARCHIVE_STATE;
}

impl ArchiveStateRecord {
    /// The id of the only record.
    pub const ID: &'static str = "state";

    /// Returns whether all documents of this build expire as this version of the settings says.
    pub fn is_settled(&self, build: i64, version: i64) -> bool {
        self.settled.iter().any(|it| it.build == build && it.version == version)
    }
}
