//! The records of partners, apart from their events.

use bson::{Binary, DateTime};
use serde::{Deserialize, Serialize};

use super::PartnerDefinition;
use crate::{Index, Invalid, RecordType};

/// The collection of partners.
pub const PARTNERS: &str = "annals-partners";
/// The collection of partners' secrets, which cannot be read from outside.
pub const PARTNER_SECRETS: &str = "annals-partner-secrets";
/// The id of the record that holds the position of the selection.
pub const SELECTION: &str = "selection";

/// A partner as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartnerRecord {
    /// Its id.
    #[serde(rename = "_id")]
    pub id: String,
    /// The body of its definition without the secrets, as JSON.
    pub definition: String,
    /// The sequence number from which events are selected. Earlier events precede its definition.
    pub from: i64,
    /// When it was first defined.
    pub defined: DateTime,
    /// When it was last changed.
    pub changed: DateTime,
    /// Counts what other processes did to its events; a change wakes the process that owns them.
    pub touched: i64,
    /// Counts the changes of `archive`, so that no event gets a date of expiry under an earlier setting.
    #[serde(default)]
    pub archive_turn: i64,
    /// The `archive_turn` for which events that had already ended got their copies.
    #[serde(default)]
    pub copied_turn: i64,
}

/// The secrets of a partner, encrypted.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct SecretsRecord {
    /// The partner.
    #[serde(rename = "_id")]
    pub id: String,
    /// The id of the key that encrypted them.
    pub key: String,
    /// Each secret as nonce and ciphertext, newest first.
    pub secrets: Vec<Binary>,
}

/// The position of the selection in the log, for all partners.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SelectionRecord {
    /// [`SELECTION`].
    #[serde(rename = "_id")]
    pub id: String,
    /// Events below this sequence number have been evaluated.
    pub position: i64,
    /// Counts the changes of definitions.
    pub generation: i64,
}

/// The state of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayState {
    /// Events remain.
    Running,
    /// All events were recorded.
    Done,
}

/// A range of the log whose events are sent again, or for the first time if a partner's selection starts before its definition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayTask {
    /// Its id.
    #[serde(rename = "_id")]
    pub id: String,
    /// The partner.
    pub partner: String,
    /// The first sequence number.
    pub from: i64,
    /// The sequence number after the last.
    pub to: i64,
    /// The next sequence number.
    pub next: i64,
    /// Whether events that were already sent are sent again.
    pub again: bool,
    /// Its state.
    pub state: ReplayState,
    /// When it began.
    pub started: DateTime,
}

impl RecordType for PartnerRecord {
    const COLLECTION: &'static str = PARTNERS;
    // The process that owns the tenant's partners follows the changes that others make to them.
    const FEED: bool = true;
}

impl RecordType for SecretsRecord {
    const COLLECTION: &'static str = PARTNER_SECRETS;
}

impl RecordType for SelectionRecord {
    const COLLECTION: &'static str = "annals-partner-selection";
}

impl RecordType for ReplayTask {
    const COLLECTION: &'static str = "annals-partner-replays";

    fn indexes() -> Vec<Index> {
        vec![Index::on("state").into()]
    }
}

impl PartnerRecord {
    /// Returns the definition, without secrets.
    ///
    /// # Errors
    /// As [`PartnerDefinition::read`].
    pub fn read(&self) -> Result<PartnerDefinition, Invalid> {
        PartnerDefinition::read(&self.id, self.definition.as_bytes())
    }
}
