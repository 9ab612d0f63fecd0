//! The one change stream over the commits of all tenants: every further one would read the whole oplog again.
//!
//! The server passes over everything that is written to compare its namespace, so it is told exact ones (`watched.rs`). A collection that
//! is created later is in the stream too, and the stream goes on from there with its name. Invariant: a collection of commits that is not
//! watched has no commit before the stream's next change.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, RawDocumentBuf};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ResumeToken;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::state::{Token, resume, stored};
use super::watched::Watched;
use super::{Cluster, Ended};
use crate::layout::fields::{inner, text};
use crate::layout::names::HELD;
use crate::refused::code_of;

/// Changes that are handed over in one piece, at most, and pieces read ahead.
const TOGETHER_MAX: usize = 256;
const AHEAD_MAX: usize = 16;
/// KiB of changes read ahead, at most; one change is let through whatever its size.
const AHEAD_KIB_MAX: usize = 64 * 1024;
/// How long the server waits for a change before it says how far it has looked.
const WAIT: Duration = Duration::from_millis(500);

/// What comes out of the stream.
pub(super) enum News {
    /// A commit was inserted.
    Commit(Incoming),
    /// An operator asks for a held commit.
    Asked { database: String, collection: String, commit: String },
    /// Nothing more for now; everything up to this position has come.
    Idle(Option<Token>),
    /// The stream has ended.
    Ended(Ended),
}

/// A commit as it came.
pub(super) struct Incoming {
    pub(super) database: String,
    pub(super) collection: String,
    pub(super) document: RawDocumentBuf,
    /// The position behind it; none for one that was read from its collection.
    pub(super) token: Option<Token>,
    /// When the server stored it, in milliseconds since 1970.
    pub(super) stored: Option<i64>,
    /// Its share of what may be read ahead.
    share: Option<OwnedSemaphorePermit>,
}

impl Incoming {
    pub(super) fn stored(database: &str, collection: &str, document: RawDocumentBuf) -> Self {
        let (database, collection) = (database.to_owned(), collection.to_owned());
        Self { database, collection, document, token: None, stored: None, share: None }
    }
}

/// A stream that is open and not read yet.
pub(super) struct Opened {
    /// The position at which it was opened.
    pub(super) start: Option<Token>,
    watched: Watched,
    changes: Changes,
}

/// An open stream, read ahead by a task of its own.
pub(super) struct Stream {
    pub(super) news: mpsc::Receiver<Vec<News>>,
    reader: JoinHandle<()>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Opens the stream behind `after`, or from now on.
pub(super) async fn open(cluster: &Cluster, after: Option<&Token>) -> Result<Opened, Ended> {
    let watched = Watched::of(cluster).await?;
    let changes = changes(&cluster.client, &watched, after.and_then(resume)).await;
    let changes = changes.map_err(|error| refused(error, after.is_some()))?;
    Ok(Opened { start: changes.resume_token().as_ref().and_then(stored), watched, changes })
}

impl Opened {
    /// Begins to read. To be called behind a write that was acknowledged by a majority after the stream was opened.
    ///
    /// A collection may be created between the first listing and the beginning of the stream, and even before the beginning without being
    /// there yet: what the server writes later may be applied earlier. Behind such a write nothing earlier is missing. So whatever is
    /// listed now and was not listed then is shown from the stream's beginning on, and what it held before that is found in it.
    pub(super) async fn read(self, cluster: &Cluster) -> Result<Stream, Ended> {
        let Self { start, mut watched, changes: mut open } = self;
        let now = Watched::of(cluster).await?;
        if now != watched {
            let start = start.as_ref().and_then(resume).ok_or(Ended::Deposed("the change stream has no position"))?;
            open = changes(&cluster.client, &now, Some(start)).await.map_err(ended)?;
            watched = now;
        }
        let (sender, news) = mpsc::channel(AHEAD_MAX);
        let reader = Reader { client: cluster.client.clone(), watched, changes: open, sender, ready: Vec::new() };
        Ok(Stream { news, reader: tokio::spawn(reader.run()) })
    }
}

type Changes = ChangeStream<RawDocumentBuf>;

async fn changes(client: &Client, watched: &Watched, after: Option<ResumeToken>) -> mongodb::error::Result<Changes> {
    let watch = client.watch().pipeline([watched.filter()]).show_expanded_events(true);
    let watch = watch.max_await_time(WAIT).batch_size(1000);
    let watch = match after {
        Some(token) => watch.resume_after(token),
        None => watch,
    };
    Ok(watch.await?.with_type())
}

/// Reads ahead.
struct Reader {
    client: Client,
    watched: Watched,
    changes: Changes,
    sender: mpsc::Sender<Vec<News>>,
    /// What the server sent together and was not handed over yet.
    ready: Vec<News>,
}

impl Reader {
    /// Hands over what the server sent together in one piece. One by one, the first of them would get a transaction of its own, for whose
    /// end the others would wait.
    async fn run(mut self) {
        let budget = Arc::new(Semaphore::new(AHEAD_KIB_MAX));
        loop {
            let Some(next) = self.next().await else { return };
            let mut next = match next {
                Ok(Some(change)) => match self.incoming(&change).await {
                    Some(news) => news,
                    None => continue,
                },
                Ok(None) if self.changes.is_alive() => {
                    News::Idle(self.changes.resume_token().as_ref().and_then(stored))
                }
                Ok(None) => News::Ended(Ended::Deposed("the change stream was closed by the server")),
                Err(error) => News::Ended(ended(error)),
            };
            if let News::Commit(commit) = &mut next {
                let kib = (commit.document.as_bytes().len() / 1024 + 1).min(AHEAD_KIB_MAX) as u32;
                commit.share = match budget.clone().try_acquire_many_owned(kib) {
                    Ok(share) => Some(share),
                    // What is waited for may be what stands ready here.
                    Err(_) if self.hand_over().await => budget.clone().acquire_many_owned(kib).await.ok(),
                    Err(_) => return,
                };
            }
            let last = matches!(next, News::Ended(_));
            self.ready.push(next);
            let full = last || self.ready.len() >= TOGETHER_MAX;
            let heard = !full || self.hand_over().await;
            if last || !heard {
                return;
            }
        }
    }

