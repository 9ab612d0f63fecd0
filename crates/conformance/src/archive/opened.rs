//! A store with a view and its archive, and shorthands for the steps of the cases.

use std::path::Path;
use std::sync::Arc;

use annals_core::archive::{Archive, ArchiveFiles, ArchiveStatus, ArchiveTarget, EVENTS_ARCHIVE, RetentionBody};
use annals_core::browse::{BrowseQuery, EVENTS};
use annals_core::bson::{Bson, DateTime, Document};
use annals_core::{Condition, DEFAULT_TENANT, RecordError, RecordQuery, Store};
use annals_runtime::{ArchiveFolder, HostOptions};

use crate::browse::opened::{Browsed, Sample, sample};
use crate::rival::Rival;
use crate::tap::TappedStore;
use crate::{ManualClock, Subject};

/// The milliseconds in a day.
pub const DAY: i64 = 24 * 60 * 60 * 1_000;

/// A store, a host on it, and the browse view and the archive of the default tenant. The view keeps events without a rule forever.
pub struct Archived {
    pub it: Browsed,
    pub archive: Arc<dyn Archive>,
}

impl Archived {
    pub async fn of(subject: &dyn Subject) -> Self {
        Self::with(subject, None).await
    }

    /// Opens it with a folder for files.
    pub async fn with(subject: &dyn Subject, folder: Option<&Path>) -> Self {
        let files = folder.map(|folder| Arc::new(ArchiveFolder::new(folder)) as Arc<dyn ArchiveFiles>);
        Self::with_files(subject, files).await
    }

    /// Opens it with a place for files.
    pub async fn with_files(subject: &dyn Subject, archive: Option<Arc<dyn ArchiveFiles>>) -> Self {
        let options = HostOptions { archive, ..HostOptions::default() };
        Self::on(subject.open().await, subject.clock(), options).await
    }

    /// Opens it with a rival that changes documents in the view.
    pub async fn contested(subject: &dyn Subject) -> (Self, Arc<Rival>) {
        let rival = Rival::of(EVENTS);
        let store = Arc::new(TappedStore::new(subject.open().await).with_records(&rival));
        (Self::on(store, subject.clock(), HostOptions::default()).await, rival)
    }

    pub async fn on(store: Arc<dyn Store>, clock: Arc<ManualClock>, options: HostOptions) -> Self {
        let it = Browsed::with(store, clock, options);
        it.switch(None).await;
        let archive = it.it.host.archive(DEFAULT_TENANT).expect("declared");
        Self { it, archive }
    }

    pub fn pass_days(&self, days: i64) {
        self.it.it.clock.advance_millis(days * DAY);
    }

    /// Commits an event of a type now, and waits until it is in the view. Returns its id.
    pub async fn commit(&self, event_type: &str) -> String {
        let time = annals_core::Clock::now(&*self.it.it.clock).as_millis();
        let data = serde_json::json!({ "total": 7, "deleted_by": "ada", "note": "n" });
        let id = self.it.commit(Sample { event_type, data, time, ..sample() }).await.to_string();
        self.look().await;
        id
    }

    /// Waits until the view has caught up with the log.
    pub async fn look(&self) -> u64 {
        self.it.browse.page(BrowseQuery::default()).await.expect("a page").total
    }

    pub async fn rule(&self, name: &str, days: u32, target: ArchiveTarget) {
        self.archive.put_rule(name, RetentionBody::new(Some(days), target)).await.expect("set");
    }

    /// Returns the documents of a collection; none if it does not exist.
    pub async fn documents(&self, collection: &str) -> Vec<Document> {
        let page = match self.it.records.find(RecordQuery::new(collection).limit(1_000)).await {
            Err(RecordError::UnknownCollection(_)) => return Vec::new(),
            page => page.expect("found"),
        };
        page.records.iter().map(|it| Document::try_from(&*it.document).expect("a document")).collect()
    }

    pub async fn archived(&self) -> Vec<Document> {
        self.documents(EVENTS_ARCHIVE).await
    }

    /// Returns the document of an event in the view.
    pub async fn in_view(&self, id: &str) -> Option<Document> {
        let query = RecordQuery::new(EVENTS).matching(Condition::eq("event_id", id));
        let page = self.it.records.find(query).await.expect("found");
        page.records.first().map(|it| Document::try_from(&*it.document).expect("a document"))
    }

    /// Waits until the status of the archive satisfies `wanted`.
    pub async fn until(&self, wanted: impl Fn(&ArchiveStatus) -> bool) -> ArchiveStatus {
        loop {
            let status = self.archive.rules(None, 10).await.expect("read").archive;
            if wanted(&status) {
                return status;
            }
            crate::between_looks().await;
        }
    }

    pub async fn settled(&self) {
        self.until(|status| status.settled).await;
    }
}

pub fn date(document: &Document, name: &str) -> Option<i64> {
    document.get_datetime(name).ok().copied().map(DateTime::timestamp_millis)
}

/// Returns when a document expires, in days after it was stored.
pub fn days_of(document: &Document) -> Option<i64> {
    Some((date(document, "ttl_expires_at")? - date(document, "stored_at")?) / DAY)
}

pub fn is_there(document: &Document, name: &str) -> bool {
    document.get(name).is_some_and(|value| *value != Bson::Null)
}
