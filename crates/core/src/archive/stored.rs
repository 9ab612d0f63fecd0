//! What is stored of retention: rules and holds in the settings of the browse view, so that one check covers all of them.

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

/// What a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleKind {
    /// All types of a category that have no rule of their own.
    Category,
    /// One event type.
    Type,
}

/// How long events of a category or a type are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleRecord {
    /// The category or the type.
    pub name: String,
    /// Which of both.
    pub kind: RuleKind,
    /// For how many days the view keeps an event; null for ever.
    pub ttl_days: Option<i64>,
    /// Where it goes before it is deleted.
    pub archive: ArchiveTarget,
    /// Why.
    pub reason: Option<String>,
    /// Who said so.
    pub by: Option<String>,
    /// Since when.
    pub at: DateTime,
}

/// A hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HoldRecord {
    /// Its name.
    pub name: String,
    /// Which events it protects.
    pub filter: ReplayFilter,
    /// Why.
    pub reason: Option<String>,
    /// Who set it.
    pub by: Option<String>,
    /// Since when.
    pub at: DateTime,
}

/// The category of a type, as the registry of types had it.
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
    /// `state`.
    #[serde(rename = "_id")]
    pub id: String,
    /// The builds of the view whose documents expire as the settings say.
    pub settled: Vec<SettledRecord>,
    /// How many events were archived by retention.
    pub archived: i64,
    /// How many events are due and not archived.
    pub waiting: i64,
    /// How many of them were refused by the archive, because of what they hold.
    pub refused: i64,
    /// When an event was archived last.
    pub last_archived: Option<DateTime>,
    /// Why the archive cannot be written; null while it can.
    pub failure: Option<String>,
    /// Since when.
    pub failing_since: Option<DateTime>,
}

/// A build of the view whose documents expire as the settings of this version say.
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

    /// Whether documents of this build expire as the settings of this version say.
    pub fn is_settled(&self, build: i64, version: i64) -> bool {
        self.settled.iter().any(|it| it.build == build && it.version == version)
    }
}
