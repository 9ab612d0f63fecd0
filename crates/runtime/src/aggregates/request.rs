//! What a command is about, besides what it decides.

use annals_core::{ByteString, ExpectedVersion, KeyChanges, NewCommit, OPERATOR_HEADER, Version, Wait};

/// What a command is about, besides what it decides. A text is a request about the aggregate of this id, and nothing more.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// The aggregate's id.
    pub id: ByteString,
    /// Names the request: a repeat is answered with the first outcome, whatever it would decide now.
    pub request_id: Option<ByteString>,
    /// Names the command.
    pub command_id: Option<ByteString>,
    /// The version that the aggregate must have, where the caller has seen it; a conflict with it is not tried again.
    pub expected_version: Option<Version>,
    /// The tenantId that the aggregate must have, and gets with its first commit: one of another is as none. When absent any will do, and a
    /// first commit gives the default.
    pub tenant_id: Option<ByteString>,
    /// The aggregate's owner from now on; it stays who it is when absent.
    pub owner_id: Option<ByteString>,
    /// The aggregate's space from now on; it stays what it is when absent.
    pub space_id: Option<ByteString>,
    /// Groups everything that follows from one cause.
    pub correlation_id: Option<ByteString>,
    /// What directly caused it.
    pub causation_id: Option<ByteString>,
    /// Free text for tools.
    pub header: Vec<(ByteString, ByteString)>,
    /// What the commit does to prepare keys, whatever events it has.
    pub keys: KeyChanges,
    /// What the answer waits for.
    pub wait: Wait,
}

macro_rules! from_ids {
    ($($id:ty)*) => {
        $(impl From<$id> for Request {
            fn from(id: $id) -> Self {
                Self::new(id)
            }
        })*
    };
}

from_ids!(&str String ByteString);

impl Request {
    /// A request about the aggregate of this id.
    pub fn new(id: impl Into<ByteString>) -> Self {
        Self { id: id.into(), ..Self::default() }
    }

    /// Names the request.
    #[must_use]
    pub fn request_id(self, id: impl Into<ByteString>) -> Self {
        Self { request_id: Some(id.into()), ..self }
    }

    /// The version that the aggregate must have.
    #[must_use]
    pub fn expect(self, version: Version) -> Self {
        Self { expected_version: Some(version), ..self }
    }

    /// The aggregate's tenantId.
    #[must_use]
    pub fn tenant_id(self, id: impl Into<ByteString>) -> Self {
        Self { tenant_id: Some(id.into()), ..self }
    }

    /// The aggregate's owner from now on.
    #[must_use]
    pub fn owner(self, id: impl Into<ByteString>) -> Self {
        Self { owner_id: Some(id.into()), ..self }
    }

    /// The aggregate's space from now on.
    #[must_use]
    pub fn space(self, id: impl Into<ByteString>) -> Self {
        Self { space_id: Some(id.into()), ..self }
    }

    /// Who gives the command.
    #[must_use]
    pub fn operator(mut self, operator: impl Into<ByteString>) -> Self {
        self.header.push((OPERATOR_HEADER.into(), operator.into()));
        self
    }

    /// The commit that this makes, without events.
    pub(super) fn commit(&self, name: &str, version: Version) -> NewCommit {
        let mut commit = NewCommit::new(name, self.id.clone()).expect(ExpectedVersion::Exact(version));
        commit.request_id = self.request_id.clone();
        commit.command_id = self.command_id.clone();
        commit.tenant_id = self.tenant_id.clone();
        commit.owner_id = self.owner_id.clone();
        commit.space_id = self.space_id.clone();
        commit.correlation_id = self.correlation_id.clone();
        commit.causation_id = self.causation_id.clone();
        commit.header = self.header.clone();
        commit.keys = self.keys.clone();
        commit.wait = self.wait.clone();
        commit
    }
}
