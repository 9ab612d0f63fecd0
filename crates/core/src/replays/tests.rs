//! The state machine of replays.

use bson::{Bson, DateTime};

use super::{
    After, InboxRecord, OnError, OnOutage, ReplayAct, ReplayBody, ReplaySession, ReplayState, ReplayTarget, Sent,
};
use super::{inbox_token, of_token};
use crate::browse::ReplayFilter;
use crate::{RecordType, Timestamp};

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn session() -> ReplaySession {
    let filter = ReplayFilter { user_id: Some("ada".to_owned()), ..ReplayFilter::default() };
    let body = ReplayBody::new(filter, ReplayTarget::Test {});
    ReplaySession::new("s".to_owned(), "r".to_owned(), &body, at(0))
}

fn after(n: i64) -> After {
    let time = Some(Bson::DateTime(DateTime::from_millis(n)));
    After { time, id: Bson::Int64(n), event_id: Some(format!("e-{n}")) }
}

#[test]
fn acts_are_allowed_by_the_state_only() {
    use ReplayAct::{Cancel, Pause, Resume, Start};
    use ReplayState::{Cancelled, Created, Paused, Running};
    for (acts, state) in [
        (&[Start][..], Ok(Running)),
        (&[Start, Pause], Ok(Paused)),
        (&[Start, Pause, Resume], Ok(Running)),
        (&[Cancel], Ok(Cancelled)),
        (&[Start, Pause, Cancel], Ok(Cancelled)),
        (&[Pause], Err(Created)),
        (&[Start, Start], Err(Running)),
        (&[Start, Resume], Err(Running)),
        (&[Start, Pause, Pause], Err(Paused)),
        (&[Cancel, Cancel], Err(Cancelled)),
        (&[Cancel, Start], Err(Cancelled)),
    ] {
        let mut session = session();
        let mut last = Ok(());
        for act in acts {
            last = session.act(*act, at(1));
        }
        assert_eq!(last.map(|()| session.status), state, "{acts:?}");
    }
}

#[test]
fn events_are_counted_and_the_place_moves_with_each() {
    let mut session = session();
    session.act(ReplayAct::Start, at(1_000)).expect("allowed");
    session.counted(4);
    session.sent(after(1), Sent::Done, OnError::Skip, at(2_000));
    session.sent(after(2), Sent::Skipped, OnError::Skip, at(2_000));
    let shown = session.shown(at(3_000));
    assert_eq!((shown.replayed, shown.skipped, shown.progress), (1, 1, 50.0));
    assert_eq!(shown.eta, Some(at(5_000)), "two events in two seconds");
    session.sent(after(3), Sent::Failed("down".to_owned()), OnError::Skip, at(3_000));
    assert_eq!((session.status, session.failed_events, session.left()), (ReplayState::Running, 1, Some(1)));
    assert_eq!(session.annals.after_id, Some(Bson::Int64(3)));
    session.sent(after(4), Sent::Failed("down".to_owned()), OnError::Stop, at(4_000));
    assert_eq!((session.status, session.errors.len()), (ReplayState::Failed, 2));
    assert_eq!(session.completed_at, Some(DateTime::from_millis(4_000)));
    assert!(session.error.as_deref().is_some_and(|error| error.contains("e-4")));
}

#[test]
fn time_in_a_pause_does_not_count_for_the_estimate() {
    let mut session = session();
    session.act(ReplayAct::Start, at(0)).expect("allowed");
    session.counted(2);
    session.sent(after(1), Sent::Done, OnError::Skip, at(1_000));
    session.act(ReplayAct::Pause, at(1_000)).expect("allowed");
    assert_eq!(session.shown(at(50_000)).eta, None);
    session.act(ReplayAct::Resume, at(100_000)).expect("allowed");
    assert_eq!(session.shown(at(100_000)).eta, Some(at(101_000)));
}

#[test]
fn no_more_than_a_hundred_failures_are_listed() {
    let mut session = session();
    session.act(ReplayAct::Start, at(0)).expect("allowed");
    for n in 0..150 {
        session.sent(after(n), Sent::Failed("down".to_owned()), OnError::Skip, at(n));
    }
    assert_eq!((session.failed_events, session.errors.len()), (150, 100));
}