    /// The next change. What stands ready is handed over before the server is asked for more; none when nobody listens any more.
    async fn next(&mut self) -> Option<mongodb::error::Result<Option<RawDocumentBuf>>> {
        let mut next = pin!(self.changes.next_if_any());
        match poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await {
            Poll::Ready(next) => Some(next),
            Poll::Pending => {
                if !hand_over(&mut self.ready, &self.sender).await {
                    return None;
                }
                Some(next.await)
            }
        }
    }

    async fn hand_over(&mut self) -> bool {
        hand_over(&mut self.ready, &self.sender).await
    }

    /// What a change says. After one that says that there is a new collection of commits, the stream goes on with it.
    async fn incoming(&mut self, change: &RawDocumentBuf) -> Option<News> {
        let (database, collection) = place(change, "ns")?;
        match text(change, "operationType") {
            Some("create") if self.watched.add(database, collection) => {
                let token = inner(change, "_id").and_then(|token| Document::try_from(token).ok());
                match changes(&self.client, &self.watched, token.as_ref().and_then(resume)).await {
                    Ok(changes) => self.changes = changes,
                    Err(error) => return Some(News::Ended(ended(error))),
                }
                None
            }
            Some("create") => None,
            // What it brings was written before.
            Some("rename") if place(change, "to").is_some_and(|(database, to)| self.watched.add(database, to)) => {
                Some(News::Ended(Ended::Forgotten))
            }
            _ if self.watched.has(database, collection) => incoming(change, database, collection),
            _ => None,
        }
    }
}

/// False when nobody listens any more.
async fn hand_over(ready: &mut Vec<News>, sender: &mpsc::Sender<Vec<News>>) -> bool {
    ready.is_empty() || sender.send(std::mem::take(ready)).await.is_ok()
}

fn place<'a>(change: &'a RawDocumentBuf, key: &str) -> Option<(&'a str, &'a str)> {
    let place = inner(change, key)?;
    Some((text(place, "db")?, text(place, "coll")?))
}

/// An insert; anything else is reported and never followed, because commits do not change.
fn incoming(change: &RawDocumentBuf, database: &str, collection: &str) -> Option<News> {
    let what = text(change, "operationType").unwrap_or_default();
    if collection == HELD {
        let updated = inner(change, "updateDescription").and_then(|update| inner(update, "updatedFields"));
        // Anything else that happens to it is this sequencer's own doing.
        updated.filter(|updated| inner(updated, "asked").is_some())?;
        let id = inner(change, "documentKey").and_then(|key| inner(key, "_id"))?;
        let part = |key: &str| text(id, key).map(str::to_owned);
        return Some(News::Asked { database: database.to_owned(), collection: part("coll")?, commit: part("commit")? });
    }
    if what != "insert" {
        tracing::error!(what, database, collection, "commits were changed by other software; the log stays as it is");
        return None;
    }
    let document = inner(change, "fullDocument")?.to_owned();
    let token = inner(change, "_id").and_then(|token| Document::try_from(token).ok());
    let stored = change.get_datetime("wallTime").ok().map(|time| time.timestamp_millis());
    let (database, collection) = (database.to_owned(), collection.to_owned());
    Some(News::Commit(Incoming { database, collection, document, token, stored, share: None }))
}

/// A position that the server cannot read is as good as one that it has forgotten: what it stood for is found in the collections.
fn refused(error: mongodb::error::Error, resuming: bool) -> Ended {
    const BAD_TOKENS: std::ops::RangeInclusive<i32> = 50_000..=60_000;
    match code_of(&error) {
        Some(code) if resuming && (BAD_TOKENS.contains(&code) || code == 9) => Ended::Forgotten,
        _ => ended(error),
    }
}

/// Errors that say that the oplog does not reach back to the position, or that the position is none.
fn ended(error: mongodb::error::Error) -> Ended {
    const FORGOTTEN: [i32; 4] = [136, 260, 280, 286];
    match code_of(&error) {
        Some(code) if FORGOTTEN.contains(&code) => Ended::Forgotten,
        _ => Ended::Failed(error),
    }
}
