//! Acts of operators on a handler: each has a reason, and is recorded.

use serde::{Deserialize, Serialize};

use crate::{ByteString, Code, Invalid, SequenceNumber, Timestamp, limits};

/// An act of an operator on a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Stops handing out events; those in flight can be settled.
    Pause,
    /// Resumes handing out events.
    Resume,
    /// Attempts a failing partition's event immediately, and restarts its retry policy.
    Retry(ByteString),
    /// Skips a failing partition's event: it is recorded as skipped among the parked events, and the partition continues.
    Skip {
        /// The partition.
        partition: ByteString,
        /// The position of the event that the operator means. The act is refused if another event is the next one.
        position: Option<u64>,
    },
    /// Parks the event of a failing partition, so that the partition continues.
    Park {
        /// The partition.
        partition: ByteString,
        /// The position of the event that the operator means. The act is refused if another event is the next one.
        position: Option<u64>,
    },
    /// Continues at another position, which can be anywhere up to the head. Failing partitions at that position or after it are forgotten;
    /// a move forward forgets all of them.
    Move {
        /// Where it continues.
        to: Place,
    },
    /// Redelivers events that the handler has passed, from this position up to its current one. Their deliveries are marked.
    Replay {
        /// The position at which the replay begins, at or below the current one.
        from: Place,
    },
}

/// A place in a handler's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Place {
    /// A position.
    Position(u64),
    /// An end of the source.
    End(End),
    /// The first event at or after this time.
    #[serde(rename_all = "snake_case")]
    Time {
        /// The time.
        time: Timestamp,
    },
    /// The event with this sequence number, or the first one after it.
    #[serde(rename_all = "snake_case")]
    SequenceNumber {
        /// The sequence number.
        sequence_number: SequenceNumber,
    },
}

/// An end of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Before its first event.
    Beginning,
    /// After its last event.
    Latest,
}

/// The reason for an act, and the operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The reason.
    pub reason: String,
    /// The operator, as stated in the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The body of `pause`, `resume`, `retry` and of the deletion of a handler; with a position also of `skip` and `park`, with a place of
/// `move` and `replay`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActBody {
    /// The reason, which is recorded.
    pub reason: String,
    /// The operator, who is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The position of the event to skip or park.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Where the handler continues after a move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Place>,
    /// Where a replay begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Place>,
}

/// An act in a list of acts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActEntry {
    /// Its id; a replay's deliveries carry the same id.
    pub id: ByteString,
    /// The name of the act, `delete`, or `clamp` after a restore.
    pub act: String,
    /// The failing partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<ByteString>,
    /// The position of the event that was skipped or parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// The position at which a move or a replay began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// The position at which it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// The reason.
    pub reason: String,
    /// The operator; absent if the request named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The time of the act.
    pub at: Timestamp,
}

/// A page of acts, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActPage {
    /// The acts.
    pub items: Vec<ActEntry>,
    /// The cursor of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}

/// Stands for the empty partition in a path, which cannot contain an empty segment.
const EMPTY: &str = "(empty)";

impl Act {
    /// Returns its name in the API.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Retry(_) => "retry",
            Self::Skip { .. } => "skip",
            Self::Park { .. } => "park",
            Self::Move { .. } => "move",
            Self::Replay { .. } => "replay",
        }
    }

    /// Returns the failing partition that it concerns.
    pub fn partition(&self) -> Option<&ByteString> {
        match self {
            Self::Pause | Self::Resume | Self::Move { .. } | Self::Replay { .. } => None,
            Self::Retry(partition) | Self::Skip { partition, .. } | Self::Park { partition, .. } => Some(partition),
        }
    }

    /// Returns the text that stands for a partition in a path: `(empty)` for the empty one.
    pub fn path_of(partition: &str) -> &str {
        if partition.is_empty() { EMPTY } else { partition }
    }

    /// Returns the other partition that has the same text in a path, if there is one.
    pub fn written_like(partition: &str) -> Option<ByteString> {
        (partition == EMPTY).then(ByteString::new)
    }

    /// Returns the body of its request, with this reason.
    pub fn body(&self, reason: Reason) -> ActBody {
        let Reason { reason, by } = reason;
        let (position, to, from) = match self {
            Self::Pause | Self::Resume | Self::Retry(_) => (None, None, None),
            Self::Skip { position, .. } | Self::Park { position, .. } => (*position, None, None),
            Self::Move { to } => (None, Some(*to), None),
            Self::Replay { from } => (None, None, Some(*from)),
        };
        ActBody { reason, by, position, to, from }
    }
}

