//! What is read equals what was committed: content, ids, times and everything else.

use annals_core::{Clock, NewCommit, NewEvent, Timestamp, Uuid, limits};
use serde_json::{Value, json};

use crate::Subject;
use crate::sample::{commit, commits_of, data, event, event_of_bytes, open, order, order_aggregate, reopen, whole_log};

fn everything() -> NewCommit {
    let full = NewEvent {
        generation: 3,
        id: Some(Uuid::from_u128(0x1234)),
        tags: vec!["b".into(), "a".into(), "b".into(), "日本".into()],
        public: true,
        time: Some(Timestamp::from_millis(1_772_366_400_007)),
        ..event("order.placed-x_1", 1)
    };
    let noted = json!({ "trace": "日本", "$a.b": i64::MIN, "attempt": 2, "cost": 2.0 });
    let full = full.with_metadata(&noted).expect("strings and numbers");
    NewCommit {
        request_id: Some("r/1".into()),
        command_id: Some("c".into()),
        header: vec![("z".into(), "1".into()), ("a".into(), String::new().into()), ("ü".into(), "日本\n\0".into())],
        tenant_id: Some("t".into()),
        owner_id: Some("o".into()),
        space_id: Some("s".into()),
        correlation_id: Some("x".into()),
        causation_id: Some("y".into()),
        ..NewCommit::new("order", "a").event(full).event(event("plain", 2))
    }
}

/// Everything that a commit was given is read back unchanged, from the log and from the aggregate, before and after reopening.
pub async fn everything_given_is_read_back(subject: &dyn Subject) {
    let (mut store, mut log) = open(subject).await;
    let before = subject.clock().now();
    let given = everything();
    let outcome = commit(&log, given.clone()).await;
    let after = subject.clock().now();
    for _ in 0..2 {
        let events = whole_log(&log).await;
        let info = &events[0].commit;
        assert_eq!((info.commit_id, info.version), (outcome.commit_id, 1));
        assert_eq!((&info.aggregate, &info.header), (&given.aggregate, &given.header));
        assert_eq!((&info.request_id, &info.command_id), (&given.request_id, &given.command_id));
        assert_eq!((&*info.tenant_id, &*info.owner_id, &*info.space_id), ("t", "o", "s"));
        assert_eq!((&info.correlation_id, &info.causation_id), (&given.correlation_id, &given.causation_id));
        assert_eq!(Some(info.time), given.events[0].time, "a commit has the time of its first event");
        for (n, (read, given)) in events.iter().zip(&given.events).enumerate() {
            assert_eq!((read.sequence_number, read.ordinal as usize), (n as u64, n));
            assert_eq!((&read.event_type, read.generation), (&given.event_type, given.generation));
            assert_eq!((&read.data, &read.tags, read.public), (&given.data, &given.tags, given.public));
            assert_eq!(read.metadata, given.metadata);
            assert_eq!(read.id, outcome.event_ids[n]);
            assert_eq!(read.time, given.time.unwrap_or(read.time));
            assert_eq!(read.commit, *info);
        }
        assert!((before..=after).contains(&events[1].time), "without a time it is the time of acceptance");
        let commits = commits_of(&log, order_aggregate("a")).await;
        assert_eq!((&commits[0].info, &commits[0].events), (info, &events));
        (store, log) = reopen(subject, store, log).await;
    }
    drop(store);
}

/// What is omitted has its default: tenantId `(0)`, no owner, space, command, correlation, causation or header. Ids and times are
/// generated.
pub async fn what_is_left_out_has_its_default(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let before = subject.clock().now();
    let outcome = commit(&log, order("a", 1).event(event("t", 2))).await;
    let after = subject.clock().now();
    let read = &commits_of(&log, order_aggregate("a")).await[0];
    assert_eq!((&*read.info.tenant_id, &*read.info.owner_id, &*read.info.space_id), ("(0)", "", ""));
    assert_eq!((&read.info.command_id, &read.info.correlation_id, &read.info.causation_id), (&None, &None, &None));
    assert_eq!(read.info.header, []);
    assert!((before..=after).contains(&read.info.time));
    for (event, id) in read.events.iter().zip(&outcome.event_ids) {
        assert_eq!((event.generation, event.public, event.tags.len()), (1, false, 0));
        assert_eq!((&event.metadata, event.commit.transaction), (&None, None));
        assert_eq!((event.id, id.get_version_num()), (*id, 7), "a made id is a UUIDv7");
        assert_eq!(event.time, read.info.time);
    }
    assert_ne!(outcome.event_ids[0], outcome.event_ids[1]);
    assert_ne!(outcome.commit_id, commit(&log, order("a", 1)).await.commit_id);
}

