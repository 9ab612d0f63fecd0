//! Following streams, without gaps or repeats.

use std::sync::Arc;

use annals_core::{DEFAULT_SCOPE, Partitions, ReadError, StoreError, StreamFollower};

use crate::streams::sample::{NONE, append, follow_until, open, open_with, verdicts, write};
use crate::{OTHER_TENANT, Subject, WithOther};

/// A follower gets the existing entries, and then new ones.
pub async fn a_follower_gets_what_is_there_then_what_comes(subject: &dyn Subject) {
    let opened = open_with(subject, 30).await;
    append(&opened.streams, verdicts("s", 0..5, [0u64, 3])).await;
    let mut follower = StreamFollower::new(opened.streams.clone(), "s", 0, Partitions::All);
    assert_eq!(follow_until(&mut follower, 2).await, [0, 3]);
    assert_eq!(follower.position(), 2);
    for n in 5..30 {
        let (page, _) = tokio::join!(follower.next_page(), append(&opened.streams, verdicts("s", n..n + 1, [n])));
        let numbers: Vec<_> = page.expect("a page").iter().map(|event| event.event.sequence_number).collect();
        assert_eq!(numbers, [n]);
    }
    assert_eq!(follower.position(), 27);
}

/// A follower may begin before the stream, and before the log.
pub async fn a_follower_may_begin_before_the_stream_does(subject: &dyn Subject) {
    let opened = open(subject).await;
    let mut follower = StreamFollower::new(opened.streams.clone(), "s", 0, Partitions::All);
    let following = tokio::spawn(async move { follow_until(&mut follower, 2).await });
    write(&opened.log, 4).await;
    append(&opened.streams, verdicts("s", 0..2, NONE)).await;
    append(&opened.streams, verdicts("s", 2..4, [2u64, 3])).await;
    assert_eq!(following.await.expect("the follower ends well"), [2, 3]);
}

/// A follower of a partition waits through the others, and knows how far it has looked.
pub async fn a_follower_of_a_partition_gets_what_is_in_it(subject: &dyn Subject) {
    let opened = open_with(subject, 200).await;
    let mut follower = StreamFollower::new(opened.streams.clone(), "s", 0, Partitions::One("wanted".into()));
    let following = tokio::spawn(async move {
        let numbers = follow_until(&mut follower, 20).await;
        (numbers, follower.position())
    });
    for n in 0..200 {
        let partition = if n % 10 == 9 { "wanted" } else { "unwanted" };
        append(&opened.streams, verdicts("s", n..n + 1, [(n, partition)])).await;
    }
    let (numbers, position) = following.await.expect("the follower ends well");
    assert_eq!(numbers, (9..200).step_by(10).collect::<Vec<_>>());
    assert_eq!(position, 200);
}

/// Followers that begin anywhere each get exactly what follows, while a filter catches up with the log.
pub async fn a_follower_misses_nothing_while_a_filter_runs(subject: &dyn Subject) {
    let opened = open(subject).await;
    let followers: Vec<_> = (0..20u64)
        .map(|from| {
            let mut follower = StreamFollower::new(opened.streams.clone(), "s", from, Partitions::All);
            tokio::spawn(async move { (from, follow_until(&mut follower, 300 - from as usize).await) })
        })
        .collect();
    let filter = tokio::spawn({
        let (log, streams) = (opened.log.clone(), opened.streams.clone());
        async move {
            let mut judged = 0;
            while judged < 600 {
                let head = log.wait_past(judged).await.expect("the log goes on");
                append(&streams, verdicts("s", judged..head, (judged..head).filter(|n| n % 2 == 1))).await;
                judged = head;
            }
        }
    });
    for _ in 0..60 {
        write(&opened.log, 10).await;
    }
    filter.await.expect("the filter ends well");
    for follower in followers {
        let (from, numbers) = follower.await.expect("the follower ends well");
        assert_eq!(numbers, (from..300).map(|position| position * 2 + 1).collect::<Vec<_>>());
    }
}

