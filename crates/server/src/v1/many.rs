//! Many commits in one request of `POST /v1/commits`, each independent and with its own response. It is for clients with several commits
//! to make at a time, because a request costs more than a commit.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use annals_core::wire::{binary, parse_commit, write_commit_answer};
use annals_core::{Code, CommitOutcome, Invalid, NewCommit, limits};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, FuturesOrdered};
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;

use super::commits;
use crate::body::Held;
use crate::media;
use crate::problem::Problem;
use crate::source::Source;
use crate::state::Server;
use crate::unread::{HeldBytes, Unread};

/// The format of a sequence of commits, and of their responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// One JSON text per line.
    Lines,
    /// Concatenated BSON documents.
    Documents,
}

impl Format {
    /// Returns the format of a body, or `None` if it is a single commit.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let media_type = media::named(headers.get(header::CONTENT_TYPE)?);
        let is = |known: &str| media_type.eq_ignore_ascii_case(known);
        if is(media::LINES) {
            return Some(Self::Lines);
        }
        is(media::BSON).then_some(Self::Documents)
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Lines => media::LINES,
            Self::Documents => media::BSON,
        }
    }

    /// Parses every commit. An invalid commit is refused individually; an error that hides where the next one begins refuses all.
    pub fn parse(self, body: &Bytes) -> Result<Vec<Result<NewCommit, Invalid>>, Invalid> {
        let mut commits = Vec::new();
        match self {
            Self::Lines => {
                let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
                for line in lines {
                    push(&mut commits, parse_commit(line))?;
                }
            }
            Self::Documents => {
                let mut rest = body.as_ref();
                while !rest.is_empty() {
                    let broken = |message: String| {
                        let message = format!("document {} of the body: {message}", commits.len());
                        Invalid::new(Code::InvalidBody, "", message)
                    };
                    let found = binary::split_document(rest).map_err(broken)?;
                    let (document, behind) =
                        found.ok_or_else(|| broken("the body ends before the document does".to_owned()))?;
                    push(&mut commits, binary::read_commit(document))?;
                    rest = behind;
                }
            }
        }
        Ok(commits)
    }

    /// Appends the response to one commit to `out`.
    fn write(self, answer: &Result<CommitOutcome, Problem>, out: &mut Vec<u8>) {
        match (self, answer) {
            (Self::Lines, Ok(outcome)) => write_commit_answer(outcome, out),
            (Self::Lines, Err(problem)) => out.extend_from_slice(problem.to_json().as_bytes()),
            (Self::Documents, Ok(outcome)) => binary::write_outcome(outcome, out),
            (Self::Documents, Err(problem)) => binary::write_refusal(&problem.to_json(), out),
        }
        if self == Self::Lines {
            out.push(b'\n');
        }
    }
}

fn push(commits: &mut Vec<Result<NewCommit, Invalid>>, commit: Result<NewCommit, Invalid>) -> Result<(), Invalid> {
    if commits.len() == limits::COMMITS_MAX {
        let message = format!("holds more than {} commits; send several requests", limits::COMMITS_MAX);
        return Err(Invalid::new(Code::InvalidBody, "", message));
    }
    commits.push(commit);
    Ok(())
}

/// The responses of commits in flight, in the order of the request.
struct Answers {
    format: Format,
    pending: FuturesOrdered<BoxFuture<'static, Result<CommitOutcome, Problem>>>,
}

/// Makes the commits and responds with 200 and their responses, as they become available.
pub(crate) async fn answer(
    server: &Arc<Server>,
    source: Arc<Source>,
    format: Format,
    commits: Vec<Result<NewCommit, Invalid>>,
    held: Held,
) -> Response {
    // The request body counts as held until the last of its commits is stored.
    let held = Arc::new(held);
    let making = |commit| one(Arc::clone(server), Arc::clone(&source), commit, Arc::clone(&held)).boxed();
    let pending = commits.into_iter().map(making).collect();
    drop(held);
    let mut answers = Answers { format, pending };
    // The response begins once the first commit is done, so that its duration is meaningful.
    let first = answers.chunk().await.unwrap_or_default();
    let mut response = Response::new(answers.into_body(first, server.options.unread.clone()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    response
}

async fn one(
    server: Arc<Server>,
    source: Arc<Source>,
    commit: Result<NewCommit, Invalid>,
    held: Arc<Held>,
) -> Result<CommitOutcome, Problem> {
    let making = async { commits::make(&server, &source, commit?, held).await };
    let made = AssertUnwindSafe(making).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!("a commit panicked; see the message above");
        Err(Problem::new(Code::Internal, "the commit panicked"))
    });
    if let Err(problem) = &made {
        server.metrics.refused(problem.code());
    }
    made
}

