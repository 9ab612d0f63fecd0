//! The errors of the server: the one place where errors become HTTP responses.

use std::time::Duration;

use annals_core::bson::Bson;
use annals_core::wire::records::ExactJson;
use annals_core::{
    ChangesError, Code, CommitError, Invalid, KeyError, ReadError, RecordError, StoreError, StreamError,
    TransactionError, UnknownLog,
};
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// An RFC 9457 problem document, the body of every error response.
///
/// ```json
/// {"type":"/errors/version_conflict","title":"The aggregate is not at the expected version.","status":409,
///  "code":"version_conflict","detail":"version conflict: expected 3, …","actual_version":4,"advice":"Reload the aggregate, …"}
/// ```
#[derive(Debug, Clone)]
pub struct Problem {
    code: Code,
    detail: String,
    path: Option<String>,
    facts: Vec<(&'static str, Box<RawValue>)>,
    advice: &'static str,
    closes: bool,
    retry_after: u64,
}

impl Problem {
    /// Creates a problem with a sentence about this occurrence.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: cut(detail.into()),
            path: None,
            facts: Vec::new(),
            advice: code.advice(),
            closes: false,
            retry_after: 1,
        }
    }

    /// Creates the problem of an invalid query parameter or header.
    pub fn query(path: &str, message: impl Into<String>) -> Self {
        Invalid::new(Code::InvalidQuery, path, message).into()
    }

    /// Returns its error code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Sets the path of the field or part that it is about.
    #[must_use]
    pub(crate) fn at(self, path: String) -> Self {
        Self { path: Some(path), ..self }
    }

    /// Adds a member for programs to read.
    #[must_use]
    pub fn fact(self, name: &'static str, value: impl Into<Value>) -> Self {
        self.fact_as(name, &value.into())
    }

    /// Adds a member that is serialised as it is.
    #[must_use]
    pub(crate) fn fact_as(mut self, name: &'static str, value: &impl Serialize) -> Self {
        // A value that cannot be serialised is left out.
        self.facts.extend(to_raw_value(value).map(|value| (name, value)));
        self
    }

    /// Adds the members from which a client reconstructs the store's error.
    #[must_use]
    fn of_store(self, error: &StoreError) -> Self {
        let problem = match error.reason() {
            Some(reason) => self.reason(reason),
            None => self,
        };
        if matches!(error, StoreError::RecordsDamaged(_)) { problem.fact("part", "records") } else { problem }
    }

    /// Adds the sentence without the words common to every error of its kind, if `detail` has more than that.
    #[must_use]
    fn reason(self, reason: &str) -> Self {
        if reason == self.detail { self } else { self.fact("reason", cut(reason.to_owned())) }
    }

    /// Replaces the code's advice if it does not fit this operation.
    #[must_use]
    pub fn advise(mut self, advice: &'static str) -> Self {
        self.advice = advice;
        self
    }

    /// Sets after how many seconds, rounded up, the request may be retried.
    #[must_use]
    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = wait.as_millis().div_ceil(1_000).max(1) as u64;
        self
    }

    /// Returns after how many seconds the request may be retried, if that is known.
    pub(crate) fn retry_after_seconds(&self) -> Option<u64> {
        matches!(self.code, Code::Overloaded | Code::Closing | Code::RateLimited).then_some(self.retry_after)
    }

    /// Closes the connection after the response, because the rest of the request will not be read.
    #[must_use]
    pub(crate) fn closing(mut self) -> Self {
        self.closes = true;
        self
    }
}

impl Problem {
    /// Returns the document as JSON text.
    pub(crate) fn to_json(&self) -> String {
        // A map of strings and JSON values cannot fail to serialise.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Truncates a text that may quote the request, so that it cannot flood the response.
fn cut(mut text: String) -> String {
    const BYTES_MAX: usize = 1_000;
    if text.len() > BYTES_MAX {
        let end = (0..=BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", &format_args!("{}{}", crate::errors::PAGES, self.code.as_str()))?;
        map.serialize_entry("title", self.code.meaning())?;
        map.serialize_entry("status", &self.code.status())?;
        map.serialize_entry("code", self.code.as_str())?;
        map.serialize_entry("detail", &self.detail)?;
        if let Some(path) = &self.path {
            map.serialize_entry("path", path)?;
        }
        for (name, value) in &self.facts {
            map.serialize_entry(name, value)?;
        }
        map.serialize_entry("advice", self.advice)?;
        map.end()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        // A map of strings and JSON values cannot fail to serialise.
        let mut response = Response::new(Body::from(serde_json::to_vec(&self).unwrap_or_default()));
        *response.status_mut() = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.extensions_mut().insert(self.code);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code == Code::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"annals\""));
        }
        if self.closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        let problem = Self::new(invalid.code, invalid.to_string()).reason(&invalid.message);
        let always = invalid.code.status() == 422;
        let path = (always || !invalid.path.is_empty()).then_some(cut(invalid.path));
        Self { path, ..problem }
    }
}

