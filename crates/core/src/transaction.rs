//! Several commits that are stored together or not at all.

use bytestring::ByteString;
use highway::{HighwayHash, HighwayHasher};

use crate::commit::{digest_key, valid_id};
use crate::{Aggregate, Code, CommitError, ExpectedVersion, Invalid, NewCommit, Reached, Wait, limits};

/// 2 to 16 commits of different aggregates under one request id: all are stored, with neighbouring sequence numbers, or none is.
///
/// The request id belongs to the first commit's aggregate, and its first outcome covers all commits. The other commits have no request
/// id of their own.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NewTransaction {
    /// The commits, in the order they take in the log.
    pub commits: Vec<NewCommit>,
    /// Aggregates that are not committed to and must be at a version all the same; at most 16.
    pub expect: Vec<Expectation>,
    /// Names the request, so that a repeat is recognised; made by the store when absent.
    pub request_id: Option<ByteString>,
    /// The stage to wait for; the commits have no wait of their own.
    pub wait: Wait,
}

/// A required version of an aggregate that the transaction does not commit to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// Which aggregate.
    pub aggregate: Aggregate,
    /// The required version.
    pub expected_version: ExpectedVersion,
}

/// Why a transaction was refused: which part of it, and why. Nothing of any part was stored, except as [`CommitError`] says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{error}", self.prefix())]
pub struct TransactionError {
    /// The refused part: `commits[1]`, `expect[0]`, or empty for the whole transaction. The path of an [`Invalid`] already begins with
    /// it.
    pub at: String,
    /// Why.
    pub error: CommitError,
}

impl TransactionError {
    /// Returns the refusal of the commit at this index.
    pub fn commit(place: usize, error: impl Into<CommitError>) -> Self {
        Self { at: commit_path(place), error: error.into() }
    }

    /// Returns the refusal of the expectation at this index.
    pub fn expectation(place: usize, error: impl Into<CommitError>) -> Self {
        Self { at: format!("expect[{place}]"), error: error.into() }
    }

    fn prefix(&self) -> String {
        match &self.error {
            CommitError::Invalid(_) => String::new(),
            _ if self.at.is_empty() => String::new(),
            _ => format!("{}: ", self.at),
        }
    }
}

impl<E: Into<CommitError>> From<E> for TransactionError {
    fn from(error: E) -> Self {
        Self { at: String::new(), error: error.into() }
    }
}

fn commit_path(place: usize) -> String {
    format!("commits[{place}]")
}

impl NewTransaction {
    /// Creates a transaction from these commits.
    pub fn new(commits: impl IntoIterator<Item = NewCommit>) -> Self {
        Self { commits: commits.into_iter().collect(), ..Self::default() }
    }

    /// Sets the request id.
    #[must_use]
    pub fn request_id(mut self, id: impl Into<ByteString>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// Sets the stage to wait for.
    #[must_use]
    pub fn wait_until(mut self, reached: Reached) -> Self {
        self.wait = Wait::until(reached);
        self
    }

    /// Adds an aggregate that must be at a version.
    #[must_use]
    pub fn expect(mut self, aggregate: Aggregate, expected_version: ExpectedVersion) -> Self {
        self.expect.push(Expectation { aggregate, expected_version });
        self
    }

    /// Checks every rule that needs no store.
    ///
    /// # Errors
    /// The first rule that is broken, with its path.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, message: String| Err(Invalid::new(Code::InvalidTransaction, path, message));
        let count = self.commits.len();
        if !(2..=limits::TRANSACTION_COMMITS_MAX).contains(&count) {
            let message = format!("holds {count} commits; a transaction has 2 to {}", limits::TRANSACTION_COMMITS_MAX);
            return invalid("commits", message);
        }
        if self.expect.len() > limits::TRANSACTION_COMMITS_MAX {
            let message = format!("{} of them; at most {}", self.expect.len(), limits::TRANSACTION_COMMITS_MAX);
            return invalid("expect", message);
        }
        self.request_id.as_ref().map_or(Ok(()), |id| valid_id("request_id", id))?;
        self.wait.validate()?;
        no_stage(&self.wait, "wait.for")?;
        for (place, commit) in self.commits.iter().enumerate() {
            let path = commit_path(place);
            commit.validate().map_err(|fault| Invalid { path: format!("{path}.{}", fault.path), ..fault })?;
            if commit.request_id.is_some() {
                let message = "a transaction has one request id, beside `commits`".to_owned();
                return invalid(&format!("{path}.request_id"), message);
            }
            no_stage(&commit.wait, &format!("{path}.wait.for"))?;
            if commit.wait != Wait::default() {
                let message = "a transaction has one wait, beside `commits`".to_owned();
                return invalid(&format!("{path}.wait"), message);
            }
        }
        for (place, expectation) in self.expect.iter().enumerate() {
            let valid = expectation.aggregate.validate();
            valid.map_err(|fault| Invalid { path: format!("expect[{place}].{}", fault.path), ..fault })?;
        }
        self.validate_aggregates()?;
        let bytes: usize = self.commits.iter().map(NewCommit::content_bytes).sum();
        if bytes > limits::COMMIT_BYTES_MAX {
            let message = format!(
                "{bytes} bytes of data, types, tags and prepare keys in all; at most {} are allowed",
                limits::COMMIT_BYTES_MAX
            );
            return Err(Invalid::new(Code::CommitTooLarge, "commits", message));
        }
        Ok(())
    }

