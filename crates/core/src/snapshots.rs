//! The port of snapshots: the state of each aggregate at a version, so that it need not be made of all its events again.

mod document;
mod in_records;
mod reached;

use async_trait::async_trait;
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
    /// What is known about the aggregate at that version.
    pub info: AggregateInfo,
    /// Its state, as JSON would show it.
    pub state: Data,
    /// Which state it is, see [`AggregateType::STATE_REVISION`].
    pub state_revision: u32,
    /// When it was made; when it is saved, where nobody says.
    pub time: Option<Timestamp>,
}

impl Snapshot {
    /// A snapshot of an aggregate about which nothing else is known.
    pub fn new(aggregate: Aggregate, version: Version, state: Data) -> Self {
        let info = AggregateInfo { version, ..AggregateInfo::new(aggregate) };
        Self { info, state, state_revision: 1, time: None }
    }

    /// The snapshot of an aggregate as it is.
    ///
    /// # Errors
    /// `invalid_data` or `invalid_integer` when the state cannot be stored.
    pub fn of<A: AggregateType>(loaded: &Loaded<A>) -> Result<Self, Invalid> {
        let invalid = |message: String| Invalid::new(Code::InvalidData, "state", message);
        let text = serde_json::to_string(&loaded.state).map_err(|error| invalid(error.to_string()))?;
        let state = Data::read_json(&text).map_err(|wrong| Invalid::new(wrong.code, "state", wrong.message))?;
        Ok(Self { info: loaded.info.clone(), state, state_revision: A::STATE_REVISION, time: None })
    }

    /// The aggregate as it was; none when the state is of another type or revision.
    pub fn loaded<A: AggregateType>(&self) -> Option<Loaded<A>> {
        if self.state_revision != A::STATE_REVISION || *self.info.aggregate.name != *A::NAME {
            return None;
        }
        Some(Loaded { state: self.state.decode().ok()?, info: self.info.clone() })
    }

    /// Checks everything that needs no store.
    ///
    /// # Errors
    /// The first rule that is broken, with its path.
    pub fn validate(&self) -> Result<(), Invalid> {
        snapshot_collection(&self.info.aggregate.name)?;
        self.info.aggregate.validate()?;
        if i32::try_from(self.info.version).is_err() {
            let message = format!("{} is more than {}, the last that a snapshot can have", self.info.version, i32::MAX);
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

/// The snapshots of one tenant: one for each aggregate, the newest that was saved.
///
/// They are kept in the layout of Wow's Mongo extension, in a collection `{name}_snapshot` for the aggregates of a name:
///
/// ```text
/// _id (the aggregate's id), contextName, aggregateName, tenantId, ownerId, spaceId, version int32, eventId, firstOperator, operator,
/// firstEventTime int64, eventTime int64, state{}, snapshotTime int64, tags{key: [text]}, deleted, (annals{stateRevision})
/// ```
///
/// An implementation MUST keep these promises; the conformance suite tests each.
///
/// - **Monotonic.** A snapshot of a lower version never takes the place of one of a higher, however many are saved at once; one of the same
///   version does, whole. What is there and has no version that can be read is replaced.
/// - **Durable.** What was answered survives `kill -9` and power loss.
/// - **A copy of what the log says.** Losing a snapshot loses nothing but time. Whoever loads one of a version that the log has not
///   reached, or of a state that cannot be read, makes the state of the events again.
#[async_trait]
pub trait Snapshots: Send + Sync + 'static {
    /// Makes ready what the aggregates of this name need: the collection with its indexes, and these beside them.
    ///
    /// # Errors
    /// As [`Records::declare`](crate::Records::declare); `invalid_name` for a name that is too long to have snapshots.
    async fn declare(&self, name: &str, indexes: Vec<Index>) -> Result<(), RecordError>;

    /// Saves a snapshot unless there is one of a higher version; then it answers false, and nothing is changed.
    ///
    /// The caller vouches that the log has reached the snapshot's version. A snapshot that comes from elsewhere is saved by
    /// [`save_snapshot`], which checks it.
    ///
    /// # Errors
    /// See [`RecordError`].
    async fn save(&self, snapshot: &Snapshot) -> Result<bool, RecordError>;

    /// The snapshot of an aggregate; none where there is none, or what is there is none.
    ///
    /// # Errors
    /// See [`RecordError`].
    async fn load(&self, aggregate: &Aggregate) -> Result<Option<Snapshot>, RecordError>;

    /// The version of an aggregate's snapshot; 0 where there is none.
    ///
    /// # Errors
    /// See [`RecordError`].
    async fn version(&self, aggregate: &Aggregate) -> Result<Version, RecordError> {
        Ok(self.load(aggregate).await?.map_or(0, |snapshot| snapshot.info.version))
    }

    /// Waits until the snapshot of an aggregate is of this version or of a later one, for as long as that takes.
    ///
    /// # Errors
    /// See [`RecordError`]; it also ends with [`StoreError::Closed`](crate::StoreError::Closed) when the store closes meanwhile.
    async fn until(&self, aggregate: &Aggregate, version: Version) -> Result<(), RecordError>;

    /// Deletes the snapshot of an aggregate, if it has this version where one is given. False where there was none.
    ///
    /// # Errors
    /// See [`RecordError`].
    async fn delete(&self, aggregate: &Aggregate, version: Option<Version>) -> Result<bool, RecordError>;
}
