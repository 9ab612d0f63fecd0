//! Converts the driver's errors to errors that say what to do. They never show credentials: the driver's messages contain none.

use std::fmt;

use annals_core::{CommitError, ReadError, StoreError};
use mongodb::Database;
use mongodb::bson::{Bson, Document, RawDocument};
use mongodb::error::{
    Error, ErrorKind, RETRYABLE_WRITE_ERROR, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT,
    WriteFailure,
};

pub(crate) use annals_core::{Code, OpenError};

use crate::layout::names::{ENTRIES, EVENT_LOG, aggregate_of};

/// Returns the server's error code.
pub(crate) fn code_of(error: &Error) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(command) => Some(command.code),
        ErrorKind::Write(WriteFailure::WriteError(write)) => Some(write.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => Some(concern.code),
        ErrorKind::InsertMany(many) => many.write_errors.as_ref().and_then(|errors| Some(errors.first()?.code)),
        ErrorKind::Custom(_) => error.get_custom::<WriteRefused>().map(|refused| refused.code),
        _ => None,
    }
}

/// Returns whether the error is temporary: another primary, or the same one a moment later, would not repeat it.
pub(crate) fn passes(error: &Error) -> bool {
    const PASSING: [i32; 19] =
        [6, 7, 43, 50, 89, 91, 112, 133, 134, 189, 237, 246, 262, 10107, 11600, 11601, 11602, 13435, 13436];
    let labels = [TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT, RETRYABLE_WRITE_ERROR];
    labels.iter().any(|label| error.contains_label(label)) || code_of(error).is_some_and(|code| PASSING.contains(&code))
}

/// The collection is not the expected one: it was dropped, renamed or recreated.
pub(crate) const COLLECTION_UUID_MISMATCH: i32 = 361;

/// A refusal in the response to a command of our own: that of a document, or that of a majority.
#[derive(Debug)]
pub(crate) struct WriteRefused {
    pub(crate) code: i32,
    pub(crate) message: String,
}

impl WriteRefused {
    /// Creates the refusal of a duplicate whose message cannot be parsed.
    pub(crate) fn duplicate() -> Self {
        Self { code: 11000, message: "a unique index already has its values".to_owned() }
    }
}

impl WriteRefused {
    /// Returns the first refusal in the response to a write command; `None` if everything was accepted.
    pub(crate) fn first(answer: &Document) -> Option<Self> {
        let first = answer.get_array("writeErrors").ok()?.first()?.as_document()?;
        let code = first.get_i32("code").unwrap_or(0);
        Some(Self { code, message: first.get_str("errmsg").unwrap_or("the server gave no reason").to_owned() })
    }
}

impl From<WriteRefused> for Error {
    fn from(refused: WriteRefused) -> Self {
        Self::custom(refused)
    }
}

/// Returns whether the server responded and the driver cannot parse the response. The server truncates a message that quotes a long value
/// within a character, as when a unique index refuses the value.
pub(crate) fn is_garbled(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Bson(_) | ErrorKind::BsonDeserialization(_))
}

/// Converts an error that occurred while a store is opened.
pub(crate) fn asking(what: &str, error: &Error) -> OpenError {
    const UNAUTHORIZED: i32 = 13;
    const AUTHENTICATION_FAILED: i32 = 18;
    match code_of(error) {
        Some(UNAUTHORIZED) => {
            let sentence = "the user may not do this; give it readWrite on the databases of the store, and \
                            readAnyDatabase on admin, which following all tenants with one change stream requires";
            OpenError::new(Code::UnsuitableServer, format!("{what}: {sentence} ({})", message_of(error)))
        }
        Some(AUTHENTICATION_FAILED) => OpenError::new(Code::UnsuitableServer, format!("{what}: {BAD_CREDENTIALS}")),
        _ if matches!(&*error.kind, ErrorKind::Authentication { .. }) => {
            OpenError::new(Code::UnsuitableServer, format!("{what}: {BAD_CREDENTIALS}"))
        }
        _ => OpenError::new(Code::Unreachable, format!("{what}: {}", message_of(error))),
    }
}

const BAD_CREDENTIALS: &str = "the server refuses the user and password; correct them in the URL, and the authSource";

