//! Documents of the archive: the view's documents with all their fields, plus when, by whom and why they left the view.

use bson::{Bson, DateTime, Document};
use serde_json::Value;

use super::EVENTS_ARCHIVE;
use crate::browse::shown;
use crate::{Collection, Index, Timestamp};

/// The field of a view document that says that the archive holds a copy of it.
pub const ARCHIVED_MARK: &str = "annals.archived";
/// The fields that the archive adds. An event's own fields with these names are moved to `annals.beside`.
const ADDED: [&str; 3] = ["deleted_at", "deleted_by", "deletion_reason"];
/// The mark of a document that the archive refused.
const REFUSED: &str = "refused";
/// The field of `annals` that keeps an event's fields whose names clash with added ones.
const BESIDE: &str = "beside";
const TTL: &str = "ttl_expires_at";

/// Why an event leaves the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveReason {
    /// When it left.
    pub at: Timestamp,
    /// Who removed it; `annals` for retention.
    pub by: Option<String>,
    /// The reason.
    pub reason: String,
    /// Whether a person deleted it, rather than its retention. If so, it stays deleted when the view is rebuilt.
    pub by_hand: bool,
}

/// Returns the declaration of `events_archive`, with Integr8sCode's indexes.
pub fn archive_collection() -> Collection {
    let mut unique = Index::on("event_id");
    unique.unique = true;
    Collection::new(EVENTS_ARCHIVE)
        .index(unique)
        .index(Index::on("timestamp"))
        .index(Index::on("deleted_at"))
        .index(Index::on("event_type"))
}

/// Removes and returns our own part of a document. If other software stored something else in that field, it is moved to `beside`.
fn own_part(document: &mut Document, beside: &mut Document) -> Document {
    match document.remove("annals") {
        Some(Bson::Document(own)) => own,
        Some(other) => {
            beside.insert("annals", other);
            Document::new()
        }
        None => Document::new(),
    }
}

/// Converts a document of the view to one of the archive.
pub fn archived_document(mut document: Document, why: &ArchiveReason) -> Document {
    let mut beside = Document::new();
    for name in ADDED {
        if let Some(value) = document.remove(name) {
            beside.insert(name, value);
        }
    }
    let mut own = own_part(&mut document, &mut beside);
    own.remove("archived");
    if why.by_hand {
        own.insert("deleted", true);
    }
    if !beside.is_empty() {
        own.insert(BESIDE, beside);
    }
    document.insert("deleted_at", DateTime::from_millis(why.at.as_millis()));
    document.insert("deleted_by", why.by.clone());
    document.insert("deletion_reason", why.reason.as_str());
    document.insert("annals", own);
    document
}

/// Returns whether a document of the archive is of an event that a person deleted.
pub fn is_deleted_by_hand(document: &Document) -> bool {
    document.get_document("annals").is_ok_and(|own| own.get_bool("deleted").unwrap_or(false))
}

/// Converts a document of the archive to one of the view. Its retention starts when it is restored.
pub fn restored_document(mut document: Document, at: Timestamp) -> Document {
    for name in ADDED.into_iter().chain([TTL, "_annals"]) {
        document.remove(name);
    }
    let mut own = document.remove("annals").and_then(|own| own.as_document().cloned()).unwrap_or_default();
    own.remove("deleted");
    if let Some(Bson::Document(beside)) = own.remove(BESIDE) {
        document.extend(beside.into_iter().filter(|(name, _)| name != "annals"));
    }
    own.insert("restored_at", DateTime::from_millis(at.as_millis()));
    document.insert("annals", own);
    document
}

/// Converts a document of the archive to JSON, as [`shown`] does for the view.
pub fn shown_archived(document: &Document) -> Value {
    let mut value = shown(document);
    let at = document.get_datetime("deleted_at").ok();
    if let (Some(at), Some(fields)) = (at, value.as_object_mut()) {
        let text = Timestamp::from_millis(at.timestamp_millis()).nearest_writable().to_string();
        if fields.contains_key("deleted_at") {
            fields.insert("deleted_at".to_owned(), text.into());
        }
    }
    value
}

/// Returns whether a document of the view is marked as copied to the archive.
pub(super) fn is_archived(document: &Document) -> bool {
    let mark = document.get_document("annals").and_then(|own| own.get_str("archived"));
    mark.is_ok_and(|mark| mark != REFUSED)
}

/// Returns when a document was last restored, in milliseconds since the Unix epoch.
pub(super) fn restored_at(document: &Document) -> Option<i64> {
    let own = document.get_document("annals").ok()?;
    own.get_datetime("restored_at").ok().map(|at| at.timestamp_millis())
}

#[cfg(test)]
pub(super) fn mark(document: &mut Document, target: &str) {
    let mut own = document.get_document("annals").cloned().unwrap_or_default();
    own.insert("archived", target);
    document.insert("annals", own);
}
