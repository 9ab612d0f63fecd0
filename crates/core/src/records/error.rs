//! Errors of records.

use bson::Document;

use super::{ChangeNumber, Revision};
use crate::{Code, Invalid, ReadError, StoreError};

/// Why a request about records was refused. Except for [`StoreError::Failed`], nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The collection was never declared.
    #[error("collection {0:?} is not declared; declare it first")]
    UnknownCollection(String),
    /// The record is not as the change expected.
    #[error("record {id} of {collection:?} is not as expected ({}); read it again and retry", found(*.actual))]
    NotAsExpected {
        /// Its collection.
        collection: String,
        /// Its `_id`, for people.
        id: String,
        /// The index of the change that expected it, from 0.
        change: usize,
        /// The record's current revision; `None` if it does not exist.
        actual: Option<Revision>,
    },
    /// Another record has the same key in a unique index.
    #[error("index {index} of {collection:?} allows one record with {key}, and another record has it")]
    DuplicateKey {
        /// The collection.
        collection: String,
        /// The index's name; `_id_` for the id.
        index: String,
        /// The fields of the index, with the values that are taken.
        key: Box<Document>,
        /// The index of the change, from 0.
        change: usize,
    },
    /// An index of this name exists with another definition.
    #[error("index {index} of {collection:?} {message}")]
    IndexConflict {
        /// The collection.
        collection: String,
        /// The index's name.
        index: String,
        /// The difference, and what to do.
        message: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn found(actual: Option<Revision>) -> String {
    actual.map_or("it does not exist".to_owned(), |revision| format!("it has revision {revision}"))
}

impl RecordError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::UnknownCollection(_) => Code::UnknownCollection,
            Self::NotAsExpected { .. } => Code::RecordConflict,
            Self::DuplicateKey { .. } => Code::DuplicateKey,
            Self::IndexConflict { .. } => Code::IndexConflict,
            Self::Store(error) => error.code(),
        }
    }

    /// Converts the error of a read, which has none of the errors of a write.
    pub fn of_reading(self) -> ReadError {
        match self {
            Self::Invalid(invalid) => invalid.into(),
            Self::Store(error) => error.into(),
            other => Invalid::new(other.code(), "records", other.to_string()).into(),
        }
    }
}

/// Why changes could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangesError {
    /// The collection was never declared.
    #[error("collection {0:?} is not declared; declare it first")]
    UnknownCollection(String),
    /// The collection has no feed.
    #[error("collection {0:?} has no feed of its changes; declare it with a feed, read it once, then follow it")]
    NoFeed(String),
    /// Changes after the given one are no longer retained.
    #[error(
        "changes after {after} are no longer retained, the oldest is {oldest}; read the collection again and follow from the newest change"
    )]
    Gone {
        /// The requested number.
        after: ChangeNumber,
        /// The oldest change that is retained.
        oldest: ChangeNumber,
    },
    /// No change has this number yet: it belongs to another store.
    #[error("there is no change {after} yet, the newest is {last}; the number belongs to another store or incarnation")]
    Unknown {
        /// The requested number.
        after: ChangeNumber,
        /// The newest change.
        last: ChangeNumber,
    },
    /// It breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ChangesError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::UnknownCollection(_) => Code::UnknownCollection,
            Self::NoFeed(_) => Code::NoFeed,
            Self::Gone { .. } => Code::ChangesGone,
            Self::Unknown { .. } => Code::UnknownChange,
            Self::Invalid(invalid) => invalid.code,
            Self::Store(error) => error.code(),
        }
    }
}
