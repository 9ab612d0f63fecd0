//! An event is in a stream once: repeats add nothing, and verdicts that do not fit are refused.

use std::sync::Arc;

use annals_core::{Code, StreamError, Verdicts};

use crate::Subject;
use crate::streams::sample::{NONE, Opened, append, head_and_progress, numbers, open_with, repeat, verdicts, whole};

async fn refused(opened: &Opened, verdicts: Verdicts) -> StreamError {
    opened.streams.append(verdicts).await.expect_err("it is refused")
}

/// The same verdicts again succeed without a change, and return the positions of the first time.
pub async fn a_repeat_adds_nothing_and_returns_the_first_outcome(subject: &dyn Subject) {
    let opened = open_with(subject, 10).await;
    let first = verdicts("s", 0..4, [(0, "a"), (2, "b")]);
    let second = verdicts("s", 4..8, [(5, "a")]);
    let none = verdicts("s", 8..10, NONE);
    assert_eq!(append(&opened.streams, first.clone()).await, 0..2);
    assert_eq!(repeat(&opened.streams, first.clone()).await, 0..2);
    assert_eq!(append(&opened.streams, second.clone()).await, 2..3);
    assert_eq!(append(&opened.streams, none.clone()).await, 3..3);
    for _ in 0..3 {
        assert_eq!(repeat(&opened.streams, none.clone()).await, 3..3);
        assert_eq!(repeat(&opened.streams, second.clone()).await, 2..3);
        assert_eq!(repeat(&opened.streams, first.clone()).await, 0..2);
    }
    assert_eq!(numbers(&opened.streams, "s").await, [0, 2, 5]);
    assert_eq!(head_and_progress(&opened.streams, "s").await, (3, 10));
}

/// This holds however much was appended since.
pub async fn a_repeat_is_recognised_however_long_ago(subject: &dyn Subject) {
    let opened = open_with(subject, 3_000).await;
    let runs: Vec<Verdicts> = (0..3_000)
        .step_by(30)
        .map(|from| {
            let included: Vec<_> = (from..from + 30).filter(|n| n % 4 != 0).map(|n| (n, n.to_string())).collect();
            verdicts("s", from..from + 30, included.iter().map(|(n, partition)| (*n, &**partition)))
        })
        .collect();
    let mut outcomes = Vec::new();
    for run in &runs {
        outcomes.push(append(&opened.streams, run.clone()).await);
    }
    for (run, outcome) in runs.iter().zip(&outcomes) {
        assert_eq!(repeat(&opened.streams, run.clone()).await, *outcome);
    }
    assert_eq!(head_and_progress(&opened.streams, "s").await.1, 3_000);
}

/// A filter that died evaluates the log again in runs of another length. What it has evaluated before is a repeat.
pub async fn a_repeat_is_recognised_however_the_runs_were_cut(subject: &dyn Subject) {
    let opened = open_with(subject, 60).await;
    let run = |from: u64, to: u64| verdicts("s", from..to, (from..to).filter(|n| n % 3 == 0));
    for from in (0..60).step_by(10) {
        append(&opened.streams, run(from, from + 10)).await;
    }
    for (from, to) in [(0u64, 60u64), (0, 1), (1, 3), (7, 23), (59, 60), (30, 31)] {
        let first = from.div_ceil(3);
        assert_eq!(
            repeat(&opened.streams, run(from, to)).await,
            first..first + (from..to).filter(|n| n % 3 == 0).count() as u64
        );
    }
    assert_eq!(numbers(&opened.streams, "s").await.len(), 20);
}

/// A verdict is final: another partition, or an event more or less, is refused, and the error names the first event that differs.
pub async fn what_was_judged_otherwise_is_refused(subject: &dyn Subject) {
    let opened = open_with(subject, 8).await;
    append(&opened.streams, verdicts("s", 0..8, [(1, "a"), (3, "b"), (5, "a")])).await;
    let before = whole(&opened.streams, "s").await;
    for (differs, again) in [
        (3, verdicts("s", 0..8, [(1, "a"), (3, "c"), (5, "a")])),
        (0, verdicts("s", 0..8, [(0, "a"), (1, "a"), (3, "b"), (5, "a")])),
        (5, verdicts("s", 0..8, [(1, "a"), (3, "b")])),
        (1, verdicts("s", 0..8, NONE)),
        (7, verdicts("s", 0..8, [(1, "a"), (3, "b"), (5, "a"), (7, "z")])),
        (1, verdicts("s", 0..8, [1u64, 3, 5])),
        (3, verdicts("s", 2..4, NONE)),
        (2, verdicts("s", 2..3, [(2, "a")])),
    ] {
        let error = refused(&opened, again.clone()).await;
        assert_eq!(error, StreamError::VerdictsDiffer { sequence_number: differs }, "{again:?}");
        assert_eq!(error.code(), Code::VerdictsDiffer);
        assert_eq!(whole(&opened.streams, "s").await, before);
    }
}

