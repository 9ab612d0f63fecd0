//! Transactions: commits to several aggregates in one request.

use annals_core::{
    Clock, CommitError, CommitOutcome, ExpectedVersion, NewTransaction, StoreError, TransactionError, new_uuid, wire,
};
use annals_system::SystemClock;

use super::Client;
use super::answers;
use super::http::Answer;

impl Client {
    /// Sends a transaction. Like a commit, it is validated here first, and retried once if the connection breaks, which its request id
    /// makes safe.
    pub(super) async fn send_transaction(
        &self,
        mut transaction: NewTransaction,
    ) -> Result<Vec<CommitOutcome>, TransactionError> {
        transaction.validate()?;
        self.check_scope()?;
        transaction.request_id.get_or_insert_with(|| new_uuid(SystemClock.now(), &*self.random).to_string().into());
        let json = written(&transaction)?;
        let path = self.path(&["transactions"]).done();
        let answer = match self.http.post(&path, json.clone()).await {
            Ok(answer) => answer,
            Err(_) => self.http.post(&path, json).await.map_err(StoreError::Unreachable)?,
        };
        transacted(&answer, &transaction)
    }
}

fn written(transaction: &NewTransaction) -> Result<bytes::Bytes, StoreError> {
    let mut body = wire::TransactionBody::from(transaction.clone());
    body.commits.iter_mut().for_each(narrow);
    body.expect.iter_mut().for_each(|it| narrow_version(&mut it.expected_version));
    let written = serde_json::to_vec(&body);
    let cannot = |error| StoreError::Unreachable(format!("the transaction cannot be written as JSON: {error}"));
    written.map(bytes::Bytes::from).map_err(cannot)
}

/// Clamps versions and sequence numbers to int64, the range of JSON integers. No aggregate has a greater version, so each of these
/// expectations fails either way. No event has a greater number, so an append condition after one finds nothing either way.
pub(super) fn narrow(body: &mut wire::CommitBody) {
    narrow_version(&mut body.expected_version);
    if let Some(after) = body.append_condition.as_mut().and_then(|condition| condition.after.as_mut()) {
        *after = (*after).min(i64::MAX as u64);
    }
}

fn narrow_version(expected: &mut ExpectedVersion) {
    if let ExpectedVersion::Exact(version) = expected {
        *version = (*version).min(i64::MAX as u64);
    }
}

