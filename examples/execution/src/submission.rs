//! A program somebody wants to be run: how it is asked for, checked and committed.

use annals::{Code, CommitError, CommitOutcome, EventLog, Invalid, Reached, Uuid};
use serde::Deserialize;

use crate::events::{self, Requested};
use crate::language::{Interpreters, Language};

/// The bounds of what may be asked for.
pub(crate) const TIMEOUT_SECONDS_MAX: u64 = 60;
pub(crate) const MEMORY_MB_MIN: u64 = 16;
pub(crate) const MEMORY_MB_MAX: u64 = 1024;
pub(crate) const SCRIPT_BYTES_MAX: usize = 256 * 1024;

/// The body of `POST /executions`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Submission {
    /// A UUID that the client chose, so that sending it again is recognised; made by the service when absent.
    #[serde(default)]
    pub(crate) execution_id: Option<Uuid>,
    pub(crate) script: String,
    pub(crate) language: String,
    #[serde(default = "default_timeout")]
    pub(crate) timeout_seconds: u64,
    #[serde(default = "default_memory")]
    pub(crate) memory_limit_mb: u64,
}

fn default_timeout() -> u64 {
    10
}

fn default_memory() -> u64 {
    128
}

impl Submission {
    /// Commits the request, once however often it is sent.
    ///
    /// # Errors
    /// `invalid_body` with the field that is out of bounds, or what the log says.
    pub(crate) async fn commit(
        &self,
        id: Uuid,
        interpreters: &Interpreters,
        log: &dyn EventLog,
    ) -> Result<CommitOutcome, CommitError> {
        let event = self.requested(id, interpreters)?;
        let event = events::event(events::REQUESTED, &event)
            .map_err(|message| Invalid::new(Code::InvalidData, "script", message))?;
        // The answer says which event of the log it is.
        let commit = events::first_commit(&id.to_string(), event, "submitted").wait_until(Reached::Logged);
        log.commit(commit).await
    }

    fn requested(&self, id: Uuid, interpreters: &Interpreters) -> Result<Requested, Invalid> {
        let invalid = |path: &str, message: String| Invalid::new(Code::InvalidBody, path, message);
        let language = Language::parse(&self.language).map_err(|message| invalid("language", message))?;
        let interpreter = interpreters.of(language).ok();
        let command = interpreter.map_or(language.name().into(), |found| found.path.display().to_string());
        let memory = format!("{}Mi", self.memory_limit_mb);
        let requested = Requested {
            execution_id: id.to_string(),
            script: self.script.clone(),
            language: language.name().to_owned(),
            language_version: interpreter.map(|found| found.version.clone()).unwrap_or_default(),
            runtime_image: "host".to_owned(),
            runtime_command: [command].into_iter().chain(language.arguments()).collect(),
            runtime_filename: language.file_name().to_owned(),
            timeout_seconds: self.timeout_seconds,
            cpu_limit: "1000m".to_owned(),
            memory_limit: memory.clone(),
            cpu_request: "1000m".to_owned(),
            memory_request: memory,
            priority: "normal".to_owned(),
        };
        match check(&requested) {
            Ok(_) => Ok(requested),
            Err((field, message)) => Err(invalid(field, message)),
        }
    }
}

/// What can be run of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub(crate) language: Language,
    pub(crate) timeout_seconds: u64,
    pub(crate) memory_mb: u64,
}

/// Checks a request against the bounds. The worker does so too, because requests can be committed without this service.
///
/// # Errors
/// The field of [`Submission`] and a sentence.
pub(crate) fn check(requested: &Requested) -> Result<Allowed, (&'static str, String)> {
    let language = Language::parse(&requested.language).map_err(|message| ("language", message))?;
    let bytes = requested.script.len();
    if requested.script.trim().is_empty() {
        return Err(("script", "script is empty; send the text of a program".to_owned()));
    }
    if bytes > SCRIPT_BYTES_MAX {
        return Err(("script", format!("script has {bytes} bytes; at most {SCRIPT_BYTES_MAX} are allowed")));
    }
    let timeout_seconds = requested.timeout_seconds;
    if !(1..=TIMEOUT_SECONDS_MAX).contains(&timeout_seconds) {
        let message = format!("timeout_seconds is {timeout_seconds}; 1 to {TIMEOUT_SECONDS_MAX} are allowed");
        return Err(("timeout_seconds", message));
    }
    let memory_mb = requested.memory_limit_mb().map_err(|message| ("memory_limit_mb", message))?;
    if !(MEMORY_MB_MIN..=MEMORY_MB_MAX).contains(&memory_mb) {
        let message = format!("the memory limit is {memory_mb} MiB; {MEMORY_MB_MIN} to {MEMORY_MB_MAX} are allowed");
        return Err(("memory_limit_mb", message));
    }
    Ok(Allowed { language, timeout_seconds, memory_mb })
}