/// Returns the server's message, without the driver's frame if there is one.
pub(crate) fn message_of(error: &Error) -> String {
    match &*error.kind {
        ErrorKind::Command(command) => format!("{} ({})", command.message, command.code_name),
        ErrorKind::ServerSelection { .. } => {
            "no primary answers; check that the replica set is up and that its members' names can be reached from here"
                .to_owned()
        }
        // The driver prefixes custom errors with "Custom user error".
        ErrorKind::Custom(_) => {
            let owned = error.get_custom::<String>().map(String::as_str);
            let text = owned.or_else(|| error.get_custom::<&'static str>().copied());
            let text = text.or_else(|| error.get_custom::<WriteRefused>().map(|refused| &*refused.message));
            text.map_or_else(|| error.kind.to_string(), str::to_owned)
        }
        ErrorKind::Io(error) => format!("the connection failed: {error}"),
        // The driver's message appends the whole error and the topology.
        ErrorKind::ConnectionPoolCleared { .. } => {
            "the connections to a server were closed because one failed".to_owned()
        }
        other => other.to_string(),
    }
}

/// Converts the error about a collection that a commit needs.
pub(crate) fn not_ready(error: OpenError) -> CommitError {
    CommitError::Store(unready(error))
}

/// Converts the error about a collection that is to be written to.
pub(crate) fn unready(error: OpenError) -> StoreError {
    match error.code {
        Code::Unreachable => StoreError::Unreachable(error.message),
        Code::NotReady | Code::StoreDamaged | Code::ForeignNumbers => StoreError::other(error.code, error.message),
        _ => StoreError::ReadOnly(error.message),
    }
}

/// Converts an error that occurred while reading.
pub(crate) fn reading(error: &Error) -> StoreError {
    match &*error.kind {
        ErrorKind::ServerSelection { .. } | ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. } => {
            StoreError::Unreachable(message_of(error))
        }
        _ => StoreError::Io(message_of(error)),
    }
}

/// Returns the error for an invalid document that other software wrote or changed; `why` names the field.
pub(crate) fn malformed(
    database: &Database,
    collection: &str,
    document: &RawDocument,
    why: impl fmt::Display,
) -> StoreError {
    let (database, id) = (database.name(), shown_id(document));
    let advice = advice(collection);
    let sentence = format!("{database}.{collection}: the document with the _id {id}: {why}; {advice}");
    StoreError::other(Code::MalformedDocument, sentence)
}

/// Returns what to do about a malformed document. The log cannot be read past a numbered commit that is gone.
fn advice(collection: &str) -> &'static str {
    if aggregate_of(collection).is_some() {
        return "correct it where it is stored; delete it only while `annals held list` shows it, then run `annals held retry`";
    }
    match collection {
        EVENT_LOG | ENTRIES => "correct it where it is stored, or put it back from a backup of the database",
        _ => "correct or delete it where it is stored",
    }
}

/// Returns the error for a known document that was deleted; `what` names it.
pub(crate) fn deleted(database: &Database, collection: &str, what: impl fmt::Display) -> StoreError {
    let database = database.name();
    let sentence = format!(
        "{database}.{collection}: {what} is gone, so other software has deleted it; put it back from a backup of the database"
    );
    StoreError::other(Code::MalformedDocument, sentence)
}

/// Returns the error for a commit that was numbered with `due` events, and has `there` now.
pub(crate) fn changed_count(database: &Database, collection: &str, commit: &str, due: u64, there: u64) -> StoreError {
    let database = database.name();
    let sentence = format!(
        "{database}.{collection}: the document with the _id {commit:?}: its body has {there} events, and {due} got sequence numbers, so \
         other software has changed it; put it back from a backup of the database"
    );
    StoreError::other(Code::MalformedDocument, sentence)
}

/// Returns an `_id` as it is written in queries, truncated if it is too long for a message.
fn shown_id(document: &RawDocument) -> String {
    const CHARS_MAX: usize = 300;
    let id = document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok());
    let shown = match id {
        None => "(none)".to_owned(),
        Some(Bson::Decimal128(number)) => number.to_string(),
        Some(id) => id.into_relaxed_extjson().to_string(),
    };
    match shown.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    }
}

/// Returns the error for an invalid document of this store.
pub(crate) fn unreadable(sentence: impl Into<String>) -> ReadError {
    ReadError::Store(StoreError::Damaged(sentence.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_driver_frames_is_shown_as_one_sentence() {
        assert_eq!(message_of(&Error::custom("the server does not answer")), "the server does not answer");
        assert_eq!(message_of(&Error::custom("a note".to_owned())), "a note");
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "Connection refused");
        assert_eq!(message_of(&refused.into()), "the connection failed: Connection refused");
    }

    #[test]
    fn the_advice_never_has_a_numbered_commit_deleted() {
        assert!(advice("order_event_stream").contains("only while `annals held list` shows it"));
        for collection in [EVENT_LOG, ENTRIES] {
            assert!(!advice(collection).contains("delete"), "{collection}");
        }
        assert!(advice("prepare_user").contains("correct or delete it"));
    }
}
