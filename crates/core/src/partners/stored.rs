//! What is stored of partners beside their events.

use bson::{Binary, DateTime};
use serde::{Deserialize, Serialize};

use super::PartnerDefinition;
use crate::{Index, Invalid, RecordType};

/// The collection of partners.
pub const PARTNERS: &str = "annals-partners";
/// The collection of partners' secrets. Nobody reads it from outside.
pub const PARTNER_SECRETS: &str = "annals-partner-secrets";
/// The id of the record of how far the log was selected from.
pub const SELECTION: &str = "selection";

/// A partner as it is defined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartnerRecord {
    /// Its id.
    #[serde(rename = "_id")]
    pub id: String,
    /// The body of its definition without the secrets, as JSON.
    pub definition: String,
    /// Events below this number of the log were not there when it was defined, and are not selected.
    pub from: i64,
    /// When it was defined first.
    pub defined: DateTime,
    /// When it was changed last.
    pub changed: DateTime,
    /// Counts what other processes did to its events, so that the one that owns them looks.
    pub touched: i64,
    /// Counts the changes of `archive`, so that no event gets a date of expiry by an earlier one.
    #[serde(default)]
    pub archive_turn: i64,
    /// The turn of `archive` in which events that had ended before got their copies.
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
    /// Each secret: nonce and ciphertext, the newest first.
    pub secrets: Vec<Binary>,
}

/// How far the log was selected from, for all partners.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SelectionRecord {
    /// [`SELECTION`].
    #[serde(rename = "_id")]
    pub id: String,
    /// Events below this number were evaluated.
    pub position: i64,
    /// Counts the changes of definitions.
    pub generation: i64,
}

/// Where a replay is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayState {
    /// Events remain.
    Running,
    /// All were recorded.
    Done,
}

/// A range of the log whose events are sent again, or for the first time to a partner that starts before its definition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayTask {
    /// Its id.
    #[serde(rename = "_id")]
    pub id: String,
    /// The partner.
    pub partner: String,
    /// The first number.
    pub from: i64,
    /// The number after the last.
    pub to: i64,
    /// The next number.
    pub next: i64,
    /// Whether its events are sent again, also those that were sent before.
    pub again: bool,
    /// Where it is.
    pub state: ReplayState,
    /// When it began.
    pub started: DateTime,
}

impl RecordType for PartnerRecord {
    const COLLECTION: &'static str = PARTNERS;
    // The process that owns the tenant's partners follows what others do to them.
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
    /// The definition, without secrets.
    ///
    /// # Errors
    /// As [`PartnerDefinition::read`].
    pub fn read(&self) -> Result<PartnerDefinition, Invalid> {
        PartnerDefinition::read(&self.id, self.definition.as_bytes())
    }
}
