//! The sessions that the sequencer writes with. Whoever leads next ends them (`killSessions`), so none of them may be used for anything
//! else before nobody does: the driver gives a session that is dropped to the next operation, which would be ended with it.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use mongodb::ClientSession;

/// Sessions of which the work was broken off.
#[derive(Default)]
pub(super) struct Left(Mutex<Vec<ClientSession>>);

impl Left {
    fn take(&self) -> Vec<ClientSession> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives them back to the driver: they were ended, and are noted nowhere.
    pub(super) fn give_back(&self) {
        drop(self.take());
    }

    /// Leaves them to the server, which forgets them after half an hour: another process may end them at any moment.
    pub(super) fn abandon(&self) {
        self.take().into_iter().for_each(std::mem::forget);
    }
}

/// A session of a log's transactions.
pub(super) struct Writing {
    /// There until it is dropped.
    session: Option<ClientSession>,
    left: Arc<Left>,
}

impl Writing {
    pub(super) fn new(session: ClientSession, left: Arc<Left>) -> Self {
        Self { session: Some(session), left }
    }
}

impl Deref for Writing {
    type Target = ClientSession;

    #[expect(clippy::expect_used, reason = "it is there until it is dropped")]
    fn deref(&self) -> &ClientSession {
        self.session.as_ref().expect("it is there until it is dropped")
    }
}

impl DerefMut for Writing {
    #[expect(clippy::expect_used, reason = "it is there until it is dropped")]
    fn deref_mut(&mut self) -> &mut ClientSession {
        self.session.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut left = self.left.0.lock().unwrap_or_else(PoisonError::into_inner);
        left.extend(self.session.take());
    }
}
