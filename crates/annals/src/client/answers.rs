//! Parses a server's answers, and turns its problem documents back into the errors of the ports.

use annals_core::{
    Appended, Code, CommitError, CommitOutcome, ExpectedVersion, Invalid, KnownAggregate, NewCommit, ReadError,
    RecordedCommit, StoreError, StreamError, StreamEvent, Verdicts, wire, wire::binary::FoundEnd,
};
use hyper::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::commits::Reply;
use super::http::Answer;

/// `GET /v1/aggregates/{name}`.
#[derive(Deserialize)]
pub(super) struct Ids {
    aggregates: Vec<Known>,
}

#[derive(Deserialize)]
struct Known {
    id: annals_core::ByteString,
    tenant_id: annals_core::ByteString,
}

impl From<Ids> for Vec<KnownAggregate> {
    fn from(answer: Ids) -> Self {
        answer.aggregates.into_iter().map(|known| KnownAggregate { id: known.id, tenant_id: known.tenant_id }).collect()
    }
}

/// `GET /v1/aggregates/{name}/{id}/requests/{request_id}`.
#[derive(Deserialize)]
pub(super) struct Exists {
    pub exists: bool,
    commit: Option<wire::CommitAnswer>,
}

impl Exists {
    /// Returns the outcome of the request's commit.
    pub(super) fn outcome(self) -> Result<Option<CommitOutcome>, StoreError> {
        match (self.exists, self.commit) {
            (false, _) => Ok(None),
            (true, Some(commit)) => outcome(commit).map(Some),
            (true, None) => Err(unknown("a request that exists without its commit")),
        }
    }
}

/// `GET /v1/aggregates`.
#[derive(Deserialize)]
pub(super) struct Names {
    pub names: Vec<annals_core::ByteString>,
}

/// An RFC 9457 problem document.
#[derive(Deserialize)]
pub(super) struct Problem {
    code: String,
    #[serde(default)]
    detail: String,
    /// The sentence without the words that all errors of its kind share. `None` if `detail` adds no such words.
    reason: Option<String>,
    /// The part of the store that failed, for codes that apply to several parts.
    part: Option<String>,
    #[serde(default)]
    pub path: String,
    actual_version: Option<u64>,
    tenant_id: Option<String>,
    head: Option<u64>,
    progress: Option<u64>,
    pattern: Option<usize>,
    sequence_number: Option<u64>,
    pub name: Option<String>,
    key: Option<String>,
    pub partition: Option<String>,
    pub setting: Option<String>,
    pub act: Option<String>,
    pub what: Option<String>,
    pub state: Option<String>,
    pub owner: Option<String>,
    pub first_difference: Option<u64>,
    pub generation: Option<u32>,
    pub microservice: Option<String>,
    pub tenant: Option<String>,
    pub stream: Option<String>,
}

impl Problem {
    /// Returns the sentence with which the port's error of this kind is built.
    pub fn into_reason(self) -> String {
        self.reason.unwrap_or(self.detail)
    }

    /// Returns the id that the server does not know.
    pub fn into_key(self) -> String {
        self.key.unwrap_or_default()
    }
}

/// Reads an answer that contains commits, and passes each one to `take`.
pub(super) fn read_found(answer: &Answer, take: impl FnMut(RecordedCommit)) -> Result<FoundEnd, ReadError> {
    if answer.status.is_success() {
        return wire::binary::read_found(&answer.body, take).map_err(|error| unknown(&error).into());
    }
    Err(refused_read(answer))
}

/// Reads an answer that contains events of a stream, and passes each one to `take`.
pub(super) fn read_found_of_stream(answer: &Answer, take: impl FnMut(StreamEvent)) -> Result<FoundEnd, ReadError> {
    if answer.status.is_success() {
        return wire::binary::read_found_of_stream(&answer.body, take).map_err(|error| unknown(&error).into());
    }
    Err(refused_read(answer))
}