/// A follower whose wait is cancelled loses nothing, however often.
pub async fn a_follower_that_is_cancelled_loses_nothing(subject: &dyn Subject) {
    let opened = open_with(subject, 100).await;
    let mut follower = StreamFollower::new(opened.streams.clone(), "s", 0, Partitions::All);
    let filter = tokio::spawn({
        let streams = opened.streams.clone();
        async move {
            for n in 0..100 {
                append(&streams, verdicts("s", n..n + 1, [n])).await;
            }
        }
    });
    // A store behind a network answers nothing within one turn of the tasks, so the patience grows until something comes.
    let (mut numbers, mut patience) = (Vec::new(), 1u32);
    while numbers.len() < 100 {
        let turns = async {
            for _ in 0..patience {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            page = follower.next_page() => {
                numbers.extend(page.expect("a page").iter().map(|event| event.event.sequence_number));
                patience = 1;
            }
            () = turns => patience = patience.saturating_mul(2),
        }
    }
    filter.await.expect("the filter ends well");
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
}

/// A follower that starts past the head waits for that position and gets it first.
pub async fn a_follower_past_the_head_waits_for_its_position(subject: &dyn Subject) {
    let opened = open_with(subject, 8).await;
    append(&opened.streams, verdicts("s", 0..2, [0u64, 1])).await;
    let mut follower = StreamFollower::new(opened.streams.clone(), "s", 5, Partitions::All);
    let following = tokio::spawn(async move { follow_until(&mut follower, 3).await });
    for n in 2..8 {
        append(&opened.streams, verdicts("s", n..n + 1, [n])).await;
    }
    assert_eq!(following.await.expect("the follower ends well"), [5, 6, 7]);
}

/// Waiting past an earlier head returns at once. Many callers that wait for the same head or for later ones are all woken.
pub async fn all_who_wait_are_woken(subject: &dyn Subject) {
    let opened = open_with(subject, 6).await;
    append(&opened.streams, verdicts("s", 0..3, [0u64, 1, 2])).await;
    assert_eq!(opened.streams.wait_past("s", 0).await, Ok(3));
    assert_eq!(opened.streams.wait_past("s", 2).await, Ok(3));
    let waiting: Vec<_> = (3..6)
        .flat_map(|head| (0..10).map(move |_| head))
        .map(|head| {
            let streams = Arc::clone(&opened.streams);
            tokio::spawn(async move { (head, streams.wait_past("s", head).await.expect("it is woken")) })
        })
        .collect();
    for n in 3..6 {
        append(&opened.streams, verdicts("s", n..n + 1, [n])).await;
    }
    for task in waiting {
        let (head, woken_at) = task.await.expect("the task ends well");
        assert!(woken_at > head, "woken at {woken_at} while waiting past {head}");
    }
}

/// Neither another stream, nor another tenant's of the same name, nor progress alone ends a wait.
pub async fn a_wait_is_for_this_stream_only(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let opened = open_with(subject, 10).await;
    let other_log = crate::sample::log_of(&opened.store, OTHER_TENANT);
    let other = opened.store.streams(OTHER_TENANT, DEFAULT_SCOPE).expect("the tenant is declared");
    write(&other_log, 10).await;
    let waiting = tokio::spawn({
        let streams = opened.streams.clone();
        async move { streams.wait_past("stream-1", 0).await }
    });
    for n in 0..9 {
        append(&opened.streams, verdicts("public-stream-1", n..n + 1, [n])).await;
        append(&opened.streams, verdicts("stream-1", n..n + 1, NONE)).await;
        append(&other, verdicts("stream-1", n..n + 1, [n])).await;
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished(), "nothing has come that it waits for");
    append(&opened.streams, verdicts("stream-1", 9..10, [9u64])).await;
    assert_eq!(waiting.await.expect("the task ends well"), Ok(1));
}

/// When the store closes, a waiting follower gets an error.
pub async fn a_follower_is_told_when_the_store_closes(subject: &dyn Subject) {
    let opened = open_with(subject, 1).await;
    append(&opened.streams, verdicts("s", 0..1, [0u64])).await;
    let mut follower = StreamFollower::new(opened.streams.clone(), "s", 1, Partitions::All);
    let following = tokio::spawn(async move { follower.next_page().await });
    tokio::task::yield_now().await;
    opened.store.close().await;
    assert_eq!(following.await.expect("the task ends well"), Err(ReadError::Store(StoreError::Closed)));
}
