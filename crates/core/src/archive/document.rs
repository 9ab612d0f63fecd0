//! Documents of the archive: those of the view with every field, and when, by whom and why they left it.

use bson::{Bson, DateTime, Document};
use serde_json::Value;

use super::EVENTS_ARCHIVE;
use crate::browse::shown;
use crate::{Collection, Index, Timestamp};

/// Where a document of the view says that the archive holds a copy of it.
pub const ARCHIVED_MARK: &str = "annals.archived";
/// The fields that the archive adds. Fields of the event with these names are kept in `annals.beside`.
const ADDED: [&str; 3] = ["deleted_at", "deleted_by", "deletion_reason"];
/// The mark of a document that the archive refused.
const REFUSED: &str = "refused";
/// Under which name of `annals` fields are kept that have the name of an added one.
const BESIDE: &str = "beside";
const TTL: &str = "ttl_expires_at";

/// Why an event leaves the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveReason {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: Option<String>,
    /// Why.
    pub reason: String,
    /// Whether a person deleted it, and not its retention. It then stays deleted when the view is rebuilt.
    pub by_hand: bool,
}

/// The declaration of `events_archive`, with Integr8sCode's indexes.
pub fn archive_collection() -> Collection {
    let mut unique = Index::on("event_id");
    unique.unique = true;
    Collection::new(EVENTS_ARCHIVE)
        .index(unique)
        .index(Index::on("timestamp"))
        .index(Index::on("deleted_at"))
        .index(Index::on("event_type"))
}

/// Our own part of a document; where other software has a field of that name which is no document, that one is moved aside.
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

/// Returns the document of the archive for one of the view.
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

/// Whether a document of the archive is of an event that a person deleted.
pub fn is_deleted_by_hand(document: &Document) -> bool {
    document.get_document("annals").is_ok_and(|own| own.get_bool("deleted").unwrap_or(false))
}

/// Returns the document of the view for one of the archive. Its retention begins at the time of its restoration.
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

/// Returns a document of the archive as JSON, as [`shown`] does for the view.
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

/// A mark of a document of the view: the archive holds a copy.
pub(super) fn is_archived(document: &Document) -> bool {
    let mark = document.get_document("annals").and_then(|own| own.get_str("archived"));
    mark.is_ok_and(|mark| mark != REFUSED)
}

/// When a document was restored last.
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
