//! What can go wrong, one enum per operation, and the one table that gives each fact its stable code.

use crate::{SequenceNumber, Version};

/// A value that breaks a rule of the API: nothing was stored, and sending it again changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", at(path))]
pub struct Invalid {
    /// The stable code, one of the table's `invalid_…`, `not_json` or `…_too_large`.
    pub code: Code,
    /// Where the value stands, for example `events[3].type`; empty for the input as a whole.
    pub path: String,
    /// What is wrong and what would be right, as one sentence.
    pub message: String,
}

impl Invalid {
    /// A refused value at `path`.
    pub fn new(code: Code, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code, path: path.into(), message: message.into() }
    }

    /// The same of a value that stands in another one, at `outer`.
    pub fn inside(self, outer: &str) -> Self {
        Self { path: format!("{outer}.{}", self.path), ..self }
    }
}

/// The place of a refused value as it begins a sentence.
fn at(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}

/// The store itself cannot do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no room for the next segment. Nothing of this commit was stored; reads go on, and so do commits once there is room.
    #[error("the disk is full: nothing of this commit was stored; free some space and commit again ({0})")]
    DiskFull(String),
    /// A write or sync failed earlier. The outcome of the commits that were under way is unknown until the store is opened again.
    #[error(
        "the log refuses writes after a failed write or sync ({0}); open the store again, then retry with the same request id"
    )]
    Failed(String),
    /// Stored bytes are not what was written.
    #[error(
        "the store is damaged: {0}; reads stop there and writes are refused; restore a backup or cut the log there"
    )]
    Damaged(String),
    /// What is stored of a tenant's records and streams is not what was written. The log beside them is not concerned.
    #[error(
        "records and streams are damaged: {0}; they are refused until they are restored from a backup; the log is not \
         affected, and can be exported and backed up without them"
    )]
    RecordsDamaged(String),
    /// The process cannot write to the store, so it was opened read-only.
    #[error("the store is read-only: {0}")]
    ReadOnly(String),
    /// The store is being closed.
    #[error("the store is closing; retry when it is up again")]
    Closed,
    /// Too many requests wait already.
    #[error("too many requests are pending; retry in a moment")]
    Overloaded,
    /// Reading failed.
    #[error("reading failed: {0}")]
    Io(String),
    /// This kind of store does not have what was asked for. Nothing was stored.
    #[error("{0} is not supported by this store")]
    NotSupported(String),
    /// A remote store could not be reached, or answered something this client does not know.
    #[error("the request to the server failed: {0}")]
    Unreachable(String),
    /// A fact of one kind of store: its code, and the whole sentence. The documentation of that store says when it comes. Except where
    /// the sentence says otherwise, nothing of a commit that is refused with it was stored.
    #[error("{message}")]
    Other {
        /// The stable code.
        code: Code,
        /// What happened and what to do.
        message: String,
    },
}

impl StoreError {
    /// Makes an error that only one kind of store knows, from its code and its whole sentence.
    pub fn other(code: Code, message: impl Into<String>) -> Self {
        Self::Other { code, message: message.into() }
    }

    /// Returns what is particular to this occurrence: the sentence without the words that every error of its kind has. A client makes the
    /// same error from it and the code.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::DiskFull(reason)
            | Self::Failed(reason)
            | Self::Damaged(reason)
            | Self::RecordsDamaged(reason)
            | Self::ReadOnly(reason)
            | Self::Io(reason)
            | Self::NotSupported(reason)
            | Self::Unreachable(reason)
            | Self::Other { message: reason, .. } => Some(reason),
            Self::Closed | Self::Overloaded => None,
        }
    }

    /// The stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::DiskFull(_) => Code::DiskFull,
            Self::Failed(_) => Code::StoreFailed,
            Self::Damaged(_) | Self::RecordsDamaged(_) => Code::StoreDamaged,
            Self::ReadOnly(_) => Code::StoreReadOnly,
            Self::Closed => Code::Closing,
            Self::Overloaded => Code::Overloaded,
            Self::Io(_) => Code::ReadFailed,
            Self::NotSupported(_) => Code::NotSupportedByStore,
            Self::Unreachable(_) => Code::Unreachable,
            Self::Other { code, .. } => *code,
        }
    }
}

