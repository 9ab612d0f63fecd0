//! The model as a port, so that the suite is tested before any backend is.

use std::sync::{Arc, Mutex, MutexGuard};

use annals_core::bson::Bson;
use annals_core::{
    ChangeNumber, ChangesError, Clock, Code, Collection, Condition, Cursor, DocumentKind, Expected, Explained,
    GroupPage, GroupQuery, Invalid, Now, Record, RecordChange, RecordError, RecordPage, RecordQuery, RecordWrites,
    RecordedChange, Records, Revision, StoreError, Timestamp, limits,
};
use async_trait::async_trait;
use tokio::sync::watch;

use super::RecordsModel;
use super::model::Place;

pub(crate) struct ReferenceRecords {
    pub model: Arc<Mutex<RecordsModel>>,
    pub clock: Arc<dyn Clock>,
    /// False once closed.
    pub open: watch::Sender<bool>,
}

impl ReferenceRecords {
    fn model(&self) -> Result<MutexGuard<'_, RecordsModel>, StoreError> {
        let model = self.model.lock().expect("unpoisoned");
        if *self.open.borrow() { Ok(model) } else { Err(StoreError::Closed) }
    }

    /// Deletes expired records before each access.
    fn expire(&self) -> Result<MutexGuard<'_, RecordsModel>, StoreError> {
        let mut model = self.model()?;
        for change in model.expired(self.clock.now()) {
            model.write(&[change]).expect("it is there");
        }
        Ok(model)
    }
}

impl RecordsModel {
    /// Returns the deletions that are due.
    fn expired(&self, now: Timestamp) -> Vec<RecordChange> {
        let mut due = Vec::new();
        for (collection, index) in self.expiring() {
            let Some(seconds) = index.expires_after_seconds() else { continue };
            let until = now.as_millis() - i64::from(seconds) * 1_000;
            let until = annals_core::bson::DateTime::from_millis(until);
            let expired = Condition::lte(index.fields()[0].0, until);
            let found = self.find(&RecordQuery::new(&*collection).matching(expired)).expect("they are found");
            due.extend(found.iter().map(|record| {
                let id = record.document.get("_id").ok().flatten().expect("it has an id");
                let id = Bson::try_from(id).expect("it is a value");
                RecordChange::delete_if(&*collection, id, Expected::Present)
            }));
        }
        due
    }
}

#[async_trait]
impl Records for ReferenceRecords {
    async fn declare(&self, collection: Collection) -> Result<(), RecordError> {
        self.model()?.declare(&collection)
    }

    async fn collections(&self) -> Result<Vec<Collection>, RecordError> {
        Ok(self.model()?.collections())
    }

    async fn write(&self, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        let numbers = self.model()?.write(&changes)?;
        self.open.send_modify(|_| ());
        Ok(numbers)
    }

    async fn get(&self, collection: &str, id: &Bson) -> Result<Option<Record>, RecordError> {
        self.expire()?.get(collection, id)
    }

    async fn find(&self, query: RecordQuery) -> Result<RecordPage, RecordError> {
        let query = query.resolved(DocumentKind::Record, &Now::utc(self.clock.now()))?;
        let model = self.expire()?;
        let asked = format!("{}{:?}{:?}", query.collection, query.condition, query.sort);
        let cursor = |(keys, id): &Place| Cursor::new(format!("{}-{}-{}", hex(asked.as_bytes()), hex(keys), hex(id)));
        let mut found = model.placed(&query)?;
        if let Some(after) = &query.after {
            if !after.as_str().starts_with(&format!("{}-", hex(asked.as_bytes()))) {
                return Err(Invalid::new(Code::InvalidQuery, "after", "is a cursor of another query").into());
            }
            found.retain(|(place, _)| cursor(place).as_str() > after.as_str());
        }
        let mut page = RecordPage::default();
        let (mut bytes, mut last) = (0, None);
        for (place, record) in found {
            if page.records.len() == query.limit || bytes > limits::PAGE_BYTES_MAX {
                page.next = last.map(|last| cursor(&last));
                break;
            }
            bytes += record.document.as_bytes().len();
            page.records.push(Record { document: query.projection.of(&record.document), revision: record.revision });
            last = Some(place);
        }
        Ok(page)
    }

    async fn explain(&self, query: RecordQuery) -> Result<Explained, RecordError> {
        let documents_examined = self.count(&query.collection, &Condition::All).await?;
        let sorted = !query.sort.is_empty();
        let found = self.find(query).await?.records.len() as u64;
        Ok(Explained { documents_examined, found, sorted, ..Explained::default() })
    }

    async fn count(&self, collection: &str, condition: &Condition) -> Result<u64, RecordError> {
        let condition = condition.resolved(DocumentKind::Record, &Now::utc(self.clock.now()))?;
        self.expire()?.count(collection, &condition)
    }

    async fn group(&self, query: GroupQuery) -> Result<GroupPage, RecordError> {
        let query = query.resolved(&Now::utc(self.clock.now()))?;
        self.expire()?.group(&query)
    }

    async fn changes(
        &self,
        collection: &str,
        after: ChangeNumber,
        limit: usize,
    ) -> Result<Vec<RecordedChange>, ChangesError> {
        let model = self.expire()?;
        let last = model.last_change(collection)?;
        if after > last {
            return Err(ChangesError::Unknown { after, last });
        }
        if !(1..=limits::PAGE_MAX).contains(&limit) {
            return Err(Invalid::new(Code::InvalidQuery, "limit", "is wrong").into());
        }
        Ok(model.changes(collection)?.iter().filter(|change| change.number > after).take(limit).cloned().collect())
    }

    async fn last_change(&self, collection: &str) -> Result<ChangeNumber, ChangesError> {
        self.model()?.last_change(collection)
    }

    async fn wait_past_change(&self, collection: &str, after: ChangeNumber) -> Result<ChangeNumber, ChangesError> {
        let mut open = self.open.subscribe();
        loop {
            open.borrow_and_update();
            let last = self.model()?.last_change(collection)?;
            if last > after {
                return Ok(last);
            }
            open.changed().await.map_err(|_| StoreError::Closed)?;
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[async_trait]
impl RecordWrites for ReferenceRecords {
    async fn wait(&self, seen: Option<u64>) -> Result<u64, StoreError> {
        let mut open = self.open.subscribe();
        loop {
            open.borrow_and_update();
            let revision = self.model()?.revision();
            if seen != Some(revision) {
                return Ok(revision);
            }
            open.changed().await.map_err(|_| StoreError::Closed)?;
        }
    }
}
