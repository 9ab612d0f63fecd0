//! The state of a processor as a document of the Dolittle Runtime's collection `stream-processor-states`.
//!
//! Annals stores states in its own records. The layout keeps all failing partitions of a processor in one document, which every settlement
//! would rewrite. Tools that read the layout get these documents instead.

use bson::{Bson, DateTime, Decimal128, Document, doc};

use crate::names::{stream_uuid, uuid_of};
use crate::processing::{Failing, NO_PARTITION};
use crate::{SequenceNumber, Timestamp};

/// The layout's retry time if there is no further attempt.
const NEVER: DateTime = DateTime::from_millis(Timestamp::LAST_WRITABLE.as_millis());
/// The layout's value for a time that has not come yet: 0001-01-01.
const NOT_YET: DateTime = DateTime::from_millis(-62_135_596_800_000);
const NIL: bson::Uuid = bson::Uuid::from_bytes([0; 16]);

/// The state of a handler or a filter, in the terms of Annals.
#[derive(Debug, Clone, PartialEq)]
pub struct StateDocument<'a> {
    /// The handler or filter.
    pub of: StateOf<'a>,
    /// Whether its events have partitions.
    pub is_partitioned: bool,
    /// Its position in its source, and the sequence number of the event there or of the next one.
    pub place: (u64, SequenceNumber),
    /// When it last processed an event successfully. A failure does not change it, although the position of a processor with partitions
    /// moves past the failed event; nor does an operator who skips one. A success of a failing partition does, although the position stays.
    pub last_success: Option<Timestamp>,
    /// Its failing partitions, each with the sequence number of its next event.
    pub failing: Vec<(Failing, SequenceNumber)>,
}

/// The processor that a state belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateOf<'a> {
    /// A handler, and the stream that it reads; none if it reads the log.
    Handler(&'a str, Option<&'a str>),
    /// The filter of a stream.
    Filter(&'a str),
}

impl StateDocument<'_> {
    /// Returns the document without its `_id`, which the layout does not use: `EventProcessor` and `SourceStream` identify it.
    pub fn to_document(&self) -> Document {
        let (processor, source) = match self.of {
            // In the layout, a handler of the log has a virtual stream of its own.
            StateOf::Handler(name, None) => (uuid(uuid_of("handler", name)), uuid(uuid_of("handler", name))),
            StateOf::Handler(name, Some(stream)) => (uuid(uuid_of("handler", name)), uuid(stream_uuid(stream))),
            StateOf::Filter(stream) => (uuid(stream_uuid(stream)), NIL),
        };
        let mut document = doc! {
            "Partitioned": self.is_partitioned,
            "EventProcessor": processor,
            "SourceStream": source,
            "Position": decimal(self.place.0),
            "EventLogPosition": decimal(self.place.1),
            "LastSuccessfullyProcessed": self.last_success.map_or(NOT_YET, date),
        };
        if self.is_partitioned {
            let entry = |(failing, number): &(Failing, SequenceNumber)| {
                (failing.partition.to_string(), Bson::Document(partition(failing, *number)))
            };
            document.insert("FailingPartitions", self.failing.iter().map(entry).collect::<Document>());
            return document;
        }
        let failing = self.failing.iter().map(|(failing, _)| failing).find(|failing| failing.attempts > 0);
        document.extend(doc! {
            "RetryTime": failing.map_or_else(|| self.last_success.map_or(NOT_YET, date), retry),
            "FailureReason": failing.map_or("", |failing| &failing.reason),
            "ProcessingAttempts": failing.map_or(0, attempts),
            "IsFailing": failing.is_some(),
        });
        document
    }
}

/// Returns the entry of a failing partition. It is one value under the partition's name, whatever dots and dollar signs the name contains.
fn partition(failing: &Failing, number: SequenceNumber) -> Document {
    let reason = if failing.attempts == 0 { "behind" } else { &failing.reason };
    doc! {
        "Position": decimal(failing.position),
        "EventLogPosition": decimal(number),
        "RetryTime": retry(failing),
        "Reason": reason,
        "ProcessingAttempts": attempts(failing),
        "LastFailed": date(failing.last_failed),
    }
}

fn retry(failing: &Failing) -> DateTime {
    failing.retry_at.map_or(NEVER, date)
}

fn attempts(failing: &Failing) -> i32 {
    i32::try_from(failing.attempts).unwrap_or(i32::MAX)
}

fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.as_millis())
}

fn uuid(id: uuid::Uuid) -> bson::Uuid {
    bson::Uuid::from_bytes(id.into_bytes())
}

fn decimal(number: u64) -> Decimal128 {
    // The digits of a u64 fit into the 34 digits of a Decimal128.
    number.to_string().parse().unwrap_or_else(|_| Decimal128::from_bytes([0; 16]))
}

/// Returns the failure of a processor without partitions, which the layout stores in the processor's own fields.
pub fn unpartitioned_failure(position: u64, (attempts, reason): (u32, &str), retry_at: Option<Timestamp>) -> Failing {
    Failing {
        partition: NO_PARTITION.into(),
        position,
        sequence_number: position,
        attempts,
        reason: reason.to_owned(),
        last_failed: Timestamp::default(),
        retry_at,
        since: Timestamp::default(),
        event_time: Timestamp::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(partition: &str, attempts: u32, retry_at: Option<i64>) -> (Failing, SequenceNumber) {
        let failing = Failing {
            partition: partition.into(),
            last_failed: Timestamp::from_millis(5),
            ..unpartitioned_failure(7, (attempts, "down"), retry_at.map(Timestamp::from_millis))
        };
        (failing, 9)
    }

    #[test]
    fn a_partitioned_state_has_an_entry_for_each_failing_partition_whatever_its_name() {
        let names = ["", "a.b", "$x", "a.$", "order/o-1"];
        let state = StateDocument {
            of: StateOf::Handler("2b4a0c1e-0000-4000-8000-000000000001", None),
            is_partitioned: true,
            place: (12, 12),
            last_success: Some(Timestamp::from_millis(1_000)),
            failing: names.iter().map(|name| failing(name, 2, Some(9_000))).collect(),
        };
        let document = state.to_document();
        let id = bson::Uuid::parse_str("2b4a0c1e-0000-4000-8000-000000000001").expect("a UUID");
        assert_eq!(
            (document.get("EventProcessor"), document.get("SourceStream")),
            (Some(&id.into()), Some(&id.into()))
        );
        assert_eq!(document.get_bool("Partitioned").ok(), Some(true));
        let last_success = document.get_datetime("LastSuccessfullyProcessed").ok();
        assert_eq!(last_success, Some(&DateTime::from_millis(1_000)));
        assert_eq!(document.get("Position").map(Bson::to_string).as_deref(), Some("12"));
        // It is what a reader of the stored bytes sees.
        let bytes = bson::serialize_to_vec(&document).expect("bytes");
        let read: Document = bson::deserialize_from_slice(&bytes).expect("a document");
        let partitions = read.get_document("FailingPartitions").expect("a document");
        assert_eq!(partitions.keys().map(String::as_str).collect::<Vec<_>>(), names);
        let one = partitions.get_document("a.b").expect("an entry");
        let expected = doc! {
            "Position": decimal(7), "EventLogPosition": decimal(9), "RetryTime": DateTime::from_millis(9_000),
            "Reason": "down", "ProcessingAttempts": 2, "LastFailed": DateTime::from_millis(5),
        };
        assert_eq!(*one, expected);
        assert!(document.get("IsFailing").is_none(), "that is a field of the other shape");
    }

    #[test]
    fn a_state_without_partitions_says_whether_it_fails_and_until_when() {
        let sound = StateDocument {
            of: StateOf::Filter("orders"),
            is_partitioned: false,
            place: (3, 3),
            last_success: None,
            failing: Vec::new(),
        };
        let document = sound.to_document();
        let of =
            |document: &Document| (document.get_bool("IsFailing").ok(), document.get_i32("ProcessingAttempts").ok());
        assert_eq!(of(&document), (Some(false), Some(0)));
        assert_eq!(document.get("SourceStream"), Some(&NIL.into()), "a filter reads the log");
        assert_eq!(document.get_datetime("LastSuccessfullyProcessed").ok(), Some(&NOT_YET));
        let never = StateDocument { failing: vec![failing(NO_PARTITION, 4, None)], ..sound };
        let document = never.to_document();
        assert_eq!(document.get_datetime("RetryTime").ok(), Some(&NEVER));
        assert_eq!((document.get_str("FailureReason").ok(), of(&document)), (Some("down"), (Some(true), Some(4))));
        assert!(document.get("FailingPartitions").is_none());
    }
}
