//! Many commits in one request of `POST /v1/commits`, each of them its own commit with its own answer: for clients that have more
//! than one to make at a time, because a request costs more than a commit.

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

use super::commits;
use crate::body::Held;
use crate::media;
use crate::problem::Problem;
use crate::source::Source;
use crate::state::Server;

/// How several commits, and their answers, stand one behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// One JSON text a line.
    Lines,
    /// BSON documents without anything between them.
    Documents,
}

impl Format {
    /// The format of a body; none when it is a single commit.
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

    /// Reads every commit. What is wrong with one is its own refusal; what hides where the next begins refuses all.
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
                    let (document, behind) = found.ok_or_else(|| broken("the body ends before it".to_owned()))?;
                    push(&mut commits, binary::read_commit(document))?;
                    rest = behind;
                }
            }
        }
        Ok(commits)
    }

    /// Writes the answer of one commit at the end of `out`.
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

/// The answers of commits under way, in the order of the request.
struct Answers {
    format: Format,
    pending: FuturesOrdered<BoxFuture<'static, Result<CommitOutcome, Problem>>>,
}

/// Makes the commits and answers 200 with their answers, as they come.
pub(crate) async fn answer(
    server: &Arc<Server>,
    source: Arc<Source>,
    format: Format,
    commits: Vec<Result<NewCommit, Invalid>>,
    held: Held,
) -> Response {
    // What the commits were read from counts as held until the last of them is stored.
    let held = Arc::new(held);
    let making = |commit| one(Arc::clone(server), Arc::clone(&source), commit, Arc::clone(&held)).boxed();
    let pending = commits.into_iter().map(making).collect();
    drop(held);
    let mut answers = Answers { format, pending };
    // The answer begins with the first commit that is answered, so that its duration is one that means something.
    let first = answers.chunk().await.unwrap_or_default();
    let body = if answers.pending.is_empty() {
        Body::from(first)
    } else {
        let rest = stream::unfold(answers, |mut answers| async move { Some((answers.chunk().await?, answers)) });
        Body::from_stream(stream::iter([first]).chain(rest).map(Ok::<_, Infallible>))
    };
    let mut response = Response::new(body);
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
        tracing::error!("a commit panicked; the message stands above");
        Err(Problem::new(Code::Internal, "making the commit failed"))
    });
    if let Err(problem) = &made {
        server.metrics.refused(problem.code());
    }
    made
}

impl Answers {
    /// The next answers; none at the end.
    async fn chunk(&mut self) -> Option<Bytes> {
        let first = self.pending.next().await?;
        // Commits become durable together, so those behind the first are about to be answered too.
        tokio::task::yield_now().await;
        let mut chunk = Vec::with_capacity(256 * (1 + self.pending.len()));
        self.format.write(&first, &mut chunk);
        while let Some(Some(next)) = self.pending.next().now_or_never() {
            self.format.write(&next, &mut chunk);
        }
        Some(chunk.into())
    }
}
