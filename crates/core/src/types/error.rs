//! Errors of requests about event types.

use async_trait::async_trait;

use super::{EventTypes, PutType, TypeDefinition, TypePage, TypeStatus, UnknownTypes};
use crate::{ByteString, Code, Invalid, RecordError, StoreError};

/// Why a request about event types was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TypeError {
    /// The request breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// There is no such type.
    #[error("type {0:?} is not registered; register it with PUT /v1/types/{0}")]
    Unknown(ByteString),
    /// The schema refuses data that the previous generation accepts, or differs from the registered schema of this generation.
    #[error("generation {generation} of type {name:?} is incompatible: {path}: {reason}")]
    Incompatible {
        /// The type.
        name: ByteString,
        /// The generation to be registered.
        generation: u32,
        /// The affected part of the data, for example `data.total`.
        path: String,
        /// What breaks, and what to do.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl TypeError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::Unknown(_) => Code::UnknownType,
            Self::Incompatible { .. } => Code::TypeIncompatible,
            Self::Store(error) => error.code(),
        }
    }
}

impl From<StoreError> for TypeError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<RecordError> for TypeError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(error) => Self::Store(error),
            RecordError::Invalid(invalid) => Self::Invalid(invalid),
            // Another process changed a record that this one had read.
            other => Self::Store(StoreError::Unreachable(other.to_string())),
        }
    }
}

/// The registry of a store without one: every call is refused.
pub(crate) struct NoTypes;

fn none<T>() -> Result<T, TypeError> {
    Err(StoreError::NotSupported("a registry of event types (open the store with annals::open)".to_owned()).into())
}

#[async_trait]
impl EventTypes for NoTypes {
    async fn put(&self, _: TypeDefinition) -> Result<PutType, TypeError> {
        none()
    }

    async fn list(&self, _: Option<&str>, _: usize) -> Result<TypePage, TypeError> {
        none()
    }

    async fn get(&self, _: &str) -> Result<TypeStatus, TypeError> {
        none()
    }

    async fn unknown(&self) -> Result<UnknownTypes, TypeError> {
        none()
    }

    async fn set_unknown(&self, _: UnknownTypes) -> Result<(), TypeError> {
        none()
    }
}
