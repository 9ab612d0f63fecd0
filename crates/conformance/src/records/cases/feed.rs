//! What has changed.

use annals_core::bson::{Bson, doc};
use annals_core::{ChangeFollower, ChangeKind, ChangesError, Code, Collection, RecordChange, limits};

use crate::Subject;
use crate::records::sample::{THINGS, delete, insert, open, put, raw, refused, write, write_one};

/// All that happened is there once, in order, of every collection.
pub async fn changes_come_in_order_without_gap_or_repeat(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    records.declare(Collection::new("others")).await.expect("it is declared");
    assert_eq!(records.changes(0, 10).await, Ok(Vec::new()));
    let mut numbers = write(&records, vec![insert(doc! { "_id": 1 }), insert(doc! { "_id": "b" })]).await;
    numbers.push(write_one(&records, RecordChange::insert("others", raw(doc! { "_id": { "a": 5i64 } }))).await);
    numbers.extend(write(&records, vec![put(doc! { "_id": 1, "n": 1 }), delete("b"), put(doc! { "_id": 2 })]).await);
    let changes = records.changes(0, 100).await.expect("they are read");
    let told: Vec<_> =
        changes.iter().map(|change| (change.collection.as_str(), change.id.clone(), change.what)).collect();
    let expected = [
        (THINGS, Bson::Int32(1), ChangeKind::Inserted),
        (THINGS, "b".into(), ChangeKind::Inserted),
        ("others", doc! { "a": 5i64 }.into(), ChangeKind::Inserted),
        (THINGS, Bson::Int32(1), ChangeKind::Replaced),
        (THINGS, "b".into(), ChangeKind::Deleted),
        (THINGS, Bson::Int32(2), ChangeKind::Inserted),
    ];
    assert_eq!(told, expected);
    assert_eq!(changes.iter().map(|change| change.number).collect::<Vec<_>>(), numbers);
    assert_eq!(records.last_change().await.ok().as_ref(), numbers.last());
}

/// A page begins after the number it is asked for, and keeps its limit.
pub async fn changes_are_read_page_by_page(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let numbers = write(&records, (0..250).map(|n| insert(doc! { "_id": n })).collect()).await;
    let mut read = Vec::new();
    loop {
        let after = read.last().copied().unwrap_or(0);
        let page = records.changes(after, 60).await.expect("the page is read");
        assert!(page.len() <= 60);
        if page.is_empty() {
            break;
        }
        read.extend(page.into_iter().map(|change| change.number));
    }
    assert_eq!(read, numbers);
    for limit in [0, limits::PAGE_MAX + 1] {
        assert_eq!(records.changes(0, limit).await.expect_err("it is refused").code(), Code::InvalidQuery);
    }
}

/// What did not happen is not told.
pub async fn a_refused_batch_leaves_no_change(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let first = write_one(&records, insert(doc! { "_id": 1 })).await;
    refused(&records, vec![insert(doc! { "_id": 2 }), insert(doc! { "_id": 1 })]).await;
    assert_eq!(records.last_change().await, Ok(first));
    write_one(&records, insert(doc! { "_id": 3 })).await;
    let ids: Vec<_> =
        records.changes(0, 10).await.expect("they are read").into_iter().map(|change| change.id).collect();
    assert_eq!(ids, [Bson::Int32(1), Bson::Int32(3)]);
}

/// A follower goes on from its number, and waits for what comes.
pub async fn a_follower_gets_what_is_there_then_what_comes(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let numbers = write(&records, (0..5).map(|n| insert(doc! { "_id": n })).collect()).await;
    let mut follower = ChangeFollower::new(records.clone(), numbers[1]);
    let there = follower.next_page().await.expect("they are there");
    assert_eq!(there.iter().map(|change| change.number).collect::<Vec<_>>(), numbers[2..]);
    let waiting = tokio::spawn(async move { (follower.next_page().await, follower.position()) });
    tokio::task::yield_now().await;
    let number = write_one(&records, delete(3)).await;
    let (came, position) = waiting.await.expect("the task ends well");
    let came = came.expect("it comes");
    assert_eq!((came.len(), came[0].number, came[0].what, position), (1, number, ChangeKind::Deleted, number));
}

/// Whoever follows while many write gets every change once, in order.
pub async fn a_follower_misses_nothing_while_many_write(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let mut follower = ChangeFollower::new(records.clone(), 0);
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

/// A number that no change has yet is of another store, and is said, never waited for silently by reading.
pub async fn a_number_of_the_future_is_refused(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let last = write_one(&records, insert(doc! { "_id": 1 })).await;
    let error = records.changes(last + 5, 10).await.expect_err("it is refused");
    assert_eq!((error.code(), error), (Code::UnknownChange, ChangesError::Unknown { after: last + 5, last }));
    assert_eq!(records.changes(last, 10).await, Ok(Vec::new()));
}
