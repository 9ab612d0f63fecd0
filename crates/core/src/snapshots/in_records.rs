//! Snapshots as records. A condition on the stored version makes saving monotonic.

use std::sync::Arc;

use async_trait::async_trait;
use bson::Bson;
use bytestring::ByteString;

use super::{Snapshot, Snapshots, document};
use crate::{
    Aggregate, Clock, Code, Collection, Condition, Expected, Index, Invalid, RecordError, RecordWrites, Records,
    Version, index_path, valid_name,
};

/// Returns the name of the collection that holds the snapshots of the aggregates of this name.
///
/// # Errors
/// `invalid_name`; the name must leave room for the suffix.
pub fn snapshot_collection(name: &str) -> Result<String, Invalid> {
    valid_name("aggregate.name", name)?;
    let collection = format!("{name}_snapshot");
    if !Collection::can_be_called(&collection) {
        let message = format!("{name:?} is too long for an aggregate with snapshots; use at most 91 bytes");
        return Err(Invalid::new(Code::InvalidName, "aggregate.name", message));
    }
    Ok(collection)
}

/// Returns Wow's indexes of every snapshot collection, in the order in which Wow creates them.
fn of_layout() -> [Index; 4] {
    ["tenantId", "ownerId", "_id", "deleted"].map(|path| Index::hashed(path).into())
}

/// Returns the declaration of additional indexes on the snapshots of aggregates of this name.
///
/// # Errors
/// `invalid_name`; `invalid_collection` for indexes that no collection can have, for a name that the layout gives to another index, and
/// for a path that no snapshot has.
pub fn snapshot_indexes(name: &str, indexes: Vec<Index>) -> Result<Collection, Invalid> {
    let declared = Collection { name: snapshot_collection(name)?, indexes, feed: false };
    declared.validate()?;
    for (n, index) in declared.indexes.iter().enumerate() {
        let invalid = |message: String| Err(Invalid::new(Code::InvalidCollection, index_path(n), message));
        let root = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
        if let Some((path, _)) = index.fields().iter().find(|(path, _)| !document::FIELDS.contains(&&*root(path))) {
            return invalid(format!(
                "is on {path:?}, which no snapshot has; name a field of the state as state.{path}, and the aggregate's id as _id"
            ));
        }
        if of_layout().iter().any(|own| own.name() == index.name() && own != index) {
            return invalid(format!(
                "{:?} is the name of an index of the layout; give the index another name",
                index.name()
            ));
        }
    }
    Ok(declared)
}

/// The snapshots of a tenant, as records.
pub struct RecordSnapshots {
    records: Arc<dyn Records>,
    writes: Arc<dyn RecordWrites>,
    context: ByteString,
    clock: Arc<dyn Clock>,
}

impl RecordSnapshots {
    /// Creates the port over these records. `context` is their owner, Wow's bounded context.
    pub fn new<R: Records + RecordWrites>(
        records: Arc<R>,
        context: impl Into<ByteString>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { records: records.clone(), writes: records, context: context.into(), clock }
    }
}

#[async_trait]
impl Snapshots for RecordSnapshots {
    async fn declare(&self, name: &str, indexes: Vec<Index>) -> Result<(), RecordError> {
        let Collection { name, indexes, feed } = snapshot_indexes(name, indexes)?;
        let beside = indexes.into_iter().filter(|index| !of_layout().contains(index));
        let indexes = of_layout().into_iter().chain(beside).collect();
        self.records.declare(Collection { name, indexes, feed }).await
    }

    async fn save(&self, snapshot: &Snapshot) -> Result<bool, RecordError> {
        snapshot.validate()?;
        let name = &snapshot.info.aggregate.name;
        let collection = snapshot_collection(name)?;
        let document = document::write(snapshot, &self.context, self.clock.now());
        let version = Bson::Int64(snapshot.info.version.cast_signed());
        // A version that is not a number is not greater than one, so such a document is replaced.
        let not_higher = || Expected::AbsentOr(Condition::nor([Condition::gt("version", version.clone())]));
        let mut saved = self.records.replace_if(&collection, document.clone(), not_higher()).await;
        if let Err(RecordError::UnknownCollection(_)) = saved {
            self.declare(name, Vec::new()).await?;
            saved = self.records.replace_if(&collection, document, not_higher()).await;
        }
        match saved {
            Ok(_) => Ok(true),
            Err(RecordError::NotAsExpected { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn load(&self, aggregate: &Aggregate) -> Result<Option<Snapshot>, RecordError> {
        aggregate.validate()?;
        let id = Bson::from(&*aggregate.id);
        match self.records.get(&snapshot_collection(&aggregate.name)?, &id).await {
            Ok(found) => Ok(found.and_then(|found| document::read(aggregate, &found.document))),
            Err(RecordError::UnknownCollection(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn until(&self, aggregate: &Aggregate, version: Version) -> Result<(), RecordError> {
        let mut seen = None;
        loop {
            // Wait before checking: a snapshot that is saved after the check then counts as a later write.
            seen = Some(self.writes.wait(seen).await?);
            if self.version(aggregate).await? >= version {
                return Ok(());
            }
        }
    }

    async fn delete(&self, aggregate: &Aggregate, version: Option<Version>) -> Result<bool, RecordError> {
        aggregate.validate()?;
        let expected = version.map_or(Expected::Present, |version| {
            Expected::Matching(Condition::eq("version", Bson::Int64(version.try_into().unwrap_or(i64::MAX))))
        });
        let id = Bson::from(&*aggregate.id);
        match self.records.delete_if(&snapshot_collection(&aggregate.name)?, id, expected).await {
            Ok(_) => Ok(true),
            Err(RecordError::UnknownCollection(_) | RecordError::NotAsExpected { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_of_snapshots_is_on_what_snapshots_have() {
        let declared = |indexes: Vec<Index>| snapshot_indexes("order", indexes);
        let good =
            vec![Index::on("state.status").into(), Index::on("snapshotTime").into(), Index::hashed("tenantId").into()];
        assert_eq!(declared(good.clone()).expect("they are of snapshots").indexes, good);
        let wrong: [(Index, &str); 5] = [
            (Index::on("status").into(), "state.status"),
            (Index::on("aggregateId").into(), "as _id"),
            (Index::text(["title"]).into(), "no snapshot has"),
            (Index::on("version").named("deleted_hashed").into(), "another name"),
            (Index::ordered([]).into(), "name 1 to 32"),
        ];
        for (wrong, sentence) in wrong {
            let error = declared(vec![Index::on("state.a").into(), wrong]).expect_err(sentence);
            assert_eq!((error.code, &*error.path), (Code::InvalidCollection, "indexes[1]"));
            assert!(error.message.contains(sentence), "{error}");
        }
    }
}