/// Owner and space belong to each commit; an explicit default tenantId is the default one.
pub async fn owner_and_space_are_each_commits_own(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let owned = |owner: &str, n| NewCommit { owner_id: Some(owner.into()), ..order("a", n) };
    commit(&log, owned("o-1", 1)).await;
    commit(&log, NewCommit { tenant_id: Some("(0)".into()), ..owned("", 2) }).await;
    commit(&log, owned("o-2", 3)).await;
    let owners: Vec<_> = commits_of(&log, order_aggregate("a")).await.iter().map(|c| c.info.owner_id.clone()).collect();
    assert_eq!(owners, ["o-1", "", "o-2"]);
}

/// JSON content is read back equal, with its order of keys: null, booleans, empty values, Unicode, the whole range of 64-bit integers and
/// doubles, text like dates or Extended JSON, keys with `$` and `.`, nested arrays and objects.
pub async fn json_content_comes_back_equal(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    let contents = contents();
    for content in &contents {
        commit(&log, NewCommit::new("order", "a").event(NewEvent::new("t", data(content.clone())))).await;
    }
    let (_store, log) = reopen(subject, store, log).await;
    for (event, content) in whole_log(&log).await.iter().zip(&contents) {
        let text = serde_json::to_string(&event.data).expect("data is written as JSON");
        let given = data(content.clone());
        assert_eq!(event.data, given, "the bytes are the same");
        assert_eq!(text, serde_json::to_string(&given).expect("data is written as JSON"));
        let read: Value = serde_json::from_str(&text).expect("what is written is JSON");
        assert_eq!(read, *content);
    }
}

fn contents() -> Vec<Value> {
    let mut deep = json!({ "end": [] });
    for _ in 0..90 {
        deep = json!({ "d": deep });
    }
    vec![
        json!({}),
        json!({ "null": null, "true": true, "false": false, "empty": "", "list": [], "object": {} }),
        json!({ "text": "æøå 日本語 🦀 \u{0} \u{1f} \" \\ \u{2028}", "ключ": "значение", "🦀": 1 }),
        json!({ "ints": [0, -1, 1, i32::MAX, i32::MIN, i64::MAX, i64::MIN] }),
        json!({ "doubles": [0.5, -0.1, 1.0, 1.79e308, -1.79e308, 4.94e-324, 2.2250738585072014e-308] }),
        json!({ "dates": ["2026-03-01T12:00:00Z", "2026-03-01", "12:00"] }),
        json!({ "$date": "2026-03-01T12:00:00Z" }),
        json!({ "id": { "$oid": "507f1f77bcf86cd799439011" }, "n": { "$numberLong": "5" } }),
        json!({ "a.b": 1, "$set": { "x": 1 }, "": "empty key", " ": 2 }),
        json!({ "nested": [[1, [2, [3, { "x": [null, {}] }]]], { "y": [[], [[]]] }] }),
        deep,
    ]
}

/// A commit may be as large as its limits allow: events of 8 MiB, commits of 15 MiB with their types and tags, 64 tags of 256 bytes, a
/// header of 64 KiB, names of 100 bytes and ids of 256.
pub async fn a_commit_may_be_as_large_as_its_limits(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    let longest_id = "i".repeat(limits::ID_BYTES_MAX);
    let mut biggest = event_of_bytes(&"t".repeat(limits::NAME_BYTES_MAX), limits::EVENT_BYTES_MAX);
    biggest.tags = (0..limits::TAGS_MAX).map(|n| format!("{n:0>256}").into()).collect();
    let around = limits::NAME_BYTES_MAX + 1 + limits::TAGS_MAX * limits::TAG_BYTES_MAX;
    let rest = event_of_bytes("t", limits::COMMIT_BYTES_MAX - limits::EVENT_BYTES_MAX - around);
    let header = vec![("k".into(), "v".repeat(limits::HEADER_BYTES_MAX - 1).into())];
    let largest = NewCommit::new("n".repeat(limits::NAME_BYTES_MAX), longest_id.clone()).event(biggest).event(rest);
    let largest = NewCommit { header, ..largest }.request_id(longest_id.clone());
    commit(&log, largest.clone()).await;
    commit(&log, order("after", 1)).await;
    let (_store, log) = reopen(subject, store, log).await;
    let commits = commits_of(&log, largest.aggregate.clone()).await;
    assert_eq!(commits[0].info.header, largest.header);
    for (read, given) in commits[0].events.iter().zip(&largest.events) {
        assert_eq!((&read.data, &read.tags, &read.event_type), (&given.data, &given.tags, &given.event_type));
    }
    assert!(log.commit(largest).await.expect("it is a repeat").duplicate);
}
