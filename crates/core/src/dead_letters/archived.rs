//! Letters that are over and were moved out of the way. The archive is permanent.

use bson::DateTime;
use serde::{Deserialize, Serialize};

use super::DeadLetter;
use crate::{Index, RecordType, Timestamp};

/// The collection of archived letters.
pub const ARCHIVED_LETTERS: &str = "dlq_messages_archive";

/// A letter as it was when it was archived.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchivedLetter {
    /// Its id, and when it was received: a letter of the same event that comes later is another one.
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
    /// The copy of a letter.
    pub fn of(letter: DeadLetter, now: Timestamp) -> Self {
        let id = format!("{}.{}", letter.id, letter.created_at.timestamp_millis());
        Self { id, letter, archived_at: DateTime::from_millis(now.as_millis()) }
    }
}
