//! Every limit of the product in one place. Limits are the same on every backend, so that data can always move between them.

use std::time::Duration;

/// Maximum length of the name of an aggregate or event type, in bytes.
pub const NAME_BYTES_MAX: usize = 100;
/// Maximum length of an id (aggregate, request, command, correlation, causation, tenant, owner, space), in bytes of UTF-8.
pub const ID_BYTES_MAX: usize = 256;
/// Maximum number of tags of one event.
pub const TAGS_MAX: usize = 64;
/// Maximum length of a tag, in bytes of UTF-8.
pub const TAG_BYTES_MAX: usize = 256;
/// Maximum number of entries in the metadata of one event.
pub const METADATA_ENTRIES_MAX: usize = 64;
/// Maximum size of the metadata of one event, in bytes of BSON.
pub const METADATA_BYTES_MAX: usize = 16 * 1024;
/// Maximum size of the header of a commit: the sum of the bytes of its keys and values. It is written with each event of the commit, so
/// times their number it is limited to [`COMMIT_BYTES_MAX`].
pub const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of events of one commit.
pub const EVENTS_MAX: usize = 10_000;
/// Maximum number of events of one batch that a scope receives.
pub const RECEIVED_MAX: usize = 1_000;
/// Maximum number of commits of one request.
pub const COMMITS_MAX: usize = 1_000;
/// Maximum size of the data of one event, in bytes of BSON.
pub const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum size of a commit: the sum of its events' data and metadata in bytes of BSON, their types and tags, and its prepare keys.
pub const COMMIT_BYTES_MAX: usize = 15 * 1024 * 1024;
/// Maximum number of events that one append to a stream includes.
pub const VERDICTS_MAX: usize = 10_000;
/// Maximum number of commits of a transaction, and of aggregates of which it only expects a version.
pub const TRANSACTION_COMMITS_MAX: usize = 16;
/// Maximum number of patterns of an append condition.
pub const PATTERNS_MAX: usize = 64;
/// Maximum number of prepare keys that a commit reserves, and of those that it releases.
pub const KEYS_MAX: usize = 64;
/// Maximum size of the value of a prepare key, in bytes of BSON.
pub const KEY_VALUE_BYTES_MAX: usize = 64 * 1024;
/// Maximum size of a request body, in bytes of JSON: twice that of a commit.
pub const BODY_BYTES_MAX: usize = 2 * COMMIT_BYTES_MAX;
/// The number of bytes of an oversized body that are read before the connection is closed.
pub const BODY_DRAIN_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum time for which the response to a commit waits for its stage: no connection is held longer without a response.
pub const WAIT_MAX: Duration = Duration::from_secs(50);
/// The time for which it waits if the caller gives none.
pub const WAIT_USUAL: Duration = Duration::from_secs(30);
/// The number of entries of a page if the caller gives no limit.
pub const PAGE_DEFAULT: usize = 100;
/// Maximum number of entries of a page.
pub const PAGE_MAX: usize = 1_000;
/// A page ends early once it contains this many bytes of event data, tags, metadata and headers; it always contains at least one entry.
pub const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum number of types, and of tags, by which one request filters events.
pub const FILTER_TERMS_MAX: usize = 1_000;
/// Maximum nesting depth of JSON data.
pub const DATA_DEPTH_MAX: usize = 100;
/// Maximum number of parts of a condition.
pub const CONDITION_NODES_MAX: usize = 1_000;
/// Maximum number of values of one operator of a condition, and of all its `ALL_IN` together.
pub const CONDITION_VALUES_MAX: usize = 10_000;
/// Maximum length of a text that a condition searches for in others, in bytes of UTF-8.
pub const CONDITION_TEXT_BYTES_MAX: usize = 4_096;
/// Maximum number of days that a time window reaches back.
pub const WINDOW_DAYS_MAX: u32 = 36_500;
/// Maximum length of the path of a field, in bytes of UTF-8.
pub const PATH_BYTES_MAX: usize = 1_000;
/// Maximum number of fields of an index or of a sort.
pub const INDEX_FIELDS_MAX: usize = 32;
/// Maximum number of figures of a group of records.
pub const GROUP_FIGURES_MAX: usize = 16;
/// Maximum size of the distinct words of a record in a text index, in bytes; each adds [`TEXT_WORD_BYTES`] to its own. Some 65,000 words.
pub const TEXT_INDEX_BYTES_MAX: usize = 3 * 1024 * 1024;
/// The number of bytes that a word takes in a text index in addition to its own.
pub const TEXT_WORD_BYTES: usize = 40;
/// Maximum size of the document of a record, in bytes of BSON.
pub const RECORD_BYTES_MAX: usize = 15 * 1024 * 1024;
/// Maximum number of record changes in one batch.
pub const RECORD_CHANGES_MAX: usize = 10_000;
/// Maximum size of a batch of record changes: the sum of its documents in bytes of BSON.
pub const RECORD_CHANGES_BYTES_MAX: usize = 4 * RECORD_BYTES_MAX;
/// Maximum size of the body of a batch of record changes, in bytes: its documents and the text around them.
pub const RECORD_CHANGES_BODY_BYTES_MAX: usize = RECORD_CHANGES_BYTES_MAX + 4 * 1024 * 1024;
/// Maximum length of the reason of an act, in bytes of UTF-8. A longer reason of a failure is stored up to this length.
pub const REASON_BYTES_MAX: usize = 4 * 1024;
/// Minimum number of the newest record changes that are kept.
pub const CHANGES_KEPT_MIN: u64 = 100_000;
/// Maximum size of the payload of a work queue's item, in bytes of JSON.
pub const QUEUE_PAYLOAD_BYTES_MAX: usize = 256 * 1024;
