//! What an append does, and what it refuses.

use std::sync::Arc;

use annals_core::{Code, Included, StreamError, Verdicts, limits};

use crate::Subject;
use crate::streams::sample::{
    NONE, append, head_and_progress, info, numbers, open, open_with, repeat, verdicts, whole, write,
};

/// An append returns the positions of what it included, in its order, whether there were few, many or none.
pub async fn an_append_answers_the_positions_it_gave(subject: &dyn Subject) {
    let opened = open_with(subject, 10).await;
    assert_eq!(append(&opened.streams, verdicts("s", 0..1, [0u64])).await, 0..1);
    assert_eq!(append(&opened.streams, verdicts("s", 1..5, [1u64, 2, 4])).await, 1..4);
    assert_eq!(append(&opened.streams, verdicts("s", 5..7, NONE)).await, 4..4);
    assert_eq!(append(&opened.streams, verdicts("s", 7..10, [9u64])).await, 4..5);
    assert_eq!(numbers(&opened.streams, "s").await, [0, 1, 2, 4, 9]);
}

/// The progress of a filter that includes nothing moves all the same, and the stream exists from then on.
pub async fn progress_moves_when_nothing_is_included(subject: &dyn Subject) {
    let opened = open_with(subject, 10).await;
    for n in 0..10 {
        assert_eq!(head_and_progress(&opened.streams, "s").await, (0, n));
        assert_eq!(append(&opened.streams, verdicts("s", n..n + 1, NONE)).await, 0..0);
    }
    assert_eq!(head_and_progress(&opened.streams, "s").await, (0, 10));
    let listed = opened.streams.list(annals_core::StreamsQuery::default()).await.expect("they are listed");
    assert_eq!(listed, [info(&opened.streams, "s").await]);
}

/// A filter that starts at the newest event excludes all earlier ones in one step.
pub async fn a_filter_may_begin_late(subject: &dyn Subject) {
    let opened = open_with(subject, 2_000).await;
    append(&opened.streams, verdicts("s", 0..1_999, NONE)).await;
    assert_eq!(append(&opened.streams, verdicts("s", 1_999..2_000, [(1_999, "p")])).await, 0..1);
    assert_eq!(numbers(&opened.streams, "s").await, [1_999]);
}

/// The largest append is accepted and read back, each entry with a partition of its own.
pub async fn an_append_holds_ten_thousand_entries(subject: &dyn Subject) {
    let opened = open_with(subject, limits::VERDICTS_MAX as u64 + 1).await;
    let partition = |n: u64| format!("partition of {n}");
    let included = (0..limits::VERDICTS_MAX as u64).map(|n| Included::of(n, partition(n))).collect();
    let all = Verdicts { included, ..Verdicts::new("s", 0..limits::VERDICTS_MAX as u64 + 1) };
    assert_eq!(append(&opened.streams, all.clone()).await, 0..10_000);
    assert_eq!(repeat(&opened.streams, all.clone()).await, 0..10_000);
    let entries = whole(&opened.streams, "s").await;
    assert_eq!(entries.len(), limits::VERDICTS_MAX);
    assert!(entries.iter().all(|entry| entry.partition.as_deref() == Some(&*partition(entry.sequence_number))));
    let one_more = Verdicts { stream: "t".into(), ..all.include(Included::new(10_000)) };
    let error = opened.streams.append(one_more).await.expect_err("it is refused");
    assert_eq!(error.code(), Code::InvalidVerdicts);
}

/// Verdicts that cannot be correct are refused, with the path of what is wrong.
pub async fn verdicts_that_break_a_rule_are_refused_with_their_path(subject: &dyn Subject) {
    let opened = open_with(subject, 10).await;
    let refused = async |verdicts: Verdicts| match opened.streams.append(verdicts).await {
        Err(StreamError::Invalid(invalid)) => (invalid.code, invalid.path),
        other => panic!("a broken rule was due, not {other:?}"),
    };
    assert_eq!(refused(verdicts("a b", 0..1, NONE)).await, (Code::InvalidName, "stream".into()));
    assert_eq!(refused(verdicts("s", 3..3, NONE)).await, (Code::InvalidRange, "to".into()));
    for bad in [[2u64, 1], [1, 1], [1, 5], [1, 0]] {
        let path = "included[1].sequence_number".to_owned();
        assert_eq!(refused(verdicts("s", 0..5, bad)).await, (Code::InvalidVerdicts, path), "{bad:?}");
    }
    assert_eq!(
        refused(verdicts("s", 0..5, [(0, "good"), (1, "bad\n")])).await,
        (Code::InvalidId, "included[1].partition".into())
    );
    assert_eq!(head_and_progress(&opened.streams, "s").await, (0, 0));
}