/// Reads the answer to a query.
pub(super) fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, ReadError> {
    if answer.status.is_success() {
        return parse(answer).map_err(ReadError::Store);
    }
    Err(refused_read(answer))
}

fn refused_read(answer: &Answer) -> ReadError {
    match problem(answer) {
        Err(unknown) => ReadError::Store(unknown),
        Ok((code, problem)) => other(code, problem),
    }
}

/// Reads the server's reply to `commit`.
pub(super) fn committed(reply: Reply, commit: &NewCommit) -> Result<CommitOutcome, CommitError> {
    let (code, problem) = match reply {
        Reply::Document(document) => match wire::binary::read_reply(&document).map_err(|error| unknown(&error))? {
            Ok(outcome) => return Ok(outcome),
            Err(refusal) => problem(&Answer { status: StatusCode::OK, body: refusal.into() })?,
        },
        Reply::Refusal(answer) => problem(&answer)?,
    };
    let request_id = commit.request_id.as_deref().unwrap_or_default();
    Err(refusal(code, problem, Some(commit.expected_version), request_id))
}

pub(super) fn outcome(answer: wire::CommitAnswer) -> Result<CommitOutcome, StoreError> {
    let Some(first) = answer.events.first() else { return Err(unknown("a commit without events")) };
    Ok(CommitOutcome {
        commit_id: answer.commit_id,
        version: answer.version,
        first_sequence_number: first.sequence_number,
        event_ids: answer.events.iter().map(|event| event.id).collect(),
        duplicate: answer.duplicate,
        stage: wire::reached_stage(&answer.reached),
    })
}

/// Returns the commit error that the server turned into this problem. `expected` is the expected version of the refused commit.
pub(super) fn refusal(
    code: Code,
    problem: Problem,
    expected: Option<ExpectedVersion>,
    request_id: &str,
) -> CommitError {
    match code {
        Code::VersionConflict => match (problem.actual_version, expected) {
            (Some(actual_version), Some(expected)) => {
                CommitError::VersionConflict { expected: expected.to_string(), actual_version }
            }
            _ => unknown("a version conflict without actual_version, or of a part that was not sent").into(),
        },
        Code::AppendConditionFailed => match (problem.pattern, problem.sequence_number) {
            (Some(pattern), Some(sequence_number)) => CommitError::AppendConditionFailed { pattern, sequence_number },
            _ => unknown("a failed append condition without pattern and sequence_number").into(),
        },
        Code::KeyTaken | Code::KeyNotHeld => match (problem.name, problem.key) {
            (Some(name), Some(key)) if code == Code::KeyTaken => CommitError::KeyTaken { name, key },
            (Some(name), Some(key)) => CommitError::KeyNotHeld { name, key },
            _ => unknown("a refused key without name and key").into(),
        },
        Code::RequestIdReused => CommitError::RequestIdReused { request_id: request_id.to_owned() },
        Code::AggregateOfOtherTenant => {
            CommitError::AggregateOfOtherTenant { tenant_id: problem.tenant_id.unwrap_or_default() }
        }
        code => other(code, problem),
    }
}

/// Reads the answer to an append of `verdicts`.
pub(super) fn appended(answer: &Answer, verdicts: &Verdicts) -> Result<Appended, StreamError> {
    if answer.status.is_success() {
        return Ok(parse::<wire::AppendedAnswer>(answer)?.into());
    }
    let (code, problem) = problem(answer)?;
    Err(match (code, &problem) {
        (Code::UnknownEvent, Problem { head: Some(head), .. }) => {
            StreamError::BeyondLog { to: verdicts.to, head: *head }
        }
        (Code::StreamMoved, Problem { progress: Some(progress), .. }) => {
            StreamError::Moved { from: verdicts.from, progress: *progress }
        }
        (Code::VerdictsDiffer, Problem { sequence_number: Some(sequence_number), .. }) => {
            StreamError::VerdictsDiffer { sequence_number: *sequence_number }
        }
        (Code::UnknownEvent | Code::StreamMoved | Code::VerdictsDiffer, _) => {
            unknown(&format!("{} without its number", code.as_str())).into()
        }
        _ => other(code, problem),
    })
}