impl Answers {
    /// Returns the next responses, or `None` at the end.
    async fn chunk(&mut self) -> Option<Bytes> {
        let first = self.pending.next().await?;
        // Commits become durable together, so the ones after the first are about to complete too.
        tokio::task::yield_now().await;
        let mut chunk = Vec::with_capacity(256 * (1 + self.pending.len()));
        self.format.write(&first, &mut chunk);
        while let Some(Some(next)) = self.pending.next().now_or_never() {
            self.format.write(&next, &mut chunk);
        }
        Some(chunk.into())
    }

    /// Returns the body that begins with the first responses. The other commits are made whether or not the body is read. Otherwise each
    /// would keep its place among those in flight until its client reads more.
    fn into_body(self, first: Bytes, unread: Unread) -> Body {
        if self.pending.is_empty() {
            return Body::from(first);
        }
        let (answered, rest) = mpsc::unbounded_channel();
        tokio::spawn(self.make(answered, unread));
        let rest = stream::unfold(rest, |mut rest| async move {
            let (chunk, held): (Bytes, HeldBytes) = rest.recv().await?;
            // From here on it counts as unread bytes of the connection.
            drop(held);
            Some((chunk, rest))
        });
        Body::from_stream(stream::iter([first]).chain(rest).map(Ok::<_, Infallible>))
    }

    /// Makes the pending commits, until the client disconnects.
    async fn make(mut self, answered: mpsc::UnboundedSender<(Bytes, HeldBytes)>, unread: Unread) {
        loop {
            let chunk = tokio::select! {
                biased;
                chunk = self.chunk() => chunk,
                // The client has disconnected, so nothing waits for the stages of these commits any more.
                () = answered.closed() => return,
            };
            let Some(chunk) = chunk else { return };
            let held = unread.hold(chunk.len());
            if answered.send((chunk, held)).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::to_bytes;
    use tokio::sync::{Semaphore, oneshot};
    use tokio::time::timeout;

    use super::*;

    /// No wait of a test takes longer; reaching it is a failure.
    const DEADLINE: Duration = Duration::from_secs(20);

    fn refusal(detail: &str) -> Result<CommitOutcome, Problem> {
        Err(Problem::new(Code::Overloaded, detail))
    }

    #[tokio::test]
    async fn a_commit_gives_up_its_place_although_nobody_reads_the_answers() {
        let (places, unread) = (Arc::new(Semaphore::new(1)), Unread::default());
        let (store, stored) = oneshot::channel::<()>();
        let taken = Arc::clone(&places);
        let second = async move {
            let _place = taken.try_acquire().expect("a place is free");
            let _ = stored.await;
            refusal("second")
        };
        let pending = [async { refusal("first") }.boxed(), second.boxed()].into_iter().collect();
        let mut answers = Answers { format: Format::Lines, pending };
        let first = answers.chunk().await.expect("the first answer");
        let body = answers.into_body(first, unread.clone());
        assert_eq!(places.available_permits(), 0, "the second commit is in flight");
        store.send(()).expect("the commit waits for it");
        let place =
            timeout(DEADLINE, places.acquire()).await.expect("the place is given up").expect("it is not closed");
        drop(place);
        let text = timeout(DEADLINE, to_bytes(body, usize::MAX)).await.expect("the body ends").expect("no error");
        let lines: Vec<&str> = std::str::from_utf8(&text).expect("text").lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("first") && lines[1].contains("second"), "{lines:?}");
        assert_eq!(unread.bytes(), 0, "everything was handed over");
    }

    #[tokio::test]
    async fn commits_whose_client_has_gone_are_waited_for_no_longer() {
        let (mut store, stored) = oneshot::channel::<()>();
        let second = async move {
            let _ = stored.await;
            refusal("second")
        };
        let pending = [async { refusal("first") }.boxed(), second.boxed()].into_iter().collect();
        let mut answers = Answers { format: Format::Lines, pending };
        let first = answers.chunk().await.expect("the first answer");
        drop(answers.into_body(first, Unread::default()));
        timeout(DEADLINE, store.closed()).await.expect("the commit is dropped");
    }
}
