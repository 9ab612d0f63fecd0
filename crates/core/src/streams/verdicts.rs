//! The verdicts of a filter on events, and the outcome of appending them.

use std::ops::Range;

use bytestring::ByteString;

use super::StreamPosition;
use crate::{
    Code, Invalid, SequenceNumber,
    commit::{valid_id, valid_name},
    limits,
};

/// The verdicts of a filter on every event from `from` to before `to`: those in `included` are in the stream, the others are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdicts {
    /// The stream's name, for example `stream-0f8e…`.
    pub stream: ByteString,
    /// The first event that was evaluated: the filter's progress.
    pub from: SequenceNumber,
    /// One past the last event that was evaluated: the filter's next progress.
    pub to: SequenceNumber,
    /// The events in the stream, in ascending order; at most 10,000.
    pub included: Vec<Included>,
    /// Whether the stream is public. It matters when the first verdicts create the stream, in layouts that keep public streams apart;
    /// afterwards it has no effect. A stream whose name begins with `public-stream-` is always public.
    pub public: bool,
}

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Included {
    /// The sequence number of the event.
    pub sequence_number: SequenceNumber,
    /// Its partition; `None` in a stream without partitions.
    pub partition: Option<ByteString>,
}

impl Included {
    /// Includes an event without a partition.
    pub fn new(sequence_number: SequenceNumber) -> Self {
        Self { sequence_number, partition: None }
    }

    /// Includes an event in a partition.
    pub fn of(sequence_number: SequenceNumber, partition: impl Into<ByteString>) -> Self {
        Self { sequence_number, partition: Some(partition.into()) }
    }
}

impl Verdicts {
    /// Creates verdicts on the events from `from` to before `to`, none of which is included yet.
    pub fn new(stream: impl Into<ByteString>, judged: Range<SequenceNumber>) -> Self {
        Self { stream: stream.into(), from: judged.start, to: judged.end, included: Vec::new(), public: false }
    }

    /// Includes an event.
    #[must_use]
    pub fn include(mut self, included: Included) -> Self {
        self.included.push(included);
        self
    }

    /// Checks the name and the range, and that the included events are in ascending order and within the range.
    ///
    /// # Errors
    /// `invalid_name`, `invalid_range`, `invalid_verdicts` or `invalid_id`, with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        valid_name("stream", &self.stream)?;
        if self.from >= self.to {
            let message =
                format!("the verdicts begin at {} and end before {}; cover at least one event", self.from, self.to);
            return Err(Invalid::new(Code::InvalidRange, "to", message));
        }
        if self.included.len() > limits::VERDICTS_MAX {
            let message =
                format!("{} events are more than {}; append fewer at once", self.included.len(), limits::VERDICTS_MAX);
            return Err(Invalid::new(Code::InvalidVerdicts, "included", message));
        }
        let mut next = self.from;
        for (n, included) in self.included.iter().enumerate() {
            let at = included.sequence_number;
            if !(next..self.to).contains(&at) {
                let path = format!("included[{n}].sequence_number");
                let message =
                    format!("{at} is not between {next} and {}; include events once and in order", self.to - 1);
                return Err(Invalid::new(Code::InvalidVerdicts, path, message));
            }
            if let Some(partition) = &included.partition {
                valid_id("partition", partition)
                    .map_err(|invalid| Invalid { path: format!("included[{n}].partition"), ..invalid })?;
            }
            next = at + 1;
        }
        Ok(())
    }
}

/// The outcome of accepted verdicts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The positions of the included events, in order. Empty, at the next free position, if none was included.
    pub positions: Range<StreamPosition>,
    /// True if these verdicts were appended before: nothing was added, and this is the original outcome.
    pub duplicate: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(verdicts: &Verdicts) -> (Code, String) {
        let invalid = verdicts.validate().expect_err("must be refused");
        (invalid.code, invalid.path)
    }

    #[test]
    fn good_verdicts_are_valid() {
        let all = Verdicts::new("stream-1", 5..8).include(Included::new(5)).include(Included::of(7, "p/1"));
        assert_eq!(all.validate(), Ok(()));
        assert_eq!(Verdicts::new("stream-1", 5..6).validate(), Ok(()));
        assert_eq!(Verdicts::new("s", u64::MAX - 1..u64::MAX).include(Included::new(u64::MAX - 1)).validate(), Ok(()));
    }

    #[test]
    fn each_broken_rule_is_refused_with_its_code_and_path() {
        let name = |name: &str| refused(&Verdicts::new(name, 0..1));
        for bad in ["", "-s", "a b", "ä", &"n".repeat(101)] {
            assert_eq!(name(bad), (Code::InvalidName, "stream".into()));
        }
        assert_eq!(refused(&Verdicts::new("s", 3..3)), (Code::InvalidRange, "to".into()));
        assert_eq!(refused(&Verdicts { from: 4, ..Verdicts::new("s", 3..3) }).0, Code::InvalidRange);
        let base = Verdicts::new("s", 3..6).include(Included::new(4));
        for bad in [0, 2, 3, 4, 6, u64::MAX] {
            let path = "included[1].sequence_number".into();
            assert_eq!(refused(&base.clone().include(Included::new(bad))), (Code::InvalidVerdicts, path), "{bad}");
        }
        assert_eq!(
            refused(&base.clone().include(Included::of(5, ""))),
            (Code::InvalidId, "included[1].partition".into())
        );
        assert_eq!(refused(&base.include(Included::of(5, "a\0"))).0, Code::InvalidId);
        let many = (0..10_001).fold(Verdicts::new("s", 0..20_000), |all, n| all.include(Included::new(n)));
        assert_eq!(refused(&many), (Code::InvalidVerdicts, "included".into()));
    }
}
