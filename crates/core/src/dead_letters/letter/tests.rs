//! A letter through its states.

use std::sync::Arc;

use super::*;
use crate::{Aggregate, CommitInfo, Data};

fn event(id: u128) -> RecordedEvent {
    RecordedEvent {
        sequence_number: 7,
        ordinal: 0,
        id: uuid::Uuid::from_u128(id),
        event_type: "execution_failed".into(),
        generation: 1,
        data: Data::from_json(r#"{"exit_code":1}"#).expect("data"),
        tags: Vec::new(),
        public: false,
        metadata: None,
        time: at(0),
        commit: Arc::new(CommitInfo {
            commit_id: uuid::Uuid::from_u128(4),
            request_id: Some("r".into()),
            aggregate: Aggregate::new("execution", "x-1"),
            version: 1,
            time: at(0),
            tenant_id: "(0)".into(),
            owner_id: "".into(),
            space_id: "".into(),
            command_id: None,
            correlation_id: None,
            causation_id: None,
            header: vec![("a".into(), "b".into())],
            transaction: None,
            received: None,
        }),
    }
}

fn letter() -> DeadLetter {
    letter_at(5, "execution_failed", Place::Position(7))
}

fn letter_at(id: u128, topic: &str, place: Place) -> DeadLetter {
    let event = RecordedEvent { event_type: topic.into(), ..event(id) };
    DeadLetter::received(&Received {
        processor: "group/results",
        event: &event,
        topic,
        place,
        key: "execution/x-1",
        attempts: 3,
        error: "down",
        at: at(10),
    })
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn policy() -> LetterPolicy {
    LetterPolicy { jitter: 0.0, ..LetterPolicy::of_category("execution") }
}

#[test]
fn the_indexes_have_the_names_and_fields_of_integr8scode_and_those_of_consumers() {
    let shown = |index: &Index| {
        let field = |(path, direction): &(&str, Direction)| match direction {
            Direction::Ascending => (*path).to_owned(),
            Direction::Descending => format!("-{path}"),
        };
        let fields: Vec<String> = index.fields().iter().map(field).collect();
        let unique = if index.is_unique() { ", unique" } else { "" };
        let partial = if index.partial().is_some() { ", partial" } else { "" };
        format!("{}: {}{unique}{partial}", index.name(), fields.join(" "))
    };
    let indexes = DeadLetter::indexes();
    assert_eq!(
        indexes.iter().map(shown).collect::<Vec<_>>(),
        [
            "idx_dlq_event_id: event.event_id processor position, unique",
            "idx_dlq_event_type: event.event_type",
            "idx_dlq_status: status",
            "idx_dlq_failed_desc: -failed_at",
            "idx_dlq_created_ttl: created_at",
            "original_topic_1: original_topic",
            "retry_count_1: retry_count",
            "next_retry_at_1: next_retry_at",
            "failed_at_1: failed_at",
            "idx_dlq_open_of_key: processor key position, partial",
            "idx_dlq_due: processor status next_retry_at",
            "idx_dlq_announcing: announcing, partial",
        ]
    );
    // A letter that is over moves to the archive; none is deleted by its age.
    assert!(indexes.iter().all(|index| index.expires_after_seconds().is_none() && !index.is_sparse()));
    assert_eq!(DeadLetter::collection().validate(), Ok(()));
}

fn announced(letter: &DeadLetter) -> Vec<&str> {
    letter.announcements.iter().map(|it| &*it.event_type).collect()
}

#[test]
fn a_letter_holds_its_event_and_is_planned_by_its_policy() {
    let mut letter = letter();
    assert_eq!((&*letter.id, letter.status), ("group.results.7", LetterStatus::Pending));
    assert_eq!(letter.event.get_document("data").expect("data"), &doc! { "exit_code": 1_i64 });
    letter.plan(&policy(), at(10), 0);
    assert_eq!((letter.status, letter.next_retry()), (LetterStatus::Scheduled, Some(at(40))));
    assert_eq!(announced(&letter), [RECEIVED]);
}

#[test]
fn a_letter_that_was_retried_as_often_as_allowed_is_discarded() {
    let mut letter = letter();
    for _ in 0..5 {
        letter.plan(&policy(), at(20), 0);
        assert_eq!(letter.status, LetterStatus::Scheduled);
        letter.failed("still down", true, at(30));
    }
    letter.plan(&policy(), at(40), 0);
    assert_eq!((letter.status, letter.discard_reason.as_deref()), (LetterStatus::Discarded, Some(MAX_RETRIES)));
    assert_eq!((letter.retry_count, letter.attempts), (5, 8));
    assert_eq!(announced(&letter), [RECEIVED, DISCARDED]);
}

#[test]
fn a_letter_that_is_received_again_after_its_end_keeps_its_history_and_its_count() {
    let mut letter = letter();
    letter.plan(&policy(), at(10), 0);
    letter.succeeded(at(20));
    assert_eq!(letter.retry_asked("again", None, at(21)), Err(Terminal(LetterStatus::Retried)));
    letter.received_again("down again", 1, at(30));
    letter.plan(&policy(), at(30), 0);
    assert_eq!((letter.status, letter.retry_count, letter.retried_at), (LetterStatus::Scheduled, 1, None));
    assert_eq!(letter.next_retry(), Some(at(90)), "the delay of the second retry");
    let history: Vec<_> = letter.history.iter().map(|it| &*it.what).collect();
    assert_eq!(history, ["received", "retried", "reopened"]);
    assert_eq!(announced(&letter), [RECEIVED, RETRIED, RECEIVED]);
}

#[test]
fn a_letter_that_follows_and_that_a_person_wants_retried_is_due_once_it_is_the_first() {
    for (asked, due) in [(false, None), (true, Some(at(30)))] {
        let mut letter = letter();
        letter.follow(at(10));
        if asked {
            letter.retry_asked("mended", None, at(20)).expect("open");
        }
        assert_eq!((letter.status, letter.follows), (LetterStatus::Pending, true));
        letter.promote(&LetterPolicy::manual(), at(30), 0);
        assert_eq!((letter.follows, letter.next_retry()), (false, due), "the policy is manual");
    }
}

#[test]
fn a_letter_of_an_announcement_is_not_announced() {
    let mut letter = letter();
    letter.event.insert("event_type", RECEIVED);
    letter.announcements.clear();
    letter.discard("manual: enough".to_owned(), Some("ann"), at(5)).expect("open");
    assert!(letter.announcements.is_empty());
}

#[test]
fn a_history_keeps_its_first_entry_and_the_newest() {
    let mut letter = letter();
    for second in 0..500 {
        letter.failed("down", false, at(second));
    }
    assert_eq!((letter.history.len(), &*letter.history[0].what), (HISTORY_MAX, "received"));
    assert_eq!(letter.history.last().map(|it| it.at), Some(date(at(499))));
    assert_eq!(letter.retry_count, 0, "what does not count");
}

#[test]
fn messages_with_equal_sequence_numbers_have_letters_of_their_own_in_the_order_of_their_offsets() {
    let message = |partition, offset| Place::Message { partition, offset };
    let named = letter_at(0x1d1c_3f4a, "failed", message(2, 41));
    assert_eq!((&*named.id, named.sequence_number), ("group.results@failed.2.41.1d1c3f4a", 7));
    assert_eq!((named.dlq_partition, named.dlq_offset), (Some(2), Some(41)));
    let others = [
        letter_at(0x1d1c_3f4a, "failed", message(2, 42)),
        letter_at(0x1d1c_3f4a, "failed", message(3, 41)),
        letter_at(0x1d1c_3f4a, "ended", message(2, 41)),
        letter_at(0x1d1c_3f4b, "failed", message(2, 41)),
        letter_at(0x1d1c_3f4a, "failed", Place::Position(7)),
    ];
    let ids: std::collections::BTreeSet<_> = others.iter().map(|letter| &*letter.id).chain([&*named.id]).collect();
    assert_eq!(ids.len(), 6, "{ids:?}");
    assert_eq!(named.id, letter_at(0x1d1c_3f4a, "failed", message(2, 41)).id, "found again when it is delivered again");
    assert!(named.position < others[0].position && named.position != others[1].position);
    assert!(Place::Message { partition: u32::MAX, offset: u64::MAX }.position() <= i64::MAX as u64);
}

#[test]
fn on_the_embedded_broker_a_letter_is_named_by_its_position() {
    let letter = letter();
    assert_eq!((&*letter.id, letter.position), ("group.results.7", 7));
    assert_eq!((letter.dlq_partition, letter.dlq_offset), (None, Some(7)));
}

/// A letter of an earlier version may have others after it.
#[test]
fn a_letter_is_alone_only_if_that_was_recorded_and_no_other_of_its_key_was_added_since() {
    let alone = || {
        let mut letter = letter();
        letter.unaccompanied();
        letter
    };
    assert!(alone().alone && !letter().alone);
    let changes: [fn(&mut DeadLetter); 3] = [
        |letter| letter.accompanied(at(20)),
        |letter| letter.follow(at(20)),
        // Later letters of its key do not change it.
        |letter| letter.wait_for_a_person(at(20)),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut letter = alone();
        change(&mut letter);
        assert!(!letter.alone, "{n}");
    }
    let mut by_hand = letter();
    by_hand.wait_for_a_person(at(20));
    by_hand.unaccompanied();
    assert!(!by_hand.alone, "it does not hold its key");
    let mut stored = bson::serialize_to_document(&alone()).expect("BSON");
    assert_eq!(stored.remove("alone"), Some(bson::Bson::Boolean(true)));
    assert!(!bson::deserialize_from_document::<DeadLetter>(stored).expect("a letter").alone);
}