/// Nobody can have evaluated an event that the log does not have.
pub async fn verdicts_past_the_head_of_the_log_are_refused(subject: &dyn Subject) {
    let opened = open(subject).await;
    for events in [0, 3] {
        write(&opened.log, events).await;
        let error = opened.streams.append(verdicts("s", 0..events + 1, NONE)).await.expect_err("it is refused");
        assert_eq!(error, StreamError::BeyondLog { to: events + 1, head: events });
        assert_eq!(error.code(), Code::UnknownEvent);
    }
    append(&opened.streams, verdicts("s", 0..3, [2u64])).await;
    let error = opened.streams.append(verdicts("s", 3..4, [3u64])).await.expect_err("it is refused");
    assert_eq!(error, StreamError::BeyondLog { to: 4, head: 3 });
    write(&opened.log, 1).await;
    assert_eq!(append(&opened.streams, verdicts("s", 3..4, [3u64])).await, 1..2);
}

/// A refusal changes nothing, and the correct verdicts are accepted afterwards.
pub async fn a_refused_append_leaves_nothing(subject: &dyn Subject) {
    let opened = open_with(subject, 10).await;
    append(&opened.streams, verdicts("s", 0..4, [(1, "a"), (3, "b")])).await;
    let before = whole(&opened.streams, "s").await;
    for bad in [
        verdicts("s", 0..4, [(1, "a"), (2, "b")]),
        verdicts("s", 3..7, [(3, "b"), (4, "new")]),
        verdicts("s", 5..6, [(5, "new")]),
        verdicts("s", 4..11, [(5, "new")]),
        verdicts("s", 4..6, [(5, "new"), (5, "new")]),
    ] {
        opened.streams.append(bad.clone()).await.expect_err("it is refused");
        assert_eq!(head_and_progress(&opened.streams, "s").await, (2, 4), "{bad:?}");
        assert_eq!(whole(&opened.streams, "s").await, before);
    }
    let new = annals_core::StreamQuery {
        partitions: annals_core::Partitions::One("new".into()),
        ..annals_core::StreamQuery::new("s")
    };
    assert!(opened.streams.read(new.clone()).await.expect("a page").entries.is_empty());
    assert_eq!(append(&opened.streams, verdicts("s", 4..6, [(5, "new")])).await, 2..3);
    assert_eq!(opened.streams.read(new).await.expect("a page").entries.len(), 1);
}

/// The verdicts of a caller that goes away before the answer are stored completely or not at all. Appending them again settles it.
pub async fn an_append_whose_caller_went_away_is_whole_or_absent(subject: &dyn Subject) {
    let opened = open_with(subject, 300).await;
    for n in 0..100u64 {
        let run = verdicts("s", n * 3..n * 3 + 3, [(n * 3, "a"), (n * 3 + 2, "b")]);
        tokio::select! {
            biased;
            outcome = opened.streams.append(run.clone()) => { outcome.expect("it is accepted"); }
            () = async { for _ in 0..n % 4 { tokio::task::yield_now().await } } => {}
        }
        let (head, progress) = head_and_progress(&opened.streams, "s").await;
        assert!([(n * 2, n * 3), (n * 2 + 2, n * 3 + 3)].contains(&(head, progress)), "{head} {progress} after {n}");
        let settled = opened.streams.append(run).await.expect("again is accepted");
        assert_eq!(settled.positions, n * 2..n * 2 + 2);
    }
    assert_eq!(numbers(&opened.streams, "s").await.len(), 200);
}

/// Many filters that run concurrently each fill their own stream correctly.
pub async fn streams_fill_side_by_side(subject: &dyn Subject) {
    let opened = open_with(subject, 600).await;
    let filters: Vec<_> = (0..12u64)
        .map(|filter| {
            let streams = Arc::clone(&opened.streams);
            tokio::spawn(async move {
                let name = format!("stream-{filter}");
                for from in (0..600).step_by(50) {
                    let included = (from..from + 50).filter(|n| n % (filter + 1) == 0);
                    append(&streams, verdicts(&name, from..from + 50, included)).await;
                }
            })
        })
        .collect();
    for filter in filters {
        filter.await.expect("the filter ends well");
    }
    for filter in 0..12 {
        let expected: Vec<u64> = (0..600).filter(|n| n % (filter + 1) == 0).collect();
        assert_eq!(numbers(&opened.streams, &format!("stream-{filter}")).await, expected);
    }
}
