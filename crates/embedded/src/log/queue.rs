//! Commits that wait for the log writer. While one batch is being made durable, the next one gathers here: group commit.

use std::sync::{Condvar, Mutex, PoisonError};

use annals_core::{Aggregate, ByteString, ExpectedVersion, StoreError, Timestamp, Version};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::conditions::{Condition, Match, Patterns};
use super::keys::{Change, KeyFault};
use super::lookup::Found;
use crate::index::Head;
use crate::terms::{ExactTerm, Term};

/// A commit or transaction that waits for its verdict.
pub(super) struct Waiting {
    pub(super) request: Box<Request>,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// The unit that is checked as a whole: a commit, or all commits of a transaction.
pub(super) struct Request {
    pub(super) first: Encoded,
    /// `None` if the request id is the commit's own fresh id, which cannot repeat.
    pub(super) request_id: Option<ByteString>,
    /// The request id was looked up in all segments below this number.
    pub(super) request_probed_below: u64,
    /// The original commit of this request, if the look-up found one.
    pub(super) repeats: Option<Found>,
    /// When the request was accepted.
    pub(super) now: Timestamp,
    /// For a copy: the sequence number that its first event must get. A copy was checked in the log it comes from.
    pub(super) copied_to: Option<u64>,
    /// The further commits of a transaction.
    pub(super) others: Vec<Encoded>,
    pub(super) expect: Vec<Expected>,
    /// The patterns of its append conditions; empty before they are searched for.
    pub(super) patterns: Patterns,
    /// Its share of the bytes that may be queued.
    pub(super) _room: OwnedSemaphorePermit,
}

impl Request {
    /// Creates the request for a single commit.
    pub(super) fn commit_of(
        first: Encoded,
        request_id: Option<ByteString>,
        now: Timestamp,
        room: OwnedSemaphorePermit,
    ) -> Box<Self> {
        let (others, expect) = (Vec::new(), Vec::new());
        Box::new(Self {
            first,
            request_id,
            request_probed_below: 0,
            repeats: None,
            now,
            copied_to: None,
            others,
            expect,
            patterns: Patterns::default(),
            _room: room,
        })
    }

    /// Returns the commits, in order.
    pub(super) fn commits(&self) -> impl Iterator<Item = &Encoded> + Clone {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Returns the append conditions, in the order of their commits.
    pub(super) fn conditions_mut(&mut self) -> impl Iterator<Item = &mut Condition> {
        let commits = std::iter::once(&mut self.first).chain(&mut self.others);
        commits.filter_map(|commit| commit.condition.as_deref_mut())
    }

    /// Returns the commit at this place.
    pub(super) fn commit(&self, place: usize) -> &Encoded {
        place.checked_sub(1).map_or(&self.first, |place| &self.others[place])
    }
}

/// An encoded commit, with everything that the log writer needs to know about it.
pub(super) struct Encoded {
    pub(super) aggregate: Aggregate,
    pub(super) aggregate_term: ExactTerm,
    pub(super) request_term: ExactTerm,
    pub(super) tenant_id: ByteString,
    pub(super) expected: ExpectedVersion,
    pub(super) condition: Option<Box<Condition>>,
    pub(super) keys: Vec<Change>,
    /// The terms of its types, its tags and the aggregate's name.
    pub(super) terms: Vec<Term>,
    /// 0 if the commit only changes prepare keys. Such a commit has no aggregate, expects no version and repeats no request.
    pub(super) events: u32,
    pub(super) payload: Vec<u8>,
    pub(super) payload_crc: u32,
    pub(super) probed: ProbedHead,
}

/// A transaction's expectation of an aggregate to which it does not commit.
pub(super) struct Expected {
    pub(super) aggregate: Aggregate,
    pub(super) aggregate_term: ExactTerm,
    pub(super) version: ExpectedVersion,
    pub(super) probed: ProbedHead,
}

/// The head of an aggregate as the caller found it before queuing.
#[derive(Default)]
pub(super) struct ProbedHead {
    /// The aggregate was looked up in all segments below this number; 0 if its head was cached and nothing was looked up.
    pub(super) below: u64,
    /// The head according to those segments.
    pub(super) head: Option<Head>,
}

/// The verdict, together with the request, so that its memory is freed by the thread that allocated it. The verdict is `None` if the
/// append conditions must be searched further first.
pub(super) type Answer = (Result<Option<Verdict>, StoreError>, Box<Request>);

/// The outcome of the log writer's checks.
pub(super) enum Verdict {
    Committed {
        sequence_number: u64,
        versions: Versions,
    },
    /// The request was committed before. The caller determines whether its content is the same.
    Repeat(Found),
    Refused(Part, Refusal),
}

/// One version for each commit of a request. Nearly always there is only one, which needs no allocation.
#[derive(Debug, Default)]
pub(super) struct Versions {
    first: Option<Version>,
    others: Vec<Version>,
}

impl Versions {
    pub(super) fn push(&mut self, version: Version) {
        match self.first {
            None => self.first = Some(version),
            Some(_) => self.others.push(version),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Version> {
        self.first.into_iter().chain(self.others.iter().copied())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Version> {
        self.first.iter_mut().chain(&mut self.others)
    }
}

/// The part of a transaction that was refused. A single commit is part 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Commit(usize),
    Expectation(usize),
}

pub(super) enum Refusal {
    Conflict {
        expected: ExpectedVersion,
        actual: Version,
    },
    OtherTenant {
        tenant_id: ByteString,
    },
    Condition(Match),
    /// A copy would get a different sequence number.
    OtherNumber {
        expected: u64,
        actual: u64,
    },
    Key {
        fault: KeyFault,
        name: ByteString,
        key: ByteString,
    },
}

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<Waiting>,
    closed: bool,
}

impl Queue {
    /// Adds a request, unless the log is closing.
    pub(super) fn push(&self, commit: Waiting) -> Result<(), StoreError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Err(StoreError::Closed);
        }
        state.waiting.push(commit);
        if state.waiting.len() == 1 {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Waits until something is queued and returns all of it. Returns `None` once the log is closing and the queue is empty.
    pub(super) fn take(&self) -> Option<Vec<Waiting>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.waiting.is_empty() {
            if state.closed {
                return None;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Some(std::mem::take(&mut state.waiting))
    }

    pub(super) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.wake.notify_one();
    }
}
