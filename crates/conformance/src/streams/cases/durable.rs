//! Everything that was returned to a caller is there after the store is reopened. Each backend's own fault tests show that it also
//! survives power loss.

use std::sync::Arc;

use annals_core::{Code, ReadError, StoreError, StreamError};

use crate::Subject;
use crate::streams::sample::{
    NONE, Opened, append, head_and_progress, numbers, open, open_with, repeat, verdicts, whole, write,
};

/// Every entry of every stream is the same after reopening, and the filters resume where they were.
pub async fn everything_is_there_after_reopening(subject: &dyn Subject) {
    let mut opened = open(subject).await;
    for round in 0..4u64 {
        write(&opened.log, 100).await;
        for stream in ["a", "b", "c"] {
            let judged = round * 100..round * 100 + 100;
            let partition = format!("{stream}{round}");
            let included =
                judged.clone().filter(|n| n % 3 == 0).map(|n| (n, if n % 2 == 0 { "even" } else { &*partition }));
            append(&opened.streams, verdicts(stream, judged, included)).await;
        }
        let before = everything(&opened).await;
        opened = opened.reopen(subject).await;
        assert_eq!(everything(&opened).await, before);
        assert_eq!(head_and_progress(&opened.streams, "a").await.1, round * 100 + 100);
    }
    assert_eq!(numbers(&opened.streams, "a").await, (0..400).filter(|n| n % 3 == 0).collect::<Vec<_>>());
}

async fn everything(opened: &Opened) -> Vec<(annals_core::StreamInfo, Vec<annals_core::StreamEntry>)> {
    let listed = opened.streams.list(annals_core::StreamsQuery::default()).await.expect("they are listed");
    let mut all = Vec::new();
    for info in listed {
        let entries = whole(&opened.streams, &info.name).await;
        assert_eq!(info.head, entries.len() as u64);
        all.push((info, entries));
    }
    all
}

/// A filter that was lost with its process repeats appends that may have been stored.
pub async fn a_repeat_is_recognised_after_reopening(subject: &dyn Subject) {
    let opened = open_with(subject, 20).await;
    let runs = [
        verdicts("s", 0..5, [(1, "a"), (4, "b")]),
        verdicts("s", 5..9, NONE),
        verdicts("s", 9..12, [(9, "c"), (11, "a")]),
    ];
    for run in &runs {
        append(&opened.streams, run.clone()).await;
    }
    let opened = opened.reopen(subject).await;
    for (run, positions) in runs.iter().zip([0..2, 2..2, 2..4]) {
        assert_eq!(repeat(&opened.streams, run.clone()).await, positions);
    }
    let error = opened.streams.append(verdicts("s", 9..12, [(9, "x")])).await.expect_err("it is refused");
    assert_eq!(error, StreamError::VerdictsDiffer { sequence_number: 9 });
    assert_eq!(append(&opened.streams, verdicts("s", 12..20, [12u64])).await, 4..5);
}

/// A closed store refuses verdicts and wakes waiting callers.
pub async fn a_closed_store_refuses_verdicts_and_wakes_who_waits(subject: &dyn Subject) {
    let opened = open_with(subject, 3).await;
    append(&opened.streams, verdicts("s", 0..1, [0u64])).await;
    let waiting = tokio::spawn({
        let streams = opened.streams.clone();
        async move { streams.wait_past("s", 1).await }
    });
    tokio::task::yield_now().await;
    opened.store.close().await;
    assert_eq!(waiting.await.expect("the task ends well"), Err(ReadError::Store(StoreError::Closed)));
    let error = opened.streams.append(verdicts("s", 1..2, [1u64])).await.expect_err("it is refused");
    assert_eq!((error.code(), error), (Code::Closing, StreamError::Store(StoreError::Closed)));
    let opened = opened.reopen(subject).await;
    assert_eq!(head_and_progress(&opened.streams, "s").await, (1, 1));
}

/// Appends in flight when the store closes are stored and acknowledged, or refused and absent.
pub async fn appends_under_way_when_closing_are_stored_or_refused(subject: &dyn Subject) {
    let opened = open_with(subject, 3).await;
    let tasks: Vec<_> = (0..40)
        .map(|n| {
            let streams = Arc::clone(&opened.streams);
            let name = format!("s-{n}");
            tokio::spawn(async move {
                let outcome = streams.append(verdicts(&name, 0..3, [0u64, 2])).await;
                (name, outcome)
            })
        })
        .collect();
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
    opened.store.close().await;
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.expect("the task ends well"));
    }
    drop(opened);
    let opened = open(subject).await;
    for (name, outcome) in outcomes {
        let found = head_and_progress(&opened.streams, &name).await;
        match outcome {
            Ok(_) => assert_eq!(found, (2, 3), "acknowledged verdicts are there"),
            Err(StreamError::Store(StoreError::Closed)) => assert_eq!(found, (0, 0), "refused ones are not"),
            Err(other) => panic!("{other}"),
        }
    }
}
