//! The audit log: every administrative act, recorded as events of the system tenant's log.

use serde::{Deserialize, Serialize};

use crate::{ByteString, Timestamp};

/// The aggregate name of the audit log. Each act is an aggregate, identified by the act's id.
pub const AUDIT_AGGREGATE: &str = "annals-audit";
/// The type of the event that is stored before an act is carried out.
pub const ACT_BEGUN: &str = "administrative_act_begun";
/// The type of the event that is stored once the act has ended.
pub const ACT_ENDED: &str = "administrative_act_ended";

/// An administrative act that is about to be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActBegun {
    /// Who acts, as the server identifies the caller: `key:ID`, `jwt:ISSUER/SUBJECT`, `certificate:SUBJECT`, or `machine` for a command
    /// that is run on the machine itself.
    pub who: String,
    /// The name of the credential, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The operation, such as `deleteHandler`.
    pub what: String,
    /// The object of the act: the path of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The tenant it concerns; absent for the whole store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The caller's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// On whose behalf the caller acts, as stated by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The address that the request came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// How an act ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActEnded {
    /// The outcome: `done` or `refused`.
    pub outcome: ActOutcome,
    /// The code of the refusal, or the HTTP status of another failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// The outcome of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActOutcome {
    /// It was carried out.
    Done,
    /// It was refused.
    Refused,
    /// The outcome is not stored: the process ended in the meantime, or the act is still being carried out.
    Unknown,
}

/// An act in the audit log's list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The sequence number of the event that began the act, in the system tenant's log.
    pub sequence_number: u64,
    /// Its id.
    pub id: ByteString,
    /// When it began.
    pub at: Timestamp,
    /// Who acts, what, why and from where.
    #[serde(flatten)]
    pub act: ActBegun,
    /// The outcome.
    pub outcome: ActOutcome,
    /// The code of the refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// A page of the audit log, newest acts first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPage {
    /// The acts.
    pub items: Vec<AuditEntry>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}
