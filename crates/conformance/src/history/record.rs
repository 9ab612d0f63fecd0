//! The record of each call.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use annals_core::{
    Aggregate, AggregateIdsQuery, AggregateQuery, CommitError, CommitOutcome, KnownAggregate, LogQuery, NewCommit,
    NewTransaction, RecordedEvent, SequenceNumber, TransactionError, Version,
};

use super::final_log::FinalLog;
use super::sent::{Outcome, Sent};
use super::{Broken, Checked};

/// A point in the order of calls and answers, as the clients' machine saw it.
pub(crate) type Tick = u64;

#[derive(Default)]
pub(crate) struct Record {
    now: Tick,
    pub calls: Vec<Call>,
    restarts: Vec<Tick>,
    /// Each event as it was first returned.
    shown: BTreeMap<SequenceNumber, RecordedEvent>,
    pub broken: Broken,
}

pub(crate) struct Call {
    pub client: Arc<str>,
    pub began: Tick,
    /// `None` if no answer came, because the client or the store went away.
    pub ended: Option<Tick>,
    pub what: What,
}

pub(crate) enum What {
    Commit { commit: Arc<NewCommit>, answer: Option<Result<CommitOutcome, CommitError>> },
    Transact { transaction: Arc<NewTransaction>, answer: Option<Result<Vec<CommitOutcome>, TransactionError>> },
    Read { query: LogQuery, answer: Option<PageSeen> },
    ReadAggregate { query: AggregateQuery, answer: Option<CommitsSeen> },
    RequestExists { aggregate: Aggregate, request_id: String, answer: Option<bool> },
    AggregateIds { query: AggregateIdsQuery, answer: Option<Vec<KnownAggregate>> },
    Head { answer: Option<SequenceNumber> },
    WaitPast { head: SequenceNumber, answer: Option<SequenceNumber> },
}

pub(crate) struct PageSeen {
    pub numbers: Vec<SequenceNumber>,
    pub next: SequenceNumber,
    pub head: SequenceNumber,
}

pub(crate) struct CommitsSeen {
    pub version: Version,
    /// Version, first sequence number and number of events of each.
    pub commits: Vec<(Version, SequenceNumber, usize)>,
}

impl Record {
    pub fn begin(&mut self, client: &Arc<str>, what: What) -> usize {
        self.now += 1;
        self.calls.push(Call { client: client.clone(), began: self.now, ended: None, what });
        self.calls.len() - 1
    }

    pub fn end(&mut self, call: usize, answer: impl FnOnce(&mut What)) {
        self.now += 1;
        self.calls[call].ended = Some(self.now);
        answer(&mut self.calls[call].what);
    }

    /// Ends a call without an answer: its refusal has no information.
    pub fn end_untold(&mut self, call: usize) {
        self.now += 1;
        self.calls[call].ended = Some(self.now);
    }

    pub fn restarted(&mut self) {
        self.now += 1;
        self.restarts.push(self.now);
    }

    /// Returns the first restart after a call began. The call takes effect before that or never.
    pub fn restart_after(&self, began: Tick) -> Option<Tick> {
        self.restarts.get(self.restarts.partition_point(|restart| *restart < began)).copied()
    }

    /// Keeps an event that was returned, or compares it with what was returned before.
    pub fn show(&mut self, call: usize, event: &RecordedEvent) {
        let first = self.shown.entry(event.sequence_number).or_insert_with(|| event.clone());
        if first != event {
            let before = format!("{first:?}");
            let call = &self.calls[call];
            self.broken.note(format!("{call}: it was shown as\n  {event:?}\nbut earlier as\n  {before}"));
        }
    }

    /// Checks that everything that was returned is in the final log, unchanged.
    pub fn check_shown(&self, events: &[RecordedEvent], broken: &mut Broken) {
        for (number, shown) in &self.shown {
            match usize::try_from(*number).ok().and_then(|index| events.get(index)) {
                Some(event) if event == shown => {}
                Some(event) => broken.note(format!("event {number} was shown as\n  {shown:?}\nbut is\n  {event:?}")),
                None => broken.note(format!("event {number} was shown but is gone: {shown:?}")),
            }
        }
    }

    pub fn summary(&self, log: &FinalLog<'_>) -> Checked {
        let mut sum = Checked { commits: log.commits.len(), ..Checked::default() };
        for call in &self.calls {
            let Some(sent) = Sent::by(call) else {
                sum.reads += usize::from(call.ended.is_some());
                continue;
            };
            match sent.outcome() {
                Outcome::Stored(outcomes) => {
                    sum.acknowledged += outcomes.len();
                    sum.transactions += usize::from(outcomes.len() > 1);
                }
                Outcome::Repeat(_) => sum.duplicates += 1,
                Outcome::Refused(CommitError::Invalid(_) | CommitError::Store(_), _) => {}
                Outcome::Refused(error, _) => {
                    let key = matches!(error, CommitError::KeyTaken { .. } | CommitError::KeyNotHeld { .. });
                    sum.refusals += 1;
                    sum.key_refusals += usize::from(key);
                }
                Outcome::Unknown => sum.unknown += 1,
            }
        }
        sum
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.client, self.began)?;
        match self.ended {
            Some(ended) => write!(f, "-{ended}: ")?,
            None => f.write_str("-?: ")?,
        }
        match &self.what {
            What::Commit { commit, answer } => {
                let (aggregate, expected) = (&commit.aggregate, commit.expected_version);
                let request = commit.request_id.as_deref().unwrap_or("(none)");
                let count = commit.events.len();
                write!(f, "commit of {aggregate} at {expected}, request {request}, {count} events -> {answer:?}")
            }
            What::Transact { transaction, answer } => {
                f.write_str("transaction of")?;
                for commit in &transaction.commits {
                    write!(f, " {} at {},", commit.aggregate, commit.expected_version)?;
                }
                for it in &transaction.expect {
                    write!(f, " expecting {} at {},", it.aggregate, it.expected_version)?;
                }
                write!(f, " request {} -> {answer:?}", transaction.request_id.as_deref().unwrap_or("(none)"))
            }
            What::Read { query, answer } => {
                write!(f, "read {query:?}")?;
                let Some(page) = answer else { return Ok(()) };
                write!(f, " -> {:?} next {} head {}", page.numbers, page.next, page.head)
            }
            What::ReadAggregate { query, answer } => {
                write!(f, "read {query:?}")?;
                let Some(seen) = answer else { return Ok(()) };
                write!(f, " -> version {} {:?}", seen.version, seen.commits)
            }
            What::RequestExists { aggregate, request_id, answer } => {
                write!(f, "request {request_id} of {aggregate} exists -> {answer:?}")
            }
            What::AggregateIds { query, answer } => write!(f, "{query:?} -> {answer:?}"),
            What::Head { answer } => write!(f, "head -> {answer:?}"),
            What::WaitPast { head, answer } => write!(f, "wait past {head} -> {answer:?}"),
        }
    }
}
