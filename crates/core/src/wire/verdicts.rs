//! `POST /v1/streams/{name}/verdicts`: the body and the answer.

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use crate::{Appended, Included, SequenceNumber, StreamPosition, Verdicts};

/// The body of `POST /v1/streams/{name}/verdicts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with the fields of verdicts")]
pub struct VerdictsBody {
    /// The first event that was evaluated.
    pub from: SequenceNumber,
    /// One past the last event that was evaluated.
    pub to: SequenceNumber,
    /// The events in the stream, in ascending order.
    pub included: Vec<IncludedBody>,
}

/// An event that is in a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with the fields of an included event")]
pub struct IncludedBody {
    /// The event.
    pub sequence_number: SequenceNumber,
    /// Its partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<ByteString>,
}

impl VerdictsBody {
    /// Returns the verdicts for this stream.
    pub fn of(self, stream: impl Into<ByteString>) -> Verdicts {
        let included =
            |body: IncludedBody| Included { sequence_number: body.sequence_number, partition: body.partition };
        let included = self.included.into_iter().map(included).collect();
        Verdicts { stream: stream.into(), from: self.from, to: self.to, included, public: false }
    }
}

impl From<&Verdicts> for VerdictsBody {
    fn from(verdicts: &Verdicts) -> Self {
        let included =
            |one: &Included| IncludedBody { sequence_number: one.sequence_number, partition: one.partition.clone() };
        Self { from: verdicts.from, to: verdicts.to, included: verdicts.included.iter().map(included).collect() }
    }
}

/// The answer to `POST /v1/streams/{name}/verdicts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppendedAnswer {
    /// The positions of the included events.
    pub positions: PositionRange,
    /// Whether these verdicts were appended before.
    pub duplicate: bool,
}

/// The positions from `from` to before `to`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionRange {
    /// The first.
    pub from: StreamPosition,
    /// One past the last.
    pub to: StreamPosition,
}

impl From<Appended> for AppendedAnswer {
    fn from(appended: Appended) -> Self {
        let positions = PositionRange { from: appended.positions.start, to: appended.positions.end };
        Self { positions, duplicate: appended.duplicate }
    }
}

impl From<AppendedAnswer> for Appended {
    fn from(answer: AppendedAnswer) -> Self {
        Self { positions: answer.positions.from..answer.positions.to, duplicate: answer.duplicate }
    }
}

/// The answer to `GET /v1/streams/{name}/positions/{sequence_number}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionAnswer {
    /// The first position whose event has this sequence number or a greater one.
    pub position: StreamPosition,
}