/// Why a commit was refused. Except for [`StoreError::Failed`], [`StoreError::Unreachable`] and a sentence that says otherwise, nothing of
/// it was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The commit breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The aggregate is not at the expected version.
    #[error("version conflict: expected {expected}, actual {actual_version}; reload the aggregate and decide again")]
    VersionConflict {
        /// What the commit expected, as it was written.
        expected: String,
        /// The version the aggregate has now.
        actual_version: Version,
    },
    /// The aggregate already has a commit of this request id with other content.
    #[error("request id {request_id:?} was used before with other content; give each new request its own id")]
    RequestIdReused {
        /// The request id.
        request_id: String,
    },
    /// The log holds what the append condition says it must not.
    #[error(
        "event {sequence_number} matches append_condition.fail_if[{pattern}]; read again with the same types and tags, and decide again"
    )]
    AppendConditionFailed {
        /// The place of the pattern.
        pattern: usize,
        /// The number of an event that matches it.
        sequence_number: SequenceNumber,
    },
    /// A prepare key that the commit reserves is held.
    #[error("the key {key:?} of {name} is taken; choose another, or wait until it is released")]
    KeyTaken {
        /// What the keys of this kind are called.
        name: String,
        /// The key.
        key: String,
    },
    /// A prepare key that the commit releases is not held, or not with this value.
    #[error("the key {key:?} of {name} is not held, or has another value; read it and decide again")]
    KeyNotHeld {
        /// What the keys of this kind are called.
        name: String,
        /// The key.
        key: String,
    },
    /// The aggregate's id is taken by another tenantId.
    #[error(
        "the aggregate belongs to tenant_id {tenant_id:?}; ids are not partitioned by tenant_id, so choose another id"
    )]
    AggregateOfOtherTenant {
        /// The tenantId that the aggregate has.
        tenant_id: String,
    },
    /// The commit is a copy whose events have other numbers than the log would give them.
    #[error(
        "the events to be copied begin at {expected}, but the log has reached {actual}; import into a log that \
         holds exactly the events before them"
    )]
    OtherEvents {
        /// The number the copy must have.
        expected: SequenceNumber,
        /// The number it would get.
        actual: SequenceNumber,
    },
    /// The store cannot take it.
    #[error("{}", of_commit(.0))]
    Store(#[from] StoreError),
}

/// The store's sentence, with what it means for a commit.
fn of_commit(error: &StoreError) -> String {
    match error {
        StoreError::Unreachable(_) => {
            format!("{error}; whether the commit was stored is unknown, so retry it with the same request id")
        }
        StoreError::NotSupported(_) => format!("{error}; nothing was stored"),
        other => other.to_string(),
    }
}

impl CommitError {
    /// The stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::VersionConflict { .. } => Code::VersionConflict,
            Self::RequestIdReused { .. } => Code::RequestIdReused,
            Self::AppendConditionFailed { .. } => Code::AppendConditionFailed,
            Self::KeyTaken { .. } => Code::KeyTaken,
            Self::KeyNotHeld { .. } => Code::KeyNotHeld,
            Self::AggregateOfOtherTenant { .. } => Code::AggregateOfOtherTenant,
            Self::OtherEvents { .. } => Code::OtherEvents,
            Self::Store(error) => error.code(),
        }
    }
}

/// Why a read was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The query breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The store cannot answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReadError {
    /// The stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::Store(error) => error.code(),
        }
    }

    /// What to do about it, as one sentence: nothing was to be stored.
    pub fn advice(&self) -> &'static str {
        self.code().advice_to_readers()
    }
}

impl Code {
    /// [`advice`](Self::advice) where nothing was to be stored, so that no commit need be thought of.
    pub const fn advice_to_readers(self) -> &'static str {
        match self {
            Self::Unreachable => "Check that the server is up and reachable, then retry.",
            Self::Overloaded => "Retry after the time in Retry-After.",
            Self::Closing => "Retry when it is up again.",
            Self::NotSupportedByStore => {
                "Use another command, or another kind of store; the documentation of each store lists what it lacks."
            }
            other => other.advice(),
        }
    }
}

macro_rules! codes {
    ($($variant:ident $code:literal $status:literal $exit:literal $meaning:literal $advice:literal)*) => {
        /// The stable code of an error: what programs test for, in HTTP answers and on the command line.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code { $(#[doc = $meaning] $variant,)* }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The code as it is written, for example `version_conflict`.
            pub const fn as_str(self) -> &'static str { match self { $(Code::$variant => $code,)* } }
            /// The HTTP status it is answered with.
            pub const fn status(self) -> u16 { match self { $(Code::$variant => $status,)* } }
            /// The exit code of the command line.
            pub const fn exit(self) -> u8 { match self { $(Code::$variant => $exit,)* } }
            /// What it means, as one sentence.
            pub const fn meaning(self) -> &'static str { match self { $(Code::$variant => $meaning,)* } }
            /// What to do about it, as one sentence.
            pub const fn advice(self) -> &'static str { match self { $(Code::$variant => $advice,)* } }
        }
    };
}

