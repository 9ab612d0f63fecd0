//! The change stream over the commits of all tenants. There is only one, because each further stream would read the whole oplog again.

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

/// Maximum number of changes handed over together, and of such pieces read ahead.
const TOGETHER_MAX: usize = 256;
const AHEAD_MAX: usize = 16;
/// KiB of changes read ahead, at most; a single change is accepted whatever its size.
const AHEAD_KIB_MAX: usize = 64 * 1024;
/// How long the server waits for a change before it reports its position.
const WAIT: Duration = Duration::from_millis(500);

/// An item of the stream.
pub(super) enum News {
    /// A commit was inserted.
    Commit(Incoming),
    /// An operator made a request about a held commit.
    Asked { database: String, collection: String, commit: String },
    /// A collection of commits replaced another one, whose commits have all arrived.
    Replaced(Replaced),
    /// Other software changed or deleted a commit.
    Changed(Changed),
    /// The stream is idle; everything up to this position has arrived.
    Idle(Option<Token>),
    /// The stream has ended.
    Ended(Ended),
}

/// A collection of commits to be admitted.
pub(super) struct Replaced {
    pub(super) database: String,
    pub(super) collection: String,
    pub(super) uuid: Uuid,
}

/// A change that other software made to a commit or to a collection of commits.
pub(super) struct Changed {
    /// The operation type as MongoDB names it, such as `delete`.
    pub(super) what: String,
    pub(super) database: String,
    pub(super) collection: String,
    /// Empty if the whole collection was affected.
    pub(super) commit: String,
}

impl Changed {
    /// Logs the change. Repairing or deleting a held commit is what the documentation recommends. For all other commits the log stays as
    /// it is.
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

/// A commit as it arrived.
pub(super) struct Incoming {
    pub(super) database: String,
    pub(super) collection: String,
    pub(super) document: RawDocumentBuf,
    /// The resume token after it; `None` for a commit that was read from its collection.
    pub(super) token: Option<Token>,
    /// When the server stored it, in milliseconds since 1970.
    pub(super) stored: Option<i64>,
    /// Its share of the read-ahead budget.
    share: Option<OwnedSemaphorePermit>,
}

impl Incoming {
    pub(super) fn stored(database: &str, collection: &str, document: RawDocumentBuf) -> Self {
        let (database, collection) = (database.to_owned(), collection.to_owned());
        Self { database, collection, document, token: None, stored: None, share: None }
    }
}

/// An open change stream, which a task of its own reads ahead.
pub(super) struct Stream {
    pub(super) news: mpsc::Receiver<Vec<News>>,
    /// The resume token at its opening, if it starts at the present.
    pub(super) start: Option<Token>,
    reader: JoinHandle<()>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Opens the stream after the position `after`, or at the present.
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

/// Returns the pipeline that selects changes of commits, held commits and the register of collections. The sequencer's own writes are most
/// of the oplog, so the first stage excludes them by exact name while the server reads it. The suffix of a name is matched in a second
/// stage: in the first, the server would turn it into an expression and evaluate that before comparing any name. Sharded clusters need it
/// in the first stage, because a mongos may run the second stage itself and receive everything that passes the first.
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

/// Reads the stream, and hands over together what the server sent together. One by one, the first commit would get a transaction of its
/// own, and the others would wait for its end.
async fn read(mut changes: mongodb::change_stream::ChangeStream<RawDocumentBuf>, sender: mpsc::Sender<Vec<News>>) {
    let budget = Arc::new(Semaphore::new(AHEAD_KIB_MAX));
    let mut ready = Vec::new();
    loop {
        let next = {
            let mut next = pin!(changes.next_if_any());
            match poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await {
                Poll::Ready(next) => next,
                // The server is about to be asked for more.
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
                // The budget may be held by what is ready here, so hand it over first.
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

/// Returns false if the receiver is gone.
async fn hand_over(ready: &mut Vec<News>, sender: &mpsc::Sender<Vec<News>>) -> bool {
    ready.is_empty() || sender.send(std::mem::take(ready)).await.is_ok()
}

/// Converts a change. Commits never change, so anything but an insert is reported and not applied.
fn incoming(change: &RawDocumentBuf) -> Option<News> {
    let what = text(change, "operationType").unwrap_or_default();
    let place = inner(change, "ns");
    let (database, collection) = (place.and_then(|ns| text(ns, "db"))?, place.and_then(|ns| text(ns, "coll"))?);
    if collection == HELD {
        let updated = inner(change, "updateDescription").and_then(|update| inner(update, "updatedFields"));
        // All other changes to it are made by this sequencer.
        updated.filter(|updated| inner(updated, "asked").is_some())?;
        let id = inner(change, "documentKey").and_then(|key| inner(key, "_id"))?;
        let part = |key: &str| text(id, key).map(str::to_owned);
        return Some(News::Asked { database: database.to_owned(), collection: part("coll")?, commit: part("commit")? });
    }
    if collection == COLLECTIONS {
        // The admission is this sequencer's own update, which has no full document.
        let (collection, uuid) = register::asked_for(inner(change, "fullDocument")?)?;
        return Some(News::Replaced(Replaced { database: database.to_owned(), collection, uuid }));
    }
    // Skips collections without a name before the suffix, and MongoDB's own.
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

/// Classifies an error on opening. A resume token that the server cannot read is treated like one older than the oplog: its commits are
/// found in the collections.
fn refused(error: mongodb::error::Error, resuming: bool) -> Ended {
    const BAD_TOKENS: std::ops::RangeInclusive<i32> = 50_000..=60_000;
    match code_of(&error) {
        Some(code) if resuming && (BAD_TOKENS.contains(&code) || code == 9) => Ended::Forgotten,
        _ => ended(error),
    }
}

/// Classifies an error of the stream. `Forgotten` applies if the oplog no longer has the position, if the token is invalid, or if a change
/// cannot be sent: with an `_id` of megabytes it exceeds the message limit. Resuming would fail again, so the collections are read.
fn ended(error: mongodb::error::Error) -> Ended {
    const FORGOTTEN: [i32; 5] = [136, 260, 280, 286, 10334];
    match code_of(&error) {
        Some(code) if FORGOTTEN.contains(&code) => Ended::Forgotten,
        _ => Ended::Failed(error),
    }
}
