//! The collections of a scope's streams, and the log that the streams are derived from.

use std::sync::Arc;

use annals_core::{Code, Invalid, ReadError, RecordedEvent, SequenceNumber};
use mongodb::Database;

use crate::layout::names::{EVENT_LOG, STREAMS, of_scope, stream_collection};
use crate::log::{Log, Means};
use crate::scope::ScopeLog;

/// The log that streams are derived from.
#[derive(Clone)]
pub(crate) enum LogOfStreams {
    Default(Arc<Log>),
    Scope(Arc<ScopeLog>),
}

impl LogOfStreams {
    /// Returns the highest head that this process has seen.
    pub(super) fn seen(&self) -> SequenceNumber {
        match self {
            Self::Default(log) => log.numbers.seen(),
            Self::Scope(log) => log.seen(),
        }
    }

    pub(super) fn means(&self) -> &Means {
        match self {
            Self::Default(log) => &log.means,
            Self::Scope(log) => &log.means,
        }
    }

    /// Returns the number of events in the log, at majority.
    pub(super) async fn head(&self) -> Result<SequenceNumber, ReadError> {
        match self {
            Self::Default(log) => log.read_log_head().await,
            Self::Scope(log) => log.read_head().await,
        }
    }

    /// Returns the events with these numbers, which are ascending and below the head. It ends early if they are large, but returns at
    /// least one.
    pub(super) async fn events(&self, numbers: &[SequenceNumber]) -> Result<Vec<RecordedEvent>, ReadError> {
        match self {
            Self::Default(log) => log.events(numbers).await,
            Self::Scope(log) => log.events(numbers).await,
        }
    }

    pub(super) fn collections(&self) -> Collections {
        match self {
            Self::Default(log) => {
                let (events, states) = (EVENT_LOG.to_owned(), STREAMS.to_owned());
                Collections { database: log.database.clone(), events, states, scope: None }
            }
            Self::Scope(log) => {
                let (events, states) = (log.collection.clone(), log.states.clone());
                Collections { database: log.database.clone(), events, states, scope: Some(log.id) }
            }
        }
    }
}

/// The collections of a scope's streams.
pub(super) struct Collections {
    pub(super) database: Database,
    /// The collection of the log's events.
    pub(super) events: String,
    /// The collection of the streams' states.
    pub(super) states: String,
    scope: Option<uuid::Uuid>,
}

impl Collections {
    /// Returns the collection of the entries of a stream.
    ///
    /// # Errors
    /// If the stream is public and the scope is not the default one.
    pub(super) fn collection_of(&self, stream: &str, public: bool) -> Result<String, Invalid> {
        let collection = stream_collection(stream, public);
        let Some(scope) = self.scope else { return Ok(collection) };
        if collection.starts_with("public-stream-") {
            let message =
                format!("{stream:?} would be a public stream, which only the default scope has; use another name");
            return Err(Invalid::new(Code::InvalidName, "stream", message));
        }
        Ok(of_scope(scope, &collection))
    }
}
