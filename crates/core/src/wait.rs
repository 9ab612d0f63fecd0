//! What the answer to a commit waits for, once the commit is stored.

mod snapshot;

use std::time::Duration;

use crate::{Code, Invalid, limits};

pub use snapshot::until_snapshot;

/// How far a commit has come. Each stage implies those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Reached {
    /// It is stored for good. Its sequence numbers may be given a moment later.
    #[default]
    Committed,
    /// It has its sequence numbers, and whoever reads the log from now on finds it.
    Logged,
    /// The snapshot of its aggregate is of its version, or of a later one. A log knows of no snapshots, so it does what it does for
    /// `Logged`; who waits for the rest is a server, its client, or [`until_snapshot`].
    Snapshot,
}

impl Reached {
    /// Its name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Logged => "logged",
            Self::Snapshot => "snapshot",
        }
    }

    /// The stage of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Committed, Self::Logged, Self::Snapshot].into_iter().find(|stage| stage.as_str() == name)
    }
}

/// What an answer waits for. It is no condition: a commit that is stored stays so, and when the time is up the answer says how far it got.
///
/// A store that gives numbers when it stores (the embedded one) has reached [`Reached::Logged`] at once, whatever is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wait {
    /// The stage.
    pub until: Reached,
    /// How long at most, counted from when the commit is stored; at most [`limits::WAIT_MAX`], and [`limits::WAIT_USUAL`] when absent.
    pub at_most: Option<Duration>,
}

impl Wait {
    /// A wait for this stage, as long as is usual.
    pub fn until(until: Reached) -> Self {
        Self { until, at_most: None }
    }

    /// How long it waits.
    pub fn time(&self) -> Duration {
        self.at_most.unwrap_or(limits::WAIT_USUAL)
    }

    /// Checks its time.
    ///
    /// # Errors
    /// `invalid_wait` at `wait.timeout_ms`.
    pub fn validate(&self) -> Result<(), Invalid> {
        if self.time() > limits::WAIT_MAX {
            let (time, most) = (self.time().as_millis(), limits::WAIT_MAX.as_millis());
            return Err(Invalid::new(Code::InvalidWait, "wait.timeout_ms", format!("{time} ms are more than {most}")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_has_one_name_and_the_later_one_is_greater() {
        for stage in [Reached::Committed, Reached::Logged, Reached::Snapshot] {
            assert_eq!(Reached::from_name(stage.as_str()), Some(stage));
        }
        assert_eq!(Reached::from_name("tea"), None);
        assert!(Reached::Committed < Reached::Logged && Reached::Logged < Reached::Snapshot);
    }

    #[test]
    fn a_wait_that_is_too_long_is_refused() {
        assert_eq!(Wait::default().validate(), Ok(()));
        let wait = |at_most| Wait { until: Reached::Logged, at_most: Some(at_most) };
        assert_eq!(wait(limits::WAIT_MAX).validate(), Ok(()));
        let refused = wait(limits::WAIT_MAX + Duration::from_millis(1)).validate().expect_err("too long");
        assert_eq!((refused.code, &*refused.path), (Code::InvalidWait, "wait.timeout_ms"));
    }
}
