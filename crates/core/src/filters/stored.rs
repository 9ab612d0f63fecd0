//! Stored records of filters. The progress of a filter is stored with its stream.

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

/// The definition of a filter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FilterRecord {
    /// Its key.
    #[serde(rename = "_id")]
    pub key: String,
    /// The body of its definition, as JSON.
    pub definition: String,
    /// Verdicts from this sequence number on may be those of an earlier definition. The owner compares them with this one before it
    /// appends.
    #[serde(rename = "verifyFrom", default, skip_serializing_if = "Option::is_none")]
    pub verify_from: Option<i64>,
    /// When it was first defined.
    pub defined: DateTime,
    /// When it was last changed.
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
    /// The number of its failures in a row.
    pub attempts: i64,
    /// The reason of the last failure.
    pub reason: String,
    /// When it is retried; null if the definition must be put again first.
    #[serde(rename = "retryAt")]
    pub retry_at: Option<DateTime>,
    /// When it last failed.
    #[serde(rename = "lastFailed")]
    pub last_failed: DateTime,
}

/// When a filter last progressed, to the second. Its current progress is stored with its stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterProgressRecord {
    /// The filter's key.
    #[serde(rename = "_id")]
    pub key: String,
    /// The sequence number that it had reached.
    pub progress: i64,
    /// When it reached it.
    pub at: DateTime,
}

impl FilterProgressRecord {
    /// Returns the record of a filter that reached `progress` at this time.
    pub fn new(key: &str, progress: SequenceNumber, at: Timestamp) -> Self {
        Self { key: key.to_owned(), progress: progress.cast_signed(), at: date(at) }
    }
}

impl RecordType for FilterProgressRecord {
    const COLLECTION: &'static str = FILTER_PROGRESS;
}

impl RecordType for FilterRecord {
    const COLLECTION: &'static str = FILTERS;
    // The process that runs a filter follows changes that other processes make to its definition.
    const FEED: bool = true;
}

impl RecordType for FilterFailureRecord {
    const COLLECTION: &'static str = FILTER_FAILURES;
}

fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.as_millis())
}

impl FilterRecord {
    /// Returns the record of a new filter.
    pub fn of(definition: &FilterDefinition, now: Timestamp) -> Self {
        Self {
            key: definition.name.key(),
            definition: definition.write(),
            verify_from: None,
            defined: date(now),
            changed: date(now),
        }
    }

    /// Returns the record with a changed definition that was compared with all verdicts below this sequence number.
    #[must_use]
    pub fn redefined(self, definition: &FilterDefinition, compared: SequenceNumber, now: Timestamp) -> Self {
        // This comparison also verifies what an earlier change left to verify.
        let verify_from = Some(compared.cast_signed());
        Self { definition: definition.write(), verify_from, changed: date(now), ..self }
    }

    /// Reads the definition.
    ///
    /// # Errors
    /// `invalid_filter` if other software made it invalid.
    pub fn read(&self) -> Result<FilterDefinition, Invalid> {
        let FilterName { stream, .. } = FilterName::of_key(&self.key);
        FilterDefinition::read(&stream, DEFAULT_SCOPE, self.definition.as_bytes()).map_err(|error| {
            let path = format!("{FILTERS}/{}", self.key);
            Invalid::new(Code::InvalidFilter, path, format!("the stored definition is invalid: {error}"))
        })
    }
}

impl FilterFailureRecord {
    /// Returns the record of a failure at this time.
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

    /// Returns when the event is retried.
    pub fn retry_at(&self) -> Option<Timestamp> {
        self.retry_at.map(|at| Timestamp::from_millis(at.timestamp_millis()))
    }

    /// Returns the number of failures of the event in a row.
    pub fn attempts(&self) -> u32 {
        u32::try_from(self.attempts).unwrap_or(u32::MAX)
    }
}

impl FilterDefinition {
    /// Returns the definition in the Dolittle Runtime's layout. A definition that the layout cannot express becomes a remote filter.
    pub fn in_layout(&self, definitions: &dyn StreamDefinitions) -> StreamDefinition {
        let by_types = self.kind == super::FilterKind::Declared
            && self.condition.is_none()
            && self.source.is_none()
            && !self.types.is_empty()
            && !self.public;
        StreamDefinition {
            // In the layout, a public stream is partitioned.
            partitioned: self.is_partitioned() || self.public,
            public: self.public,
            types: by_types.then(|| self.types.iter().map(|name| definitions.type_id(name)).collect()),
        }
    }
}
