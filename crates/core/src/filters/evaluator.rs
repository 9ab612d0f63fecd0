//! The evaluation of events according to a definition.

use std::collections::BTreeSet;

use super::FilterDefinition;
use crate::processing::PartitionBy;
use crate::{ByteString, Included, Matcher, RecordedEvent, event_document};

/// A filter's verdict on an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The event is not in the stream.
    Excluded,
    /// The event is in the stream, in the partition that the definition determines.
    Included,
    /// The event is in the stream, in this partition.
    InPartition(ByteString),
}

/// Evaluates events according to a definition.
pub struct Evaluator {
    types: BTreeSet<ByteString>,
    matcher: Option<Matcher>,
    public: bool,
    partition_by: PartitionBy,
}

impl Evaluator {
    /// Returns an evaluator for this definition.
    pub fn new(definition: &FilterDefinition) -> Self {
        Self {
            types: definition.types.iter().cloned().collect(),
            matcher: definition.condition.as_ref().map(Matcher::new),
            public: definition.public,
            partition_by: definition.partition_by.clone().unwrap_or_default(),
        }
    }

    /// Returns whether an event passes `types` and `condition` and, if the stream is public, is public itself. A client or a function
    /// receives only such events.
    pub fn admits(&self, event: &RecordedEvent) -> bool {
        (self.types.is_empty() || self.types.contains(&event.event_type))
            && (!self.public || event.public)
            && self.matcher.as_ref().is_none_or(|matcher| matcher.matches(&event_document(event)))
    }

    /// Returns the entry of an admitted event with this verdict; none if the event is excluded.
    pub fn entry(&self, event: &RecordedEvent, verdict: Verdict) -> Option<Included> {
        let partition = match verdict {
            Verdict::Excluded => return None,
            Verdict::Included => self.partition_by.of_entry(event),
            Verdict::InPartition(partition) => PartitionBy::entry_partition(&partition),
        };
        Some(Included { sequence_number: event.sequence_number, partition })
    }

    /// Returns the entry of an event according to the definition alone; none if the event is excluded.
    pub fn declared(&self, event: &RecordedEvent) -> Option<Included> {
        if self.admits(event) { self.entry(event, Verdict::Included) } else { None }
    }
}
