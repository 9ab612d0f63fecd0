//! Followers over gRPC: messages of events at the caller's pace, and one with the position while there are none.

use annals_core::Code;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;

use super::frames;
use crate::caller::Caller;
use crate::following::{Followed, Following, Step};
use crate::problem::Problem;
use crate::v1::lines::CHUNK_BYTES;

/// Writes the messages of a follower.
pub(super) trait Messages<E>: Send + 'static {
    /// Appends the message of an event.
    fn event(&self, event: &E, out: &mut Vec<u8>) -> Result<(), Problem>;

    /// Appends the message that there is nothing new below `next`.
    fn quiet(&self, next: u64, out: &mut Vec<u8>);
}

struct Feed<F: Followed, M> {
    following: Following<F>,
    messages: M,
    caller: Caller,
    /// What is sent first.
    first: Option<Bytes>,
    /// Why the follower ends, once the events before it have been sent.
    failed: Option<Problem>,
}

/// Answers a follower: `first`, then the events.
pub(super) fn followed<F, M>(following: Following<F>, messages: M, caller: Caller, first: Vec<u8>) -> Response
where
    F: Followed,
    M: Messages<F::Event>,
{
    let feed = Feed { following, messages, caller, first: Some(first.into()), failed: None };
    frames::streamed(stream::unfold(Some(feed), |feed| async move {
        let mut feed = feed?;
        match feed.chunk().await {
            Ok(chunk) => Some((Ok(chunk), Some(feed))),
            Err(problem) => {
                if problem.code() != Code::Closing {
                    feed.caller.warn_broken_off(problem.code(), "a follower");
                }
                Some((Err(problem), None))
            }
        }
    }))
}

impl<F: Followed, M: Messages<F::Event>> Feed<F, M> {
    async fn chunk(&mut self) -> Result<Bytes, Problem> {
        if let Some(first) = self.first.take() {
            return Ok(first);
        }
        if let Some(problem) = self.failed.take() {
            return Err(problem);
        }
        let mut chunk = Vec::new();
        match self.following.step().await {
            Step::Events => {}
            Step::Quiet => self.messages.quiet(self.following.position(), &mut chunk),
            Step::Stopped => return Err(stopping()),
            Step::Failed(error) => return Err(error.into()),
        }
        while chunk.len() < CHUNK_BYTES
            && let Some(event) = self.following.next_event()
        {
            if let Err(problem) = self.messages.event(&event, &mut chunk) {
                if chunk.is_empty() {
                    return Err(problem);
                }
                self.failed = Some(problem);
                break;
            }
        }
        self.following.rest();
        chunk.shrink_to_fit();
        Ok(chunk.into())
    }
}

/// Returns why streams end when the server stops.
pub(super) fn stopping() -> Problem {
    Problem::new(Code::Closing, "the server is shutting down; call again after its restart")
}
