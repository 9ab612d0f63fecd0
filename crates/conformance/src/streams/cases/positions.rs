//! A stream has positions of its own, which the store assigns.

use annals_core::{Code, DEFAULT_SCOPE, DEFAULT_TENANT, Included, StreamEntry};

use crate::streams::sample::{append, head_and_progress, numbers, open, open_with, read, verdicts, whole};
use crate::{OTHER_TENANT, Subject, WithOther};

/// Positions are 0, 1, 2 … in log order, however the runs are divided.
pub async fn positions_begin_at_0_and_have_no_hole(subject: &dyn Subject) {
    let opened = open_with(subject, 1_000).await;
    let mut expected: Vec<u64> = Vec::new();
    let (mut from, mut width) = (0, 1);
    while from < 1_000 {
        let to = (from + width).min(1_000);
        let included: Vec<u64> = (from..to).filter(|n| n % 3 != 1).collect();
        let first = expected.len() as u64;
        expected.extend(&included);
        let positions = append(&opened.streams, verdicts("s", from..to, included)).await;
        assert_eq!(positions, first..expected.len() as u64);
        (from, width) = (to, width % 97 + 8);
    }
    assert_eq!(numbers(&opened.streams, "s").await, expected);
    assert_eq!(head_and_progress(&opened.streams, "s").await, (expected.len() as u64, 1_000));
}

/// An entry has the partition that its verdict named, which is any text or none.
pub async fn entries_keep_their_partitions(subject: &dyn Subject) {
    let opened = open_with(subject, 6).await;
    let long = "p".repeat(256);
    let given = [(0, "a"), (1, "a.b"), (2, "$x/ÿ 日本"), (3, &*long), (5, "a")].map(|(n, p)| Included::of(n, p));
    let mut all = verdicts("s", 0..6, given.iter().map(|i| (i.sequence_number, i.partition.as_deref().unwrap_or(""))));
    all.included.insert(4, Included::new(4));
    assert_eq!(append(&opened.streams, all.clone()).await, 0..6);
    let read: Vec<_> = whole(&opened.streams, "s").await;
    let expected = all.included.into_iter().zip(0..).map(|(Included { sequence_number, partition }, position)| {
        StreamEntry { position, sequence_number, partition }
    });
    assert_eq!(read, expected.collect::<Vec<_>>());
}

/// An entry of one stream is in no other, even if a name is a prefix of another's or differs only in case.
pub async fn each_stream_has_positions_of_its_own(subject: &dyn Subject) {
    let opened = open_with(subject, 20).await;
    let names = ["stream-1", "stream-10", "stream-1.", "Stream-1", "public-stream-1"];
    for (step, name) in (2..).zip(names) {
        let included: Vec<u64> = (0..20).step_by(step).collect();
        assert_eq!(append(&opened.streams, verdicts(name, 0..20, included)).await.start, 0);
    }
    for (step, name) in (2..).zip(names) {
        assert_eq!(numbers(&opened.streams, name).await, (0..20).step_by(step).collect::<Vec<_>>(), "{name}");
    }
    assert!(whole(&opened.streams, "stream").await.is_empty());
}

/// Streams of the same name in two tenants are independent.
pub async fn each_tenant_has_streams_of_its_own(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let opened = open_with(subject, 5).await;
    let other = opened.store.streams(OTHER_TENANT, DEFAULT_SCOPE).expect("the tenant is declared");
    append(&opened.streams, verdicts("s", 0..5, [(1, "a"), (3, "b")])).await;
    assert_eq!(head_and_progress(&other, "s").await, (0, 0));
    assert!(whole(&other, "s").await.is_empty());
    // The other tenant's log is empty, so there is nothing to evaluate.
    let error = other.append(verdicts("s", 0..5, [1u64])).await.expect_err("it is refused");
    assert_eq!(error.code(), Code::UnknownEvent);
}

/// A tenant that is not declared and a scope that does not exist have no streams.
pub async fn a_scope_that_does_not_exist_has_no_streams(subject: &dyn Subject) {
    let opened = open(subject).await;
    let code = |tenant: &str, scope: &str| opened.store.streams(tenant, scope).err().map(|unknown| unknown.code());
    assert_eq!(code(DEFAULT_TENANT, DEFAULT_SCOPE), None);
    assert_eq!(code("nobody", DEFAULT_SCOPE), Some(Code::UnknownTenant));
    assert_eq!(code(DEFAULT_TENANT, "nowhere"), Some(Code::UnknownScope));
}

/// A caller that knows a sequence number of the log gets its position in a stream.
pub async fn the_position_of_a_sequence_number_is_where_to_go_on(subject: &dyn Subject) {
    let opened = open_with(subject, 2_000).await;
    for from in [0, 700, 1_400] {
        let to = (from + 700).min(2_000);
        append(&opened.streams, verdicts("s", from..to, (from..to).filter(|n| n % 7 == 3))).await;
    }
    let all = numbers(&opened.streams, "s").await;
    // The surroundings of the ends of the runs, and a sample between them: each look-up is a request to some stores.
    let ends = [0..20, 690..710, 1_390..1_410, 1_990..2_010].into_iter().flatten();
    for number in ends.chain((0..2_010).step_by(11)).chain([u64::MAX]) {
        let position = opened.streams.position_of("s", number).await.expect("it is looked up");
        assert_eq!(position, all.partition_point(|known| *known < number) as u64, "{number}");
    }
    let position = opened.streams.position_of("s", 1_000).await.expect("it is looked up");
    let page = read(&opened.streams, annals_core::StreamQuery { from: position, ..annals_core::StreamQuery::new("s") });
    assert_eq!(page.await.entries[0].sequence_number, all[position as usize]);
    assert_eq!(opened.streams.position_of("nothing", 7).await, Ok(0));
}
