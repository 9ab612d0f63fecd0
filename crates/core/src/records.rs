//! The port of records: the contract every backend keeps.

mod change;
mod collection;
mod error;
mod explain;
mod follower;
mod group;
mod hash;
mod index;
mod projection;
mod query;
mod set;
mod system;
mod typed;

use async_trait::async_trait;
use bson::Bson;
use bson::raw::RawDocumentBuf;

use crate::Condition;

pub(crate) use change::readable_value;
pub use change::{Expected, RecordChange, valid_changes, valid_document};
pub use collection::{Collection, index_path};
pub use error::{ChangesError, RecordError};
pub use explain::Explained;
pub use follower::ChangeFollower;
pub use group::{Aggregation, Every, Figure, Group, GroupPage, GroupQuery, Grouping, decimals_not_summed};
pub use hash::RecordsHash;
pub use index::{HashedIndex, Index, IndexForm, OrderedIndex, TextIndex, TextLanguage};
pub use projection::Projection;
pub use query::{Cursor, RecordPage, RecordQuery, SortBy};
pub use set::with_fields;
pub use system::{SYSTEM_COLLECTIONS, is_secret_collection, is_system_collection};
pub use typed::{RecordType, Stored, TypedRecords};

/// The number of a change in the feed of its collection, from 1. Numbers ascend and may have gaps. Numbers of two collections are
/// unrelated.
pub type ChangeNumber = u64;

/// The write that a record is of. Each write of a record gives it a greater revision than it had. Two writes of one `_id` have different
/// revisions, also if the record was deleted and inserted again in between. Revisions of two records are unrelated. A record that other
/// software wrote has revision 0.
pub type Revision = u64;

