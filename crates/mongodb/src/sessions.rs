//! The sessions with which this process writes transactions, registered where other processes see them. A killed process leaves its
//! transactions open, and what they wrote stays blocked for a minute. So the leader ends the sessions of processes that no longer renew
//! their registration.
//!
//! ```text
//! sequencer-state: {_id: "sessions:{holder}", number: n, sessions: [ids], until date}     in the database where the lease lies
//! ```
//!
//! INVARIANTS:
//! - A session is registered before its first transaction, and `until` is renewed as long as one may be open. After some seconds without
//!   writes, the registration is removed.
//! - Registrations that are sent at once arrive in any order. They are numbered, and an older one neither replaces the sessions of a newer
//!   one nor removes it.
//! - A registered session is never returned to the driver, which would reuse it for any other operation: `killSessions` would end that
//!   too.
//! - This serves liveness only. If the session of a process that was merely delayed is ended, an uncommitted transaction is retried like
//!   any other that the server aborted, and the outcome of a commit is determined again.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use annals_system::{Instant, sleep};
use mongodb::bson::{Document, doc};
use mongodb::error::Error;
use mongodb::options::{Acknowledgment, CollectionOptions, WriteConcern};
use mongodb::{ClientSession, Collection, Database};
use tokio::sync::RwLock;

use crate::layout::names::SEQUENCER;
use crate::refused::{code_of, message_of};

/// How long a registration is valid after a renewal.
const HOLDS: Duration = Duration::from_secs(4);
/// Interval between renewals while it is needed.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of registered sessions: there are never more open transactions.
const NOTED_MAX: usize = 500;
/// How long an idle session may be reused: the server expires one after half an hour.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// Prefix of the `_id`s of registrations.
pub(crate) const PREFIX: &str = "sessions:";

/// Returns the `_id` of the registration of a process.
pub(crate) fn note_of(holder: &str) -> String {
    format!("{PREFIX}{holder}")
}

/// Returns whether the server ended the session during the operation, as it does for processes that are believed dead. The error has no
/// label: an uncommitted transaction is not stored, and the outcome of a commit is unknown.
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
    /// Held shared while a registration is written, and exclusively while it is removed: one that arrives after its removal would stay.
    writing: RwLock<()>,
}

#[derive(Default)]
struct State {
    /// Sessions between two transactions, each with the time since when it is idle.
    idle: Vec<(Instant, ClientSession)>,
    /// The ids of all sessions, oldest first.
    ids: Vec<Document>,
    /// The number of the last registration that was begun.
    number: i64,
    under_way: usize,
    used: Option<Instant>,
    /// Until when the registration of all of them is valid at least.
    noted: Option<Instant>,
    closed: bool,
}

impl State {
    /// Returns whether transactions are open, or were a moment ago.
    fn is_needed(&self) -> bool {
        let lately = self.used.is_some_and(|used| used.elapsed() < HOLDS);
        !self.closed && (self.under_way > 0 || lately)
    }
}

/// Returns the change that registers these sessions, unless a later registration has arrived first.
fn registration(number: i64, ids: &[Document]) -> Vec<Document> {
    let is_newer = doc! { "$lt": ["$number", number] };
    vec![doc! { "$set": {
        "number": { "$max": ["$number", number] },
        "sessions": { "$cond": [is_newer, { "$literal": ids.to_vec() }, "$sessions"] },
        "until": { "$add": ["$$NOW", HOLDS.as_millis() as i64] },
    } }]
}

impl Sessions {
    /// Creates the sessions of the process named `holder`; `database` is the one with the lease.
    pub(crate) fn new(database: Database, holder: &str) -> Arc<Self> {
        let sessions =
            Arc::new(Self { database, id: note_of(holder), state: Mutex::default(), writing: RwLock::default() });
        tokio::spawn(renew(Arc::downgrade(&sessions)));
        sessions
    }

    /// Returns a session for one transaction, after registering it.
    ///
    /// # Errors
    /// Errors of the driver.
    pub(crate) async fn take(self: &Arc<Self>) -> mongodb::error::Result<Session> {
        self.give_back_expired().await?;
        let idle = self.state().idle.pop();
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
        let session = Kept { session: Some(session), of: self.clone(), ended: false };
        let taken = Session { session, _open: Open(self.clone()) };
        if !is_noted && let Err(error) = self.note().await {
            // The transaction will report the actual problem; without a registration, the server expires it.
            tracing::debug!(error = message_of(&error), "the sessions of this process could not be registered");
        }
        Ok(taken)
    }

    /// Returns sessions that the server may expire soon to the driver, after removing them from the registration.
    async fn give_back_expired(&self) -> mongodb::error::Result<()> {
        let expired: Vec<ClientSession> = {
            let mut state = self.state();
            let State { idle, ids, .. } = &mut *state;
            let count = idle.iter().take_while(|(since, _)| since.elapsed() >= IDLE_MAX).count();
            let expired = idle.drain(..count).map(|(_, session)| session);
            let expired: Vec<ClientSession> = expired.inspect(|one| ids.retain(|id| id != one.id())).collect();
            if !expired.is_empty() {
                state.noted = None;
            }
            expired
        };
        if !expired.is_empty() {
            self.note().await?;
        }
        Ok(())
    }

