//! Commits and transactions.

use utoipa::ToSchema;

use crate::payload::Document;

/// The name and id of an aggregate.
#[derive(ToSchema)]
pub(crate) struct Aggregate {
    /// 1 to 100 bytes of `[A-Za-z0-9][A-Za-z0-9_.-]*`.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    name: String,
    /// 1 to 256 bytes without control characters.
    #[schema(min_length = 1)]
    id: String,
}

/// Events of one aggregate that are committed, all or none.
#[derive(ToSchema)]
pub(crate) struct NewCommit {
    aggregate: Aggregate,
    #[schema(nullable = false)]
    expected_version: Option<ExpectedVersion>,
    /// Names the request; made by the server when absent.
    #[schema(nullable = false)]
    request_id: Option<String>,
    #[schema(nullable = false)]
    command_id: Option<String>,
    #[schema(min_items = 1, max_items = 10_000)]
    events: Vec<NewEvent>,
    /// Free text for tools, at most 64 KiB.
    #[schema(value_type = Option<std::collections::HashMap<String, String>>, nullable = false)]
    header: Option<()>,
    #[schema(nullable = false)]
    tenant_id: Option<String>,
    #[schema(nullable = false)]
    owner_id: Option<String>,
    #[schema(nullable = false)]
    space_id: Option<String>,
    #[schema(nullable = false)]
    correlation_id: Option<String>,
    #[schema(nullable = false)]
    causation_id: Option<String>,
    #[schema(nullable = false)]
    append_condition: Option<AppendCondition>,
    /// Prepare keys that the commit takes.
    #[schema(nullable = false)]
    reserve: Option<Vec<Reserve>>,
    /// Prepare keys that the commit gives back.
    #[schema(nullable = false)]
    release: Option<Vec<Release>>,
    #[schema(nullable = false)]
    wait: Option<Wait>,
}

/// The version that the aggregate must have: a number, or a word.
#[derive(ToSchema)]
#[serde(untagged)]
enum ExpectedVersion {
    Number(u64),
    Word(ExpectedWord),
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
enum ExpectedWord {
    Any,
    Empty,
    Exists,
}

/// An event of a commit.
#[derive(ToSchema)]
struct NewEvent {
    r#type: String,
    /// At most 8 MiB.
    data: Document,
    /// Made by the server when absent.
    #[schema(format = "uuid", nullable = false)]
    id: Option<String>,
    /// The generation of the type's schema; 1 when absent.
    #[schema(minimum = 1, nullable = false)]
    generation: Option<u32>,
    #[schema(max_items = 64, nullable = false)]
    tags: Option<Vec<String>>,
    /// Whether partners may see it.
    #[schema(nullable = false)]
    public: Option<bool>,
    /// Strings and numbers for tools and operators.
    #[schema(nullable = false)]
    metadata: Option<Document>,
    /// When it happened; the time of acceptance when absent.
    #[schema(format = DateTime, nullable = false)]
    time: Option<String>,
}

/// What the log must not hold after the event `after`.
#[derive(ToSchema)]
struct AppendCondition {
    #[schema(min_items = 1, max_items = 64)]
    fail_if: Vec<EventPattern>,
    #[schema(nullable = false)]
    after: Option<u64>,
}

/// Matches an event that has one of the types and all of the tags.
#[derive(ToSchema)]
struct EventPattern {
    #[schema(nullable = false)]
    types: Option<Vec<String>>,
    #[schema(nullable = false)]
    tags: Option<Vec<String>>,
}

/// A prepare key that is taken.
#[derive(ToSchema)]
struct Reserve {
    name: String,
    key: String,
    value: serde_json::Value,
    /// When it expires; never when absent.
    #[schema(format = DateTime, nullable = false)]
    ttl_at: Option<String>,
}

/// A prepare key that is given back.
#[derive(ToSchema)]
struct Release {
    name: String,
    key: String,
    /// The value that it must have; any when absent.
    value: Option<serde_json::Value>,
}

/// What the answer waits for, at most so long.
#[derive(ToSchema)]
struct Wait {
    /// `committed`, `logged`, `snapshot`, or `handled:` and the name of a handler, or `projected:` and that of a projection.
    #[schema(pattern = "^[a-z]+(:[A-Za-z0-9][A-Za-z0-9_.-]*)?$")]
    r#for: String,
    /// 30,000 when absent.
    #[schema(maximum = 50_000, nullable = false)]
    timeout_ms: Option<u64>,
}

/// Commits to several aggregates, all or none.
#[derive(ToSchema)]
pub(crate) struct NewTransaction {
    #[schema(min_items = 1, max_items = 16)]
    commits: Vec<NewCommit>,
    /// Aggregates that are only expected to be at a version.
    #[schema(nullable = false)]
    expect: Option<Vec<Expectation>>,
    #[schema(nullable = false)]
    request_id: Option<String>,
    #[schema(nullable = false)]
    wait: Option<Wait>,
}

#[derive(ToSchema)]
struct Expectation {
    aggregate: Aggregate,
    expected_version: ExpectedVersion,
}

/// The outcome of a commit.
#[derive(ToSchema)]
pub(crate) struct CommitAnswer {
    #[schema(format = "uuid")]
    commit_id: String,
    /// The version of the aggregate after the commit.
    version: u64,
    events: Vec<CommittedEvent>,
    /// Whether this request was committed before; this is its first outcome then.
    duplicate: bool,
    /// `committed`, `logged`, or the named stage that was waited for.
    reached: String,
}

#[derive(ToSchema)]
struct CommittedEvent {
    #[schema(format = "uuid")]
    id: String,
    /// Absent until the commit is logged.
    #[schema(nullable = false)]
    sequence_number: Option<u64>,
}
