use proptest::prelude::*;

use super::*;
use crate::{
    AppendCondition, Code, CommitOutcome, Data, EventPattern, ExpectedVersion, KeyChanges, KeyValue, NewCommit,
    NewEvent, Reached, Release, Reserve, Timestamp, Uuid, Wait,
};

fn whole() -> NewCommit {
    let data = Data::from_document(&bson::doc! {
        "n": 1i32, "at": bson::DateTime::from_millis(5), "list": [1i64, {"deep": [bson::Bson::Null]}], "price": 1.5,
    });
    let first = NewEvent {
        id: Some(Uuid::from_u128(7)),
        generation: 3,
        tags: vec!["x".into(), "ž".into()],
        public: true,
        metadata: crate::Metadata::of(Data::from_json(r#"{"trace":"t","n":1}"#).expect("an object")).expect("valid"),
        time: Some(Timestamp::from_millis(1_700_000_000_123)),
        ..NewEvent::new("placed", data.expect("a document"))
    };
    let mut commit = NewCommit::new("order", "o-1").expect(ExpectedVersion::Exact(4)).request_id("r").event(first);
    for _ in 0..11 {
        commit = commit.event(NewEvent::new("paid", Data::empty()));
    }
    let text = |text: &str| Some(text.into());
    NewCommit {
        command_id: text("c"),
        header: vec![("b".into(), "1".into()), ("a".into(), "2".into())],
        tenant_id: text("t"),
        owner_id: text("o"),
        space_id: text(""),
        correlation_id: text("k"),
        causation_id: text("u"),
        append_condition: Some(AppendCondition {
            fail_if: vec![
                EventPattern { types: vec!["placed".into(), "paid".into()], tags: vec!["x".into()] },
                EventPattern { types: Vec::new(), tags: vec!["ž".into()] },
            ],
            after: Some(17),
        }),
        keys: KeyChanges {
            reserve: vec![
                Reserve {
                    name: "user_name".into(),
                    key: "eva".into(),
                    value: KeyValue::new("o-1").expect("a value"),
                    ttl_at: Some(Timestamp::from_millis(1_800_000_000_000)),
                },
                Reserve {
                    name: "email".into(),
                    key: "e@x".into(),
                    value: KeyValue::new([1, 2]).expect("a value"),
                    ttl_at: None,
                },
            ],
            release: vec![
                Release { name: "user_name".into(), key: "eve".into(), value: None },
                Release {
                    name: "email".into(),
                    key: "f@x".into(),
                    value: Some(KeyValue::new(serde_json::json!({"by": null})).expect("a value")),
                },
            ],
        },
        wait: Wait { until: Reached::Logged, at_most: Some(std::time::Duration::from_millis(250)) },
        ..commit
    }
}

fn written(commit: &NewCommit) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_commit(commit, &mut bytes);
    bytes
}

#[test]
fn a_commit_is_read_as_it_was_written_with_every_type_of_its_data() {
    let commit = whole();
    assert_eq!(read_commit(&written(&commit)), Ok(commit.clone()));
    for expected in [ExpectedVersion::Any, ExpectedVersion::Empty, ExpectedVersion::Exists, ExpectedVersion::Exact(0)] {
        let commit = NewCommit { expected_version: expected, ..commit.clone() };
        assert_eq!(read_commit(&written(&commit)), Ok(commit));
    }
}

#[test]
fn documents_in_a_row_are_cut_where_they_end() {
    let commit = written(&whole());
    let row = [commit.as_slice(), &[5, 0, 0, 0, 0], &commit[..9]].concat();
    let (first, rest) = split_document(&row).expect("a document").expect("whole");
    assert_eq!(first, commit);
    let (second, rest) = split_document(rest).expect("a document").expect("whole");
    assert_eq!(second, [5, 0, 0, 0, 0]);
    assert_eq!(split_document(rest), Ok(None));
    assert_eq!(split_document(&[]), Ok(None));
    for bad in [[4, 0, 0, 0], [0xff; 4]] {
        assert!(split_document(&bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_reply_is_read_as_it_was_written() {
    for (events, first, duplicate) in
        [(1, Some(77), false), (3, Some(77), true), (12, Some(0), false), (2, None, false)]
    {
        let outcome = CommitOutcome {
            commit_id: Uuid::from_u128(1),
            version: 9,
            first_sequence_number: first,
            event_ids: (0..events).map(Uuid::from_u128).collect(),
            duplicate,
            stage: None,
        };
        let mut bytes = Vec::new();
        write_outcome(&outcome, &mut bytes);
        assert_eq!(read_reply(&bytes), Ok(Ok(outcome)));
    }
    let mut bytes = Vec::new();
    write_refusal("{}", &mut bytes);
    assert_eq!(read_reply(&bytes), Ok(Err("{}".to_owned())));
    assert!(read_reply(&[5, 0, 0, 0, 0]).is_err());
}

#[test]
fn bad_commits_are_refused_with_code_and_path() {
    let refused = |document: bson::Document| {
        let bytes = bson::serialize_to_vec(&document).expect("a document");
        let invalid = read_commit(&bytes).expect_err("refused");
        (invalid.code, invalid.path)
    };
    let aggregate = bson::doc! {"name": "a", "id": "1"};
    let with = |key: &str, value: bson::Bson| {
        let mut document = bson::doc! {"aggregate": aggregate.clone(), "events": [{"type": "t", "data": {}}]};
        document.insert(key, value);
        refused(document)
    };
    let event = |event: bson::Document| with("events", vec![event].into());
    assert_eq!(refused(bson::doc! {}), (Code::InvalidBody, "aggregate".into()));
    assert_eq!(refused(bson::doc! {"aggregate": aggregate.clone()}), (Code::InvalidBody, "events".into()));
    assert_eq!(with("colour", 1.into()), (Code::InvalidBody, "colour".into()));
    assert_eq!(with("aggregate", bson::doc! {"name": "a"}.into()), (Code::InvalidBody, "aggregate".into()));
    assert_eq!(with("request_id", 1.into()), (Code::InvalidBody, "request_id".into()));
    assert_eq!(with("expected_version", (-1).into()), (Code::InvalidVersion, "expected_version".into()));
    assert_eq!(with("expected_version", "new".into()), (Code::InvalidVersion, "expected_version".into()));
    assert_eq!(with("header", bson::doc! {"a": 1}.into()), (Code::InvalidHeader, "header.a".into()));
    assert_eq!(event(bson::doc! {"type": "t"}), (Code::InvalidBody, "events[0].data".into()));
    assert_eq!(event(bson::doc! {"data": {}}), (Code::InvalidBody, "events[0].type".into()));
    assert_eq!(event(bson::doc! {"type": "t", "data": 1}), (Code::InvalidData, "events[0].data".into()));
    assert_eq!(event(bson::doc! {"type": "t", "data": {}, "id": "7"}), (Code::InvalidId, "events[0].id".into()));
    let noted = bson::doc! {"type": "t", "data": {}, "metadata": {"a": [1]}};
    assert_eq!(event(noted), (Code::InvalidMetadata, "events[0].metadata".into()));
    assert_eq!(event(bson::doc! {"type": "t", "data": {}, "time": 1}), (Code::InvalidTime, "events[0].time".into()));
    for (key, value, code, path) in [
        ("append_condition", bson::doc! {"fail_if": 1}, Code::InvalidAppendCondition, "append_condition.fail_if"),
        ("append_condition", bson::doc! {"before": 1}, Code::InvalidAppendCondition, "append_condition.before"),
    ] {
        assert_eq!(with(key, value.into()), (code, path.into()));
    }
    assert_eq!(with("wait", bson::doc! {"for": "te a"}.into()), (Code::InvalidWait, "wait.for".into()));
    assert_eq!(with("wait", bson::doc! {}.into()), (Code::InvalidBody, "wait.for".into()));
    let negative = bson::doc! {"for": "logged", "timeout_ms": -1};
    assert_eq!(with("wait", negative.into()), (Code::InvalidBody, "wait.timeout_ms".into()));
    let keys = |key: &str, document: bson::Document| with(key, vec![document].into());
    assert_eq!(keys("reserve", bson::doc! {"name": "n", "key": "k"}), (Code::InvalidKeys, "reserve[0]".into()));
    assert_eq!(keys("release", bson::doc! {"name": "n", "key": 1}), (Code::InvalidKeys, "release[0].key".into()));
    let far = bson::DateTime::from_millis(i64::MAX);
    assert_eq!(event(bson::doc! {"type": "t", "data": {}, "time": far}), (Code::InvalidTime, "events[0].time".into()));
}

#[test]
fn data_that_is_nested_too_deep_or_has_a_key_twice_is_refused() {
    let nested = |levels: usize| {
        let mut inner = bson::doc! {};
        for _ in 1..levels {
            inner = bson::doc! {"d": inner};
        }
        Data::from_bson(&bson::serialize_to_vec(&inner).expect("a document"))
    };
    assert!(nested(100).is_ok());
    assert!(nested(101).is_err());
    let twice = [19, 0, 0, 0, 0x10, b'a', 0, 1, 0, 0, 0, 0x10, b'a', 0, 2, 0, 0, 0, 0];
    assert!(Data::from_bson(&twice).expect_err("refused").contains("given twice"));
}

proptest! {
    #[test]
    fn changed_bytes_never_panic_and_what_is_taken_is_valid_data(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = written(&whole());
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = read_reply(&bytes);
        if let Ok(commit) = read_commit(&bytes) {
            for event in commit.events {
                let document: Result<bson::Document, _> = event.data.as_raw().try_into();
                prop_assert!(document.is_ok());
            }
        }
    }
}
