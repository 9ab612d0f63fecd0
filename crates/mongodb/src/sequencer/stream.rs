//! The one change stream over the commits of all tenants: every further one would read the whole oplog again.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use mongodb::bson::{Document, RawDocumentBuf, doc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::state::{Token, resume, stored};
use super::{Cluster, Ended, label};
use crate::layout::fields::{inner, text};
use crate::layout::names::{AGGREGATES, COLLECTIONS, ENTRIES, EVENT_LOG, EVENT_STREAM, HELD, aggregate_of};
use crate::layout::register;
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
    /// A collection of commits took the place of another one, of which all has come.
    Replaced(Replaced),
    /// Other software changed or deleted a commit.
    Changed(Changed),
    /// Nothing more for now; everything up to this position has come.
    Idle(Option<Token>),
    /// The stream has ended.
    Ended(Ended),
}

/// A collection of commits that is to be admitted.
pub(super) struct Replaced {
    pub(super) database: String,
    pub(super) collection: String,
    pub(super) uuid: Uuid,
}

/// What other software did to a commit, or to a collection of commits.
pub(super) struct Changed {
    /// The server's word for it, such as `delete`.
    pub(super) what: String,
    pub(super) database: String,
    pub(super) collection: String,
    /// Empty where all of a collection was concerned.
    pub(super) commit: String,
}

