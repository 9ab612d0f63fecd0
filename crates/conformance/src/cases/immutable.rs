//! Nothing changes or removes an event.

use std::sync::Arc;

use crate::Subject;
use crate::sample::{commit, commits_of, open, order, order_aggregate, reopen, whole_log};

/// What was read belongs to the reader: changing it changes nothing in the store.
pub async fn what_was_read_is_a_copy(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, annals_core::NewCommit { header: vec![("k".into(), "v".into())], ..order("a", 1) }).await;
    let kept = commits_of(&log, order_aggregate("a")).await;
    let mut read = commits_of(&log, order_aggregate("a")).await;
    let info = Arc::make_mut(&mut read[0].info);
    info.header.push(("more".into(), "text".into()));
    info.version = 7;
    read[0].events[0].tags.push("tag".into());
    Arc::make_mut(&mut read[0].events[0].commit).header.clear();
    read[0].events.clear();
    assert_eq!(commits_of(&log, order_aggregate("a")).await, kept);
    assert_eq!(whole_log(&log).await, kept[0].events);
}

/// An event that was read once is the same forever, whatever is committed, refused, repeated or reopened later.
pub async fn an_event_stays_the_same(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    for n in 0..20 {
        commit(&log, order("a", n).request_id(format!("r-{n}"))).await;
    }
    let kept = whole_log(&log).await;
    for n in 0..20 {
        commit(&log, order("a", 100 + n)).await;
        log.commit(order("a", n).request_id(format!("r-{n}"))).await.expect("it is a repeat");
        log.commit(order("a", 200 + n).request_id(format!("r-{n}"))).await.expect_err("it is reused");
    }
    assert_eq!(whole_log(&log).await[..20], kept[..]);
    let (_store, log) = reopen(subject, store, log).await;
    assert_eq!(whole_log(&log).await[..20], kept[..]);
}
