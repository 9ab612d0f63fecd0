//! What is stored of filters. How far each has come is stored with its stream.

use bson::DateTime;
use serde::{Deserialize, Serialize};

use super::{FilterDefinition, FilterName};
use crate::{Code, DEFAULT_SCOPE, Invalid, RecordType, SequenceNumber, StreamDefinition, StreamDefinitions, Timestamp};

/// The collection of definitions.
pub const FILTERS: &str = "annals-filters";
/// The collection of failures: one record for each filter whose next event failed.
pub const FILTER_FAILURES: &str = "annals-filter-failures";

/// The collection of the times at which filters progressed.
pub const FILTER_PROGRESS: &str = "annals-filter-progress";

/// A filter as it is defined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FilterRecord {
    /// Its key.
    #[serde(rename = "_id")]
    pub key: String,
    /// The body of its definition, as JSON.
    pub definition: String,
    /// Verdicts from this sequence number on may be of an earlier definition. Before the owner appends, it compares them with this one.
    #[serde(rename = "verifyFrom", default, skip_serializing_if = "Option::is_none")]
    pub verify_from: Option<i64>,
    /// When it was defined first.
    pub defined: DateTime,
    /// When it was changed last.
    pub changed: DateTime,
}

/// The failure of a filter's next event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FilterFailureRecord {
    /// The filter's key.
    #[serde(rename = "_id")]
    pub key: String,
    /// The event that failed.
    #[serde(rename = "sequenceNumber")]
    pub sequence_number: i64,
    /// How often it has failed in a row.
    pub attempts: i64,
    /// What the last failure said.
    pub reason: String,
    /// When it is attempted again; null when the definition must be put again first.
    #[serde(rename = "retryAt")]
    pub retry_at: Option<DateTime>,
    /// When it failed last.
    #[serde(rename = "lastFailed")]
    pub last_failed: DateTime,
}

/// When a filter progressed, to a second. How far it is, is the progress of its stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterProgressRecord {
    /// The filter's key.
    #[serde(rename = "_id")]
    pub key: String,
    /// The sequence number that it came to.
    pub progress: i64,
    /// When it did.
    pub at: DateTime,
}

impl FilterProgressRecord {
    /// The record of a filter that came so far at this time.
    pub fn new(key: &str, progress: SequenceNumber, at: Timestamp) -> Self {
        Self { key: key.to_owned(), progress: progress.cast_signed(), at: date(at) }
    }
}

impl RecordType for FilterProgressRecord {
    const COLLECTION: &'static str = FILTER_PROGRESS;
}

impl RecordType for FilterRecord {
    const COLLECTION: &'static str = FILTERS;
    // Processes that run a filter follow what others do to its definition.
    const FEED: bool = true;
}

impl RecordType for FilterFailureRecord {
    const COLLECTION: &'static str = FILTER_FAILURES;
}

fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.as_millis())
}

impl FilterRecord {
    /// The record of a new filter.
    pub fn of(definition: &FilterDefinition, now: Timestamp) -> Self {
        Self {
            key: definition.name.key(),
            definition: definition.write(),
            verify_from: None,
            defined: date(now),
            changed: date(now),
        }
    }

    /// The same filter with a changed definition, which was compared with all verdicts below this sequence number.
    #[must_use]
    pub fn redefined(self, definition: &FilterDefinition, compared: SequenceNumber, now: Timestamp) -> Self {
        // What an earlier change left to be verified is verified by this comparison.
        let verify_from = Some(compared.cast_signed());
        Self { definition: definition.write(), verify_from, changed: date(now), ..self }
    }

    /// The definition.
    ///
    /// # Errors
    /// `invalid_filter` when other software made it invalid.
    pub fn read(&self) -> Result<FilterDefinition, Invalid> {
        let FilterName { stream, .. } = FilterName::of_key(&self.key);
        FilterDefinition::read(&stream, DEFAULT_SCOPE, self.definition.as_bytes()).map_err(|error| {
            let path = format!("{FILTERS}/{}", self.key);
            Invalid::new(Code::InvalidFilter, path, format!("the stored definition is invalid: {error}"))
        })
    }
}

impl FilterFailureRecord {
    /// The record of a failure at this time.
    pub fn new(
        key: &str,
        sequence_number: SequenceNumber,
        (attempts, reason): (u32, &str),
        (now, retry_at): (Timestamp, Option<Timestamp>),
    ) -> Self {
        Self {
            key: key.to_owned(),
            sequence_number: sequence_number.cast_signed(),
            attempts: attempts.into(),
            reason: reason.to_owned(),
            retry_at: retry_at.map(date),
            last_failed: date(now),
        }
    }

    /// When the event is attempted again.
    pub fn retry_at(&self) -> Option<Timestamp> {
        self.retry_at.map(|at| Timestamp::from_millis(at.timestamp_millis()))
    }

    /// How often the event has failed in a row.
    pub fn attempts(&self) -> u32 {
        u32::try_from(self.attempts).unwrap_or(u32::MAX)
    }
}

impl FilterDefinition {
    /// Returns the definition as the Dolittle Runtime's layout has it. What that has no place for makes it a remote filter.
    pub fn in_layout(&self, definitions: &dyn StreamDefinitions) -> StreamDefinition {
        let by_types = self.kind == super::FilterKind::Declared
            && self.condition.is_none()
            && self.source.is_none()
            && !self.types.is_empty()
            && !self.public;
        StreamDefinition {
            // In the layout a public stream is partitioned.
            partitioned: self.is_partitioned() || self.public,
            public: self.public,
            types: by_types.then(|| self.types.iter().map(|name| definitions.type_id(name)).collect()),
        }
    }
}
