//! What the driver says, as errors that say what to do. Nothing here shows credentials: the driver's messages hold none.

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

/// The server's code for what it refused.
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

/// Whether another primary, or the same one a moment later, would not say so again.
pub(crate) fn passes(error: &Error) -> bool {
    const PASSING: [i32; 19] =
        [6, 7, 43, 50, 89, 91, 112, 133, 134, 189, 237, 246, 262, 10107, 11600, 11601, 11602, 13435, 13436];
    let labels = [TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT, RETRYABLE_WRITE_ERROR];
    labels.iter().any(|label| error.contains_label(label)) || code_of(error).is_some_and(|code| PASSING.contains(&code))
}

/// A collection is another one than was meant: it was dropped, renamed or made again.
pub(crate) const COLLECTION_UUID_MISMATCH: i32 = 361;

/// A document that the server does not take, out of the answer to a command of our own.
#[derive(Debug)]
pub(crate) struct WriteRefused {
    pub(crate) code: i32,
    pub(crate) message: String,
}

impl WriteRefused {
    /// One of which the server's message cannot be read.
    pub(crate) fn duplicate() -> Self {
        Self { code: 11000, message: "a unique index already has its values".to_owned() }
    }
}

impl WriteRefused {
    /// The first refusal in the answer to a write command; `None` if all of it was taken.
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

/// Whether the server answered, and the driver cannot read it: the server cuts a message that quotes a long value in the middle of a
/// character, as it does where a unique index refuses the value.
pub(crate) fn is_garbled(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Bson(_) | ErrorKind::BsonDeserialization(_))
}

/// An error while a store is opened.
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

/// What the server said, without the driver's frame where there is one.
pub(crate) fn message_of(error: &Error) -> String {
    match &*error.kind {
        ErrorKind::Command(command) => format!("{} ({})", command.message, command.code_name),
        ErrorKind::ServerSelection { .. } => {
            "no primary answers; check that the replica set is up and that its members' names can be reached from here"
                .to_owned()
        }
        // The driver frames what it does not know with "Custom user error".
        ErrorKind::Custom(_) => {
            let owned = error.get_custom::<String>().map(String::as_str);
            let text = owned.or_else(|| error.get_custom::<&'static str>().copied());
            let text = text.or_else(|| error.get_custom::<WriteRefused>().map(|refused| &*refused.message));
            text.map_or_else(|| error.kind.to_string(), str::to_owned)
        }
        ErrorKind::Io(error) => format!("the connection failed: {error}"),
        // The driver's sentence goes on with the whole error and the topology.
        ErrorKind::ConnectionPoolCleared { .. } => {
            "the connections to a server were closed because one failed".to_owned()
        }
        other => other.to_string(),
    }
}

/// A collection that a commit needs is not as it must be.
pub(crate) fn not_ready(error: OpenError) -> CommitError {
    CommitError::Store(unready(error))
}

/// A collection that is to be written to is not as it must be.
pub(crate) fn unready(error: OpenError) -> StoreError {
    match error.code {
        Code::Unreachable => StoreError::Unreachable(error.message),
        Code::NotReady | Code::StoreDamaged | Code::ForeignNumbers => StoreError::other(error.code, error.message),
        _ => StoreError::ReadOnly(error.message),
    }
}

/// An error while reading.
pub(crate) fn reading(error: &Error) -> StoreError {
    match &*error.kind {
        ErrorKind::ServerSelection { .. } | ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. } => {
            StoreError::Unreachable(message_of(error))
        }
        _ => StoreError::Io(message_of(error)),
    }
}

/// A document that other software wrote or changed and that is not as it must be; `why` names the field.
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

/// What to do about a malformed document. The log cannot be read past a commit that has its numbers and is gone.
fn advice(collection: &str) -> &'static str {
    if aggregate_of(collection).is_some() {
        return "correct it where it is stored; delete it only while `annals held list` shows it, then run `annals held retry`";
    }
    match collection {
        EVENT_LOG | ENTRIES => "correct it where it is stored, or put it back from a backup of the database",
        _ => "correct or delete it where it is stored",
    }
}

/// A document that is known and is not there any more; `what` names it.
pub(crate) fn deleted(database: &Database, collection: &str, what: impl fmt::Display) -> StoreError {
    let database = database.name();
    let sentence = format!(
        "{database}.{collection}: {what} is gone, so other software has deleted it; put it back from a backup of the database"
    );
    StoreError::other(Code::MalformedDocument, sentence)
}

/// A commit that has got numbers for `due` events, and holds `there` now.
pub(crate) fn changed_count(database: &Database, collection: &str, commit: &str, due: u64, there: u64) -> StoreError {
    let database = database.name();
    let sentence = format!(
        "{database}.{collection}: the document with the _id {commit:?}: its body has {there} events, and {due} got sequence numbers, so \
         other software has changed it; put it back from a backup of the database"
    );
    StoreError::other(Code::MalformedDocument, sentence)
}

/// An `_id` as one would write it in a query, ended where it would flood a message.
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

/// A document of this store's own that is not as it was written.
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
