//! A clock that stands still until a test moves it.

use std::time::Duration;

use annals::{Clock, Sleep, SystemClock, Timestamp};
use tokio::sync::watch;

pub struct Standing(watch::Sender<Timestamp>);

impl Standing {
    /// It begins at the present: a store lets records expire by the machine's clock, which must not be ahead of this one.
    pub fn at_present() -> Self {
        Self(watch::Sender::new(SystemClock.now()))
    }

    /// Advances it, and wakes whatever sleeps until then.
    pub fn advance(&self, time: Duration) {
        self.0.send_modify(|now| *now = now.plus(time));
    }
}

impl Clock for Standing {
    fn now(&self) -> Timestamp {
        *self.0.borrow()
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep<'_> {
        Box::pin(async move {
            // The sender lives as long as `self`, so waiting cannot fail.
            let _ = self.0.subscribe().wait_for(|now| *now >= at).await;
        })
    }
}
