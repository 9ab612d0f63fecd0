//! The stage that the response to a commit waits for, once the commit is stored.

use std::time::Duration;

use crate::commit::valid_name;
use crate::{ByteString, Code, Invalid, limits};

/// The stage that a commit has reached. Each implies those before it; named stages imply nothing about each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Reached {
    /// It is durably stored. Its sequence numbers may be assigned a moment later.
    #[default]
    Committed,
    /// It has its sequence numbers, and later reads of the log find it.
    Logged,
    /// A named stage of a process that follows the log, such as `snapshot` or `handled:billing`. A log only waits for `Logged`; the task
    /// host waits for the rest, in a server or in the program that runs it.
    Stage(ByteString),
}

impl Reached {
    /// Returns its name in the API.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Committed => "committed",
            Self::Logged => "logged",
            Self::Stage(name) => name,
        }
    }

    /// Returns the stage with this name. A named stage need not exist: only the task host knows which ones do.
    ///
    /// # Errors
    /// `invalid_wait` at `wait.for`, if the text is not the name of a stage.
    pub fn from_name(name: &str) -> Result<Self, Invalid> {
        match name {
            "committed" => Ok(Self::Committed),
            "logged" => Ok(Self::Logged),
            name => {
                valid_stage(name)?;
                Ok(Self::Stage(name.into()))
            }
        }
    }

    /// Returns the name of a named stage, or `None`.
    pub fn stage(&self) -> Option<&ByteString> {
        match self {
            Self::Committed | Self::Logged => None,
            Self::Stage(name) => Some(name),
        }
    }
}

/// Checks the name of a stage: lower-case letters, or lower-case letters, a colon and a name.
fn valid_stage(stage: &str) -> Result<(), Invalid> {
    let (kind, of) = stage.split_once(':').map_or((stage, None), |(kind, of)| (kind, Some(of)));
    let is_word = (1..=limits::NAME_BYTES_MAX).contains(&kind.len()) && kind.bytes().all(|b| b.is_ascii_lowercase());
    if is_word && of.is_none_or(|of| valid_name("wait.for", of).is_ok()) {
        return Ok(());
    }
    let shown: String = stage.chars().take(60).collect();
    let message = format!(
        "{shown:?} is not the name of a stage; use \"committed\", \"logged\", \"snapshot\", \"published\", \"handled:NAME\" or \"projected:NAME\""
    );
    Err(Invalid::new(Code::InvalidWait, "wait.for", message))
}

/// What a response waits for. It is not a condition: a stored commit stays stored, and after a timeout the response says which stage it
/// reached.
///
/// A store that assigns sequence numbers when it stores a commit (the embedded store) reaches [`Reached::Logged`] immediately, whatever
/// the wait.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wait {
    /// The stage.
    pub until: Reached,
    /// The timeout, counted from when the commit is stored; at most [`limits::WAIT_MAX`], and [`limits::WAIT_USUAL`] if absent.
    pub at_most: Option<Duration>,
}

impl Wait {
    /// Creates a wait for this stage with the default timeout.
    pub fn until(until: Reached) -> Self {
        Self { until, at_most: None }
    }

    /// Returns the timeout.
    pub fn time(&self) -> Duration {
        self.at_most.unwrap_or(limits::WAIT_USUAL)
    }

    /// Checks the timeout and the form of the stage.
    ///
    /// # Errors
    /// `invalid_wait` at `wait.timeout_ms` or `wait.for`.
    pub fn validate(&self) -> Result<(), Invalid> {
        if let Reached::Stage(name) = &self.until {
            valid_stage(name)?;
        }
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
        let named = |name: &str| Reached::Stage(name.into());
        for stage in [Reached::Committed, Reached::Logged, named("snapshot"), named("handled:billing-2")] {
            assert_eq!(Reached::from_name(stage.as_str()), Ok(stage));
        }
        assert!(Reached::Committed < Reached::Logged && Reached::Logged < named("a"));
    }

    #[test]
    fn a_stage_whose_name_has_another_form_is_refused() {
        for name in ["", "Tea", "te a", "handled:", ":billing", "handled:a:b", "handled:a b", "a1"] {
            let wait = Wait::until(Reached::Stage(name.into()));
            for refused in [Reached::from_name(name).map(drop), wait.validate()] {
                let refused = refused.expect_err(name);
                assert_eq!((refused.code, &*refused.path), (Code::InvalidWait, "wait.for"), "{name}");
            }
        }
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