/// Reads the answer to `transaction`.
fn transacted(answer: &Answer, transaction: &NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError> {
    if answer.status.is_success() {
        let given: Vec<wire::CommitAnswer> = answers::parse(answer)?;
        if given.len() != transaction.commits.len() {
            let message =
                format!("the response has {} outcomes for {} commits", given.len(), transaction.commits.len());
            return Err(StoreError::Unreachable(message).into());
        }
        let outcomes: Result<_, StoreError> = given.into_iter().map(answers::outcome).collect();
        return Ok(outcomes?);
    }
    let (code, problem) = answers::problem(answer)?;
    let at = problem.path.clone();
    let request_id = transaction.request_id.as_deref().unwrap_or_default();
    Err(match answers::refusal(code, problem, expected_version(transaction, &at), request_id) {
        // The path of an invalid field already begins with the part.
        error @ CommitError::Invalid(_) => error.into(),
        error => TransactionError { at, error },
    })
}

/// Returns the version that this part expects.
fn expected_version(transaction: &NewTransaction, at: &str) -> Option<ExpectedVersion> {
    let commits = transaction.commits.iter().map(|commit| commit.expected_version).enumerate();
    let expect = transaction.expect.iter().map(|it| it.expected_version).enumerate();
    let mut parts = commits
        .map(|(place, version)| (format!("commits[{place}]"), version))
        .chain(expect.map(|(place, version)| (format!("expect[{place}]"), version)));
    parts.find(|(part, _)| part == at).map(|(_, version)| version)
}

#[cfg(test)]
mod tests {
    use annals_core::{Aggregate, Data, NewCommit, NewEvent};
    use hyper::StatusCode;
    use serde_json::{Value, json};

    use super::*;

    fn transfer() -> NewTransaction {
        let commit = |id: &str| NewCommit::new("account", id).event(NewEvent::new("moved", Data::empty()));
        let commits = [commit("a"), commit("b").expect(ExpectedVersion::Exact(u64::MAX))];
        let expected = Aggregate::new("account", "c");
        NewTransaction::new(commits).request_id("t").expect(expected, ExpectedVersion::Exists)
    }

    fn refused(status: u16, body: Value) -> TransactionError {
        let status = StatusCode::from_u16(status).expect("a status");
        let answer = Answer { status, body: serde_json::to_vec(&body).expect("writes").into() };
        transacted(&answer, &transfer()).expect_err("refused")
    }

    #[test]
    fn problems_become_the_errors_of_the_part_they_name() {
        let conflict = |path: &str| json!({"code": "version_conflict", "path": path, "actual_version": 7});
        let version = |expected: &str| CommitError::VersionConflict { expected: expected.into(), actual_version: 7 };
        assert_eq!(refused(409, conflict("commits[1]")), TransactionError::commit(1, version("18446744073709551615")));
        assert_eq!(refused(409, conflict("expect[0]")), TransactionError::expectation(0, version("exists")));
        let excluded =
            json!({"code": "append_condition_failed", "path": "commits[0]", "pattern": 1, "sequence_number": 3});
        let error = CommitError::AppendConditionFailed { pattern: 1, sequence_number: 3 };
        assert_eq!(refused(409, excluded), TransactionError::commit(0, error));
        let foreign = json!({"code": "aggregate_of_other_tenant", "path": "commits[1]", "tenant_id": "t"});
        let error = CommitError::AggregateOfOtherTenant { tenant_id: "t".into() };
        assert_eq!(refused(409, foreign), TransactionError::commit(1, error));
        let reused = json!({"code": "request_id_reused", "request_id": "t"});
        assert_eq!(refused(409, reused), CommitError::RequestIdReused { request_id: "t".into() }.into());
        let full = StoreError::DiskFull("8 MiB wanted".into());
        let problem = json!({"code": "disk_full", "detail": full.to_string(), "reason": full.reason()});
        assert_eq!(refused(507, problem), TransactionError::from(full));
        let invalid = json!({"code": "invalid_id", "path": "commits[1].aggregate.id", "detail": "is empty"});
        let invalid = refused(422, invalid);
        assert_eq!((invalid.at.as_str(), invalid.error.code()), ("", annals_core::Code::InvalidId));
    }

    #[test]
    fn an_answer_that_is_not_known_is_an_unreachable_server() {
        for (status, body) in [
            (409, json!({"code": "version_conflict", "path": "commits[2]", "actual_version": 1})),
            (409, json!({"code": "version_conflict", "actual_version": 1})),
            (409, json!({"code": "some_new_code"})),
            (201, json!([])),
            (201, json!({"hello": "world"})),
        ] {
            let error = refused(status, body).error;
            assert!(matches!(error, CommitError::Store(StoreError::Unreachable(_))), "{status}: {error}");
        }
    }

    #[test]
    fn numbers_that_json_has_not_are_narrowed_without_a_change_of_meaning() {
        let mut transaction = transfer();
        let fail_if = vec![annals_core::EventPattern::default()];
        let condition = annals_core::AppendCondition { fail_if, after: Some(u64::MAX) };
        transaction.commits[0].append_condition = Some(condition);
        let json = written(&transaction).expect("it is written");
        let read = wire::parse_transaction(&json).expect("it is read");
        assert_eq!(read.commits[1].expected_version, ExpectedVersion::Exact(i64::MAX as u64));
        let after = read.commits[0].append_condition.as_ref().and_then(|condition| condition.after);
        assert_eq!(after, Some(i64::MAX as u64));
    }
}