    /// Every aggregate is named once: two commits of one would be one commit, and what is committed to has its own expected version.
    fn validate_aggregates(&self) -> Result<(), Invalid> {
        let commits = self.commits.iter().enumerate().map(|(place, commit)| (commit_path(place), &commit.aggregate));
        let expect = self.expect.iter().enumerate().map(|(place, it)| (format!("expect[{place}]"), &it.aggregate));
        let mut seen = std::collections::BTreeMap::new();
        for (path, aggregate) in commits.chain(expect) {
            if let Some(before) = seen.insert(aggregate, path.clone()) {
                let message = format!("the same aggregate as {before}; name each aggregate of a transaction once");
                return Err(Invalid::new(Code::InvalidTransaction, format!("{path}.aggregate"), message));
            }
        }
        Ok(())
    }

    /// The keyed digest of the content by which a repeat is told from a reuse: of every commit, the aggregate and what
    /// [`NewCommit::content_digest`] covers.
    pub fn content_digest(&self, key: &[u8; 16]) -> u128 {
        let mut hasher = HighwayHasher::new(digest_key(key));
        hasher.append(b"transaction");
        for commit in &self.commits {
            for text in [&commit.aggregate.name, &commit.aggregate.id] {
                hasher.append(&(text.len() as u32).to_le_bytes());
                hasher.append(text.as_bytes());
            }
            hasher.append(&commit.content_digest(key).to_le_bytes());
        }
        let [low, high] = hasher.finalize128();
        u128::from(high) << 64 | u128::from(low)
    }
}

/// Refuses a named stage: it is that of one commit.
fn no_stage(wait: &Wait, path: &str) -> Result<(), Invalid> {
    let Some(stage) = wait.until.stage() else { return Ok(()) };
    let message = format!(
        "{:?} is a stage of one commit, and a transaction has several, with several snapshots; wait for \"committed\" or \"logged\"",
        &**stage
    );
    Err(Invalid::new(Code::InvalidWait, path, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Data, NewEvent};

    fn commit(id: &str) -> NewCommit {
        NewCommit::new("account", id).event(NewEvent::new("moved", Data::empty()))
    }

    #[test]
    fn each_broken_rule_is_refused_with_its_code_and_path() {
        let good = || NewTransaction::new([commit("a"), commit("b")]).request_id("r");
        assert_eq!(good().validate(), Ok(()));
        let refused = |change: &dyn Fn(&mut NewTransaction)| {
            let mut transaction = good();
            change(&mut transaction);
            let invalid = transaction.validate().expect_err("must be refused");
            (invalid.code, invalid.path)
        };
        let rule = Code::InvalidTransaction;
        assert_eq!(refused(&|t| t.commits.truncate(1)), (rule, "commits".into()));
        let many = |n: usize| (0..n).map(|n| commit(&n.to_string())).collect();
        assert_eq!(refused(&|t| t.commits = many(17)), (rule, "commits".into()));
        assert_eq!(refused(&|t| t.commits[1].aggregate.id = "a".into()), (rule, "commits[1].aggregate".into()));
        assert_eq!(refused(&|t| t.commits[1].request_id = Some("x".into())), (rule, "commits[1].request_id".into()));
        assert_eq!(
            refused(&|t| t.wait.until = Reached::Stage("snapshot".into())),
            (Code::InvalidWait, "wait.for".into())
        );
        assert_eq!(refused(&|t| t.commits[1].wait.until = Reached::Logged), (rule, "commits[1].wait".into()));
        assert_eq!(refused(&|t| t.commits[1].events.clear()), (Code::InvalidEvents, "commits[1].events".into()));
        assert_eq!(refused(&|t| t.request_id = Some("".into())), (Code::InvalidId, "request_id".into()));
        let expect =
            |id: &str| Expectation { aggregate: Aggregate::new("account", id), expected_version: ExpectedVersion::Any };
        assert_eq!(refused(&|t| t.expect = vec![expect("b")]), (rule, "expect[0].aggregate".into()));
        assert_eq!(refused(&|t| t.expect = vec![expect("")]), (Code::InvalidId, "expect[0].aggregate.id".into()));
        let big = Data::from_value(&serde_json::json!({ "x": "y".repeat(6 * 1024 * 1024) })).expect("valid");
        let big = |id: &str| NewCommit::new("account", id).event(NewEvent::new("moved", big.clone()));
        assert_eq!(
            refused(&|t| t.commits = vec![big("a"), big("b"), big("c")]),
            (Code::CommitTooLarge, "commits".into())
        );
    }

    #[test]
    fn the_digest_sees_every_commit_and_its_aggregate() {
        let digest = |transaction: NewTransaction| transaction.content_digest(&[7; 16]);
        let base = digest(NewTransaction::new([commit("a"), commit("b")]));
        assert_eq!(digest(NewTransaction::new([commit("a"), commit("b")]).request_id("r")), base);
        assert_ne!(digest(NewTransaction::new([commit("b"), commit("a")])), base);
        assert_ne!(digest(NewTransaction::new([commit("a"), commit("c")])), base);
        assert_ne!(commit("a").content_digest(&[7; 16]), base);
    }
}