/// The records of one tenant: documents in collections, found by [`Condition`]s and changed by compare-and-set.
///
/// ```text
///   collection "sagas"                                          its feed, if it asks for one
///  ┌──────────┬──────────┬──────────────────────────────┐      ┌─────────────────────────┐
///  │ _id      │ revision │ document                     │      │ 1  inserted  s-1        │
///  ├──────────┼──────────┼──────────────────────────────┤      │ 2  inserted  s-2        │
///  │ "s-1"    │        9 │ {_id, state: "done", …}      │ ◀──  │ 3  replaced  s-1        │
///  │ "s-2"    │        7 │ {_id, state: "open", …}      │      │ …                       │
///  └──────────┴──────────┴──────────────────────────────┘      └─────────────────────────┘
///   indexes: state_1, unique owner_1, …                          a follower resumes after the last number it saw
/// ```
///
/// A document has an `_id` of any type but array, regular expression and undefined; two ids are the same when they compare as equal
/// (`1` and `1.0` are). Documents are at most [`RECORD_BYTES_MAX`](crate::limits::RECORD_BYTES_MAX) as BSON, and nested no deeper than
/// event data.
///
/// An implementation MUST keep these promises; the conformance suite tests each.
///
/// - **Atomic.** A [`write`](Self::write) of several changes, in any collections, is visible whole or not at all. Each change sees those
///   before it in the batch. When one is refused, all are.
/// - **One winner.** A change happens only if the record is as it [`Expected`] at that moment; of two that expect the same revision, one
///   succeeds.
/// - **Checked.** A batch with a [`RecordChange::Check`] happens at a moment at which the checked record is as expected. Two batches of
///   which each checks what the other changes therefore never happen both as if neither had (no write skew), in one process or in many.
/// - **Fields.** A [`RecordChange::Set`] changes the fields that it names and leaves the others as they are, also those that other software
///   wrote. Its paths lead through documents only.
/// - **Durable.** Whatever a caller was told (success, refusal, a record, a count, a change) survives kill -9 and power loss.
/// - **Current.** A read that begins after a write was answered sees it. A page is one moment of the collection; the next page is
///   another: a record that does not change in between is returned exactly once, one whose sort key changes may be missed or returned
///   again.
/// - **Order.** [`find`](Self::find) sorts as MongoDB does: by the lowest element of an array going up and the highest going down,
///   missing fields as null. Records that are equal stand in the order of their `_id`, in the direction of the last sort field; without
///   a sort, by `_id` going up.
/// - **Time.** Windows of time in the condition of a query are those of the store's clock, with the days of UTC where they name no zone;
///   each page is asked anew. Conditions of changes and of indexes have none.
/// - **Indexes change no answer**, only how fast it comes: without one that fits, a collection is read as a whole. An index holds one
///   entry for each different element of an array on its path; a document with two different arrays on the paths of one index is refused
///   (`invalid_record`), and cannot be sorted by both.
/// - **Text** indexes are of words: [`Condition::Match`] finds a document that has, in texts in the index's fields, one of the words that
///   it looks for, all of its phrases and nothing that it does not want ([`TextSearch`](crate::TextSearch)). A collection has one at
///   most, and without one the condition is refused (`no_text_index`). A record of too many words is refused (`invalid_record`).
/// - **Unique** indexes refuse a second record with the same entry (`duplicate_key`, naming index and key). A missing field counts as
///   null; a sparse index has no entry for records that have none of its fields, a partial one none for records that its condition does
///   not admit.
/// - **Expiring** indexes delete a record some time after its date (the lowest, in an array) lies far enough in the past: within minutes,
///   never before. Code that decides compares the date with the [`Clock`](crate::Clock) itself; absence proves nothing, presence
///   neither.
/// - **Groups** are of records that have equal values at a path, which leads through documents only: where it meets an array on the way, or
///   where there is no field, the value is null. A page of groups is one moment of the collection, and takes memory for one page.
/// - **Changes** of a collection that is declared [`with_feed`](Collection::with_feed) are everything that happened to it since then, once
///   each, in order, deletions by expiry included. At least the last [`CHANGES_KEPT_MIN`](crate::limits::CHANGES_KEPT_MIN) of each feed are
///   kept; a reader that is further behind gets an error and reads the collection again. A collection without a feed pays nothing for the
///   feeds of others.
///
/// The number of a change belongs to one collection, store and incarnation. Dropping the future of a write does not undo it: it may or
/// may not happen, whole.
#[async_trait]
pub trait Records: Send + Sync + 'static {
    /// Declares a collection, which makes it usable: creates what is missing, and fills new indexes from the records that are there.
    /// Declaring the same again does nothing. Indexes that are there and not declared stay, and are kept up to date.
    ///
    /// # Errors
    /// [`RecordError::IndexConflict`] when an index of a declared name is something else; [`RecordError::DuplicateKey`] when records
    /// that are there break a new unique index; nothing is changed then. Otherwise see [`RecordError`].
    async fn declare(&self, collection: Collection) -> Result<(), RecordError>;

    /// The declared collections, in the order of their names, each with its indexes in the order in which they were made.
    ///
    /// # Errors
    /// See [`RecordError`].
    async fn collections(&self) -> Result<Vec<Collection>, RecordError>;

    /// Applies changes, all or none, and returns once they are durable. Returns for each change the revision that it gave to its record;
    /// for a deletion, a revision above that of the deleted record, or 0 if there was nothing to delete; for a check, the revision of the
    /// record, or 0 if it is absent.
    ///
    /// # Errors
    /// See [`RecordError`]. After [`StoreError::Failed`](crate::StoreError::Failed) the outcome is unknown until the store is opened
    /// again.
    async fn write(&self, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError>;

    /// The record of this id.
    ///
    /// # Errors
    /// See [`RecordError`].
    async fn get(&self, collection: &str, id: &Bson) -> Result<Option<Record>, RecordError>;

    /// A page of the records that a condition means.
    ///
    /// # Errors
    /// See [`RecordError`].
    async fn find(&self, query: RecordQuery) -> Result<RecordPage, RecordError>;

    /// Reads a page of a query, and says how it was found instead of what.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    async fn explain(&self, query: RecordQuery) -> Result<Explained, RecordError>;

    /// How many records a condition means.
    ///
    /// # Errors
    /// See [`RecordError`].
    async fn count(&self, collection: &str, condition: &Condition) -> Result<u64, RecordError>;

    /// Counts the records that match a condition, at most so many: what it costs is bounded where many match.
    ///
    /// # Errors
    /// See [`RecordError`].
    async fn count_up_to(&self, collection: &str, condition: &Condition, at_most: u64) -> Result<u64, RecordError> {
        Ok(self.count(collection, condition).await?.min(at_most))
    }

    /// Returns one page of the groups of the records that match a condition, in the order of their keys.
    ///
    /// # Errors
    /// `invalid_query` also for sums and averages over a Decimal128. Otherwise see [`RecordError`].
    async fn group(&self, query: GroupQuery) -> Result<GroupPage, RecordError>;

    /// Changes of a collection with a number above `after`, oldest first, at most `limit`; none when there are no more yet.
    ///
    /// # Errors
    /// [`ChangesError::NoFeed`] when the collection has no feed; [`ChangesError::Gone`] when the change after `after` is not kept any
    /// more. Otherwise see [`ChangesError`].
    async fn changes(
        &self,
        collection: &str,
        after: ChangeNumber,
        limit: usize,
    ) -> Result<Vec<RecordedChange>, ChangesError>;

    /// The number of the newest change of a collection; 0 when there was none. A follower that begins here misses nothing that comes.
    ///
    /// # Errors
    /// See [`ChangesError`].
    async fn last_change(&self, collection: &str) -> Result<ChangeNumber, ChangesError>;

    /// Waits until there is a change of a collection with a number above `after`, and returns the newest one's. Cancelling is always safe.
    ///
    /// # Errors
    /// See [`ChangesError`]; [`StoreError::Closed`](crate::StoreError::Closed) when the store closes while waiting.
    async fn wait_past_change(&self, collection: &str, after: ChangeNumber) -> Result<ChangeNumber, ChangesError>;

    /// Inserts a record that is not there yet.
    ///
    /// # Errors
    /// [`RecordError::DuplicateKey`] with the index `_id_` when it is there. Otherwise as [`write`](Self::write).
    async fn insert(&self, collection: &str, document: RawDocumentBuf) -> Result<Revision, RecordError> {
        only(self.write(vec![RecordChange::insert(collection, document)]).await?)
    }

    /// Replaces the record that has the document's `_id`, if it is as expected.
    ///
    /// # Errors
    /// [`RecordError::NotAsExpected`] when it is not. Otherwise as [`write`](Self::write).
    async fn replace_if(
        &self,
        collection: &str,
        document: RawDocumentBuf,
        expected: Expected,
    ) -> Result<Revision, RecordError> {
        only(self.write(vec![RecordChange::replace_if(collection, document, expected)]).await?)
    }

    /// Deletes a record, if it is as expected.
    ///
    /// # Errors
    /// [`RecordError::NotAsExpected`] when it is not. Otherwise as [`write`](Self::write).
    async fn delete_if(&self, collection: &str, id: Bson, expected: Expected) -> Result<Revision, RecordError> {
        only(self.write(vec![RecordChange::delete_if(collection, id, expected)]).await?)
    }
}

