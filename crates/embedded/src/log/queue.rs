//! Commits that wait for the log writer. While one batch is made durable the next one gathers here: that is group commit.

use std::sync::{Condvar, Mutex, PoisonError};

use annals_core::{Aggregate, ByteString, ExpectedVersion, StoreError, Version};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::lookup::Found;
use crate::index::Head;
use crate::terms::{ExactTerm, Term};

/// A commit that waits for its verdict.
pub(super) struct Waiting {
    pub(super) commit: Box<Encoded>,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// An encoded commit: everything the log writer needs to know of it.
pub(super) struct Encoded {
    pub(super) aggregate: Aggregate,
    pub(super) aggregate_term: ExactTerm,
    pub(super) request_term: ExactTerm,
    /// None when the request id is the commit's own fresh id, which cannot repeat.
    pub(super) request_id: Option<ByteString>,
    pub(super) tenant_id: ByteString,
    pub(super) expected: ExpectedVersion,
    /// Terms of types, tags and the aggregate's name.
    pub(super) terms: Vec<Term>,
    pub(super) events: u32,
    pub(super) payload: Vec<u8>,
    pub(super) payload_crc: u32,
    /// Where the aggregate stands in the segments below `head_probed_below`.
    pub(super) probed_head: Option<Head>,
    /// The aggregate was looked up in all segments below this number; 0 when it was known and nothing was looked up.
    pub(super) head_probed_below: u64,
    /// The request id was looked up in all segments below this number and not found.
    pub(super) request_probed_below: u64,
    /// Its share of the bytes that may wait.
    pub(super) _room: OwnedSemaphorePermit,
}

/// The verdict, and the commit back again, so that its memory is freed by the thread that asked for it.
pub(super) type Answer = (Result<Verdict, StoreError>, Box<Encoded>);

/// What the log writer found.
pub(super) enum Verdict {
    Committed {
        sequence_number: u64,
        version: Version,
    },
    /// The request was committed before; whether with the same content is for the caller to see.
    Repeat(Found),
    Conflict {
        actual: Version,
    },
    OtherTenant {
        tenant_id: ByteString,
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