// Exit codes: 2 usage or bad input, 3 refused by the store's content, 4 not found, 5 try again later, 6 needs an operator.
codes! {
    NotJson "not_json" 400 2 "The body is not a single JSON document." "Send UTF-8 JSON; the message names the line and column."
    InvalidBody "invalid_body" 422 2 "A field is missing, unknown, repeated or of the wrong type." "Correct the field that is named."
    InvalidName "invalid_name" 422 2 "A name of an aggregate, event type or stream is not allowed." "Use 1 to 100 bytes of A-Z a-z 0-9 _ . - that begin with a letter or digit."
    InvalidId "invalid_id" 422 2 "An id is empty, too long or contains a control character." "Use 1 to 256 bytes of UTF-8 without control characters."
    InvalidEvents "invalid_events" 422 2 "A commit has no events, too many events, or a repeated event id." "Send 1 to 10,000 events with distinct ids, or without ids."
    InvalidTags "invalid_tags" 422 2 "An event has too many tags, or a tag that is empty, too long or contains a control character." "Use at most 64 tags of 1 to 256 bytes."
    InvalidMetadata "invalid_metadata" 422 2 "The metadata of an event is not an object of strings and numbers, or is too large." "Use at most 64 entries and 16 KiB; keys have 1 to 256 bytes without control characters, values are strings or finite numbers."
    InvalidHeader "invalid_header" 422 2 "The header is larger than 64 KiB, or too large for so many events, or has a key that is not allowed." "Keep large values in event data, and the header times the number of events at 15 MiB; keys have 1 to 256 bytes without control characters."
    InvalidData "invalid_data" 422 2 "Event data, or the state of a snapshot, is not an object, has a repeated key or a key with a NUL, or is nested too deeply." "Send an object with distinct keys, at most 100 levels deep."
    InvalidInteger "invalid_integer" 422 2 "An integer does not fit a signed 64-bit integer." "Send it as a string, or as a number with a decimal point if a double is precise enough."
    InvalidTime "invalid_time" 422 2 "A time is not RFC 3339." "Write it as 2026-03-01T12:00:00.123Z."
    InvalidVersion "invalid_version" 422 2 "An expected version is neither a number nor one of the keywords." "Use an integer from 0, or \"any\", \"empty\" or \"exists\"."
    InvalidAppendCondition "invalid_append_condition" 422 2 "An append condition has no pattern, too many, or one that no event can match." "Give 1 to 64 patterns of valid types and tags."
    InvalidHandler "invalid_handler" 422 2 "The definition of a handler has an invalid setting." "Correct the setting that is named; docs/handlers.md lists them all."
    InvalidProjection "invalid_projection" 422 2 "The definition of a projection has an invalid setting." "Correct the setting that is named; docs/projections.md lists them all."
    InvalidSaga "invalid_saga" 422 2 "The definition of a saga has an invalid setting." "Correct the setting that is named with its line; docs/sagas.md lists them all."
    InvalidReplay "invalid_replay" 422 2 "A setting of a replay is invalid, or its filter is empty." "Correct the setting that is named; docs/replay.md lists them all."
    InvalidType "invalid_type" 422 2 "The definition of an event type is invalid, or its schema is not a JSON Schema." "Correct the setting that is named; docs/types.md lists them all."
    InvalidTopic "invalid_topic" 422 2 "A setting of topics is invalid: a category, a prefix or a number." "Correct the setting that is named; docs/topics.md lists them all."
    InvalidPolicy "invalid_policy" 422 2 "The policy of a topic's dead letters is invalid." "Correct the setting that is named; docs/dead-letters.md lists them all."
    InvalidGroup "invalid_group" 422 2 "The definition of a consumer group has an invalid setting." "Correct the setting that is named; docs/topics.md lists them all."
    InvalidQueue "invalid_queue" 422 2 "The definition of a work queue has an invalid setting." "Correct the setting that is named; docs/queues.md lists them all."
    SchemaViolation "schema_violation" 422 2 "The data of an event does not match the schema of its type." "Correct the value that is named, or register a generation of the type that allows it."
    TypeNotRegistered "type_not_registered" 422 2 "The event's type or generation is not registered, and the store accepts registered types only." "Register it with PUT /v1/types/NAME, or correct the name."
    InvalidKeys "invalid_keys" 422 2 "A prepare key has an invalid name, key or time, a value larger than 64 KiB, or is named twice; or there are too many keys." "Correct the key that is named; a commit reserves and releases at most 64 each."
    InvalidTransaction "invalid_transaction" 422 2 "A transaction has too few or too many commits, names an aggregate twice, or has a commit with a request id of its own." "Send 2 to 16 commits of different aggregates, with one request_id beside them."
    InvalidRange "invalid_range" 422 2 "A range ends before it begins, or a number in it is not allowed." "Give from and to in ascending order; versions count from 1."
    InvalidQuery "invalid_query" 422 2 "A query parameter is unknown, repeated or of the wrong type." "Correct the parameter that is named."
    InvalidCondition "invalid_condition" 422 2 "A condition has an operator, field or value that is not allowed." "Correct the part that is named."
    QueryTooDeep "query_too_deep" 422 2 "A condition is nested deeper than this server allows." "Flatten it, or raise the limit in the configuration."
    QueryTooLarge "query_too_large" 422 2 "A condition has more parts than this server allows." "Use fewer parts, for example IN for many values of one field."
    QueryTooManyValues "query_too_many_values" 422 2 "An operator has more values than this server allows." "Split it into several queries."
    QueryTooExpensive "query_too_expensive" 422 2 "A condition has an operator that no index serves." "Use another operator, or allow expensive ones in the configuration."
    QueryTookTooLong "query_took_too_long" 422 2 "A query ran longer than this server allows." "Declare an index that serves the condition, narrow it, or request less at once."
    QueryOfEverything "query_of_everything" 422 2 "A page or count was requested without a selective condition." "Add a condition that excludes something."
    RawNotAllowed "raw_not_allowed" 422 2 "A condition has a MongoDB filter document, which this server does not allow, or one that runs code." "Use the other operators, or allow RAW in the configuration."
    NoTextIndex "no_text_index" 422 2 "A condition has MATCH, but its collection has no text index." "Declare a text index on the fields to search, or use CONTAINS."
    PageTooLarge "page_too_large" 422 2 "A page or list is longer than this server allows, or has no limit." "Request fewer documents at once."
    PageTooFar "page_too_far" 422 2 "A page is further from the start than this server allows." "Narrow the condition, or reverse the sort."
    QueryAnswerTooLarge "query_answer_too_large" 422 2 "The result of a query is larger than this server returns or sorts at once." "Request fewer documents, or fewer of their fields."
    InvalidRecord "invalid_record" 422 2 "A document cannot be stored as a record, or does not decode as its type." "Give it an _id, at most 15 MiB, 100 levels, and at most one array on the paths of an index."
    InvalidCollection "invalid_collection" 422 2 "The declaration of a collection or an index is invalid." "Correct the declaration that is named."
    InvalidWait "invalid_wait" 422 2 "The commit waits for a stage that does not exist, or for too long." "Wait for \"committed\", \"logged\", \"snapshot\", \"published\", \"handled:NAME\" or \"projected:NAME\", at most 50 seconds; a transaction for \"committed\" or \"logged\"."
    InvalidFilter "invalid_filter" 422 2 "The definition of a filter is invalid." "Correct the setting that is named."
    InvalidConsent "invalid_consent" 422 2 "A consent is invalid." "Correct the setting that is named; docs/horizon.md lists them all."
    InvalidPartner "invalid_partner" 422 2 "The definition of a partner is invalid." "Correct the setting that is named; docs/partners.md lists them all."
    InvalidSubscription "invalid_subscription" 422 2 "The definition of a subscription is invalid." "Correct the setting that is named; docs/horizon.md lists them all."
    InvalidCredential "invalid_credential" 422 2 "The definition of a credential is invalid." "Correct the field that is named; docs/security.md lists them all."
    InvalidVerdicts "invalid_verdicts" 422 2 "There are too many verdicts, they are out of order, or they concern events outside the range." "Include each event once, in order and within the range; at most 10,000 per request."
    EventTooLarge "event_too_large" 413 2 "The data of an event is larger than 8 MiB as BSON." "Keep large content elsewhere and commit a reference to it."
    CommitTooLarge "commit_too_large" 413 2 "The commit is larger than 15 MiB as BSON." "Split it into several commits."
    BodyTooLarge "body_too_large" 413 2 "The request body is larger than its limit." "Send less at once; `annals import` takes files of any size."
    HeadersTooLarge "headers_too_large" 431 2 "The request's headers are larger than their limit." "Send smaller headers."
    UnsupportedMediaType "unsupported_media_type" 415 2 "The endpoint does not accept this content type." "Send application/json."
    InvalidPath "invalid_path" 400 2 "The path is not percent-encoded UTF-8." "Write every byte of an id that is not a letter, digit or one of - . _ ~ as %XX."
    RequestTimeout "request_timeout" 408 5 "The request body stopped arriving; nothing of it was stored." "Resend it with the same request id."
    ReaderTooSlow "reader_too_slow" 408 5 "The client did not read from a stream for too long, so the server ended it." "Reconnect with the id of the last event that you received, and keep reading."
    UnknownRoute "unknown_route" 404 4 "There is no such endpoint." "Compare the path with the documentation of the API."
    ForbiddenOrigin "forbidden_origin" 403 2 "The request comes from a page of another site, or addresses this machine by a name that is not its own." "Use the address that the server printed, from its own page or from a program that is not a browser."
    InvalidSignature "invalid_signature" 401 2 "An event of a partner has no signature, a stale one, or one that was not made with a secret of the partner." "Sign each attempt with its own timestamp and a secret of the partner, as Standard Webhooks specifies."
    Unauthenticated "unauthenticated" 401 2 "The request has no credential that this server knows, or one that is expired, revoked or forged." "Send a valid key as `Authorization: Bearer KEY`; an administrator creates one with `annals credential create`."
    Forbidden "forbidden" 403 2 "The credential does not allow this operation." "Use a credential with the role that the message names."
    RateLimited "rate_limited" 429 5 "The credential has used up its requests or bytes for this second." "Retry after the time in Retry-After, or have its limits raised."
    MethodNotAllowed "method_not_allowed" 405 2 "The endpoint does not accept this method." "Use a method that the Allow header lists."
    UnknownTenant "unknown_tenant" 404 4 "The tenant is not declared." "Declare it in the configuration under [tenants], or correct the Annals-Tenant header."
    UnknownScope "unknown_scope" 404 4 "The tenant has no such scope." "Correct the scope, or leave it out for the default scope."
    UnknownEvent "unknown_event" 404 4 "The log has no event with this sequence number, or the browse view none with this id." "Use a number below the head of the log, or correct the id."
    UnknownHeldCommit "unknown_held_commit" 404 4 "The sequencer holds no such commit." "`annals held list` prints the held commits."
    UnknownRecord "unknown_record" 404 4 "The collection has no record with this id." "Correct the id and its type: the string \"7\" and the number 7 are different ids."
    UnknownSnapshot "unknown_snapshot" 404 4 "The aggregate has no snapshot." "Read its commits, and save a snapshot."
    NothingFound "nothing_found" 404 4 "No document matches the condition." "Check the condition; snapshots of deleted aggregates match only if it has DELETED."
    UnknownHandler "unknown_handler" 404 4 "There is no handler with this name." "Correct the name, or define the handler with PUT /v1/handlers/NAME."
    UnknownPartition "unknown_partition" 404 4 "The partition of the handler is not failing." "List the failing partitions with GET /v1/handlers/NAME/partitions."
    UnknownProjection "unknown_projection" 404 4 "There is no projection with this name." "Correct the name, or define the projection with PUT /v1/projections/NAME."
    UnknownSaga "unknown_saga" 404 4 "There is no saga with this id." "Correct the id; `annals saga list` prints those that exist."
    UnknownSagaDefinition "unknown_saga_definition" 404 4 "There is no definition of sagas with this name." "Correct the name, or define the sagas with PUT /v1/saga-definitions/NAME."
    UnknownCredential "unknown_credential" 404 4 "There is no credential with this id." "Correct the id; `annals credential list` prints those that exist."
    UnknownReplay "unknown_replay" 404 4 "There is no replay with this id." "Correct the id; `annals replay list` prints those that exist."
    UnknownArchivedEvent "unknown_archived_event" 404 4 "The archive has no event with this id." "Correct the id; GET /v1/events/archive lists archived events."
    UnknownRetention "unknown_retention" 404 4 "There is no retention for this category or event type." "Correct the name; GET /v1/retention lists those that have one."
    UnknownHold "unknown_hold" 404 4 "There is no hold with this name." "Correct the name; GET /v1/holds lists those that exist."
    UnknownFilter "unknown_filter" 404 4 "No filter is defined for this stream." "Correct the name, or define the filter with PUT /v1/filters/STREAM."
    UnknownType "unknown_type" 404 4 "There is no event type with this name in the registry." "Correct the name, or register the type with PUT /v1/types/NAME."
    UnknownTopic "unknown_topic" 404 4 "The broker has no topic with this name." "Correct the name, or create the topic with `annals topic apply`."
    UnknownGroup "unknown_group" 404 4 "There is no consumer group with this name." "Correct the name, or define the group with PUT /v1/groups/NAME."
    UnknownQueue "unknown_queue" 404 4 "There is no work queue with this name." "Correct the name, or define the queue with PUT /v1/queues/NAME."
    UnknownItem "unknown_item" 404 4 "The work queue has no item with this id." "Correct the id: an item that is done or was cancelled is no longer there."
    UnknownDeadLetter "unknown_dead_letter" 404 4 "There is no dead letter with this id." "Correct the id; GET /v1/dead-letters lists those that exist."
    UnknownConsent "unknown_consent" 404 4 "There is no consent with this id." "Correct the id, or give the consent with PUT /v1/consents/ID."
    UnknownPartner "unknown_partner" 404 4 "There is no partner with this id." "Correct the id, or define the partner with PUT /v1/partners/ID."
    UnknownPartnerEvent "unknown_partner_event" 404 4 "There is no partner event with this id." "Correct the id; an event that succeeded is deleted after its retention."
    UnknownSubscription "unknown_subscription" 404 4 "There is no subscription with this name." "Correct the name, or define the subscription with PUT /v1/subscriptions/NAME."
    MissingConsent "missing_consent" 403 3 "The producer has given no consent to receive this partition of the stream." "Ask an operator of the producer to give one with PUT /v1/consents/ID; the subscription then continues automatically."
    StreamNotPublic "stream_not_public" 403 3 "The stream is not public, or does not exist." "Define a filter with \"public\": true on the producer, or name a stream that has one."
    UnknownKey "unknown_key" 404 4 "The prepare key is free." "Correct its name and key, or reserve it."
    SystemCollection "system_collection" 403 2 "The collection belongs to a feature of Annals, or to a layout that it keeps, and is read-only from outside." "Use that feature's own commands, or another name for your own records."
    UnknownCollection "unknown_collection" 404 4 "The collection is not declared." "Declare it first, or correct the name."
    NoFeed "no_feed" 409 3 "The collection has no feed of its changes." "Declare the collection with a feed, read it once, then follow its changes."
    UnknownChange "unknown_change" 404 4 "No change of records has this number yet." "The number is from another store: read the collections again from scratch, then follow from the newest change."
    ChangesGone "changes_gone" 410 3 "The requested changes of records are no longer kept." "Read the collections again from scratch, then follow from the newest change."
    VersionConflict "version_conflict" 409 3 "The aggregate is not at the expected version." "Reload the aggregate, decide again, and commit with its current version."
    WebhookIdReused "webhook_id_reused" 409 3 "Another event of the partner was received with this webhook-id." "Give each event its own webhook-id, and send all attempts of an event with the same one."
    PartnerEventState "partner_event_state" 409 3 "The state of a partner event does not allow the act." "Read the event, and decide again."
    RequestIdReused "request_id_reused" 409 3 "The aggregate has a commit with this request id and other content." "Use a new request id for each new request."
    AppendConditionFailed "append_condition_failed" 409 3 "The log holds an event that the append condition excludes." "Read again with the same types and tags, decide again, and commit with the number of the last event you read as `after`."
    KeyTaken "key_taken" 409 3 "A prepare key to be reserved is already held." "Choose another key, or wait until it is released or expires."
    KeyNotHeld "key_not_held" 409 3 "A prepare key to be released is not held, has expired, or has another value." "Read the key and decide again."
    AggregateOfOtherTenant "aggregate_of_other_tenant" 409 3 "The aggregate id belongs to another tenant_id." "Choose another aggregate id; ids are not partitioned by tenant_id."
    AggregateDeleted "aggregate_deleted" 410 3 "The aggregate is deleted and accepts no commands." "Recover it first, or use another id."
    UnreadableEvent "unreadable_event" 500 6 "A recorded event does not decode as its type, or an earlier commit is missing." "Give its type an upcaster; the message names the event."
    RecordConflict "record_conflict" 409 3 "The record is not in the state that the change expects." "Read the record and decide again."
    HandlerChanged "handler_changed" 409 3 "The handler exists with another source, other partitions or another start." "Define the new handler under another name, or delete the existing one first, which discards its position."
    HandlerOwnedElsewhere "handler_owned_elsewhere" 409 5 "Another process hands out the events of this handler." "Settle at the process where the deliveries were pulled; if it no longer runs, pull again."
    GroupChanged "group_changed" 409 3 "The consumer group exists with other topics or another start." "Define the new group under another name, or delete the existing one first, which discards its offsets."
    TypeIncompatible "type_incompatible" 409 3 "The new schema of an event type refuses events that the previous generation accepts, or changes a registered generation." "Register it as a new generation with an upcaster, or change it so that the named part stays compatible."
    FilterChanged "filter_changed" 409 3 "The new definition of the filter contradicts the verdicts that its stream holds." "Give the changed filter a stream of its own; `first_difference` is the first event that would differ."
    FilterOwnedElsewhere "filter_owned_elsewhere" 409 5 "Another process evaluates the events of this filter." "Settle at the process where the events were pulled; if it no longer runs, pull again."
    BrowseViewOff "browse_view_off" 409 3 "The browse view of the tenant is switched off." "Switch it on with PUT /v1/events/view, or read the log."
    StateConflict "state_conflict" 409 3 "The state of the handler, its partition, the projection, the saga, the replay or the dead letter does not allow this action." "Read the state, which the response names, and decide again."
    DuplicateKey "duplicate_key" 409 3 "Another record has the same entry in a unique index." "Choose another value; the message names the index."
    IndexConflict "index_conflict" 409 3 "An index with this name has another definition, or the collection already has a text index." "Declare the existing definition, or give the new index another name; a collection has one text index, on all fields to search."
    SubscriptionMoved "subscription_moved" 409 3 "A batch of received events does not begin at the subscription's position." "Resume from the subscription's position."
    SnapshotAhead "snapshot_ahead" 409 3 "A snapshot has a version that its aggregate has not reached." "Commit first, or save the snapshot with the version that the aggregate has; nothing was saved."
    StreamMoved "stream_moved" 409 3 "The stream's progress is not where the verdicts begin." "Read the stream's progress and evaluate from there."
    VerdictsDiffer "verdicts_differ" 409 3 "Some of these events already have different verdicts." "Use a separate stream for each filter, and a new one for a changed filter."
    QueueFull "queue_full" 429 5 "The work queue, or the user in it, has too many pending items." "Retry once items have been taken, or raise the limit that the message names."
    Overloaded "overloaded" 429 5 "Too many requests are pending." "Retry after the time in Retry-After, with the same request id."
    Closing "closing" 503 5 "The store is shutting down." "Retry when it is up again, with the same request id."
    NotReady "not_ready" 503 5 "The store refuses commits, or records and streams." "See `logs` for the cause."
    DiskFull "disk_full" 507 6 "There is no room for the next segment; nothing of the commit was stored." "Free disk space and retry; reads continue meanwhile."
    TooManyFiles "too_many_files" 503 5 "The process or the machine has too many files open; nothing was stored." "Retry in a moment; if it lasts, raise the limit of open files and restart."
    PartnerKey "partner_key" 503 6 "Secrets of partners cannot be encrypted or decrypted." "Configure partners.key_file; if the key was changed, add the earlier one to the file, or put the partner's secrets again."
    StoreFailed "store_failed" 503 6 "The log refuses writes after a failed write or sync." "Check the disk, restart, then retry with the same request id."
    StoreReadOnly "store_read_only" 503 6 "The process cannot write to the store, so it was opened read-only." "Give the process write access to the data folder and restart."
    StoreDamaged "store_damaged" 503 6 "Stored bytes differ from what was written." "Keep the damaged store, and restore a backup. The log of an embedded store can be cut where the message says; if records and streams are damaged, the log can be exported and backed up without them."
    MalformedDocument "malformed_document" 500 6 "A document in the database is malformed: other software wrote or changed it." "Do what the message says: it names the document's collection, its _id and what is wrong. Unrelated requests are unaffected."
    CommitHeld "commit_held" 409 6 "A commit of the aggregate is held: it is stored and has no sequence numbers." "`annals held list` prints the reason, and docs/mongodb.md what to do about it. Other aggregates are unaffected."
    StoreLocked "store_locked" 503 6 "Another process has this store open." "Stop that process, or connect to it with --server."
    NewerFormat "newer_format" 503 6 "The store was written by a newer version." "Use that version or a later one; nothing was changed."
    NotAStore "not_a_store" 503 6 "There is no store at this place." "Name the folder or the database of a store; for a new one, an empty or new folder."
    InvalidBackup "invalid_backup" 422 6 "A backup or an export is truncated, altered or of another kind." "Use another copy; a restore has written nothing, and an import can be run again over what it wrote."
    FolderNotEmpty "folder_not_empty" 409 2 "The output file or folder already exists and holds something else." "Name a new file, or a new or empty folder."
    OtherEvents "other_events" 409 3 "The log holds other events than expected." "Import into a new store, or into one that an earlier import of the same file began."
    OtherRecords "other_records" 409 3 "The collection holds other records than expected." "Import into a new store, or into one that an earlier import of the same file began."
    ReadFailed "read_failed" 503 6 "Reading from the disk failed." "Check the disk; the message names the file."
    BrokerUnavailable "broker_unavailable" 503 5 "The broker cannot be reached, or another relay has taken over." "Retry; commits continue meanwhile, and the relay catches up."
    QueueUnavailable "queue_unavailable" 503 5 "The backend that holds the items of work queues cannot be reached." "Retry: repeating any call on a queue is safe."
    NotSupportedByStore "not_supported_by_store" 501 2 "This kind of store does not support the request; nothing was stored." "Leave the feature out, or use another kind of store; the documentation of each lists its features."
    UnsuitableServer "unsuitable_server" 503 6 "The database server cannot hold a store: it is not a replica set, is too old, or its permissions or indexes are wrong." "The message says what was expected, what was found and what to do; nothing was changed."
    NotAdopted "not_adopted" 503 6 "The database was written by other software and is not adopted yet." "Run `annals adopt` with the same --store; it reports what it would change before it does."
    CannotAdopt "cannot_adopt" 409 6 "The database holds something that cannot be adopted as it is." "Do what the message says, then run `annals adopt` again; nothing was changed."
    ForeignNumbers "foreign_numbers" 503 6 "Other software assigns sequence numbers in this log." "Stop it (usually a Dolittle Runtime), then run `annals adopt`, which takes in what it wrote."
    InvalidNames "invalid_names" 422 2 "A UUID of an adopted log has no name, or an invalid one." "Correct the names file; `annals adopt` prints the UUIDs that need a name."
    AddressInUse "address_in_use" 500 6 "Another process listens on the address." "Stop that process, or choose another address; port 0 takes a free port."
    InvalidConfig "invalid_config" 500 2 "The configuration or a URL is invalid." "Correct the key that the message names; `annals config show` prints the effective configuration."
    UnreadableInput "unreadable_input" 500 2 "A file or standard input could not be read." "Name a file that exists and may be read."
    UnwritableOutput "unwritable_output" 500 6 "A file or standard output could not be written." "Make room or name another place, then run the command again; whatever it stored stays stored."
    Unreachable "unreachable" 502 5 "The server could not be reached, or its response could not be read." "Check that the server is up and reachable, then retry; a commit with the same request id, because it may have been stored."
    Internal "internal" 500 1 "A defect of Annals." "Report it with the log lines around it."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_store_lacks_is_told_to_readers_without_words_about_storing() {
        let lacks = || StoreError::NotSupported("counting the commits and events of a log".to_owned());
        let read = ReadError::from(lacks());
        assert_eq!(read.to_string(), "counting the commits and events of a log is not supported by this store");
        assert!(read.advice().contains("another command"), "{}", read.advice());
        assert!(CommitError::from(lacks()).to_string().ends_with("; nothing was stored"));
    }

    #[test]
    fn a_refused_value_without_a_place_is_its_sentence() {
        assert_eq!(Invalid::new(Code::UnknownTenant, "", "no tenant acme").to_string(), "no tenant acme");
        assert_eq!(Invalid::new(Code::InvalidId, "id", "is empty").to_string(), "id: is empty");
    }

    #[test]
    fn every_code_is_written_once_and_has_a_sentence() {
        let mut seen = std::collections::HashSet::new();
        for code in Code::ALL {
            assert!(seen.insert(code.as_str()), "{} twice", code.as_str());
            assert!(code.meaning().ends_with('.') && code.advice().ends_with('.'), "{}", code.as_str());
            assert!((400..600).contains(&code.status()));
            assert!(code.exit() > 0);
        }
    }
}
