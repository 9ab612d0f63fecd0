//! The port of records: the contract that every backend keeps.

mod change;
mod collection;
pub(crate) mod decode;
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

/// The number of a change in the feed of its collection, from 1. Numbers ascend and may have gaps. The numbers of different collections
/// are unrelated.
pub type ChangeNumber = u64;

/// Identifies the write that produced a record. Each write of a record gives it a greater revision. Two writes of one `_id` have different
/// revisions, even if the record was deleted and inserted again in between. Revisions of different records are unrelated. A record that
/// other software wrote has revision 0.
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
/// A document has an `_id` of any type but array, regular expression and undefined. Two ids are the same if they compare as equal (`1` and
/// `1.0` are). A document has at most [`RECORD_BYTES_MAX`](crate::limits::RECORD_BYTES_MAX) bytes as BSON, and is nested no deeper than
/// event data.
///
/// An implementation MUST keep these guarantees; the conformance suite tests each of them.
///
/// - **Atomic.** A [`write`](Self::write) of several changes, in any collections, is visible completely or not at all. Each change sees
///   those before it in the batch. If one is refused, all are.
/// - **One winner.** A change happens only if the record is as [`Expected`] at that moment; of two changes that expect the same revision,
///   one succeeds.
/// - **Checked.** A batch with a [`RecordChange::Check`] takes effect at a moment at which the checked record is as expected. If each of
///   two batches checks a record that the other changes, they never both succeed as if the other had not (no write skew). This holds
///   within one process and across many.
/// - **Fields.** A [`RecordChange::Set`] changes the fields that it names and leaves all others as they are, including those that other
///   software wrote. Its paths lead through documents only.
/// - **Durable.** Whatever a caller was told (success, refusal, a record, a count, a change) survives kill -9 and power loss.
/// - **Current.** A read that begins after a write was acknowledged sees that write. Each page shows one moment of the collection, and the
///   next page shows another. A record that does not change in between is returned exactly once; one whose sort key changes may be missed
///   or returned again.
/// - **Order.** [`find`](Self::find) sorts as MongoDB does: an array sorts by its lowest element when ascending and by its highest when
///   descending, and a missing field sorts as null. Records that compare as equal are sorted by `_id`, in the direction of the last sort
///   field. Without a sort, records are sorted by `_id`, ascending.
/// - **Time.** Windows of time in the condition of a query refer to the store's clock, with days in UTC unless the window names a zone;
///   they are resolved again for each page. Conditions of changes and of indexes have no windows.
/// - **Indexes never change a result**, only how fast it is found: without a suitable one, the whole collection is scanned. An index holds
///   one entry for each distinct element of an array on its path. A document with two different arrays on the paths of one index is
///   refused (`invalid_record`), and cannot be sorted by both.
/// - **Text** indexes cover words. [`Condition::Match`] finds a document whose texts in the index's fields contain one of the words
///   searched for, all of the phrases, and none of the excluded words and phrases ([`TextSearch`](crate::TextSearch)). A collection has at
///   most one text index; without one, the condition is refused (`no_text_index`). A record with too many words is refused
///   (`invalid_record`).
/// - **Unique** indexes refuse a second record with the same entry (`duplicate_key`, naming index and key). A missing field counts as
///   null. A sparse index has no entry for records that have none of its fields; a partial index has none for records that do not match
///   its condition.
/// - **Expiring** indexes delete a record once its date (the lowest, in an array) is long enough ago: within minutes, and never earlier.
///   Code that decides by the date compares it with the [`Clock`](crate::Clock) itself; neither the absence nor the presence of the record
///   proves anything.
/// - **Groups** consist of records that have equal values at a path. The path leads through documents only: if it meets an array on the
///   way, or there is no field, the value is null. A page of groups shows one moment of the collection, and needs memory for one page.
/// - **Changes** of a collection that is declared [`with_feed`](Collection::with_feed) are everything that has happened to it since then,
///   once each, in order, including deletions by expiry. At least the last [`CHANGES_KEPT_MIN`](crate::limits::CHANGES_KEPT_MIN) changes
///   of each feed are retained; a reader that is further behind gets an error and reads the collection again. A collection without a feed
///   pays nothing for the feeds of others.
///
/// The number of a change belongs to one collection, store and incarnation. Dropping the future of a write does not undo it: the write may
/// or may not happen, but never in part.
#[async_trait]
pub trait Records: Send + Sync + 'static {
    /// Declares a collection, which makes it usable: creates what is missing, and fills new indexes from the existing records. Declaring
    /// the same collection again does nothing. Existing indexes that are not declared stay and are kept up to date.
    ///
    /// # Errors
    /// [`RecordError::IndexConflict`] if an index of a declared name exists with another definition; [`RecordError::DuplicateKey`] if
    /// existing records violate a new unique index. In both cases nothing is changed. Otherwise see [`RecordError`].
    async fn declare(&self, collection: Collection) -> Result<(), RecordError>;

    /// Lists the declared collections in the order of their names, each with its indexes in the order of their creation.
    ///
    /// # Errors
    /// See [`RecordError`].
    async fn collections(&self) -> Result<Vec<Collection>, RecordError>;

    /// Applies changes, all or none, and returns once they are durable. Returns, for each change, the revision that it gave to its record.
    /// For a deletion, that is a revision above that of the deleted record, or 0 if there was nothing to delete. For a check, it is the
    /// revision of the record, or 0 if it is absent.
    ///
    /// # Errors
    /// See [`RecordError`]. After [`StoreError::Failed`](crate::StoreError::Failed) the outcome is unknown until the store is reopened.
    async fn write(&self, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError>;

    /// Returns the record with this id.
    ///
    /// # Errors
    /// See [`RecordError`].
    async fn get(&self, collection: &str, id: &Bson) -> Result<Option<Record>, RecordError>;

    /// Returns one page of the records that match a condition.
    ///
    /// # Errors
    /// See [`RecordError`].
    async fn find(&self, query: RecordQuery) -> Result<RecordPage, RecordError>;

    /// Reads one page of a query, and returns how its records were found instead of the records.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    async fn explain(&self, query: RecordQuery) -> Result<Explained, RecordError>;

    /// Counts the records that match a condition.
    ///
    /// # Errors
    /// See [`RecordError`].
    async fn count(&self, collection: &str, condition: &Condition) -> Result<u64, RecordError>;

    /// Counts the records that match a condition, up to a maximum, which bounds the cost if many match.
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

    /// Returns the changes of a collection with a number above `after`, oldest first, at most `limit`; none if there are no more yet.
    ///
    /// # Errors
    /// [`ChangesError::NoFeed`] if the collection has no feed; [`ChangesError::Gone`] if the change that follows `after` is no longer
    /// retained. Otherwise see [`ChangesError`].
    async fn changes(
        &self,
        collection: &str,
        after: ChangeNumber,
        limit: usize,
    ) -> Result<Vec<RecordedChange>, ChangesError>;

    /// Returns the number of the newest change of a collection, or 0 if there is none. A follower that starts here misses no later change.
    ///
    /// # Errors
    /// See [`ChangesError`].
    async fn last_change(&self, collection: &str) -> Result<ChangeNumber, ChangesError>;

    /// Waits until a collection has a change with a number above `after`, and returns the number of its newest change. Cancelling is
    /// always safe.
    ///
    /// # Errors
    /// See [`ChangesError`]; [`StoreError::Closed`](crate::StoreError::Closed) if the store closes while waiting.
    async fn wait_past_change(&self, collection: &str, after: ChangeNumber) -> Result<ChangeNumber, ChangesError>;

    /// Inserts a record that does not exist yet.
    ///
    /// # Errors
    /// [`RecordError::DuplicateKey`] with the index `_id_` if it exists. Otherwise as [`write`](Self::write).
    async fn insert(&self, collection: &str, document: RawDocumentBuf) -> Result<Revision, RecordError> {
        only(self.write(vec![RecordChange::insert(collection, document)]).await?)
    }

    /// Replaces the record that has the document's `_id`, if it is as expected.
    ///
    /// # Errors
    /// [`RecordError::NotAsExpected`] if it is not. Otherwise as [`write`](Self::write).
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
    /// [`RecordError::NotAsExpected`] if it is not. Otherwise as [`write`](Self::write).
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
    /// This is only a wake-up: read the record to decide, then call again with the value that was returned before the read, so that no
    /// write is missed. A write of this process ends the wait at once, one of another process within about a second. If other processes
    /// may write, the wait also ends about once a second without any write. Cancelling is always safe.
    ///
    /// # Errors
    /// [`StoreError::Closed`](crate::StoreError::Closed) when the store closes.
    async fn wait(&self, seen: Option<u64>) -> Result<u64, crate::StoreError>;
}

fn only(revisions: Vec<Revision>) -> Result<Revision, RecordError> {
    let failed = || crate::StoreError::Failed("the response to a change has no revision".to_owned()).into();
    revisions.first().copied().ok_or_else(failed)
}

/// A stored document and its revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The document, reduced to the fields that the query's projection selects.
    pub document: RawDocumentBuf,
    /// The write that produced it.
    pub revision: Revision,
}

/// A change of a record. The document itself is read with [`Records::get`]; it may have changed again since.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedChange {
    /// Its number.
    pub number: ChangeNumber,
    /// The record's collection.
    pub collection: String,
    /// The record's `_id`.
    pub id: Bson,
    /// The kind of the change.
    pub what: ChangeKind,
}

/// The kinds of changes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// The record did not exist before.
    Inserted,
    /// The record existed before.
    Replaced,
    /// The record no longer exists.
    Deleted,
}
