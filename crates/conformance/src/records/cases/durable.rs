//! Everything that was returned to a caller is there after the store is reopened. Each backend's own fault tests show that it also
//! survives power loss.

use annals_core::bson::doc;
use annals_core::{
    ChangesError, Code, Collection, Condition, DEFAULT_TENANT, Index, RecordError, RecordQuery, StoreError, UnknownLog,
};

use crate::records::sample::{
    THINGS, delete, get, insert, last, matching, numbers, open, open_with, pages, put, refused, reopen, write,
    write_one,
};
use crate::{OTHER_TENANT, Subject, WithOther};

/// Records, revisions, changes and indexes are the same after reopening, and continue after it.
pub async fn everything_is_there_after_reopening(subject: &dyn Subject) {
    let by_n = Collection::new(THINGS).index(Index::on("n").unique());
    let (mut store, mut records) = open_with(subject, by_n).await;
    for round in 0..4 {
        let batch = (0..50).map(|n| put(doc! { "_id": n, "n": round * 100 + n })).collect();
        write(&records, batch).await;
        write_one(&records, delete(round)).await;
        let before = pages(&records, RecordQuery::new(THINGS)).await;
        let changes = records.changes(THINGS, 0, 1_000).await.expect("they are read");
        (store, records) = reopen(subject, store, records).await;
        assert_eq!(pages(&records, RecordQuery::new(THINGS)).await, before);
        assert_eq!(records.changes(THINGS, 0, 1_000).await.expect("they are read"), changes);
        assert_eq!(matching(&records, Condition::eq("n", round * 100 + 10)).await, [10]);
        let taken = refused(&records, vec![insert(doc! { "_id": 1_000, "n": round * 100 + 10 })]).await;
        assert_eq!(taken.code(), Code::DuplicateKey);
    }
    drop(store);
}

/// A closed store refuses reads and writes of records, and wakes waiting callers.
pub async fn a_closed_store_refuses_and_wakes_who_waits(subject: &dyn Subject) {
    let (store, records) = open(subject).await;
    write_one(&records, insert(doc! { "_id": 1 })).await;
    let last = last(&records).await;
    let waiting = tokio::spawn({
        let records = records.clone();
        async move { records.wait_past_change(THINGS, last).await }
    });
    tokio::task::yield_now().await;
    store.close().await;
    let woken = waiting.await.expect("the task ends well");
    assert_eq!(woken, Err(ChangesError::Store(StoreError::Closed)));
    let closed = RecordError::Store(StoreError::Closed);
    assert_eq!(refused(&records, vec![insert(doc! { "_id": 2 })]).await, closed);
    assert_eq!(records.get(THINGS, &1.into()).await, Err(closed.clone()));
    assert_eq!(records.find(RecordQuery::new(THINGS)).await, Err(closed));
    let (_store, records) = reopen(subject, store, records).await;
    assert!(get(&records, 1).await.is_some());
    assert!(get(&records, 2).await.is_none());
}

/// Each tenant has records of its own.
pub async fn tenants_do_not_see_each_other(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let (store, records) = open(subject).await;
    let others = store.records(OTHER_TENANT).expect("the tenant is declared");
    write_one(&records, insert(doc! { "_id": 1 })).await;
    let unknown = others.get(THINGS, &1.into()).await.expect_err("it is not declared there");
    assert_eq!(unknown.code(), Code::UnknownCollection);
    others.declare(Collection::new(THINGS).with_feed()).await.expect("it is declared");
    assert_eq!(others.get(THINGS, &1.into()).await, Ok(None));
    assert_eq!(others.last_change(THINGS).await, Ok(0));
    write_one(&others, insert(doc! { "_id": 2 })).await;
    assert_eq!(numbers(crate::records::sample::ids(&records, RecordQuery::new(THINGS)).await), [1]);
    assert!(matches!(store.records("nobody"), Err(UnknownLog::Tenant(_))));
    assert!(store.records(DEFAULT_TENANT).is_ok());
}
