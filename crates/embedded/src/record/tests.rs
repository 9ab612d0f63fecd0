use annals_core::{Data, KeyValue};
use bytes::Bytes;

use super::decode::Origin;
use super::*;

fn keys() -> KeyChanges {
    let value = |value: &str| KeyValue::new(value).expect("valid");
    let release = |key: &str, value| Release { name: "email".into(), key: key.into(), value };
    let reserve = |key: &str, ttl_at| Reserve { name: "email".into(), key: key.into(), value: value("7"), ttl_at };
    KeyChanges {
        release: vec![release("a", None), release("b", Some(value("6")))],
        reserve: vec![reserve("b", None), reserve("c", Some(Timestamp::from_millis(-1)))],
    }
}

fn whole() -> NewCommit {
    let data = Data::from_json(r#"{"n":1,"s":"ž"}"#).expect("valid");
    let first = NewEvent {
        generation: 3,
        id: Some(Uuid::from_u128(9)),
        tags: vec!["a".into(), "b".into()],
        public: true,
        metadata: Metadata::of(Data::from_json(r#"{"trace":"t-1","attempt":2}"#).expect("valid")).expect("valid"),
        time: Some(Timestamp::from_millis(-5)),
        ..NewEvent::new("opened", data.clone())
    };
    NewCommit {
        request_id: Some("request".into()),
        command_id: Some("command".into()),
        header: vec![("z".into(), "1".into()), ("a".into(), String::new().into())],
        tenant_id: Some("tenant".into()),
        owner_id: Some("owner".into()),
        space_id: Some("space".into()),
        correlation_id: Some("correlation".into()),
        causation_id: Some("causation".into()),
        keys: keys(),
        ..NewCommit::new("door", "7").event(first).event(NewEvent::new("closed", data))
    }
}

const ID: Uuid = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001);
const TIME: Timestamp = Timestamp::from_millis(1_772_366_400_000);

const STAMP: Stamp = Stamp { commit_id: ID, digest: 42, now: TIME, transaction: None, received: None };

fn through(commit: &NewCommit) -> Record {
    decode(encode(commit, &STAMP).into(), 100, 5, &|_| None).expect("decodes")
}

#[test]
fn a_commit_with_every_field_survives() {
    let given = whole();
    let record = through(&given);
    let info = &record.commit.info;
    assert_eq!((record.digest, record.transaction()), (42, None));
    assert_eq!(record.keys, given.keys);
    assert_eq!((info.commit_id, info.version, info.time), (ID, 5, Timestamp::from_millis(-5)));
    assert_eq!(info.aggregate, given.aggregate);
    assert_eq!(info.request_id, given.request_id);
    assert_eq!(Some(&info.tenant_id), given.tenant_id.as_ref());
    assert_eq!(Some(&info.owner_id), given.owner_id.as_ref());
    assert_eq!(Some(&info.space_id), given.space_id.as_ref());
    assert_eq!(info.command_id, given.command_id);
    assert_eq!(info.correlation_id, given.correlation_id);
    assert_eq!(info.causation_id, given.causation_id);
    assert_eq!(info.header, given.header);
    for (ordinal, (read, written)) in record.commit.events.iter().zip(&given.events).enumerate() {
        assert_eq!((read.ordinal as usize, read.sequence_number), (ordinal, 100 + ordinal as u64));
        assert_eq!((&read.event_type, read.generation), (&written.event_type, written.generation));
        assert_eq!((&read.data, &read.tags, read.public), (&written.data, &written.tags, written.public));
        assert_eq!(read.metadata, written.metadata);
        assert_eq!(read.time, written.time.unwrap_or(TIME));
        assert_eq!(read.id, written.id.unwrap_or(derived_event_id(ID, ordinal as u32)));
    }
}

#[test]
fn a_bare_commit_gets_the_defaults_and_its_own_id_as_request_id() {
    let record = through(&NewCommit::new("a", "1").event(NewEvent::new("t", Data::empty())));
    let info = &record.commit.info;
    assert_eq!(info.request_id.as_deref(), Some(ID.to_string().as_str()));
    assert_eq!((&*info.tenant_id, &*info.owner_id, &*info.space_id), ("(0)", "", ""));
    assert_eq!(record.commit.events[0].time, TIME);
}

#[test]
fn request_ids_that_look_like_uuids_come_back_as_they_were() {
    for text in [
        "0190e5a4-8f3e-7c21-9d30-3f6f0d1f7b11",
        "0190E5A4-8F3E-7C21-9D30-3F6F0D1F7B11",
        "0190e5a48f3e7c219d303f6f0d1f7b11",
        "{0190e5a4-8f3e-7c21-9d30-3f6f0d1f7b}",
    ] {
        let record = through(&whole().request_id(text));
        assert_eq!(record.commit.info.request_id.as_deref(), Some(text));
    }
}

#[test]
fn derived_event_ids_differ_and_stay_version_7() {
    let ids: std::collections::HashSet<_> = (0..10_000).map(|n| derived_event_id(ID, n)).collect();
    assert_eq!(ids.len(), 10_000);
    assert!(ids.iter().all(|id| id.get_version_num() == 7 && *id != ID));
}

#[test]
fn bytes_that_are_no_commit_decode_to_nothing() {
    let payload = encode(&whole(), &STAMP);
    for cut in 0..payload.len() {
        assert!(decode(payload[..cut].to_vec().into(), 0, 1, &unknown_origin).is_none(), "cut at {cut}");
    }
    let mut longer = payload;
    longer.push(0);
    assert!(decode(longer.into(), 0, 1, &unknown_origin).is_none());
}

/// A payload of a commit at this place of a transaction.
fn at_place(place: u32, count: u32) -> Vec<u8> {
    encode(&whole(), &Stamp { transaction: Some(TransactionPlace { id: Uuid::from_u128(3), place, count }), ..STAMP })
}

fn place_of(payload: Vec<u8>, origin: &Origin<'_>) -> Option<TransactionPlace> {
    decode(Bytes::from(payload), 100, 5, origin)?.transaction()
}

#[test]
fn a_commits_place_in_its_transaction_survives_and_an_impossible_one_is_refused() {
    let place = |id, place| TransactionPlace { id, place, count: 16 };
    assert_eq!(place_of(at_place(1, 16), &|_| None), Some(place(Uuid::from_u128(3), 1)));
    assert_eq!(place_of(at_place(0, 16), &|_| None), Some(place(ID, 0)), "the first commit's id is the transaction's");
    assert!(decode(at_place(2, 2).into(), 0, 1, &unknown_origin).is_none());
    assert!(decode(at_place(0, 1).into(), 0, 1, &unknown_origin).is_none());
}

/// As an early 0.1.0 wrote it: the flag is not set, and the sixteen bytes are not there.
#[test]
fn a_later_commit_without_the_id_of_its_transaction_is_read_with_the_first_ones() {
    let mut payload = at_place(1, 16);
    let id = payload.windows(16).position(|bytes| bytes == Uuid::from_u128(3).as_bytes()).expect("it is there");
    payload.drain(id..id + 16);
    let mut flags = Vec::new();
    let known = crate::varint::take(&mut &payload[..]).expect("flags");
    put(&mut flags, known);
    payload.splice(..flags.len(), {
        let mut without = Vec::new();
        put(&mut without, known & !HAS_TRANSACTION);
        without
    });
    let found = place_of(payload.clone(), &|place| (place == 1).then(|| Uuid::from_u128(9)));
    assert_eq!(found, Some(TransactionPlace { id: Uuid::from_u128(9), place: 1, count: 16 }));
    assert!(decode(payload.into(), 0, 1, &|_| None).is_none(), "nothing is made up");
}

#[test]
fn what_came_with_a_received_event_survives_and_the_index_files_it_under_its_subscription() {
    let part = |text: &str| ByteString::from(text);
    let subscription =
        Subscription { producer: part("m"), tenant: part("t"), stream: part("s"), partition: ByteString::new() };
    let (consent, at) = (Uuid::from_u128(5), Timestamp::from_millis(-7));
    let from = Arc::new(ReceivedFrom { subscription, sequence_number: 7, position: u64::MAX, consent, at });
    let commit = NewCommit { aggregate: Aggregate::of_source("o-1"), ..NewCommit::new("", "") };
    let commit = commit.event(NewEvent::new("placed", Data::empty()));
    let payload = encode(&commit, &Stamp { received: Some(from.clone()), ..STAMP });
    let record = decode(payload.into(), 100, 5, &unknown_origin).expect("decodes");
    let info = &record.commit.info;
    assert_eq!((info.received.as_ref(), info.aggregate.event_source()), (Some(&from), Some("o-1")));
    assert_eq!((info.version, &info.request_id), (0, &None));
    assert_eq!((record.version, &*record.request()), (5, "7"));
    assert_eq!(*record.filed_under(), aggregate_of(&from.subscription));
}