impl Changed {
    /// Logs it. To mend or delete a commit that is held is what the documentation says to do; the log holds all others, and stays as it
    /// is.
    pub(super) fn report(&self, is_held: bool) {
        let Self { what, database, collection, commit } = self;
        if is_held {
            tracing::info!(
                what,
                database,
                collection,
                commit,
                "a held commit was changed; `annals held retry` looks at it"
            );
        } else {
            tracing::error!(
                what,
                database,
                collection,
                commit,
                "commits were changed by other software; the log stays as it is"
            );
        }
    }
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

/// An open stream, read ahead by a task of its own.
pub(super) struct Stream {
    pub(super) news: mpsc::Receiver<Vec<News>>,
    /// The position at which it was opened, if it began now.
    pub(super) start: Option<Token>,
    reader: JoinHandle<()>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Opens the stream behind `after`, or from now on.
pub(super) async fn open(cluster: &Cluster, after: Option<&Token>) -> Result<Stream, Ended> {
    let hello = cluster.client.database("admin").run_command(doc! { "hello": 1 }).await?;
    let sharded = hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid");
    let watch = cluster.client.watch().pipeline(filter(cluster, sharded)).max_await_time(WAIT).batch_size(1000);
    let watch = match after.and_then(resume) {
        Some(token) => watch.resume_after(token),
        None => watch,
    };
    let changes = watch.await.map_err(|error| refused(error, after.is_some()))?.with_type::<RawDocumentBuf>();
    let start = changes.resume_token().as_ref().and_then(stored);
    let (sender, news) = mpsc::channel(AHEAD_MAX);
    Ok(Stream { news, start, reader: tokio::spawn(read(changes, sender)) })
}

/// Changes of commits, and of what is held back. What the sequencer itself writes is most of what there is, and is left out by its exact
/// names first, while the server reads the oplog. The end of a name is compared in a stage of its own: in the first one the server would
/// make an expression of it, and evaluate that before it compares any name. Not for shards: a mongos may take the second stage for its
/// own, and get everything that passes the first.
fn filter(cluster: &Cluster, sharded: bool) -> Vec<Document> {
    let databases: Vec<_> = cluster.logs.iter().map(|log| log.database.name()).collect();
    let ends = format!(".{EVENT_STREAM}$|^{HELD}$|^{COLLECTIONS}$");
    let mut names = doc! { "$nin": [EVENT_LOG, ENTRIES, AGGREGATES] };
    if sharded {
        names.insert("$regex", &*ends);
    }
    let own = doc! { "$match": { "ns.coll": names, "ns.db": { "$in": databases } } };
    let named = doc! { "$regexMatch": { "input": "$ns.coll", "regex": ends } };
    vec![own, doc! { "$redact": { "$cond": [named, "$$KEEP", "$$PRUNE"] } }]
}

/// Hands over what the server sent together in one piece. One by one, the first of them would get a transaction of its own, for whose end
/// the others would wait.
async fn read(mut changes: mongodb::change_stream::ChangeStream<RawDocumentBuf>, sender: mpsc::Sender<Vec<News>>) {
    let budget = Arc::new(Semaphore::new(AHEAD_KIB_MAX));
    let mut ready = Vec::new();
    loop {
        let next = {
            let mut next = pin!(changes.next_if_any());
            match poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await {
                Poll::Ready(next) => next,
                // The server is asked for more.
                Poll::Pending => {
                    if !hand_over(&mut ready, &sender).await {
                        return;
                    }
                    next.await
                }
            }
        };
        let mut next = match next {
            Ok(Some(change)) => match incoming(&change) {
                Some(news) => news,
                None => continue,
            },
            Ok(None) if changes.is_alive() => News::Idle(changes.resume_token().as_ref().and_then(stored)),
            Ok(None) => News::Ended(Ended::Deposed("the change stream was closed by the server")),
            Err(error) => News::Ended(ended(error)),
        };
        if let News::Commit(commit) = &mut next {
            let kib = (commit.document.as_bytes().len() / 1024 + 1).min(AHEAD_KIB_MAX) as u32;
            commit.share = match budget.clone().try_acquire_many_owned(kib) {
                Ok(share) => Some(share),
                // What is waited for may be what stands ready here.
                Err(_) if hand_over(&mut ready, &sender).await => budget.clone().acquire_many_owned(kib).await.ok(),
                Err(_) => return,
            };
        }
        let last = matches!(next, News::Ended(_));
        ready.push(next);
        let full = last || ready.len() >= TOGETHER_MAX;
        let heard = !full || hand_over(&mut ready, &sender).await;
        if last || !heard {
            return;
        }
    }
}

/// False when nobody listens any more.
async fn hand_over(ready: &mut Vec<News>, sender: &mpsc::Sender<Vec<News>>) -> bool {
    ready.is_empty() || sender.send(std::mem::take(ready)).await.is_ok()
}

/// Anything but an insert is reported and never followed, because commits do not change.
fn incoming(change: &RawDocumentBuf) -> Option<News> {
    let what = text(change, "operationType").unwrap_or_default();
    let place = inner(change, "ns");
    let (database, collection) = (place.and_then(|ns| text(ns, "db"))?, place.and_then(|ns| text(ns, "coll"))?);
    if collection == HELD {
        let updated = inner(change, "updateDescription").and_then(|update| inner(update, "updatedFields"));
        // Anything else that happens to it is this sequencer's own doing.
        updated.filter(|updated| inner(updated, "asked").is_some())?;
        let id = inner(change, "documentKey").and_then(|key| inner(key, "_id"))?;
        let part = |key: &str| text(id, key).map(str::to_owned);
        return Some(News::Asked { database: database.to_owned(), collection: part("coll")?, commit: part("commit")? });
    }
    if collection == COLLECTIONS {
        // That it is admitted is this sequencer's own doing, and shows no document.
        let (collection, uuid) = register::asked_for(inner(change, "fullDocument")?)?;
        return Some(News::Replaced(Replaced { database: database.to_owned(), collection, uuid }));
    }
    // A collection without a name before the ending, or one of MongoDB's own.
    aggregate_of(collection)?;
    if what != "insert" {
        let commit = inner(change, "documentKey").map_or_else(String::new, label);
        let (database, collection) = (database.to_owned(), collection.to_owned());
        return Some(News::Changed(Changed { what: what.to_owned(), database, collection, commit }));
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

/// Errors that say that the oplog does not reach back to the position, that the position is none, or that a change cannot be shown: one
/// of a document with an `_id` of megabytes is larger than any message. Resuming there would meet it again, so the collections are read.
fn ended(error: mongodb::error::Error) -> Ended {
    const FORGOTTEN: [i32; 5] = [136, 260, 280, 286, 10334];
    match code_of(&error) {
        Some(code) if FORGOTTEN.contains(&code) => Ended::Forgotten,
        _ => Ended::Failed(error),
    }
}