impl From<CommitError> for Problem {
    fn from(error: CommitError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            CommitError::Invalid(invalid) => invalid.into(),
            CommitError::VersionConflict { actual_version, .. } => problem.fact("actual_version", actual_version),
            CommitError::RequestIdReused { request_id } => problem.fact("request_id", request_id),
            CommitError::AppendConditionFailed { pattern, sequence_number } => {
                problem.fact("pattern", pattern).fact("sequence_number", sequence_number)
            }
            CommitError::KeyTaken { name, key } | CommitError::KeyNotHeld { name, key } => {
                problem.fact("name", name).fact("key", key)
            }
            CommitError::AggregateOfOtherTenant { tenant_id } => problem.fact("tenant_id", tenant_id),
            CommitError::Store(error) => problem.of_store(&error),
            _ => problem,
        }
    }
}

impl From<KeyError> for Problem {
    fn from(error: KeyError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            KeyError::Invalid(invalid) => invalid.into(),
            KeyError::NotHeld { name, key } => problem.fact("name", name).fact("key", key),
            KeyError::Store(error) => problem.of_store(&error),
            _ => problem,
        }
    }
}

impl From<TransactionError> for Problem {
    fn from(refusal: TransactionError) -> Self {
        let detail = refusal.to_string();
        match refusal.error {
            // The path of an invalid request already begins with the part.
            CommitError::Invalid(invalid) => invalid.into(),
            error => {
                Self { detail: cut(detail), path: (!refusal.at.is_empty()).then_some(refusal.at), ..Self::from(error) }
            }
        }
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Invalid(invalid) => invalid.into(),
            ReadError::Store(ref store) => {
                Self::new(error.code(), error.to_string()).advise(error.advice()).of_store(store)
            }
            other => Self::new(other.code(), other.to_string()).advise(other.advice()),
        }
    }
}

impl From<StreamError> for Problem {
    fn from(error: StreamError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            StreamError::Invalid(invalid) => invalid.into(),
            StreamError::BeyondLog { head, .. } => problem.fact("head", head),
            StreamError::Moved { progress, .. } => problem.fact("progress", progress),
            StreamError::VerdictsDiffer { sequence_number } => problem.fact("sequence_number", sequence_number),
            StreamError::Store(error) => problem.of_store(&error),
            _ => problem,
        }
    }
}

impl From<RecordError> for Problem {
    fn from(error: RecordError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            RecordError::Invalid(invalid) => invalid.into(),
            RecordError::UnknownCollection(collection) => problem.fact("collection", collection),
            RecordError::NotAsExpected { collection, id, change, actual } => {
                // The text of an id is its Extended JSON, except for types that JSON cannot represent.
                let id = serde_json::from_str(&id).unwrap_or(Value::String(id));
                let problem = problem.fact("collection", collection).fact("id", id).fact("change", change);
                problem.fact("revision", actual)
            }
            RecordError::DuplicateKey { collection, index, key, change } => {
                let entry = Bson::Document(*key);
                let problem = problem.fact("collection", collection).fact("index", index);
                problem.fact_as("entry", &ExactJson(&entry)).fact("change", change)
            }
            RecordError::IndexConflict { collection, index, message } => {
                problem.reason(&message).fact("collection", collection).fact("index", index)
            }
            RecordError::Store(error) => problem.of_store(&error),
            _ => problem,
        }
    }
}

impl From<ChangesError> for Problem {
    fn from(error: ChangesError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            ChangesError::Invalid(invalid) => invalid.into(),
            ChangesError::Gone { oldest, .. } => problem.fact("oldest", oldest),
            ChangesError::Unknown { last, .. } => problem.fact("last", last),
            ChangesError::UnknownCollection(name) | ChangesError::NoFeed(name) => problem.fact("collection", name),
            ChangesError::Store(error) => problem.of_store(&error),
            _ => problem,
        }
    }
}

impl From<UnknownLog> for Problem {
    fn from(error: UnknownLog) -> Self {
        Self::new(error.code(), error.to_string())
    }
}
