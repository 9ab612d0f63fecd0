//! Credentials and the audit log.

use utoipa::ToSchema;

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
enum Role {
    Reader,
    Writer,
    Operator,
    Admin,
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
enum CredentialState {
    Active,
    Expired,
    Revoked,
}

/// A credential to create.
#[derive(ToSchema)]
pub(crate) struct NewCredential {
    /// For people: 1 to 100 bytes.
    name: String,
    roles: Vec<Role>,
    /// The tenants; `*` alone means all.
    tenants: Vec<String>,
    /// The scopes that may be read; all when absent.
    #[schema(nullable = false)]
    scopes: Option<Vec<String>>,
    /// The event types that may be committed and read, for the roles reader and writer; all when absent.
    #[schema(nullable = false)]
    event_types: Option<Vec<String>>,
    /// The streams that may be read, for the role reader; all when absent. A credential of some streams may use nothing else.
    #[schema(nullable = false)]
    streams: Option<Vec<String>>,
    /// When it expires; never when absent.
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    requests_per_second: Option<u64>,
    bytes_per_second: Option<u64>,
    /// The reason, for the audit log.
    reason: Option<String>,
    /// The user who requested it, for the audit log.
    by: Option<String>,
}

/// A credential, without its key.
#[derive(ToSchema)]
pub(crate) struct Credential {
    id: String,
    name: String,
    roles: Vec<Role>,
    tenants: Vec<String>,
    scopes: Vec<String>,
    event_types: Vec<String>,
    streams: Vec<String>,
    state: CredentialState,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime, nullable = false)]
    expires_at: Option<String>,
    #[schema(format = DateTime, nullable = false)]
    revoked_at: Option<String>,
    #[schema(nullable = false)]
    revoked_because: Option<String>,
    #[schema(nullable = false)]
    requests_per_second: Option<u64>,
    #[schema(nullable = false)]
    bytes_per_second: Option<u64>,
}

/// A new credential with its key.
#[derive(ToSchema)]
pub(crate) struct CreatedCredential {
    /// The key, which cannot be read again.
    key: String,
    id: String,
    name: String,
    roles: Vec<Role>,
    tenants: Vec<String>,
    scopes: Vec<String>,
    event_types: Vec<String>,
    streams: Vec<String>,
    state: CredentialState,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime, nullable = false)]
    expires_at: Option<String>,
    #[schema(nullable = false)]
    requests_per_second: Option<u64>,
    #[schema(nullable = false)]
    bytes_per_second: Option<u64>,
}

/// The reason for revoking a credential; the body is optional.
#[derive(ToSchema)]
pub(crate) struct RevokeBody {
    reason: Option<String>,
    by: Option<String>,
}

/// A page of credentials.
#[derive(ToSchema)]
pub(crate) struct CredentialPage {
    items: Vec<Credential>,
    #[schema(nullable = false)]
    cursor: Option<String>,
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
enum ActOutcome {
    Done,
    Refused,
    Unknown,
}

/// An administrative act.
#[derive(ToSchema)]
struct AuditEntry {
    /// In the log of the system tenant.
    sequence_number: u64,
    id: String,
    #[schema(format = DateTime)]
    at: String,
    /// `key:ID`, `jwt:ISSUER/SUBJECT`, `certificate:SUBJECT` or `machine`.
    who: String,
    /// The name of the credential.
    #[schema(nullable = false)]
    name: Option<String>,
    /// The operation.
    what: String,
    #[schema(nullable = false)]
    path: Option<String>,
    #[schema(nullable = false)]
    tenant: Option<String>,
    #[schema(nullable = false)]
    why: Option<String>,
    #[schema(nullable = false)]
    by: Option<String>,
    /// The address of the caller.
    #[schema(nullable = false)]
    from: Option<String>,
    outcome: ActOutcome,
    /// The code of the refusal.
    #[schema(nullable = false)]
    code: Option<String>,
}

/// A page of administrative acts, the newest first.
#[derive(ToSchema)]
pub(crate) struct AuditPage {
    items: Vec<AuditEntry>,
    #[schema(nullable = false)]
    cursor: Option<String>,
}
