//! The submission of a program: its form, its checks and its commit.

use annals::queue::QueuePriority;
use annals::{Code, CommitError, CommitOutcome, EventLog, Invalid, Reached, Uuid};
use serde::Deserialize;

use crate::events::{self, Requested};
use crate::language::Language;

/// The bounds of requests over HTTP.
pub(crate) const TIMEOUT_SECONDS_MAX: u64 = 60;
pub(crate) const MEMORY_MB_MIN: u64 = 16;
pub(crate) const MEMORY_MB_MAX: u64 = 1024;
pub(crate) const SCRIPT_CHARS_MAX: usize = 50_000;

/// The bounds that the saga enforces, including for requests that were committed without this service.
pub(crate) const SAGA_TIMEOUT_SECONDS_MAX: u64 = 300;
pub(crate) const SAGA_SCRIPT_BYTES_MAX: usize = 1024 * 1024;

/// The body of `POST /executions`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Submission {
    /// A UUID chosen by the client, so that a repetition is recognised. If absent, the service generates one.
    #[serde(default)]
    pub(crate) execution_id: Option<Uuid>,
    pub(crate) script: String,
    pub(crate) language: String,
    /// Informational: the worker runs the version that its machine has.
    #[serde(default)]
    pub(crate) language_version: Option<String>,
    #[serde(default = "default_timeout")]
    pub(crate) timeout_seconds: u64,
    #[serde(default = "default_memory")]
    pub(crate) memory_limit_mb: u64,
    #[serde(default)]
    pub(crate) priority: QueuePriority,
}

fn default_timeout() -> u64 {
    10
}

fn default_memory() -> u64 {
    128
}

impl Submission {
    /// Returns the submission that requests the same program again.
    pub(crate) fn again(requested: &Requested) -> Result<Self, Invalid> {
        let memory = requested.memory_limit_mb();
        Ok(Self {
            execution_id: None,
            script: requested.script.clone(),
            language: requested.language.clone(),
            language_version: Some(requested.language_version.clone()),
            timeout_seconds: requested.timeout_seconds,
            memory_limit_mb: memory.map_err(|why| Invalid::new(Code::InvalidBody, "memory_limit_mb", why))?,
            priority: requested.priority(),
        })
    }

    /// Commits the request once, however often it is sent.
    ///
    /// # Errors
    /// `invalid_body` with the field that is out of bounds, or the error of the log.
    pub(crate) async fn commit(&self, id: Uuid, user: &str, log: &dyn EventLog) -> Result<CommitOutcome, CommitError> {
        let event = self.requested(id)?;
        let event = events::event(events::REQUESTED, &event)
            .map_err(|message| Invalid::new(Code::InvalidData, "script", message))?;
        // The response names the event's sequence number.
        let commit = events::first_commit(&id.to_string(), user, event, "submitted").wait_until(Reached::Logged);
        log.commit(commit).await
    }

    fn requested(&self, id: Uuid) -> Result<Requested, Invalid> {
        let invalid = |path: &str, message: String| Invalid::new(Code::InvalidBody, path, message);
        let language = Language::parse(&self.language).map_err(|message| invalid("language", message))?;
        let memory = format!("{}Mi", self.memory_limit_mb);
        let requested = Requested {
            execution_id: id.to_string(),
            script: self.script.clone(),
            language: language.name().to_owned(),
            language_version: self.language_version.clone().unwrap_or_else(|| "any".to_owned()),
            runtime_image: "host".to_owned(),
            runtime_command: language.command(),
            runtime_filename: language.file_name().to_owned(),
            timeout_seconds: self.timeout_seconds,
            cpu_limit: "1000m".to_owned(),
            memory_limit: memory.clone(),
            cpu_request: "1000m".to_owned(),
            memory_request: memory,
            priority: self.priority.as_str().to_owned(),
        };
        let characters = self.script.chars().count();
        if characters > SCRIPT_CHARS_MAX {
            let message = format!("script has {characters} characters; at most {SCRIPT_CHARS_MAX} are allowed");
            return Err(invalid("script", message));
        }
        if self.timeout_seconds > TIMEOUT_SECONDS_MAX {
            let message =
                format!("timeout_seconds is {}; 1 to {TIMEOUT_SECONDS_MAX} are allowed", self.timeout_seconds);
            return Err(invalid("timeout_seconds", message));
        }
        match check(&requested) {
            Ok(_) => Ok(requested),
            Err((field, message)) => Err(invalid(field, message)),
        }
    }
}

/// The checked values of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub(crate) language: Language,
    pub(crate) timeout_seconds: u64,
    pub(crate) memory_mb: u64,
}

/// Checks a request against the bounds of the saga. The worker checks it too.
///
/// # Errors
/// The field of [`Submission`] and a sentence.
pub(crate) fn check(requested: &Requested) -> Result<Allowed, (&'static str, String)> {
    let language = Language::parse(&requested.language).map_err(|message| ("language", message))?;
    let bytes = requested.script.len();
    if requested.script.trim().is_empty() {
        return Err(("script", "script is empty; send the text of a program".to_owned()));
    }
    if bytes > SAGA_SCRIPT_BYTES_MAX {
        return Err(("script", format!("script has {bytes} bytes; at most {SAGA_SCRIPT_BYTES_MAX} are allowed")));
    }
    let timeout_seconds = requested.timeout_seconds;
    if !(1..=SAGA_TIMEOUT_SECONDS_MAX).contains(&timeout_seconds) {
        let message = format!("timeout_seconds is {timeout_seconds}; 1 to {SAGA_TIMEOUT_SECONDS_MAX} are allowed");
        return Err(("timeout_seconds", message));
    }
    let memory_mb = requested.memory_limit_mb().map_err(|message| ("memory_limit_mb", message))?;
    if !(MEMORY_MB_MIN..=MEMORY_MB_MAX).contains(&memory_mb) {
        let message = format!("the memory limit is {memory_mb} MiB; {MEMORY_MB_MIN} to {MEMORY_MB_MAX} are allowed");
        return Err(("memory_limit_mb", message));
    }
    Ok(Allowed { language, timeout_seconds, memory_mb })
}
