//! `POST /v1/transactions`: the body. The answer is a list of [`CommitAnswer`](super::CommitAnswer)s.

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use super::commit::{CommitBody, WaitBody, expected_version, parse_json};
use crate::{Aggregate, Expectation, ExpectedVersion, Invalid, NewTransaction};

/// The body of `POST /v1/transactions`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with the fields of a transaction")]
pub struct TransactionBody {
    /// The commits.
    pub commits: Vec<CommitBody>,
    /// Aggregates to which the transaction does not commit but that must be at a version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expect: Vec<ExpectationBody>,
    /// Identifies the request, so that a repeat is recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<ByteString>,
    /// What the response waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<WaitBody>,
}

/// An aggregate of [`TransactionBody::expect`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with aggregate and expected_version")]
pub struct ExpectationBody {
    /// The aggregate.
    pub aggregate: Aggregate,
    /// The version that it must have.
    #[serde(with = "expected_version")]
    pub expected_version: ExpectedVersion,
}

/// Parses a transaction from JSON. The rules of [`NewTransaction::validate`] are not checked here.
///
/// # Errors
/// As [`parse_commit`](super::parse_commit).
pub fn parse_transaction(json: &[u8]) -> Result<NewTransaction, Invalid> {
    let body: TransactionBody = parse_json(json)?;
    let wait = WaitBody::wait(body.wait.as_ref(), "")?;
    let commits = body.commits.into_iter().enumerate();
    let commits = commits.map(|(place, commit)| commit.commit(&format!("commits[{place}].")));
    let expectation = |ExpectationBody { aggregate, expected_version }| Expectation { aggregate, expected_version };
    Ok(NewTransaction {
        commits: commits.collect::<Result<_, _>>()?,
        expect: body.expect.into_iter().map(expectation).collect(),
        request_id: body.request_id,
        wait,
    })
}

impl From<NewTransaction> for TransactionBody {
    fn from(transaction: NewTransaction) -> Self {
        let expectation = |Expectation { aggregate, expected_version }| ExpectationBody { aggregate, expected_version };
        Self {
            commits: transaction.commits.into_iter().map(Into::into).collect(),
            expect: transaction.expect.into_iter().map(expectation).collect(),
            request_id: transaction.request_id,
            wait: WaitBody::of(&transaction.wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn a_transaction_survives_its_json() {
        let json = r#"{"commits":[
            {"aggregate":{"name":"a","id":"1"},"expected_version":3,"events":[{"type":"t","data":{"n":1}}],
             "append_condition":{"fail_if":[{"types":["t"],"tags":["x"]}],"after":7}},
            {"aggregate":{"name":"a","id":"2"},"events":[{"type":"t","data":{}}]}],
            "expect":[{"aggregate":{"name":"a","id":"3"},"expected_version":"empty"}],"request_id":"r","wait":{"for":"logged","timeout_ms":7}}"#;
        let transaction = parse_transaction(json.as_bytes()).expect("valid");
        assert_eq!(transaction.validate(), Ok(()));
        assert_eq!(transaction.commits[0].append_condition.as_ref().map(|it| it.from()), Some(8));
        let written = serde_json::to_vec(&TransactionBody::from(transaction.clone())).expect("it can be written");
        assert_eq!(parse_transaction(&written), Ok(transaction));
    }

    #[test]
    fn a_wrong_field_is_named_with_the_code_of_what_it_is() {
        let refused = |json: &str| {
            let invalid = parse_transaction(json.as_bytes()).expect_err("must be refused");
            (invalid.code, invalid.path)
        };
        let commit = |fields: &str| {
            let events = r#""events":[{"type":"t","data":{}}]"#;
            format!(r#"{{"commits":[{{"aggregate":{{"name":"a","id":"1"}},{events}{fields}}}]}}"#)
        };
        assert_eq!(refused("{}").0, Code::InvalidBody);
        assert_eq!(
            refused(&commit(r#","expected_version":"x""#)),
            (Code::InvalidVersion, "commits[0].expected_version".into())
        );
        assert_eq!(refused(&commit(r#","append_condition":{"after":1}"#)).0, Code::InvalidAppendCondition);
        assert_eq!(refused(&commit(r#","wait":{"for":"te a"}"#)), (Code::InvalidWait, "commits[0].wait.for".into()));
        assert_eq!(refused(r#"{"commits":[],"expect":[{}]}"#).0, Code::InvalidBody);
    }
}
