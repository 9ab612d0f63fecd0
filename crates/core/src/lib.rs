//! The vocabulary of Annals: types, limits, errors and ports. It is a separate crate so that an adapter, a client or a test can use it
//! without depending on a disk, a network or an async runtime: nothing here does I/O, reads a clock or generates random numbers.
//!
//! Start with [`EventLog`]: its documentation is the contract that every backend keeps.

mod aggregate;
mod append_condition;
pub mod archive;
pub mod audit;
mod broker;
pub mod browse;
mod commit;
mod condition;
pub mod consuming;
mod copy;
pub mod credentials;
mod data;
pub mod dead_letters;
pub mod doctor;
mod error;
mod event_document;
mod event_log;
mod event_ref;
mod events_hash;
mod fields;
pub mod filters;
pub mod groups;
pub mod handlers;
pub mod horizon;
pub mod json;
mod keys;
mod lease;
pub mod limits;
mod metadata;
pub mod names;
pub mod order;
pub mod partners;
mod prepare;
pub mod processing;
pub mod projections;
mod queries;
mod query;
pub mod queue;
mod receiving;
mod recorded;
mod records;
pub mod relay;
pub mod replays;
pub mod sagas;
mod sequencing;
mod snapshots;
pub mod spread;
mod stats;
mod store;
mod stream_definitions;
mod streams;
mod syncs;
pub mod testing;
mod text;
mod time;
mod topics;
pub mod trace;
mod transaction;
pub mod types;
mod wait;
pub mod wire;

pub use aggregate::{
    AggregateInfo, AggregateType, Effect, EvolveError, Known, Loaded, OPERATOR_HEADER, StoredEvent, Tags, Upcasters,
    known_event,
};
pub use append_condition::{AppendCondition, EventPattern};
pub use broker::{
    Assigned, Broker, BrokerError, Content, Fork, GroupMember, GroupOffset, GroupStart, GroupStep, GroupSubscription,
    Message, MessagePage, NewMessage, PartitionOffset, Publisher, PublisherIdentity, ReadMessages, RelayPosition,
    TopicPartition, TopicState,
};
pub use commit::{Aggregate, CommitOutcome, ExpectedVersion, NewCommit, NewEvent, valid_id, valid_name};
pub use condition::{
    Condition, Days, Deletion, DocumentKind, Fragment, Matcher, Nested, Now, QueryGuard, Test, TimeOfDay, Window,
};
pub use copy::CommitCopy;
pub use data::{Data, DocumentView, InvalidData};
pub use error::{Code, CommitError, Invalid, ReadError, StoreError};
pub use event_document::event_document;
pub use event_log::{EventLog, Follower, Visit};
pub use event_ref::{CommitRef, EventRef};
pub use events_hash::EventsHash;
pub use keys::{KeyChanges, KeyHolder, KeyValue, Release, Reserve};
pub use lease::Lease;
pub use metadata::Metadata;
pub use prepare::{
    FoundKey, KeyChange, KeyError, KeyPage, KeyState, KeysQuery, ListedKey, PrepareKey, PrepareKeys, Prepared,
    valid_key,
};
pub use queries::{
    Answered, DocumentQueries, DocumentQuery, DocumentReads, EventStreamQueryService, MaterializedSnapshot, Paged,
    Pagination, QueriedCommit, QueriedEvent, Queries, QuerySource, SnapshotQueryService, StoreDocuments, StoredQuery,
};
pub use query::{
    AggregateCommits, AggregateFilter, AggregateIdsQuery, AggregateNamesQuery, AggregateQuery, Filter, KnownAggregate,
    LogPage, LogQuery, ScanQuery,
};
pub use receiving::{
    IncomingEvent, ReceiveError, Received, ReceivedBatch, ReceivedFrom, Receiving, Subscription, SubscriptionState,
};
pub use recorded::{CommitInfo, RecordedCommit, RecordedEvent, TransactionPlace};
pub use records::{
    Aggregation, ChangeFollower, ChangeKind, ChangeNumber, ChangesError, Collection, Cursor, Every, Expected,
    Explained, Figure, Group, GroupPage, GroupQuery, Grouping, HashedIndex, Index, IndexForm, OrderedIndex, Projection,
    Record, RecordChange, RecordError, RecordPage, RecordQuery, RecordType, RecordWrites, RecordedChange, Records,
    RecordsHash, Revision, SYSTEM_COLLECTIONS, SortBy, Stored, TextIndex, TextLanguage, TypedRecords,
    decimals_not_summed, index_path, is_secret_collection, is_system_collection, valid_changes, valid_document,
    with_fields,
};
pub use sequencing::{
    Ask, Asked, HeldCommit, HeldId, Leader, MissingDocument, SequencerState, SequencerStatus, Sequencing,
};
pub use snapshots::{RecordSnapshots, Snapshot, Snapshots, save_snapshot, snapshot_collection, snapshot_indexes};
pub use stats::LogStats;
pub use store::{Backup, Identity, LogStatus, OpenError, Store, UnknownLog};
pub use stream_definitions::{STREAM_DEFINITIONS, StreamDefinition, StreamDefinitions};
pub use streams::{
    Appended, Included, Partitions, StreamEntry, StreamError, StreamEvent, StreamEvents, StreamFollower, StreamInfo,
    StreamPage, StreamPosition, StreamQuery, Streams, StreamsQuery, Verdicts,
};
pub use syncs::{SYNC_BUCKETS, SyncCounter, SyncTimes};
pub use text::{TextSearch, has_own_text_entry, have_same_texts, no_text_index, text_entries, text_entry};
pub use time::{Clock, Randomness, Sleep, Timestamp, event_uuid, new_uuid};
pub use topics::{
    CategoryNumbers, DEFAULT_CATEGORY, TOPICS, TopicDefinition, TopicDifference, TopicGroup, TopicPage, TopicRecord,
    TopicSettings, TopicStatus, Topics, partition_of, separate_tenants,
};
pub use transaction::{Expectation, NewTransaction, TransactionError};
pub use wait::{Reached, Wait};

pub use bson;
pub use bytestring::ByteString;
pub use uuid::Uuid;

/// A position in the event log of one tenant and scope: 0-based, without gaps.
pub type SequenceNumber = u64;
/// The number of commits of an aggregate: its first commit makes it 1; 0 means that it has none.
pub type Version = u64;

/// The scope that is used when none is named.
pub const DEFAULT_SCOPE: &str = "default";
/// The tenant that is used when none is named.
pub const DEFAULT_TENANT: &str = "default";
/// The `tenant_id` of an aggregate that names none.
pub const DEFAULT_TENANT_ID: &str = "(0)";
