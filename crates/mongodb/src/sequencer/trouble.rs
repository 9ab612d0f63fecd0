//! Logs that the sequencer cannot reach MongoDB: once when the failure begins and once when it ends, whatever the number of retries
//! between.

use std::sync::atomic::{AtomicBool, Ordering};

use mongodb::error::Error;

use crate::refused::message_of;

#[derive(Default)]
pub(super) struct Trouble(AtomicBool);

impl Trouble {
    /// Records a failure; `what` names the operation.
    pub(super) fn met(&self, what: &'static str, error: &Error) {
        let error = message_of(error);
        if self.begins() {
            tracing::warn!(what, error, "the sequencer cannot work with MongoDB; it retries until it can");
        } else {
            tracing::debug!(what, error, "the sequencer still cannot work with MongoDB");
        }
    }

    /// Records a success.
    pub(super) fn over(&self) {
        if self.ends() {
            tracing::info!("the sequencer works with MongoDB again");
        }
    }

    fn begins(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }

    fn ends(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_told_when_it_begins_and_when_it_is_over() {
        let trouble = Trouble::default();
        assert!(!trouble.ends(), "there was none");
        for _ in 0..2 {
            assert!(trouble.begins());
            assert!(!trouble.begins() && !trouble.begins(), "it is known");
            assert!(trouble.ends());
            assert!(!trouble.ends(), "it is over");
        }
    }
}