/// Verdicts of which some are known and some are new are refused, with the filter's progress.
pub async fn what_was_judged_in_part_is_refused(subject: &dyn Subject) {
    let opened = open_with(subject, 8).await;
    append(&opened.streams, verdicts("s", 0..3, [0u64, 1, 2])).await;
    for from in 0..3 {
        let error = refused(&opened, verdicts("s", from..4, from..4)).await;
        assert_eq!(error, StreamError::Moved { from, progress: 3 });
        assert_eq!(error.code(), Code::StreamMoved);
    }
    assert_eq!(numbers(&opened.streams, "s").await, [0, 1, 2]);
    append(&opened.streams, verdicts("s", 3..4, [3u64])).await;
}

/// A filter cannot skip events: it excludes each one explicitly.
pub async fn verdicts_that_skip_events_are_refused(subject: &dyn Subject) {
    let opened = open_with(subject, 8).await;
    assert_eq!(refused(&opened, verdicts("s", 1..2, [1u64])).await, StreamError::Moved { from: 1, progress: 0 });
    append(&opened.streams, verdicts("s", 0..2, [1u64])).await;
    assert_eq!(refused(&opened, verdicts("s", 4..8, NONE)).await, StreamError::Moved { from: 4, progress: 2 });
    assert_eq!(head_and_progress(&opened.streams, "s").await, (1, 2));
}

/// Of many concurrent callers that append the same, one appends and the others repeat it.
pub async fn racing_repeats_are_appended_once(subject: &dyn Subject) {
    let opened = open_with(subject, 200).await;
    for from in (0..200).step_by(10) {
        let racing: Vec<_> = (0..8)
            .map(|_| {
                let (streams, run) = (Arc::clone(&opened.streams), verdicts("s", from..from + 10, [(from, "a")]));
                tokio::spawn(async move { streams.append(run).await })
            })
            .collect();
        let mut firsts = 0;
        for task in racing {
            let outcome = task.await.expect("the task ends well").expect("it is accepted");
            assert_eq!(outcome.positions, from / 10..from / 10 + 1);
            firsts += usize::from(!outcome.duplicate);
        }
        assert_eq!(firsts, 1);
    }
    assert_eq!(numbers(&opened.streams, "s").await, (0..200).step_by(10).collect::<Vec<_>>());
}

/// With two filters that differ on one stream, each range belongs to one filter alone, and the other gets an error.
pub async fn filters_that_write_to_one_stream_do_not_interleave(subject: &dyn Subject) {
    let opened = open_with(subject, 400).await;
    let filters: Vec<_> = (0..4u64)
        .map(|filter| {
            let streams = Arc::clone(&opened.streams);
            tokio::spawn(async move {
                let partition = filter.to_string();
                let (mut mine, mut from) = (Vec::new(), 0);
                while from < 400 {
                    let to = (from + 1 + filter).min(400);
                    let run = verdicts("s", from..to, (from..to).map(|n| (n, &*partition)));
                    match streams.append(run).await {
                        Ok(outcome) => {
                            assert!(!outcome.duplicate, "nobody else has this opinion");
                            mine.push((from..to, outcome.positions));
                            from = to;
                        }
                        Err(StreamError::Moved { progress, .. }) => from = progress,
                        Err(StreamError::VerdictsDiffer { .. }) => {
                            from = streams.stream("s").await.expect("it is looked up").progress;
                        }
                        Err(other) => panic!("{other}"),
                    }
                    tokio::task::yield_now().await;
                }
                (partition, mine)
            })
        })
        .collect();
    let mut owners = vec![None; 400];
    for filter in filters {
        let (partition, mine) = filter.await.expect("the filter ends well");
        for (range, positions) in mine {
            assert_eq!(range, positions, "every event is included");
            for n in range {
                assert_eq!(owners[n as usize].replace(partition.clone()), None, "{n} has two owners");
            }
        }
    }
    let entries = whole(&opened.streams, "s").await;
    assert_eq!(entries.len(), 400);
    for (entry, owner) in entries.iter().zip(owners) {
        assert_eq!(entry.partition.as_deref(), owner.as_deref());
    }
}