pub(super) fn parse<T: DeserializeOwned>(answer: &Answer) -> Result<T, StoreError> {
    serde_json::from_slice(&answer.body).map_err(|error| unknown(&format!("{} with {error}", answer.status)))
}

pub(super) fn problem(answer: &Answer) -> Result<(Code, Problem), StoreError> {
    let shown = || {
        let body = String::from_utf8_lossy(&answer.body);
        format!("{} with {:?}", answer.status, body.chars().take(200).collect::<String>())
    };
    let problem: Problem = serde_json::from_slice(&answer.body).map_err(|_| unknown(&shown()))?;
    match Code::ALL.iter().find(|code| code.as_str() == problem.code) {
        Some(code) => Ok((*code, problem)),
        None => Err(unknown(&shown())),
    }
}

pub(super) fn unknown(what: &str) -> StoreError {
    StoreError::Unreachable(format!("the response is {what}, which this client does not know"))
}

/// Returns the port's error for any other problem: one of the store, or of the request.
pub(super) fn other<E: From<StoreError> + From<Invalid>>(code: Code, problem: Problem) -> E {
    let of_records = problem.part.as_deref() == Some("records");
    let make: fn(String) -> StoreError = match code {
        Code::DiskFull => StoreError::DiskFull,
        Code::StoreFailed => StoreError::Failed,
        Code::StoreDamaged if of_records => StoreError::RecordsDamaged,
        Code::StoreDamaged => StoreError::Damaged,
        Code::StoreReadOnly => StoreError::ReadOnly,
        Code::ReadFailed => StoreError::Io,
        Code::NotSupportedByStore => StoreError::NotSupported,
        Code::Unreachable | Code::NotReady => StoreError::Unreachable,
        Code::Internal => |reason| StoreError::Unreachable(format!("it failed: {reason}")),
        Code::Closing => |_| StoreError::Closed,
        Code::Overloaded => |_| StoreError::Overloaded,
        Code::MalformedDocument => |sentence| StoreError::other(Code::MalformedDocument, sentence),
        Code::ForeignNumbers => |sentence| StoreError::other(Code::ForeignNumbers, sentence),
        Code::CommitHeld => |sentence| StoreError::other(Code::CommitHeld, sentence),
        _ => {
            let path = problem.path.clone();
            return Invalid::new(code, path, problem.into_reason()).into();
        }
    };
    make(problem.into_reason()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: serde_json::Value) -> Answer {
        let status = StatusCode::from_u16(status).expect("a status");
        Answer { status, body: serde_json::to_vec(&body).expect("writes").into() }
    }

    fn refused(status: u16, body: serde_json::Value) -> CommitError {
        let commit = NewCommit::new("order", "o-1").request_id("r");
        let whole = committed(Reply::Refusal(answer(status, body.clone())), &commit).expect_err("refused");
        let mut document = Vec::new();
        wire::binary::write_refusal(&body.to_string(), &mut document);
        let own = committed(Reply::Document(document.into()), &commit).expect_err("refused");
        if !matches!(own, CommitError::Store(StoreError::Unreachable(_))) {
            assert_eq!(own, whole);
        }
        whole
    }

    #[test]
    fn problems_become_the_errors_they_were_made_from() {
        let conflict = serde_json::json!({"code": "version_conflict", "detail": "x", "actual_version": 7});
        let error = CommitError::VersionConflict { expected: "any".into(), actual_version: 7 };
        assert_eq!(refused(409, conflict), error);
        let reused = serde_json::json!({"code": "request_id_reused"});
        assert_eq!(refused(409, reused), CommitError::RequestIdReused { request_id: "r".into() });
        let excluded = serde_json::json!({"code": "append_condition_failed", "pattern": 2, "sequence_number": 9});
        assert_eq!(refused(409, excluded), CommitError::AppendConditionFailed { pattern: 2, sequence_number: 9 });
        for (code, error) in [
            ("key_taken", CommitError::KeyTaken { name: "user".into(), key: "eva".into() }),
            ("key_not_held", CommitError::KeyNotHeld { name: "user".into(), key: "eva".into() }),
        ] {
            assert_eq!(refused(409, serde_json::json!({"code": code, "name": "user", "key": "eva"})), error);
        }
        for error in [
            StoreError::DiskFull("8 MiB wanted".into()),
            StoreError::Failed("EIO".into()),
            StoreError::Damaged("segment 3".into()),
            StoreError::RecordsDamaged("map.redb".into()),
            StoreError::NotSupported("an append condition".into()),
            StoreError::ReadOnly("no write access".into()),
            StoreError::Io("a broken disk".into()),
            StoreError::other(Code::ForeignNumbers, "a Runtime gives numbers"),
            StoreError::other(Code::MalformedDocument, "a document is not as it must be"),
            StoreError::other(Code::CommitHeld, "version 2 is missing"),
            StoreError::Closed,
            StoreError::Overloaded,
        ] {
            let part = matches!(error, StoreError::RecordsDamaged(_)).then_some("records");
            let problem = serde_json::json!({
                "code": error.code().as_str(), "detail": "another release words it in its own way",
                "reason": error.reason(), "part": part,
            });
            assert_eq!(refused(error.code().status(), problem), CommitError::Store(error));
        }
        let invalid = Invalid::new(Code::InvalidId, "aggregate.id", "is empty");
        let problem = serde_json::json!({
            "code": "invalid_id", "path": "aggregate.id", "detail": invalid.to_string(), "reason": "is empty",
        });
        assert_eq!(refused(422, problem), CommitError::Invalid(invalid));
    }

    /// The server's own documents, so that both sides agree without sharing a sentence.
    #[cfg(feature = "server")]
    #[test]
    fn an_error_of_the_store_is_the_same_behind_a_server() {
        for error in [
            StoreError::DiskFull("8 MiB wanted".into()),
            StoreError::Damaged("segment 3".into()),
            StoreError::RecordsDamaged("map.redb".into()),
            StoreError::NotSupported("an append condition".into()),
            StoreError::Unreachable("no primary".into()),
            StoreError::other(Code::ForeignNumbers, "a Runtime gives numbers"),
            StoreError::Closed,
        ] {
            let problem = annals_server::Problem::from(CommitError::from(error.clone()));
            let document = serde_json::to_value(&problem).expect("writes");
            assert_eq!(refused(error.code().status(), document), CommitError::Store(error));
        }
        let invalid = Invalid::new(Code::InvalidId, "aggregate.id", "aggregate.id: is what a sentence may begin with");
        let document = serde_json::to_value(annals_server::Problem::from(invalid.clone())).expect("writes");
        assert_eq!(refused(422, document), CommitError::Invalid(invalid));
    }

    #[test]
    fn an_answer_that_is_not_known_is_an_unreachable_server() {
        for (status, body) in [
            (502, serde_json::json!("bad gateway")),
            (409, serde_json::json!({"code": "some_new_code"})),
            (409, serde_json::json!({"code": "version_conflict"})),
            (409, serde_json::json!({"code": "append_condition_failed", "pattern": 0})),
            (409, serde_json::json!({"code": "key_taken", "name": "user"})),
            (404, serde_json::json!({"hello": "world"})),
        ] {
            assert!(matches!(refused(status, body), CommitError::Store(StoreError::Unreachable(_))), "{status}");
        }
        let html = Answer { status: StatusCode::BAD_GATEWAY, body: "<html>".into() };
        assert!(matches!(read::<Exists>(&html), Err(ReadError::Store(StoreError::Unreachable(_)))));
    }
}