impl ActBody {
    /// Reads the body as that of an act, on this partition if the act concerns one.
    ///
    /// # Errors
    /// `invalid_body` at the field that is missing or has no meaning for this act.
    pub fn read(self, act: &str, partition: Option<ByteString>) -> Result<(Act, Reason), Invalid> {
        let Self { reason, by, position, to, from } = self;
        let invalid = |path: &str, message: &str| Err(Invalid::new(Code::InvalidBody, path, message));
        let partition = partition.unwrap_or_default();
        let given = [("position", position.is_some()), ("to", to.is_some()), ("from", from.is_some())];
        let taken = match act {
            "skip" | "park" => "position",
            "move" => "to",
            "replay" => "from",
            _ => "",
        };
        if let Some((path, _)) = given.into_iter().find(|(path, given)| *given && *path != taken) {
            return invalid(path, "has no meaning for this act; leave it out");
        }
        let act = match (act, to, from) {
            ("pause", ..) => Act::Pause,
            ("resume", ..) => Act::Resume,
            ("retry", ..) => Act::Retry(partition),
            ("skip", ..) => Act::Skip { partition, position },
            ("park", ..) => Act::Park { partition, position },
            ("move", Some(to), _) => Act::Move { to },
            ("move", ..) => return invalid("to", "is missing; say where the handler continues"),
            ("replay", _, Some(from)) => Act::Replay { from },
            ("replay", ..) => return invalid("from", "is missing; say where the replay begins"),
            _ => return invalid("act", "is not known"),
        };
        let reason = Reason { reason, by };
        reason.validate()?;
        Ok((act, reason))
    }

    /// Reads the body as that of the deletion of a handler.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn of_deletion(self) -> Result<Reason, Invalid> {
        // It has the fields of the acts that need only a reason.
        self.read("pause", None).map(|(_, reason)| reason)
    }
}

impl Reason {
    /// Checks that the reason is not empty, and checks lengths.
    ///
    /// # Errors
    /// `invalid_body` at `reason` or `by`.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, message: String| Err(Invalid::new(Code::InvalidBody, path, message));
        if self.reason.trim().is_empty() {
            return invalid("reason", "is empty; give a reason, which is recorded with the act".to_owned());
        }
        if self.reason.len() > limits::REASON_BYTES_MAX {
            let message = format!("is longer than {} bytes; shorten it", limits::REASON_BYTES_MAX);
            return invalid("reason", message);
        }
        match &self.by {
            Some(by) if by.is_empty() || by.len() > limits::ID_BYTES_MAX => {
                invalid("by", format!("is not 1 to {} bytes long; correct it, or leave it out", limits::ID_BYTES_MAX))
            }
            _ => Ok(()),
        }
    }

    /// Adds the operator.
    #[must_use]
    pub fn by(self, by: impl Into<String>) -> Self {
        Self { by: Some(by.into()), ..self }
    }
}

impl From<&str> for Reason {
    fn from(reason: &str) -> Self {
        Self { reason: reason.to_owned(), by: None }
    }
}

impl From<String> for Reason {
    fn from(reason: String) -> Self {
        Self { reason, by: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(act: &str, json: &str) -> Result<(Act, Reason), Invalid> {
        serde_json::from_str::<ActBody>(json).expect(json).read(act, Some("order/a".into()))
    }

    #[test]
    fn an_act_is_read_as_it_is_written() {
        for act in [
            Act::Pause,
            Act::Retry("order/a".into()),
            Act::Skip { partition: "order/a".into(), position: Some(7) },
            Act::Move { to: Place::End(End::Latest) },
            Act::Move { to: Place::SequenceNumber { sequence_number: 3 } },
            Act::Replay { from: Place::Position(0) },
            Act::Replay { from: Place::Time { time: Timestamp::from_millis(7) } },
        ] {
            let json = serde_json::to_string(&act.body(Reason::from("why").by("me"))).expect("texts and numbers");
            assert_eq!(read(act.name(), &json), Ok((act, Reason::from("why").by("me"))), "{json}");
        }
    }

    #[test]
    fn a_reason_has_a_longest_length() {
        let longest = "x".repeat(limits::REASON_BYTES_MAX);
        assert_eq!(Reason::from(longest.as_str()).validate(), Ok(()));
        let refused = Reason::from(format!("{longest}x")).validate();
        assert_eq!(refused.map_err(|invalid| invalid.path), Err("reason".to_owned()));
    }

    #[test]
    fn a_field_that_is_missing_or_means_nothing_is_refused_by_name() {
        for (act, json, path) in [
            ("pause", r#"{"reason":" "}"#, "reason"),
            ("pause", r#"{"reason":"x","by":""}"#, "by"),
            ("pause", r#"{"reason":"x","position":1}"#, "position"),
            ("retry", r#"{"reason":"x","from":1}"#, "from"),
            ("move", r#"{"reason":"x"}"#, "to"),
            ("replay", r#"{"reason":"x"}"#, "from"),
        ] {
            assert_eq!(read(act, json).map_err(|invalid| invalid.path), Err(path.to_owned()), "{act} {json}");
        }
    }
}
