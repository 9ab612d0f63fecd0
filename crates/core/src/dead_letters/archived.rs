//! Closed letters that were moved to the archive, which is permanent.

use bson::DateTime;
use serde::{Deserialize, Serialize};

use super::DeadLetter;
use crate::{Index, RecordType, Timestamp};

/// The collection of archived letters.
pub const ARCHIVED_LETTERS: &str = "dlq_messages_archive";

/// An archived letter, unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchivedLetter {
    /// The letter's id and when it was received. A later letter of the same event is a different one.
    #[serde(rename = "_id")]
    pub id: String,
    /// The letter.
    pub letter: DeadLetter,
    /// When it was archived.
    pub archived_at: DateTime,
}

impl RecordType for ArchivedLetter {
    const COLLECTION: &'static str = ARCHIVED_LETTERS;

    fn indexes() -> Vec<Index> {
        vec![Index::on("letter.event.event_id").into(), Index::on("archived_at").into()]
    }
}

impl ArchivedLetter {
    /// Copies a letter.
    pub fn of(letter: DeadLetter, now: Timestamp) -> Self {
        let id = format!("{}.{}", letter.id, letter.created_at.timestamp_millis());
        Self { id, letter, archived_at: DateTime::from_millis(now.as_millis()) }
    }
}
