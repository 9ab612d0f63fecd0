//! Following the log: existing events, then new ones, without gaps or repeats.

use std::sync::Arc;

use annals_core::{EventLog, Filter, Follower, NewCommit, ReadError, RecordedEvent, StoreError, limits};

use crate::sample::{assert_in_order, commit, event, ns_of, open, order, whole_log};
use crate::{Subject, WithOther};

async fn follow_until(follower: &mut Follower, count: usize) -> Vec<RecordedEvent> {
    let mut events = Vec::new();
    while events.len() < count {
        let page = follower.next_page().await.expect("the follower goes on");
        assert!(!page.is_empty(), "a follower waits rather than return nothing");
        assert!(page.len() <= limits::PAGE_MAX, "a follower holds at most a page");
        events.extend(page);
    }
    events
}

async fn write(log: &Arc<dyn EventLog>, ns: std::ops::Range<u64>) {
    for n in ns {
        commit(log, order(&format!("a-{}", n % 3), n)).await;
    }
}

/// A follower gets the existing events as its first page, and then each new event.
pub async fn a_follower_gets_what_is_there_then_what_comes(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    write(&log, 0..3).await;
    let mut follower = Follower::new(log.clone(), 0, Filter::default());
    assert_eq!(ns_of(&follower.next_page().await.expect("a page")), [0, 1, 2]);
    assert_eq!(follower.position(), 3);
    for n in 3..20 {
        let (page, _) = tokio::join!(follower.next_page(), write(&log, n..n + 1));
        assert_eq!(ns_of(&page.expect("a page")), [n]);
    }
}

/// A follower that began before the first event gets every event while many clients write.
pub async fn a_follower_misses_nothing_while_many_write(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let mut follower = Follower::new(log.clone(), 0, Filter::default());
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let log = log.clone();
            tokio::spawn(async move {
                for n in 0..50 {
                    commit(&log, order(&format!("a-{writer}"), n).event(event("order_changed", n))).await;
                }
            })
        })
        .collect();
    let events = follow_until(&mut follower, 800).await;
    assert_in_order(&events);
    for writer in writers {
        writer.await.expect("the writer ends well");
    }
    assert_eq!(events, whole_log(&log).await);
}

/// Many concurrent followers that begin anywhere each get exactly the events that follow.
pub async fn many_followers_each_get_what_follows(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    write(&log, 0..50).await;
    let followers: Vec<_> = (0..50)
        .map(|from| {
            let mut follower = Follower::new(log.clone(), from, Filter::default());
            tokio::spawn(async move { (from, follow_until(&mut follower, 100 - from as usize).await) })
        })
        .collect();
    write(&log, 50..100).await;
    for follower in followers {
        let (from, events) = follower.await.expect("the follower ends well");
        assert_eq!(ns_of(&events), (from..100).collect::<Vec<_>>());
    }
}

/// A follower that reads nothing for a while costs nobody anything, and then gets everything, page by page.
pub async fn a_slow_follower_harms_nobody(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    write(&log, 0..1).await;
    let mut slow = Follower::new(log.clone(), 0, Filter::default());
    assert_eq!(slow.next_page().await.expect("a page").len(), 1);
    let mut quick = Follower::new(log.clone(), 1, Filter::default());
    for n in 0..30 {
        let events = (0..100).map(|m| event("t", 1 + n * 100 + m)).collect();
        commit(&log, NewCommit { events, ..NewCommit::new("order", "big") }).await;
        assert_eq!(follow_until(&mut quick, 100).await.len(), 100);
    }
    assert_eq!(ns_of(&follow_until(&mut slow, 3_000).await), (1..3_001).collect::<Vec<_>>());
}

/// A follower with a filter gets the matching events, waits through the others, and knows how far it has looked.
pub async fn a_follower_with_a_filter_gets_what_passes(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let filter = Filter { types: vec!["wanted".into()], ..Filter::default() };
    let mut follower = Follower::new(log.clone(), 0, filter);
    let following = tokio::spawn(async move {
        let events = follow_until(&mut follower, 20).await;
        (events, follower.position())
    });
    for n in 0..200 {
        let name = if n % 10 == 9 { "wanted" } else { "unwanted" };
        commit(&log, NewCommit::new("order", "a").event(event(name, n))).await;
    }
    let (events, position) = following.await.expect("the follower ends well");
    assert_eq!(ns_of(&events), (0..200).filter(|n| n % 10 == 9).collect::<Vec<_>>());
    assert_eq!(position, 200);
}

/// A follower whose wait is cancelled loses nothing, however often.
pub async fn a_follower_that_is_cancelled_loses_nothing(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let mut follower = Follower::new(log.clone(), 0, Filter::default());
    let writer = tokio::spawn({
        let log = log.clone();
        async move { write(&log, 0..200).await }
    });
    let mut events = Vec::new();
    // A store behind a network needs several steps for a page, so the follower gets more and more of them before it is cancelled.
    let mut patience = 1;
    while events.len() < 200 {
        let impatient = async {
            for _ in 0..patience {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            page = follower.next_page() => events.extend(page.expect("a page")),
            () = impatient => patience = patience * 5 / 4 + 1,
        }
    }
    writer.await.expect("the writer ends well");
    assert_eq!(ns_of(&events), (0..200).collect::<Vec<_>>());
}

/// A follower that starts past the head waits for that number and gets it first.
pub async fn a_follower_past_the_head_waits_for_its_number(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    write(&log, 0..2).await;
    let mut follower = Follower::new(log.clone(), 5, Filter::default());
    let following = tokio::spawn(async move { follow_until(&mut follower, 3).await });
    write(&log, 2..8).await;
    assert_eq!(ns_of(&following.await.expect("the follower ends well")), [5, 6, 7]);
}

/// Waiting past an earlier head returns at once. Many callers that wait for the same head are all woken.
pub async fn all_who_wait_are_woken(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    write(&log, 0..3).await;
    assert_eq!(log.wait_past(0).await, Ok(3));
    assert_eq!(log.wait_past(2).await, Ok(3));
    let waiting: Vec<_> = (3..6)
        .flat_map(|head| (0..10).map(move |_| head))
        .map(|head| {
            let log = log.clone();
            tokio::spawn(async move { (head, log.wait_past(head).await.expect("it is woken")) })
        })
        .collect();
    write(&log, 3..6).await;
    for task in waiting {
        let (head, woken_at) = task.await.expect("the task ends well");
        assert!(woken_at > head, "woken at {woken_at} while waiting past {head}");
    }
}

/// A commit of another tenant wakes no follower here: a wait ends only for this log's head.
pub async fn a_wait_is_for_this_log_only(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let (store, log) = open(subject).await;
    let other = crate::sample::log_of(&store, crate::OTHER_TENANT);
    let waiting = tokio::spawn({
        let log = log.clone();
        async move { log.wait_past(0).await }
    });
    for n in 0..10 {
        commit(&other, order("a", n)).await;
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished(), "the other tenant's commits do not end it");
    write(&log, 0..1).await;
    assert_eq!(waiting.await.expect("the task ends well"), Ok(1));
}

/// When the store closes, a waiting follower gets an error.
pub async fn a_follower_is_told_when_the_store_closes(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    write(&log, 0..1).await;
    let mut follower = Follower::new(log.clone(), 1, Filter::default());
    let following = tokio::spawn(async move { follower.next_page().await });
    tokio::task::yield_now().await;
    store.close().await;
    assert_eq!(following.await.expect("the task ends well"), Err(ReadError::Store(StoreError::Closed)));
}
