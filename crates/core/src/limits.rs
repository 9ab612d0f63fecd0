//! Every bound of the product in one place. They are the same on every backend, so that data can always move.

use std::time::Duration;

/// Longest name of an aggregate or event type, in bytes.
pub const NAME_BYTES_MAX: usize = 100;
/// Longest id (aggregate, request, command, correlation, causation, tenant, owner, space), in bytes of UTF-8.
pub const ID_BYTES_MAX: usize = 256;
/// Most tags of one event.
pub const TAGS_MAX: usize = 64;
/// Longest tag, in bytes of UTF-8.
pub const TAG_BYTES_MAX: usize = 256;
/// Most entries of the metadata of one event.
pub const METADATA_ENTRIES_MAX: usize = 64;
/// Largest metadata of one event, in bytes of BSON.
pub const METADATA_BYTES_MAX: usize = 16 * 1024;
/// Largest header of a commit: the sum of its keys' and values' bytes.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Most events of one commit.
pub const EVENTS_MAX: usize = 10_000;
/// Most events of one batch that a scope receives.
pub const RECEIVED_MAX: usize = 1_000;
/// Most commits of one request.
pub const COMMITS_MAX: usize = 1_000;
/// Largest data of one event, in bytes of BSON.
pub const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Largest commit: the sum of its events' data and metadata in bytes of BSON, their types and tags, and its prepare keys.
pub const COMMIT_BYTES_MAX: usize = 15 * 1024 * 1024;
/// Most events that one append to a stream includes.
pub const VERDICTS_MAX: usize = 10_000;
/// Most commits of a transaction, and most aggregates that it only expects something of.
pub const TRANSACTION_COMMITS_MAX: usize = 16;
/// Most patterns of an append condition.
pub const PATTERNS_MAX: usize = 64;
/// Most prepare keys that a commit reserves, and that it releases.
pub const KEYS_MAX: usize = 64;
/// Largest value of a prepare key, in bytes of BSON.
pub const KEY_VALUE_BYTES_MAX: usize = 64 * 1024;
/// Largest request body, in bytes of JSON: twice a commit.
pub const BODY_BYTES_MAX: usize = 2 * COMMIT_BYTES_MAX;
/// How much of a body over the limit is read before the connection is closed.
pub const BODY_DRAIN_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest time that the answer to a commit waits for what becomes of it: connections are not held longer without an answer.
pub const WAIT_MAX: Duration = Duration::from_secs(50);
/// How long it waits when the caller names no time.
pub const WAIT_USUAL: Duration = Duration::from_secs(30);
/// Entries of a page when the caller names no limit.
pub const PAGE_DEFAULT: usize = 100;
/// Most entries of a page.
pub const PAGE_MAX: usize = 1_000;
/// A page ends early once it holds this many bytes of event data; it always holds at least one entry.
pub const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Deepest nesting of JSON data.
pub const DATA_DEPTH_MAX: usize = 100;
/// Most parts of a condition.
pub const CONDITION_NODES_MAX: usize = 1_000;
/// Most values of one operator of a condition.
pub const CONDITION_VALUES_MAX: usize = 10_000;
/// Longest text that a condition looks for in others, in bytes of UTF-8.
pub const CONDITION_TEXT_BYTES_MAX: usize = 4_096;
/// Most days that a window of time reaches back.
pub const WINDOW_DAYS_MAX: u32 = 36_500;
/// Longest path of a field, in bytes of UTF-8.
pub const PATH_BYTES_MAX: usize = 1_000;
/// Most fields of an index or of a sort.
pub const INDEX_FIELDS_MAX: usize = 32;
/// Most figures of a group of records.
pub const GROUP_FIGURES_MAX: usize = 16;
/// Most bytes of the different words of a record in a text index, each with [`TEXT_WORD_BYTES`] beside its own: some 65,000 words.
pub const TEXT_INDEX_BYTES_MAX: usize = 3 * 1024 * 1024;
/// What a word takes in a text index beside its own bytes.
pub const TEXT_WORD_BYTES: usize = 40;
/// Largest document of a record, in bytes of BSON.
pub const RECORD_BYTES_MAX: usize = 15 * 1024 * 1024;
/// Most changes of records in one batch.
pub const RECORD_CHANGES_MAX: usize = 10_000;
/// Largest batch of changes of records: the sum of its documents in bytes of BSON.
pub const RECORD_CHANGES_BYTES_MAX: usize = 4 * RECORD_BYTES_MAX;
/// Largest body of a batch of changes of records, in bytes: its documents, and what stands around them.
pub const RECORD_CHANGES_BODY_BYTES_MAX: usize = RECORD_CHANGES_BYTES_MAX + 4 * 1024 * 1024;
/// How many of the newest changes of records are kept at least.
pub const CHANGES_KEPT_MIN: u64 = 100_000;
/// Most bytes of the payload of an item of a work queue, as JSON.
pub const QUEUE_PAYLOAD_BYTES_MAX: usize = 256 * 1024;
