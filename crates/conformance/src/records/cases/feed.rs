//! The change feed.

use std::sync::Arc;

use annals_core::bson::{Bson, doc};
use annals_core::{
    ChangeFollower, ChangeKind, ChangeNumber, ChangesError, Code, Collection, RecordChange, Records, limits,
};

use crate::Subject;
use crate::records::sample::{THINGS, delete, insert, last, open, put, raw, records_of, refused, write, write_one};

async fn changes(records: &Arc<dyn Records>, collection: &str) -> Vec<(Bson, ChangeKind)> {
    let changes = records.changes(collection, 0, 1_000).await.expect("they are read");
    assert!(changes.iter().all(|change| change.collection == collection));
    assert!(changes.windows(2).all(|pair| pair[0].number < pair[1].number), "numbers go up");
    let newest = changes.last().map_or(0, |change| change.number);
    assert_eq!(records.last_change(collection).await, Ok(newest));
    changes.into_iter().map(|change| (change.id, change.what)).collect()
}

/// Every change of a collection is there once, in order.
pub async fn changes_come_in_order_without_gap_or_repeat(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    records.declare(Collection::new("others").with_feed()).await.expect("it is declared");
    assert_eq!(records.changes(THINGS, 0, 10).await, Ok(Vec::new()));
    write(&records, vec![insert(doc! { "_id": 1 }), insert(doc! { "_id": "b" })]).await;
    write_one(&records, RecordChange::insert("others", raw(doc! { "_id": { "a": 5i64 } }))).await;
    let other = RecordChange::put("others", raw(doc! { "_id": 1 }));
    write(&records, vec![put(doc! { "_id": 1, "n": 1 }), other, delete("b"), put(doc! { "_id": 2 })]).await;
    let expected = [
        (Bson::Int32(1), ChangeKind::Inserted),
        ("b".into(), ChangeKind::Inserted),
        (Bson::Int32(1), ChangeKind::Replaced),
        ("b".into(), ChangeKind::Deleted),
        (Bson::Int32(2), ChangeKind::Inserted),
    ];
    assert_eq!(changes(&records, THINGS).await, expected);
    let expected = [(doc! { "a": 5i64 }.into(), ChangeKind::Inserted), (Bson::Int32(1), ChangeKind::Inserted)];
    assert_eq!(changes(&records, "others").await, expected);
}

/// A collection that does not ask for a feed has none. One that asks later has the changes from then on, also in another process.
pub async fn a_collection_has_a_feed_from_when_it_asks_for_one(subject: &dyn Subject) {
    let store = subject.open().await;
    let other = subject.open_beside(&store).await;
    let (records, others) = (records_of(&store), records_of(&other));
    let unknown = ChangesError::UnknownCollection(THINGS.to_owned());
    assert_eq!(records.changes(THINGS, 0, 1).await, Err(unknown.clone()));
    assert_eq!(records.last_change(THINGS).await, Err(unknown));
    records.declare(Collection::new(THINGS)).await.expect("it is declared");
    write(&others, vec![insert(doc! { "_id": 1 }), insert(doc! { "_id": 2 })]).await;
    let without = ChangesError::NoFeed(THINGS.to_owned());
    assert_eq!(records.changes(THINGS, 0, 1).await, Err(without.clone()));
    assert_eq!(records.wait_past_change(THINGS, 0).await, Err(without.clone()));
    assert_eq!((records.last_change(THINGS).await, without.code()), (Err(without), Code::NoFeed));
    records.declare(Collection::new(THINGS).with_feed()).await.expect("it is declared");
    assert_eq!(changes(&records, THINGS).await, []);
    write_one(&others, put(doc! { "_id": 1 })).await;
    write_one(&records, delete(2)).await;
    let expected = [(Bson::Int32(1), ChangeKind::Replaced), (Bson::Int32(2), ChangeKind::Deleted)];
    assert_eq!(changes(&records, THINGS).await, expected);
    // A declaration without the feed does not remove it.
    records.declare(Collection::new(THINGS)).await.expect("it is declared");
    assert_eq!(records.collections().await, Ok(vec![Collection::new(THINGS).with_feed()]));
    assert_eq!(changes(&records, THINGS).await, expected);
}

