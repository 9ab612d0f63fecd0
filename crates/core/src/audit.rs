//! The audit log: every administrative act, as events of the system tenant's log.

use serde::{Deserialize, Serialize};

use crate::{ByteString, Timestamp};

/// The name of the aggregates of the audit log. Each act is one, named by its id.
pub const AUDIT_AGGREGATE: &str = "annals-audit";
/// The type of the event that is stored before an act is carried out.
pub const ACT_BEGUN: &str = "administrative_act_begun";
/// The type of the event that is stored after it.
pub const ACT_ENDED: &str = "administrative_act_ended";

/// An administrative act that is about to be carried out: who, what, why, and from where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActBegun {
    /// Who acts, as the server knows the caller: `key:ID`, `jwt:ISSUER/SUBJECT`, `certificate:SUBJECT`, or `machine` for a command on the
    /// machine itself.
    pub who: String,
    /// The name of the credential, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The operation, such as `deleteHandler`.
    pub what: String,
    /// What it is about: the path of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The tenant it concerns; absent for the whole store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Why, as the caller says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// For whom, as the caller says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The address that the request came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// What came of an act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActEnded {
    /// `done`, or `refused`.
    pub outcome: ActOutcome,
    /// The code of the refusal, or the HTTP status of another failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// What came of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActOutcome {
    /// It was carried out.
    Done,
    /// It was refused.
    Refused,
    /// It is not stored what came of it: the process ended meanwhile, or it is still being carried out.
    Unknown,
}

/// An act as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The sequence number of the event that began it, in the system tenant's log.
    pub sequence_number: u64,
    /// Its id.
    pub id: ByteString,
    /// When it began.
    pub at: Timestamp,
    /// Who, what, why, and from where.
    #[serde(flatten)]
    pub act: ActBegun,
    /// What came of it.
    pub outcome: ActOutcome,
    /// The code of the refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// A page of the audit log, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPage {
    /// The acts.
    pub items: Vec<AuditEntry>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}
