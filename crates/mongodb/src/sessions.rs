//! The sessions that this process writes transactions with, noted where the others see them. A process that is killed leaves its
//! transactions open, and what they wrote stays blocked for a minute; whoever leads ends the sessions of processes that are heard of no
//! more.
//!
//! ```text
//! sequencer-state: {_id: "sessions:{holder}", sessions: [ids], until date}     in the database where the lease lies
//! ```
//!
//! Invariants:
//! - A session is noted before its first transaction, and `until` is renewed as long as one may be open. While nothing is written for some
//!   seconds nothing is noted either.
//! - It is for liveness only: where a session is ended whose process was only held up, what was not committed is tried again like
//!   anything else that the server gave up, and what may have been is asked for again.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use annals_system::{Instant, sleep};
use mongodb::bson::{Document, doc};
use mongodb::error::Error;
use mongodb::options::{Acknowledgment, CollectionOptions, WriteConcern};
use mongodb::{ClientSession, Collection, Database};

use crate::layout::names::SEQUENCER;
use crate::refused::{code_of, message_of};

/// How long a note holds after it was renewed.
const HOLDS: Duration = Duration::from_secs(4);
/// How often it is renewed while it is needed.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// Sessions that are noted at most. Those that were dropped inside a transaction stay noted until newer ones take their places.
const NOTED_MAX: usize = 500;
/// How long one that is idle may be used again: the server forgets one after half an hour.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// How the documents are called.
pub(crate) const PREFIX: &str = "sessions:";

/// How the note of this process is called.
pub(crate) fn note_of(holder: &str) -> String {
    format!("{PREFIX}{holder}")
}

/// Whether the server says that the session was ended amid this, as those of processes are that are taken for gone. It gives no label to
/// that: what was not committed is not stored, and of a commit it is not known.
pub(crate) fn was_ended(error: &Error) -> bool {
    const CURSOR_NOT_FOUND: i32 = 43;
    const CURSOR_KILLED: i32 = 237;
    const INTERRUPTED: i32 = 11601;
    code_of(error).is_some_and(|code| [CURSOR_NOT_FOUND, CURSOR_KILLED, INTERRUPTED].contains(&code))
}

/// The sessions of one store.
pub(crate) struct Sessions {
    database: Database,
    id: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Between two transactions, each with the time since when.
    idle: Vec<(Instant, ClientSession)>,
    /// The ids of all, in the order of their making.
    ids: Vec<Document>,
    under_way: usize,
    used: Option<Instant>,
    /// Until when the note of all of them holds at least.
    noted: Option<Instant>,
    closed: bool,
}

impl Sessions {
    /// The sessions of the process that is called so; `database` is where the lease lies.
    pub(crate) fn new(database: Database, holder: &str) -> Arc<Self> {
        let sessions = Arc::new(Self { database, id: note_of(holder), state: Mutex::default() });
        tokio::spawn(renew(Arc::downgrade(&sessions)));
        sessions
    }

    /// A session for one transaction, noted by now.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) async fn take(self: &Arc<Self>) -> mongodb::error::Result<Session> {
        let idle = self.state().idle.pop().filter(|(since, _)| since.elapsed() < IDLE_MAX);
        let session = match idle {
            Some((_, session)) => session,
            None => self.database.client().start_session().causal_consistency(false).await?,
        };
        let is_noted = {
            let mut state = self.state();
            let id = session.id();
            if !state.ids.contains(id) {
                state.ids.push(id.clone());
                let more = state.ids.len().saturating_sub(NOTED_MAX);
                state.ids.drain(..more);
                state.noted = None;
            }
            state.under_way += 1;
            state.used = Some(Instant::now());
            state.noted.is_some_and(|until| until > Instant::now() + RENEW_EVERY)
        };
        let taken = Session { session, open: Open(self.clone()) };
        if !is_noted && let Err(error) = self.note().await {
            // The transaction will tell what is the matter; without a note it is the server that ends it.
            tracing::debug!(error = message_of(&error), "the sessions of this process could not be noted");
        }
        Ok(taken)
    }

    /// Notes the sessions for some seconds.
    async fn note(&self) -> mongodb::error::Result<()> {
        let begun = Instant::now();
        let ids = self.state().ids.clone();
        let count = ids.len();
        let note = vec![doc! { "$set": {
            "sessions": { "$literal": ids }, "until": { "$add": ["$$NOW", HOLDS.as_millis() as i64] },
        } }];
        self.notes().update_one(doc! { "_id": &self.id }, note).upsert(true).await?;
        let mut state = self.state();
        if state.ids.len() == count {
            state.noted = Some(begun + HOLDS);
        }
        Ok(())
    }

    /// Takes the note away, once no transaction is open.
    pub(crate) async fn close(&self) {
        self.state().closed = true;
        self.forget().await;
    }

    /// Nobody needs to look for sessions without transactions.
    async fn forget(&self) {
        let noted = self.state().noted.take();
        if noted.is_some() {
            // Where it stays, whoever leads takes it away.
            let notes = self.notes();
            let gone = notes.delete_one(doc! { "_id": &self.id });
            let _ = tokio::time::timeout(RENEW_EVERY, gone.into_future()).await;
        }
    }

    /// Notes need not survive a change of the primary: it ends every transaction.
    fn notes(&self) -> Collection<Document> {
        let options = CollectionOptions::builder().write_concern(WriteConcern::from(Acknowledgment::Nodes(1))).build();
        self.database.collection_with_options(SEQUENCER, options)
    }

    /// Whether transactions are open, or were a moment ago.
    fn is_needed(&self) -> bool {
        let state = self.state();
        let lately = state.used.is_some_and(|used| used.elapsed() < HOLDS);
        !state.closed && (state.under_way > 0 || lately)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Renews the note while it is needed, and takes it away where it is not.
async fn renew(sessions: Weak<Sessions>) {
    loop {
        sleep(RENEW_EVERY).await;
        let Some(sessions) = sessions.upgrade() else { return };
        if sessions.state().closed {
            return;
        }
        if !sessions.is_needed() {
            sessions.forget().await;
        } else if let Err(error) = sessions.note().await {
            tracing::debug!(error = message_of(&error), "the sessions of this process could not be noted");
        }
    }
}

/// A session that was taken for a transaction.
pub(crate) struct Session {
    pub(crate) session: ClientSession,
    open: Open,
}

impl Session {
    /// Gives it back, whatever became of its transaction: where the server still has it open, the next one of the same session ends it. So
    /// that one must not be left to a session that is not used again; one that is dropped amid a command ends its transaction by itself.
    pub(crate) fn done(self) {
        let Self { session, open } = self;
        open.0.state().idle.push((Instant::now(), session));
    }

    /// Gives up its transaction, and gives it back.
    pub(crate) async fn abort(mut self) {
        let _ = self.session.abort_transaction().await;
        self.done();
    }
}

/// A transaction that may be open, until this is dropped.
struct Open(Arc<Sessions>);

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.under_way -= 1;
        state.used = Some(Instant::now());
    }
}
