//! Batches commits on their way to a server. While requests are in flight, further commits gather and share the next request, so that many
//! callers cost little more than one. A commit that arrives alone is sent immediately.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annals_core::limits;
use annals_core::wire::binary::split_document;
use bytes::{Bytes, BytesMut};
use hyper::StatusCode;
use tokio::sync::oneshot;

use super::http::{Answer, Http};
use super::line::Line;

/// Maximum number of requests in flight: while the server works on one, the next one is already on its way.
const REQUESTS_MAX: usize = 2;
/// A request takes no more commits once it holds this many bytes.
const REQUEST_BYTES: usize = 4 * 1024 * 1024;
/// The media type of a sequence of BSON documents.
pub(super) const MEDIA_TYPE: &str = "application/bson";

/// The server's reply to one commit.
pub(super) enum Reply {
    /// The document that answers this commit.
    Document(Bytes),
    /// A refusal of the whole request.
    Refusal(Answer),
}

/// The queue of commits for one tenant of a server.
#[derive(Clone)]
pub(super) struct Commits(Arc<Shared>);

struct Shared {
    http: Http,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    senders: usize,
    /// Idle connections.
    lines: Vec<Line>,
}

struct Waiting {
    document: Bytes,
    reply: oneshot::Sender<Result<Reply, String>>,
}

impl Commits {
    pub fn new(http: Http) -> Self {
        Self(Arc::new(Shared { http, state: Mutex::default() }))
    }

    /// Sends a commit, encoded as BSON, and waits for the reply. If a request breaks off, its unanswered commits are sent once more, which
    /// their request ids make safe.
    ///
    /// # Errors
    /// A sentence, if the server cannot be reached and the outcome is unknown.
    pub async fn send(&self, document: Bytes) -> Result<Reply, String> {
        let (reply, replied) = oneshot::channel();
        {
            let mut state = self.0.lock();
            state.waiting.push_back(Waiting { document, reply });
            if state.senders < REQUESTS_MAX {
                state.senders += 1;
                tokio::spawn(Sender { shared: Arc::clone(&self.0), counted: true }.run());
            }
        }
        replied.await.unwrap_or_else(|_| Err("the Tokio runtime that sent the commit has shut down".to_owned()))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Returns an idle connection that is still open.
    fn kept_line(&self) -> Option<Line> {
        let mut state = self.lock();
        state.lines.retain_mut(Line::is_open);
        state.lines.pop()
    }

    fn keep(&self, mut line: Line) {
        if line.is_free() {
            self.lock().lines.push(line);
        }
    }
}

/// Sends queued commits until the queue is empty.
struct Sender {
    shared: Arc<Shared>,
    counted: bool,
}

impl Drop for Sender {
    /// Runs at any point when the runtime shuts down. Queued commits are left to another sender; without one, their callers get an error.
    fn drop(&mut self) {
        if self.counted {
            let mut state = self.shared.lock();
            state.senders -= 1;
            if state.senders == 0 {
                state.waiting.clear();
            }
        }
    }
}

impl Sender {
    async fn run(mut self) {
        while let Some(commits) = self.take() {
            self.send(commits).await;
        }
    }

    /// Takes the commits of the next request. INVARIANT: a commit that is queued later finds this sender either about to take again, or no
    /// longer counted.
    fn take(&mut self) -> Option<VecDeque<Waiting>> {
        let mut state = self.shared.lock();
        let mut bytes = 0;
        let fits = |waiting: &&Waiting| {
            let fits = bytes < REQUEST_BYTES;
            bytes += waiting.document.len();
            fits
        };
        let count = state.waiting.iter().take(limits::COMMITS_MAX).take_while(fits).count();
        if count == 0 {
            state.senders -= 1;
            drop(state);
            self.counted = false;
            return None;
        }
        Some(state.waiting.drain(..count).collect())
    }

    async fn send(&self, mut commits: VecDeque<Waiting>) {
        // The server may close an idle connection just as it is reused, so the commits are retried once on a new connection.
        let Err(_) = self.attempt(self.shared.kept_line(), &mut commits).await else { return };
        let Err(message) = self.attempt(None, &mut commits).await else { return };
        for commit in commits {
            // A caller that no longer waits has dropped its receiver.
            let _ = commit.reply.send(Err(message.clone()));
        }
    }

    /// Sends one request and passes the reply of each commit to its caller. Commits that are left in `commits` have no answer.
    async fn attempt(&self, kept: Option<Line>, commits: &mut VecDeque<Waiting>) -> Result<(), String> {
        let mut body = BytesMut::with_capacity(commits.iter().map(|commit| commit.document.len()).sum());
        commits.iter().for_each(|commit| body.extend_from_slice(&commit.document));
        let request = self.shared.http.request_to_post("/v1/commits", body.freeze(), MEDIA_TYPE)?;
        let mut line = match kept {
            Some(line) => line,
            None => {
                let http = &self.shared.http;
                Line::open(http.authority(), http.secured()).await?
            }
        };
        let response = line.send(request).await?;
        let (status, mut body) = (response.status(), response.into_body());
        let mut read = BytesMut::new();
        while let Some(frame) = line.next(&mut body).await? {
            read.extend_from_slice(&frame);
            while status == StatusCode::OK
                && let Some((document, _)) = split_document(&read)?
            {
                let length = document.len();
                let document = read.split_to(length).freeze();
                let Some(commit) = commits.pop_front() else {
                    return Err("the response has more results than commits were sent".to_owned());
                };
                // A caller that no longer waits has dropped its receiver.
                let _ = commit.reply.send(Ok(Reply::Document(document)));
            }
        }
        if status != StatusCode::OK {
            let refusal = Answer { status, body: read.freeze() };
            for commit in commits.drain(..) {
                let _ = commit.reply.send(Ok(Reply::Refusal(refusal.clone())));
            }
        }
        if !commits.is_empty() {
            return Err("the response ended before the result of the last commit".to_owned());
        }
        self.shared.keep(line);
        Ok(())
    }
}
