//! The port of snapshots: the state of each aggregate at a version, so that loading it need not replay all its events.

mod document;
mod in_records;
mod reached;

use async_trait::async_trait;
use bson::RawDocument;
use bytestring::ByteString;

pub(crate) use document::{read as read_document, read_tags, tags as write_tags};
pub use in_records::{RecordSnapshots, snapshot_collection, snapshot_indexes};
pub use reached::save_snapshot;

use crate::{
    Aggregate, AggregateInfo, AggregateType, Code, Data, Index, Invalid, Loaded, RecordError, Timestamp, Version,
    valid_id,
};

/// The state of an aggregate at a version.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The metadata of the aggregate at that version.
    pub info: AggregateInfo,
    /// Its state, with the fields of its JSON form.
    pub state: Data,
    /// The revision of the state, see [`AggregateType::STATE_REVISION`].
    pub state_revision: u32,
    /// When it was taken; the time of saving if absent.
    pub time: Option<Timestamp>,
}

impl Snapshot {
    /// Creates a snapshot without further metadata.
    pub fn new(aggregate: Aggregate, version: Version, state: Data) -> Self {
        let info = AggregateInfo { version, ..AggregateInfo::new(aggregate) };
        Self { info, state, state_revision: 1, time: None }
    }

    /// Takes a snapshot of a loaded aggregate.
    ///
    /// # Errors
    /// `invalid_data` or `invalid_integer` if the state cannot be stored.
    pub fn of<A: AggregateType>(loaded: &Loaded<A>) -> Result<Self, Invalid> {
        let invalid = |message: String| Invalid::new(Code::InvalidData, "state", message);
        let text = serde_json::to_string(&loaded.state).map_err(|error| invalid(error.to_string()))?;
        let state = Data::read_json(&text).map_err(|wrong| Invalid::new(wrong.code, "state", wrong.message))?;
        Ok(Self { info: loaded.info.clone(), state, state_revision: A::STATE_REVISION, time: None })
    }

    /// Returns the aggregate; `None` if the state is of another type or revision.
    pub fn loaded<A: AggregateType>(&self) -> Option<Loaded<A>> {
        if self.state_revision != A::STATE_REVISION || *self.info.aggregate.name != *A::NAME {
            return None;
        }
        Some(Loaded { state: self.state.decode().ok()?, info: self.info.clone() })
    }

    /// Reads a stored document of the layout, whichever software saved it; `None` if it is not a snapshot.
    pub fn of_document(aggregate: &Aggregate, document: &RawDocument) -> Option<Self> {
        document::read(aggregate, document)
    }

    /// Checks every rule that needs no store.
    ///
    /// # Errors
    /// The first rule that is broken, with its path.
    pub fn validate(&self) -> Result<(), Invalid> {
        snapshot_collection(&self.info.aggregate.name)?;
        self.info.aggregate.validate()?;
        if i32::try_from(self.info.version).is_err() {
            let message = format!(
                "{} is more than {}, the highest version that a snapshot can have",
                self.info.version,
                i32::MAX
            );
            return Err(Invalid::new(Code::InvalidBody, "version", message));
        }
        valid_id("tenantId", &self.info.tenant_id)?;
        let texts: [(&str, &ByteString); 5] = [
            ("ownerId", &self.info.owner_id),
            ("spaceId", &self.info.space_id),
            ("eventId", &self.info.commit_id),
            ("firstOperator", &self.info.first_operator),
            ("operator", &self.info.operator),
        ];
        texts.iter().filter(|(_, text)| !text.is_empty()).try_for_each(|(path, text)| valid_id(path, text))
    }
}

/// The snapshots of one tenant: for each aggregate, the newest one that was saved.
///
/// They have the layout of Wow's Mongo extension, in one collection `{name}_snapshot` per aggregate name:
///
/// ```text
/// _id (the aggregate's id), contextName, aggregateName, tenantId, ownerId, spaceId, version int32, eventId, firstOperator, operator,
/// firstEventTime int64, eventTime int64, state{}, snapshotTime int64, tags{key: [text]}, deleted, (annals{stateRevision})
/// ```
///
/// An implementation MUST keep these guarantees; the conformance suite tests each of them.
///
/// - **Monotonic.** A snapshot never replaces one of a higher version, however many are saved concurrently. It replaces one of the same
///   version completely, and a document without a readable version.
/// - **Durable.** An acknowledged snapshot survives `kill -9` and power loss.
/// - **Derived from the log.** Losing a snapshot costs only time. A caller that loads one whose version the log has not reached, or whose
///   state cannot be read, rebuilds the state from the events.
#[async_trait]
pub trait Snapshots: Send + Sync + 'static {
    /// Declares the collection for the aggregates of this name, with the indexes of the layout and these.
    ///
    /// # Errors
    /// As [`Records::declare`](crate::Records::declare); `invalid_name` for a name that is too long to have snapshots.
    async fn declare(&self, name: &str, indexes: Vec<Index>) -> Result<(), RecordError>;

    /// Saves a snapshot. Returns false, and changes nothing, if the stored snapshot has a higher version.
    ///
    /// The caller ensures that the log has reached the snapshot's version. To save a snapshot from an outside source, use
    /// [`save_snapshot`], which checks that.
    ///
    /// # Errors
    /// See [`RecordError`].
    async fn save(&self, snapshot: &Snapshot) -> Result<bool, RecordError>;

    /// Returns the snapshot of an aggregate; `None` if there is none or it cannot be read.
    ///
    /// # Errors
    /// See [`RecordError`].
    async fn load(&self, aggregate: &Aggregate) -> Result<Option<Snapshot>, RecordError>;

    /// Returns the version of an aggregate's snapshot; 0 if there is none.
    ///
    /// # Errors
    /// See [`RecordError`].
    async fn version(&self, aggregate: &Aggregate) -> Result<Version, RecordError> {
        Ok(self.load(aggregate).await?.map_or(0, |snapshot| snapshot.info.version))
    }

    /// Waits, without a limit, until the snapshot of an aggregate has reached this version.
    ///
    /// # Errors
    /// See [`RecordError`]; also [`StoreError::Closed`](crate::StoreError::Closed) if the store closes while waiting.
    async fn until(&self, aggregate: &Aggregate, version: Version) -> Result<(), RecordError>;

    /// Deletes the snapshot of an aggregate; given a version, only one of that version. Returns false if there was none.
    ///
    /// # Errors
    /// See [`RecordError`].
    async fn delete(&self, aggregate: &Aggregate, version: Option<Version>) -> Result<bool, RecordError>;
}
