//! The sessions of the sequencer's transactions. The next leader ends them with `killSessions`, so they must not be reused while that can
//! happen. The driver would give a dropped session to the next operation, which would then be ended with it.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use mongodb::ClientSession;

/// Sessions whose work was interrupted.
#[derive(Default)]
pub(super) struct Left(Mutex<Vec<ClientSession>>);

impl Left {
    fn take(&self) -> Vec<ClientSession> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the sessions to the driver. They have been ended and are recorded nowhere.
    pub(super) fn give_back(&self) {
        drop(self.take());
    }

    /// Leaves the sessions to the server, which expires them after half an hour: another process may end them at any moment.
    pub(super) fn abandon(&self) {
        self.take().into_iter().for_each(std::mem::forget);
    }
}

/// The session of a log's transactions.
pub(super) struct Writing {
    /// `Some` until drop.
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
