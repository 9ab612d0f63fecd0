//! A command's target and options.

use annals_core::{ByteString, ExpectedVersion, KeyChanges, NewCommit, OPERATOR_HEADER, Version, Wait};

/// The target and the options of a command. A string converts to a request for the aggregate of that id, with defaults.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// The aggregate's id.
    pub id: ByteString,
    /// Identifies the request: a repeat returns the first outcome, whatever it would decide now.
    pub request_id: Option<ByteString>,
    /// Identifies the command.
    pub command_id: Option<ByteString>,
    /// The version that the aggregate must have, if the caller knows it. A conflict with it is not retried.
    pub expected_version: Option<Version>,
    /// The tenantId that the aggregate must have, and that its first commit sets. An aggregate with another tenantId is treated as
    /// nonexistent. If unset, any tenantId matches, and a first commit sets the default.
    pub tenant_id: Option<ByteString>,
    /// The new owner of the aggregate; unchanged if unset.
    pub owner_id: Option<ByteString>,
    /// The new space of the aggregate; unchanged if unset.
    pub space_id: Option<ByteString>,
    /// The operation that the commit belongs to.
    pub correlation_id: Option<ByteString>,
    /// The direct cause of the commit.
    pub causation_id: Option<ByteString>,
    /// Free-form strings for tools.
    pub header: Vec<(ByteString, ByteString)>,
    /// The changes of prepare keys, atomic with the commit. They do not depend on its events.
    pub keys: KeyChanges,
    /// The stage that the response waits for.
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
    /// Creates a request for the aggregate of this id.
    pub fn new(id: impl Into<ByteString>) -> Self {
        Self { id: id.into(), ..Self::default() }
    }

    /// Sets the request id.
    #[must_use]
    pub fn request_id(self, id: impl Into<ByteString>) -> Self {
        Self { request_id: Some(id.into()), ..self }
    }

    /// Sets the version that the aggregate must have.
    #[must_use]
    pub fn expect(self, version: Version) -> Self {
        Self { expected_version: Some(version), ..self }
    }

    /// Sets the aggregate's tenantId.
    #[must_use]
    pub fn tenant_id(self, id: impl Into<ByteString>) -> Self {
        Self { tenant_id: Some(id.into()), ..self }
    }

    /// Sets the new owner of the aggregate.
    #[must_use]
    pub fn owner(self, id: impl Into<ByteString>) -> Self {
        Self { owner_id: Some(id.into()), ..self }
    }

    /// Sets the new space of the aggregate.
    #[must_use]
    pub fn space(self, id: impl Into<ByteString>) -> Self {
        Self { space_id: Some(id.into()), ..self }
    }

    /// Sets the user who issued the command.
    #[must_use]
    pub fn operator(mut self, operator: impl Into<ByteString>) -> Self {
        self.header.push((OPERATOR_HEADER.into(), operator.into()));
        self
    }

    /// Returns the commit of this request, without events.
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
