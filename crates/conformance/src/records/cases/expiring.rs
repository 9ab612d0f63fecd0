//! Records that expire.

use annals_core::Clock;
use annals_core::bson::{Bson, DateTime, doc};
use annals_core::{ChangeKind, Collection, Index, RecordQuery};

use crate::Subject;
use crate::records::sample::{THINGS, ids, numbers, open_with, put, write};

/// A record whose date is far enough in the past is deleted some time later, and the feed notes it. Others stay.
pub async fn what_has_expired_is_deleted_and_noted(subject: &dyn Subject) {
    let expiring = Collection::new(THINGS).index(Index::on("at").expires_after_seconds(60));
    let (_store, records) = open_with(subject, expiring).await;
    let now = subject.clock().now().as_millis();
    let at = |millis: i64| DateTime::from_millis(now + millis);
    let documents = [
        doc! { "_id": 1, "at": at(-61_000) },
        doc! { "_id": 2, "at": at(600_000) },
        doc! { "_id": 3, "at": at(-1_000) },
        doc! { "_id": 4, "at": [at(600_000), "x", at(-100_000)] },
        doc! { "_id": 5, "at": "2001-01-01" },
        doc! { "_id": 6, "at": Bson::Null },
        doc! { "_id": 7, "at": 5 },
        doc! { "_id": 8 },
        doc! { "_id": 9, "at": at(-9_000_000_000) },
    ];
    write(&records, documents.into_iter().map(put).collect()).await;
    let last = 9;
    let mut deleted = Vec::new();
    while deleted.len() < 3 {
        let from = last + deleted.len() as u64;
        if ids(&records, RecordQuery::new(THINGS)).await.len() > 6 {
            records.wait_past_change(THINGS, from).await.expect("changes come");
        }
        let changes = records.changes(THINGS, last, 100).await.expect("they are read");
        assert!(changes.iter().all(|change| change.what == ChangeKind::Deleted && change.collection == THINGS));
        deleted = numbers(changes.into_iter().map(|change| change.id).collect());
    }
    deleted.sort_unstable();
    assert_eq!(deleted, [1, 4, 9]);
    assert_eq!(numbers(ids(&records, RecordQuery::new(THINGS)).await), [2, 3, 5, 6, 7, 8]);
}