/// Wakes code that waits for a record without following a feed.
#[async_trait]
pub trait RecordWrites: Send + Sync + 'static {
    /// Waits until records of the tenant may have been written since an earlier call returned `seen`, and returns the value for the next
    /// call. Without `seen`, returns at once.
    ///
    /// This is a wake-up and nothing more: read the record to decide, and call again with the value that was returned before the read. So
    /// no write is missed. A write of this process ends the wait at once; one of another process ends it within about a second, at which
    /// it ends without any write as well if other processes may write. Cancelling is always safe.
    ///
    /// # Errors
    /// [`StoreError::Closed`](crate::StoreError::Closed) when the store closes.
    async fn wait(&self, seen: Option<u64>) -> Result<u64, crate::StoreError>;
}

fn only(revisions: Vec<Revision>) -> Result<Revision, RecordError> {
    let failed = || crate::StoreError::Failed("a change was answered without a revision".to_owned()).into();
    revisions.first().copied().ok_or_else(failed)
}

/// A document as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The document, as far as the query's projection wanted it.
    pub document: RawDocumentBuf,
    /// Which write it is of.
    pub revision: Revision,
}

/// What happened to a record. The document itself is read with [`Records::get`]; it may have changed again since.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedChange {
    /// Its number.
    pub number: ChangeNumber,
    /// The record's collection.
    pub collection: String,
    /// The record's `_id`.
    pub id: Bson,
    /// What happened.
    pub what: ChangeKind,
}

/// What can happen to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// It was not there before.
    Inserted,
    /// It was there before.
    Replaced,
    /// It is not there any more.
    Deleted,
}
