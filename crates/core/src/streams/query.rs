//! The queries on streams and their results.

use std::ops::Range;

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use super::StreamPosition;
use crate::{
    Code, Invalid, RecordedEvent, SequenceNumber,
    commit::{valid_id, valid_name},
    limits,
    query::valid_limit,
};

/// The partitions that a reader wants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Partitions {
    /// All entries, whatever their partition.
    #[default]
    All,
    /// Entries without a partition.
    Without,
    /// Entries of this partition.
    One(ByteString),
}

impl Partitions {
    /// Returns whether an entry of this partition matches.
    pub fn admits(&self, partition: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Without => partition.is_none(),
            Self::One(wanted) => partition == Some(&**wanted),
        }
    }
}

/// A query for one page of a stream: the entries from position `from` up to but not including `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamQuery {
    /// The stream's name.
    pub stream: ByteString,
    /// The first position.
    pub from: StreamPosition,
    /// The end of the range, exclusive; a value beyond the head is treated as the head.
    pub to: StreamPosition,
    /// Maximum number of entries, 1–1,000.
    pub limit: usize,
    /// The partitions to read.
    pub partitions: Partitions,
}

impl StreamQuery {
    /// Returns a query for the first page of all entries.
    pub fn new(stream: impl Into<ByteString>) -> Self {
        let stream = stream.into();
        Self { stream, from: 0, to: StreamPosition::MAX, limit: limits::PAGE_DEFAULT, partitions: Partitions::All }
    }

    /// Checks the names, the range and the limit.
    ///
    /// # Errors
    /// `invalid_name`, `invalid_id`, `invalid_range` or `invalid_query`, with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        valid_name("stream", &self.stream)?;
        valid_limit(self.limit)?;
        if let Partitions::One(partition) = &self.partitions {
            valid_id("partition", partition)?;
        }
        if self.from > self.to {
            let message = format!("from {} is after to {}", self.from, self.to);
            return Err(Invalid::new(Code::InvalidRange, "from", message));
        }
        Ok(())
    }

    /// Returns the requested range in a stream with this head.
    pub fn range(&self, head: StreamPosition) -> Range<StreamPosition> {
        self.from.min(head)..self.to.min(head)
    }
}

/// An entry of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEntry {
    /// Its position in the stream.
    pub position: StreamPosition,
    /// The sequence number of its event.
    pub sequence_number: SequenceNumber,
    /// Its partition, or `None`.
    pub partition: Option<ByteString>,
}

/// The result of a [`StreamQuery`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPage {
    /// The entries, ascending. Empty only at the end, also of a partition; a page may be shorter than its limit.
    pub entries: Vec<StreamEntry>,
    /// The position of the next page.
    pub next: StreamPosition,
    /// The number of entries in the stream, of any partition.
    pub head: StreamPosition,
}

/// An entry with its event.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamEvent {
    /// Its position in the stream.
    pub position: StreamPosition,
    /// Its partition, or `None`.
    pub partition: Option<ByteString>,
    /// The event as it is in the log now.
    pub event: RecordedEvent,
}

/// The result of a [`StreamQuery`], with the events.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamEvents {
    /// The entries, ascending. Empty only at the end, also of a partition; a page may be shorter than its limit.
    pub events: Vec<StreamEvent>,
    /// The position of the next page.
    pub next: StreamPosition,
    /// The number of entries in the stream, of any partition.
    pub head: StreamPosition,
}

/// The current state of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamInfo {
    /// Its name.
    pub name: ByteString,
    /// The number of its entries, which is the next position.
    pub head: StreamPosition,
    /// The next sequence number that its filter will evaluate.
    pub progress: SequenceNumber,
    /// The first position that this incarnation of the store assigned or will assign: 0 unless the store was restored. Entries below it
    /// are from earlier incarnations.
    pub incarnation_start: StreamPosition,
}

impl StreamInfo {
    /// Returns the state of a stream without verdicts.
    pub fn unknown(name: impl Into<ByteString>) -> Self {
        Self { name: name.into(), head: 0, progress: 0, incarnation_start: 0 }
    }
}

/// A query for a list of streams, in ascending byte order of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamsQuery {
    /// Only names after this one, which need not exist.
    pub after: Option<ByteString>,
    /// Maximum number of streams, 1–1,000.
    pub limit: usize,
}

impl Default for StreamsQuery {
    fn default() -> Self {
        Self { after: None, limit: limits::PAGE_DEFAULT }
    }
}

impl StreamsQuery {
    /// Checks the limit. `after` is only compared, so any string is valid.
    ///
    /// # Errors
    /// `invalid_query`, with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        valid_limit(self.limit)
    }
}