/// A page begins after the given number, and keeps its limit.
pub async fn changes_are_read_page_by_page(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    write(&records, (0..250).map(|n| insert(doc! { "_id": n })).collect()).await;
    let mut read: Vec<(ChangeNumber, Bson)> = Vec::new();
    loop {
        let after = read.last().map_or(0, |(number, _)| *number);
        let page = records.changes(THINGS, after, 60).await.expect("the page is read");
        assert!(page.len() <= 60);
        if page.is_empty() {
            break;
        }
        read.extend(page.into_iter().map(|change| (change.number, change.id)));
    }
    let ids: Vec<_> = read.into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids, (0..250).map(Bson::Int32).collect::<Vec<_>>());
    for limit in [0, limits::PAGE_MAX + 1] {
        assert_eq!(records.changes(THINGS, 0, limit).await.expect_err("it is refused").code(), Code::InvalidQuery);
    }
}

/// Changes that did not happen are not in the feed.
pub async fn a_refused_batch_leaves_no_change(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    write_one(&records, insert(doc! { "_id": 1 })).await;
    let first = last(&records).await;
    refused(&records, vec![insert(doc! { "_id": 2 }), insert(doc! { "_id": 1 })]).await;
    assert_eq!(last(&records).await, first);
    write_one(&records, insert(doc! { "_id": 3 })).await;
    let ids: Vec<_> = changes(&records, THINGS).await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, [Bson::Int32(1), Bson::Int32(3)]);
}

/// A follower resumes after its number, and waits for new changes. Changes of other collections do not wake it.
pub async fn a_follower_gets_what_is_there_then_what_comes(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    records.declare(Collection::new("others").with_feed()).await.expect("it is declared");
    write(&records, (0..5).map(|n| insert(doc! { "_id": n })).collect()).await;
    let all = records.changes(THINGS, 0, 10).await.expect("they are read");
    let mut follower = ChangeFollower::new(records.clone(), THINGS, all[1].number);
    let there = follower.next_page().await.expect("they are there");
    assert_eq!(there, all[2..]);
    let waiting = tokio::spawn(async move { (follower.next_page().await, follower.position()) });
    tokio::task::yield_now().await;
    write_one(&records, RecordChange::insert("others", raw(doc! { "_id": 3 }))).await;
    write_one(&records, delete(3)).await;
    let (came, position) = waiting.await.expect("the task ends well");
    let came = came.expect("it comes");
    let due = (1, Bson::Int32(3), ChangeKind::Deleted, last(&records).await);
    assert_eq!((came.len(), came[0].id.clone(), came[0].what, position), due);
    assert_eq!(came[0].number, position);
}

/// A follower gets every change once, in order, while many clients write.
pub async fn a_follower_misses_nothing_while_many_write(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let mut follower = ChangeFollower::new(records.clone(), THINGS, 0);
    let following = tokio::spawn(async move {
        let mut seen = Vec::new();
        while seen.len() < 400 {
            seen.extend(follower.next_page().await.expect("they come"));
        }
        seen
    });
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let records = records.clone();
            tokio::spawn(async move {
                for n in 0..50 {
                    let id = writer * 1_000 + 2 * n;
                    write(&records, vec![insert(doc! { "_id": id }), insert(doc! { "_id": id + 1 })]).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("the task ends well");
    }
    let seen = following.await.expect("the task ends well");
    assert!(seen.windows(2).all(|pair| pair[0].number < pair[1].number), "numbers go up");
    for pair in seen.chunks(2) {
        let ids = [&pair[0].id, &pair[1].id].map(|id| id.as_i32().expect("a number"));
        assert_eq!(ids[0] + 1, ids[1], "changes of a batch stand together");
    }
    let mut ids: Vec<_> = seen.iter().map(|change| change.id.as_i32().expect("a number")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 400);
}

/// A number that no change has yet belongs to another store. A read reports this, and never waits for it.
pub async fn a_number_of_the_future_is_refused(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    write_one(&records, insert(doc! { "_id": 1 })).await;
    let last = last(&records).await;
    let error = records.changes(THINGS, last + 5, 10).await.expect_err("it is refused");
    assert_eq!((error.code(), error), (Code::UnknownChange, ChangesError::Unknown { after: last + 5, last }));
    assert_eq!(records.changes(THINGS, last, 10).await, Ok(Vec::new()));
}