    /// Registers the sessions for some seconds.
    async fn note(&self) -> mongodb::error::Result<()> {
        let _writing = self.writing.read().await;
        let begun = Instant::now();
        let (number, ids) = {
            let mut state = self.state();
            if state.closed {
                return Ok(());
            }
            state.number += 1;
            (state.number, state.ids.clone())
        };
        let change = registration(number, &ids);
        self.notes().update_one(doc! { "_id": &self.id }, change).upsert(true).await?;
        let mut state = self.state();
        if state.ids == ids {
            state.noted = Some(begun + HOLDS);
        }
        Ok(())
    }

    /// Removes the registration, once no transaction is open.
    pub(crate) async fn close(&self) {
        self.state().closed = true;
        self.forget().await;
    }

    /// Removes the registration: sessions without transactions need not be found. A transaction that began meanwhile keeps it.
    async fn forget(&self) {
        let removing = async {
            let _writing = self.writing.write().await;
            let number = {
                let mut state = self.state();
                if state.is_needed() || state.noted.take().is_none() {
                    return;
                }
                state.number
            };
            let _ = self.notes().delete_one(doc! { "_id": &self.id, "number": { "$lte": number } }).await;
        };
        // If it stays, the leader removes it.
        let _ = tokio::time::timeout(RENEW_EVERY, removing).await;
    }

    /// Returns the collection of registrations. They need not survive a change of the primary, which aborts every transaction.
    fn notes(&self) -> Collection<Document> {
        let options = CollectionOptions::builder().write_concern(WriteConcern::from(Acknowledgment::Nodes(1))).build();
        self.database.collection_with_options(SEQUENCER, options)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Renews the registration while it is needed, and removes it when it is not.
async fn renew(sessions: Weak<Sessions>) {
    loop {
        sleep(RENEW_EVERY).await;
        let Some(sessions) = sessions.upgrade() else { return };
        let (is_closed, is_needed) = {
            let state = sessions.state();
            (state.closed, state.is_needed())
        };
        if is_closed {
            return;
        }
        if !is_needed {
            sessions.forget().await;
        } else if let Err(error) = sessions.note().await {
            tracing::debug!(error = message_of(&error), "the sessions of this process could not be registered");
        }
    }
}

/// A session that is taken for a transaction.
pub(crate) struct Session {
    pub(crate) session: Kept,
    _open: Open,
}

impl Session {
    /// Makes the session available for the next transaction, whatever the outcome of this one: if the server still has this one open, the
    /// next one of the same session aborts it.
    pub(crate) fn done(mut self) {
        self.session.ended = true;
    }

    /// Aborts the transaction, and makes the session available for the next one.
    pub(crate) async fn abort(mut self) {
        let _ = self.session.abort_transaction().await;
        self.done();
    }
}

/// A registered session, which stays with the sessions of its store. A drop in the middle of a transaction aborts the transaction first.
pub(crate) struct Kept {
    /// `Some` until drop.
    session: Option<ClientSession>,
    of: Arc<Sessions>,
    /// Whether its transaction was committed or aborted.
    ended: bool,
}

impl Kept {
    fn idle(sessions: &Sessions, session: ClientSession) {
        sessions.state().idle.push((Instant::now(), session));
    }
}

impl Deref for Kept {
    type Target = ClientSession;

    #[expect(clippy::expect_used, reason = "it is there until it is dropped")]
    fn deref(&self) -> &ClientSession {
        self.session.as_ref().expect("it is there until it is dropped")
    }
}

impl DerefMut for Kept {
    #[expect(clippy::expect_used, reason = "it is there until it is dropped")]
    fn deref_mut(&mut self) -> &mut ClientSession {
        self.session.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(mut session) = self.session.take() else { return };
        if self.ended {
            return Self::idle(&self.of, session);
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                let of = self.of.clone();
                drop(runtime.spawn(async move {
                    let _ = session.abort_transaction().await;
                    Self::idle(&of, session);
                }));
            }
            // The program is exiting.
            Err(_) => Self::idle(&self.of, session),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that is never asked for anything: sessions are made without the server.
    async fn sessions() -> Arc<Sessions> {
        let client = mongodb::Client::with_uri_str("mongodb://127.0.0.1:1/?replicaSet=rs0").await.expect("a URL");
        Sessions::new(client.database("x"), "holder")
    }

    #[tokio::test]
    async fn a_session_that_is_dropped_amid_its_transaction_is_not_returned_to_the_driver() {
        let sessions = sessions().await;
        let session = sessions.database.client().start_session().await.expect("made");
        let id = session.id().clone();
        sessions.state().ids.push(id.clone());
        sessions.state().under_way += 1;
        let session = Kept { session: Some(session), of: sessions.clone(), ended: false };
        drop(Session { session, _open: Open(sessions.clone()) });
        while sessions.state().idle.is_empty() {
            tokio::task::yield_now().await;
        }
        let kept = sessions.state().idle.pop().expect("it is kept");
        assert_eq!(*kept.1.id(), id);
        assert_eq!(sessions.state().under_way, 0);
        let other = sessions.database.client().start_session().await.expect("made");
        assert_ne!(*other.id(), id, "whatever the driver does next has another one");
    }
}