#[test]
fn a_failure_after_the_end_does_not_change_the_state() {
    let mut session = session();
    session.act(ReplayAct::Start, at(0)).expect("allowed");
    session.sent(after(1), Sent::Done, OnError::Stop, at(1));
    session.act(ReplayAct::Cancel, at(2)).expect("allowed");
    session.taken_back(Some("e-1".to_owned()), "down".to_owned(), OnError::Stop, at(3));
    assert_eq!((session.status, session.replayed_events, session.failed_events), (ReplayState::Cancelled, 0, 1));
}

/// How many were sent is what decides which are left, so a group more that fails changes nothing of it.
#[test]
fn an_event_that_fails_in_several_groups_is_counted_once() {
    let mut session = session();
    session.act(ReplayAct::Start, at(0)).expect("allowed");
    session.counted(200);
    for n in 0..2 {
        session.sent(after(n), Sent::Done, OnError::Skip, at(1));
    }
    for _ in 0..2 {
        session.taken_back(Some("e-0".to_owned()), "down".to_owned(), OnError::Skip, at(2));
    }
    assert_eq!((session.replayed_events, session.failed_events, session.errors.len()), (1, 1, 2));
    for n in 2..150 {
        session.sent(after(n), Sent::Done, OnError::Skip, at(3));
        for _ in 0..2 {
            session.taken_back(Some(format!("e-{n}")), "down".to_owned(), OnError::Skip, at(3));
        }
        assert_eq!((session.done(), session.left()), (n.cast_unsigned() + 1, Some(199 - n.cast_unsigned())));
        assert!(session.replayed_events >= 0);
    }
}

#[test]
fn a_stored_session_is_read_as_it_was_written() {
    let mut session = session();
    session.act(ReplayAct::Start, at(5)).expect("allowed");
    session.sent(after(1), Sent::Failed("down".to_owned()), OnError::Skip, at(6));
    let document = bson::serialize_to_document(&session).expect("BSON");
    for field in ["session_id", "config", "status", "total_events", "replay_id", "errors", "started_at", "completed_at"]
    {
        assert!(document.contains_key(field), "{field}");
    }
    assert_eq!(bson::deserialize_from_document::<ReplaySession>(document).expect("a session"), session);
    assert!(session.body().is_ok());
}

#[test]
fn sessions_have_the_fields_and_indexes_of_integr8scode() {
    let names: Vec<_> =
        ReplaySession::indexes().iter().map(|index| (index.name().to_owned(), index.is_unique())).collect();
    let due = [("session_id_1", true), ("created_at_1", false), ("status_1", false), ("replay_id_1", false)];
    assert_eq!(names, due.map(|(name, is_unique)| (name.to_owned(), is_unique)));
    let document = bson::serialize_to_document(&session()).expect("BSON");
    let fields: Vec<_> = document.keys().map(String::as_str).collect();
    let due = [
        "_id",
        "session_id",
        "config",
        "status",
        "total_events",
        "replayed_events",
        "failed_events",
        "skipped_events",
        "created_at",
        "started_at",
        "completed_at",
        "last_event_at",
        "errors",
        "replay_id",
        "created_by",
        "target_service",
        "dry_run",
        "triggered_executions",
        "error",
        "annals",
    ];
    assert_eq!(fields, due);
    let config: Vec<_> = document.get_document("config").expect("it is there").keys().map(String::as_str).collect();
    let due = [
        "replay_type",
        "target",
        "filter",
        "speed_multiplier",
        "preserve_timestamps",
        "batch_size",
        "skip_errors",
        "retry_failed",
        "retry_attempts",
        "enable_progress_tracking",
    ];
    assert_eq!(config, due);
}

#[test]
fn timestamps_are_preserved_unless_the_body_says_otherwise() {
    let body = session().body().expect("settings");
    let kept = serde_json::to_value(&body).expect("JSON");
    assert_eq!(kept.get("preserve_timestamps"), None, "an earlier server takes it too");
    let replaced = ReplayBody { preserve_timestamps: false, ..body.clone() };
    let written = serde_json::to_value(&replaced).expect("JSON");
    assert_eq!(serde_json::from_value::<ReplayBody>(written).expect("a body"), replaced);
    for (body, preserved) in [(body, true), (replaced, false)] {
        let session = ReplaySession::new("s".to_owned(), "r".to_owned(), &body, at(0));
        assert!(session.config.get_bool("preserve_timestamps").is_ok_and(|it| it == preserved));
    }
}

