//! The state machine against a broker that fails at every place where one can.

use std::sync::Arc;

use super::*;
use crate::{Aggregate, CommitInfo, Data, Timestamp, Uuid};

const STORE: Uuid = Uuid::from_u128(7);

fn identity(incarnation: u32) -> Identity {
    Identity { store_id: STORE, incarnation, incarnation_start: 0 }
}

fn event(sequence_number: u64, event_type: &str, aggregate: &str) -> RecordedEvent {
    let commit = CommitInfo {
        commit_id: Uuid::from_u128(sequence_number.into()),
        request_id: None,
        aggregate: Aggregate::new("order", aggregate),
        version: sequence_number + 1,
        time: Timestamp::from_millis(1_772_366_400_007),
        tenant_id: "(0)".into(),
        owner_id: "".into(),
        space_id: "".into(),
        command_id: None,
        correlation_id: Some("c-1".into()),
        causation_id: None,
        header: vec![("traceparent".into(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into())],
        transaction: None,
        received: None,
    };
    RecordedEvent {
        sequence_number,
        ordinal: 0,
        id: Uuid::from_u128(u128::from(sequence_number) + 1_000),
        event_type: event_type.into(),
        generation: 2,
        data: Data::from_json(&format!(r#"{{"n": {sequence_number}, "customer": {{"id": "k-{aggregate}"}}}}"#))
            .expect("JSON"),
        tags: Vec::new(),
        public: false,
        metadata: None,
        time: commit.time,
        commit: Arc::new(commit),
    }
}

/// A generator of numbers that is the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A broker: what it holds becomes visible with the position or not at all.
#[derive(Default)]
struct Topics {
    visible: Vec<SequenceNumber>,
    position: Option<RelayPosition>,
}

#[test]
fn every_event_with_a_topic_is_published_once_and_in_order_whatever_fails() {
    for seed in 1..200 {
        let mut numbers = Numbers(seed * 0x9e37_79b9);
        let kinds = ["placed", "noted", "huge"];
        let log: Vec<_> =
            (0..200).map(|n| event(n, kinds[numbers.below(20).saturating_sub(17) as usize], "o-1")).collect();
        let mut topics = Topics::default();
        let message = |event: &RecordedEvent| {
            let topic = (&*event.event_type != "noted").then(|| event.event_type.clone())?;
            Some(MessageOptions::default().message(event, "default", 0, topic, false))
        };
        while topics.position.is_none_or(|position| position.next < 200) {
            // A start, after a crash or the first one.
            let mut relay = Relay::resume(identity(0), topics.position, 200, |_| 0).expect("its own position");
            while relay.position().next < 200 && numbers.below(10) > 0 {
                let from = relay.position().next as usize;
                let to = (from + 1 + numbers.below(30) as usize).min(200);
                let batch = relay.batch(&log[from..to], to as u64, message);
                let huge = batch.messages.iter().find(|message| &*message.topic == "huge");
                if let Some(refused) = huge {
                    relay.hold(refused.sequence_number);
                    continue;
                }
                if !relay.is_due(&batch, STORE_EVERY * (numbers.below(2) as u32)) {
                    relay.passed(batch.position);
                    continue;
                }
                // It is stored or it is not, and the answer may be lost in both cases.
                let outcome = numbers.below(4);
                if outcome > 0 {
                    topics.visible.extend(batch.messages.iter().map(|message| message.sequence_number));
                    topics.position = Some(batch.position);
                }
                match outcome {
                    0 | 1 => break,
                    _ => relay.stored(batch.position),
                }
            }
        }
        let due = log.iter().filter(|event| &*event.event_type == "placed").map(|event| event.sequence_number);
        assert_eq!(topics.visible, due.collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn a_restored_store_announces_where_it_parted_from_what_was_published() {
    let published = |incarnation, next| Some(RelayPosition { store_id: STORE, incarnation, next, fork: None });
    let relay = Relay::resume(identity(1), published(0, 90), 70, |seen| 60 + u64::from(seen)).expect("later");
    let fork = Some(Fork { incarnation: 0, at: 60, published: 90 });
    let announced = relay.announcement().expect("it is announced before anything is published");
    assert_eq!((announced.messages.len(), announced.position), (0, relay.position()));
    assert_eq!((relay.position().next, relay.position().fork), (60, fork));

    let mut relay = Relay::resume(identity(1), published(0, 50), 70, |_| 60).expect("later");
    assert_eq!((relay.position().next, relay.position().fork), (50, None), "nothing that is gone was published");
    assert!(relay.announcement().is_some(), "so that an earlier incarnation that wakes publishes nothing");
    relay.stored(relay.position());
    assert_eq!(relay.announcement(), None);
    assert_eq!(Relay::resume(identity(0), None, 0, |_| 0).expect("new").announcement(), None);
}

#[test]
fn a_relay_that_cannot_know_where_to_go_on_says_so_and_publishes_nothing() {
    let at = |incarnation, next| Some(RelayPosition { store_id: STORE, incarnation, next, fork: None });
    let later = RelayRefusal::Later { here: 1 };
    assert_eq!(Relay::resume(identity(1), at(2, 0), 9, |_| 0), Err(later));
    let ahead = RelayRefusal::AheadOfLog { position: 10, head: 9 };
    assert_eq!(Relay::resume(identity(1), at(1, 10), 9, |_| 0), Err(ahead));
    let mut relay = Relay::resume(identity(1), at(1, 5), 9, |_| 0).expect("its own");
    assert_eq!(relay.check_alone(at(1, 5)), Ok(()), "its transaction ran out of time while the machine slept");
    assert_eq!(relay.check_alone(at(1, 6)), Err(RelayRefusal::OtherRelay(6)));
    relay.attempts(at(1, 6).expect("a position"));
    assert_eq!(relay.check_alone(at(1, 6)), Ok(()), "its own batch, whose answer was lost");
}

#[test]
fn a_position_without_messages_is_stored_once_a_second() {
    let relay = Relay::resume(identity(0), None, 9, |_| 0).expect("new");
    let batch = relay.batch(&[event(0, "noted", "o-1")], 1, |_| None);
    assert!(!relay.is_due(&batch, Duration::from_millis(999)));
    assert!(relay.is_due(&batch, Duration::from_secs(1)));
    let same = relay.batch(&[], 0, |_| None);
    assert!(relay.is_due(&same, Duration::from_secs(1)), "the first position is stored even at 0");
}

#[test]
fn an_event_is_read_from_its_message_as_it_was_in_every_form() {
    let event = event(5, "placed", "o-1");
    for format in [MessageFormat::Json, MessageFormat::CloudeventsBinary, MessageFormat::CloudeventsStructured] {
        let options = MessageOptions { format, ..MessageOptions::default() };
        let message = options.message(&event, "default", 3, "placed".into(), true);
        assert_eq!((&message.key[..], message.sequence_number), (&b"o-1"[..], 5));
        let read = RelayedEvent::read(&message.headers, &message.body).expect("its own message");
        assert_eq!((read.id, &read.event_type, read.generation), (event.id, &event.event_type, 2), "{format:?}");
        assert_eq!((read.sequence_number, read.incarnation, read.version), (5, 3, 6), "{format:?}");
        assert_eq!((read.aggregate, read.time), (Some(("order".into(), "o-1".into())), event.time), "{format:?}");
        assert_eq!((read.data, read.correlation_id.as_deref()), (event.data.clone(), Some("c-1")), "{format:?}");
        assert!(read.traceparent.is_some_and(|trace| trace.starts_with("00-0af7")), "{format:?}");
    }
    let refused = RelayedEvent::read(&[], &"{}".into()).expect_err("of another producer");
    assert!(refused.contains("event_id"), "{refused}");
}

#[test]
fn a_cloudevent_names_the_schema_of_its_data_if_the_generation_of_its_type_is_registered() {
    let event = event(5, "placed", "o-1");
    let schema = |format: MessageFormat, is_registered: bool| {
        let options = MessageOptions { format, ..MessageOptions::default() };
        let message = options.message(&event, "north", 3, "placed".into(), is_registered);
        let header = message.headers.iter().find(|(name, _)| name.ends_with("dataschema"));
        let in_header = header.map(|(_, value)| String::from_utf8(value.to_vec()).expect("text"));
        let body: serde_json::Value = serde_json::from_slice(&message.body).expect("JSON");
        in_header.or_else(|| body["dataschema"].as_str().map(str::to_owned))
    };
    for format in [MessageFormat::CloudeventsBinary, MessageFormat::CloudeventsStructured] {
        assert_eq!(schema(format, true).as_deref(), Some("annals://north/v1/types/placed?generation=2"), "{format:?}");
        assert_eq!(schema(format, false), None, "{format:?}");
    }
    assert_eq!(schema(MessageFormat::Json, true), None, "its attributes are not those of CloudEvents");
}

#[test]
fn the_key_of_a_message_is_the_aggregate_or_a_value_of_the_data() {
    let event = event(5, "placed", "o-1");
    let key = |text: &str| MessageKey::try_from(text.to_owned()).expect(text);
    let of = |text: &str| String::from_utf8(key(text).of(&event).to_vec()).expect("text");
    assert_eq!([of("aggregate_id"), of("data.customer.id"), of("data.n")], ["o-1", "k-o-1", "5"]);
    assert_eq!(of("data.missing"), "o-1");
    assert!(MessageKey::try_from("data.".to_owned()).is_err() && MessageKey::try_from("id".to_owned()).is_err());
    assert_eq!(String::from(key("data.customer.id")), "data.customer.id");
}
