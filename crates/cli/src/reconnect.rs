//! Keeps following a server across its restarts and broken connections.

use std::time::Duration;

use annals::{Clock, Code, SystemClock};

use crate::failure::{Failure, note};
use crate::target::Target;

const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The pauses between attempts. Each is twice as long as the previous one, up to a limit, until the server answers.
pub struct Reconnect {
    pause: Duration,
    away: bool,
}

impl Reconnect {
    pub fn new() -> Self {
        Self { pause: PAUSE_MIN, away: false }
    }

    /// Notes that the server has answered.
    pub fn reached(&mut self) {
        if self.away {
            note("the server responds again");
        }
        *self = Self::new();
    }

    /// Waits before the next attempt after a transient failure, and reports once where reading resumes.
    ///
    /// # Errors
    /// The failure itself if another attempt cannot help, or if this process has opened the store.
    pub async fn after(&mut self, failure: Failure, target: &Target, resume: &str) -> Result<(), Failure> {
        let passes = matches!(failure.code, Code::Unreachable | Code::Closing | Code::NotReady | Code::Overloaded);
        if !target.is_remote() || !passes {
            return Err(failure);
        }
        if !self.away {
            note(&format!("{}; reconnecting until the server responds, then resuming {resume}", failure.message));
        }
        self.away = true;
        SystemClock.sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}