#[test]
fn a_target_is_waited_for_unless_the_settings_say_how_often_to_attempt() {
    let body = || session().body().expect("settings");
    assert!(body().waits_for_target());
    for explicit in [
        ReplayBody { retry_attempts: 1, ..body() },
        ReplayBody { on_error: OnError::Stop, ..body() },
        ReplayBody { outage: Some(OnOutage::Fail), ..body() },
    ] {
        assert!(!explicit.waits_for_target(), "{explicit:?}");
    }
    assert!(ReplayBody { retry_attempts: 1, outage: Some(OnOutage::Wait), ..body() }.waits_for_target());
}

#[test]
fn what_a_replay_waits_for_is_shown_until_the_target_answers() {
    let mut session = session();
    session.act(ReplayAct::Start, at(0)).expect("allowed");
    assert!(
        session.waits("connection refused") && !session.waits("connection refused") && session.waits("answered 503")
    );
    assert_eq!(session.shown(at(1)).error.as_deref(), Some("waits for its target: answered 503"));
    session.answered();
    assert_eq!((session.status, session.shown(at(1)).error), (ReplayState::Running, None));
    session.broken("invalid_settings", "no".to_owned(), at(2));
    session.answered();
    assert_eq!(session.error.as_deref(), Some("no"));
}

#[test]
fn settings_out_of_range_are_refused_with_their_path() {
    let body = || session().body().expect("settings");
    let file = |name: &str| ReplayTarget::File { name: name.to_owned() };
    for (body, path) in [
        (ReplayBody { filter: ReplayFilter::default(), ..body() }, "filter"),
        (ReplayBody { speed: Some(0.05), ..body() }, "speed"),
        (ReplayBody { speed: Some(f64::NAN), ..body() }, "speed"),
        (ReplayBody { batch_size: 0, ..body() }, "batch_size"),
        (ReplayBody { batch_size: 1_001, ..body() }, "batch_size"),
        (ReplayBody { max_events: Some(0), ..body() }, "max_events"),
        (ReplayBody { rate: Some(0.0), ..body() }, "rate"),
        (ReplayBody { retry_attempts: 11, ..body() }, "retry_attempts"),
        (ReplayBody { target: file("../x"), ..body() }, "target.name"),
        (ReplayBody { target: file(".x"), ..body() }, "target.name"),
        (ReplayBody { target: file("a/b"), ..body() }, "target.name"),
        (ReplayBody { target: ReplayTarget::Handler { name: "a b".into() }, ..body() }, "target.name"),
    ] {
        assert_eq!(body.validate().expect_err(path).path, path);
    }
    assert_eq!(body().validate(), Ok(()));
    assert_eq!(ReplayBody { speed: Some(100.0), ..body() }.pace(), None);
    assert_eq!(ReplayBody { speed: Some(0.1), ..body() }.pace(), Some(0.1));
}

#[test]
fn a_failed_delivery_is_sent_again_later_and_later() {
    let record = InboxRecord {
        id: InboxRecord::id_of("handler/a|b", "s", 7),
        processor: "handler/a|b".to_owned(),
        session: "s".to_owned(),
        replay_id: "r".to_owned(),
        event_id: "e".to_owned(),
        sequence_number: 7,
        partition: None,
        topic: None,
        time: None,
        ready_at: 0,
        attempts: 1,
        attempts_max: 11,
        last_reason: None,
        holder: None,
        life: None,
        claim: None,
    };
    let pauses: Vec<_> = (1..=10).map(|attempts| InboxRecord { attempts, ..record.clone() }.pause_ms()).collect();
    let due = [1, 2, 4, 8, 10, 10, 10, 10, 10, 10].map(|seconds| Some(seconds * 1_000));
    assert_eq!(pauses, due);
    assert_eq!(InboxRecord { attempts: 11, ..record.clone() }.pause_ms(), None);
    assert_eq!(of_token("token"), None);
    for claim in [Some(7), Some(-7)] {
        let record = InboxRecord { claim, ..record.clone() };
        let text = inbox_token(&record);
        let token = of_token(&text).expect("a token");
        assert_eq!((token.attempt, token.claim, token.id), (1, claim.expect("set"), record.id.as_str()));
        assert!(token.is_of(&record));
        for other in [Some(0), None] {
            assert!(!token.is_of(&InboxRecord { claim: other, ..record.clone() }), "the claim cannot be guessed");
        }
        assert!(!token.is_of(&InboxRecord { attempts: 2, ..record.clone() }));
    }
    assert!(!of_token(&inbox_token(&record)).expect("a token").is_of(&record), "it was never delivered");
}
