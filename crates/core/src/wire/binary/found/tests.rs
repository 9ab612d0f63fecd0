use proptest::prelude::*;

use super::*;

fn received_from() -> ReceivedFrom {
    let subscription =
        Subscription { producer: "m".into(), tenant: "t".into(), stream: "s".into(), partition: ByteString::new() };
    let (consent, at) = (Uuid::from_u128(5), Timestamp::from_millis(6));
    ReceivedFrom { subscription, sequence_number: 7, position: 3, consent, at }
}

fn commit(number: u128, events: u32) -> RecordedCommit {
    let text = |text: &str| Some(text.into());
    let info = Arc::new(CommitInfo {
        commit_id: Uuid::from_u128(number),
        request_id: text("r"),
        aggregate: Aggregate::new("order", "ž"),
        version: number as u64,
        time: Timestamp::from_millis(5),
        tenant_id: if number.is_multiple_of(2) { DEFAULT_TENANT_ID.into() } else { "t".into() },
        owner_id: "o".into(),
        space_id: ByteString::new(),
        command_id: text("c"),
        correlation_id: None,
        causation_id: text("u"),
        header: vec![("b".into(), "1".into()), ("a".into(), "".into())],
        transaction: (number > 1).then(|| TransactionPlace {
            id: Uuid::from_u128(2),
            place: number as u32 - 2,
            count: 2,
        }),
        received: (number == 3).then(|| Arc::new(received_from())),
    });
    let data = Data::from_document(&bson::doc! {"n": 1i32, "at": bson::DateTime::from_millis(5), "x": [1.5, {}]});
    let event = |ordinal: u32| RecordedEvent {
        sequence_number: 100 * number as u64 + u64::from(ordinal),
        ordinal,
        id: Uuid::from_u128(number << 64 | u128::from(ordinal)),
        event_type: if ordinal % 3 == 1 { "paid".into() } else { "placed".into() },
        generation: 1 + ordinal % 2,
        data: data.clone().expect("a document"),
        tags: (0..ordinal % 13).map(|tag| format!("tag {tag}").into()).collect(),
        public: ordinal == 4,
        metadata: (ordinal == 1).then(|| Metadata::from_stored(Data::from_json(r#"{"n":1}"#).expect("valid"))),
        time: Timestamp::from_millis(5 + i64::from(ordinal % 2)),
        commit: info.clone(),
    };
    RecordedCommit { events: (0..events).map(event).collect(), info }
}

fn written(commits: &[RecordedCommit]) -> Vec<u8> {
    let mut writer = FoundWriter::default();
    commits.iter().flat_map(|commit| &commit.events).for_each(|event| event.lend(|event| writer.event(&event)));
    writer.end_of_log(7, u64::MAX)
}

fn read(bytes: Vec<u8>) -> Result<(Vec<RecordedCommit>, FoundEnd), String> {
    let mut commits = Vec::new();
    let end = read_found(&bytes.into(), |commit| commits.push(commit))?;
    Ok((commits, end))
}

#[test]
fn what_was_found_is_read_as_it_was_written() {
    let commits = vec![commit(1, 2), commit(2, 120), commit(3, 1)];
    assert_eq!(read(written(&commits)), Ok((commits, FoundEnd { next: 7, head: u64::MAX, version: 0 })));
    assert_eq!(read(written(&[])), Ok((vec![], FoundEnd { next: 7, head: u64::MAX, version: 0 })));
    let end = FoundWriter::default().end_of_aggregate(9);
    assert_eq!(read(end), Ok((vec![], FoundEnd { version: 9, ..FoundEnd::default() })));
}

#[test]
fn a_part_of_an_answer_is_not_taken_for_the_whole() {
    let bytes = written(&[commit(1, 2), commit(2, 3)]);
    for length in 0..bytes.len() {
        assert!(read(bytes[..length].to_vec()).is_err(), "{length} of {} bytes", bytes.len());
    }
    assert!(read([&bytes[..], &bytes].concat()).is_err());
}

proptest! {
    #[test]
    fn changed_bytes_never_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = written(&[commit(1, 2), commit(2, 3)]);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for event in read(bytes).into_iter().flat_map(|(commits, _)| commits).flat_map(|commit| commit.events) {
            let _ = serde_json::to_string(&event.data);
        }
    }
}
