//! What can go wrong with records.

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
    #[error("record {id} of {collection:?} is not as expected ({}); read it again and decide anew", found(*.actual))]
    NotAsExpected {
        /// Its collection.
        collection: String,
        /// Its `_id`, for people.
        id: String,
        /// Which of the changes expected it, from 0.
        change: usize,
        /// The record's revision now; none when there is no such record.
        actual: Option<Revision>,
    },
    /// Another record has the same entry in a unique index.
    #[error("index {index} of {collection:?} allows one record with {key}; another one has it")]
    DuplicateKey {
        /// The collection.
        collection: String,
        /// The index's name; `_id_` for the id.
        index: String,
        /// The fields of the index and the values that are taken.
        key: Box<Document>,
        /// Which of the changes it was, from 0.
        change: usize,
    },
    /// An index of this name is there and is something else.
    #[error("index {index} of {collection:?} {message}")]
    IndexConflict {
        /// The collection.
        collection: String,
        /// The index's name.
        index: String,
        /// What differs, and what to do.
        message: String,
    },
    /// The store cannot do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn found(actual: Option<Revision>) -> String {
    actual.map_or("it is not there".to_owned(), |revision| format!("it has revision {revision}"))
}

impl RecordError {
    /// The stable code of this error.
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

    /// Why records were not read; what can only go wrong with changes then does not.
    pub fn of_reading(self) -> ReadError {
        match self {
            Self::Invalid(invalid) => invalid.into(),
            Self::Store(error) => error.into(),
            other => Invalid::new(other.code(), "records", other.to_string()).into(),
        }
    }
}

/// Why changes cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangesError {
    /// Changes after the given one are not kept any more.
    #[error(
        "changes after {after} are gone, the oldest that is kept is {oldest}; read the collections anew and follow from the newest change"
    )]
    Gone {
        /// What was asked for.
        after: ChangeNumber,
        /// The oldest change that is kept.
        oldest: ChangeNumber,
    },
    /// No change has this number yet: it is another store's.
    #[error(
        "change {after} has not happened here, the newest is {last}; the number is of another store or incarnation"
    )]
    Unknown {
        /// What was asked for.
        after: ChangeNumber,
        /// The newest change.
        last: ChangeNumber,
    },
    /// It breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The store cannot answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ChangesError {
    /// The stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Gone { .. } => Code::ChangesGone,
            Self::Unknown { .. } => Code::UnknownChange,
            Self::Invalid(invalid) => invalid.code,
            Self::Store(error) => error.code(),
        }
    }
}
