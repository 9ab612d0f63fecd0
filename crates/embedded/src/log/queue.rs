//! Commits that wait for the log writer. While one batch is made durable the next one gathers here: that is group commit.

use std::sync::{Condvar, Mutex, PoisonError};

use annals_core::{Aggregate, ByteString, ExpectedVersion, StoreError, Timestamp, Version};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::conditions::{Condition, Match};
use super::keys::{Change, KeyFault};
use super::lookup::Found;
use crate::index::Head;
use crate::terms::{ExactTerm, Term};

/// A commit or transaction that waits for its verdict.
pub(super) struct Waiting {
    pub(super) request: Box<Request>,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// What is judged as one: a commit, or all of a transaction.
pub(super) struct Request {
    pub(super) first: Encoded,
    /// None when the request id is the commit's own fresh id, which cannot repeat.
    pub(super) request_id: Option<ByteString>,
    /// The request id was looked up in all segments below this number.
    pub(super) request_probed_below: u64,
    /// What was found there.
    pub(super) repeats: Option<Found>,
    /// When it was accepted.
    pub(super) now: Timestamp,
    /// The number that the first event must get, where this is a copy; then it was judged elsewhere.
    pub(super) copied_to: Option<u64>,
    /// What else there is of a transaction.
    pub(super) others: Vec<Encoded>,
    pub(super) expect: Vec<Expected>,
    /// Its share of the bytes that may wait.
    pub(super) _room: OwnedSemaphorePermit,
}

impl Request {
    /// A commit that stands for itself.
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
            _room: room,
        })
    }

    /// The commits, in order.
    pub(super) fn commits(&self) -> impl Iterator<Item = &Encoded> + Clone {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The append conditions, in the order of their commits.
    pub(super) fn conditions_mut(&mut self) -> impl Iterator<Item = &mut Condition> {
        let commits = std::iter::once(&mut self.first).chain(&mut self.others);
        commits.filter_map(|commit| commit.condition.as_deref_mut())
    }

    /// The commit at this place.
    pub(super) fn commit(&self, place: usize) -> &Encoded {
        place.checked_sub(1).map_or(&self.first, |place| &self.others[place])
    }
}

/// An encoded commit: everything the log writer needs to know of it.
pub(super) struct Encoded {
    pub(super) aggregate: Aggregate,
    pub(super) aggregate_term: ExactTerm,
    pub(super) request_term: ExactTerm,
    pub(super) tenant_id: ByteString,
    pub(super) expected: ExpectedVersion,
    pub(super) condition: Option<Box<Condition>>,
    pub(super) keys: Vec<Change>,
    /// Terms of types, tags and the aggregate's name.
    pub(super) terms: Vec<Term>,
    /// None where it changes prepare keys alone; then it is of no aggregate, and expects and repeats nothing.
    pub(super) events: u32,
    pub(super) payload: Vec<u8>,
    pub(super) payload_crc: u32,
    pub(super) probed: ProbedHead,
}

/// What a transaction expects of an aggregate that it does not commit to.
pub(super) struct Expected {
    pub(super) aggregate: Aggregate,
    pub(super) aggregate_term: ExactTerm,
    pub(super) version: ExpectedVersion,
    pub(super) probed: ProbedHead,
}

/// What the caller found out about where an aggregate stands.
#[derive(Default)]
pub(super) struct ProbedHead {
    /// The aggregate was looked up in all segments below this number; 0 when it was known and nothing was looked up.
    pub(super) below: u64,
    /// Where it stands according to them.
    pub(super) head: Option<Head>,
}

/// The verdict, and the request back again, so that its memory is freed by the thread that asked for it. No verdict where its append
/// conditions must be searched further first.
pub(super) type Answer = (Result<Option<Verdict>, StoreError>, Box<Request>);

/// What the log writer found.
pub(super) enum Verdict {
    Committed {
        sequence_number: u64,
        versions: Versions,
    },
    /// The request was committed before; whether with the same content is for the caller to see.
    Repeat(Found),
    Refused(Part, Refusal),
}

/// A version for each commit of a request. Nearly always there is one, which then takes no memory of its own.
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

/// The part of a transaction that was refused; a commit is its own first.
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
    /// A copy would get another number.
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
    /// Adds a commit, unless the log is closing.
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

    /// Everything that waits, once there is something; none when the log is closing and nothing waits any more.
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
