//! What targets receive.

use std::future::{Ready, ready};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use annals_core::browse::{ReplayFilter, ViewSwitch};
use annals_core::dead_letters::{LetterQuery, LetterStatus};
use annals_core::groups::GroupDefinition;
use annals_core::handlers::{HandlerDefinition, PullBody, SettleBody, Settlement};
use annals_core::processing::{PartitionBy, ProcessingRetry, Then};
use annals_core::replays::{
    PreviewBody, REPLAY_FILES, ReplayAct, ReplayBody, ReplayError, ReplayOrder, ReplayState, ReplayTarget,
};
use annals_core::{Code, Condition, DEFAULT_TENANT, GroupStart, RecordedEvent, Timestamp, TopicSettings};
use annals_runtime::{Effects, HandleFailure, Handler, HostOptions, consumer};
use async_trait::async_trait;
use serde_json::json;

use super::{numbers, to_handler, to_nowhere};
use crate::archive::opened::DAY;
use crate::browse::opened::{Browsed, Sample, of_type, sample};
use crate::{OTHER_TENANT, Subject, WithOther};

/// It sends nothing and creates nothing.
pub async fn a_preview_counts_and_shows_the_first_hundred(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 105).await;
    it.commit_many("paid", 2).await;
    let preview = |max_events| PreviewBody { filter: of_type("placed"), target: ReplayTarget::Test {}, max_events };
    let found = it.replays.preview(preview(None)).await.expect("counted");
    assert_eq!((found.count, found.first.len(), found.target), (105, 100, ReplayTarget::Test {}));
    let times: Vec<_> = found.first.iter().filter_map(|it| it.timestamp).map(|it| it.as_millis()).collect();
    assert_eq!(times, (0..100).map(|n| n * 1_000).collect::<Vec<_>>());
    let bounded = it.replays.preview(preview(Some(7))).await.expect("counted");
    assert_eq!((bounded.count, bounded.first.len()), (7, 7));
    let none = PreviewBody { filter: of_type("nothing"), target: ReplayTarget::Test {}, max_events: None };
    assert_eq!(it.replays.preview(none).await.expect("counted").count, 0);
    assert!(it.replays.list(None, None, 10).await.expect("listed").items.is_empty());
}

/// Nothing is sent to the target `test`. A replay without events completes at once.
pub async fn a_replay_counts_every_event_and_is_completed(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 250).await;
    let id = it.create(to_nowhere()).await;
    let created = it.replays.get(&id).await.expect("known");
    assert_eq!((created.status, created.total, created.progress), (ReplayState::Created, 0, 0.0));
    it.act(&id, ReplayAct::Start).await;
    let over = it.over(&id).await;
    assert_eq!((over.status, over.total, over.replayed, over.failed), (ReplayState::Completed, 250, 250, 0));
    assert!((over.progress - 100.0).abs() < 0.001 && over.errors.is_empty());
    assert_eq!(over.last_event_at.map(|it| it.as_millis()), Some(249_000));
    let few = it.begin(ReplayBody { max_events: Some(9), batch_size: 4, ..to_nowhere() }).await;
    let few = it.over(&few).await;
    assert_eq!((few.total, few.replayed), (9, 9));
    let none = it.begin(ReplayBody::new(of_type("nothing"), ReplayTarget::Test {})).await;
    let none = it.over(&none).await;
    assert_eq!((none.status, none.total), (ReplayState::Completed, 0));
    let head = it.it.log.head().await.expect("read");
    assert_eq!(head, 250, "the log is as it was");
}

/// A filter with only excluded types selects nothing in particular.
pub async fn a_filter_that_selects_nothing_in_particular_is_refused(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    let excluding = ReplayFilter { exclude_event_types: Some(vec!["paid".to_owned()]), ..ReplayFilter::default() };
    for filter in [ReplayFilter::default(), excluding] {
        assert!(filter.is_empty());
        let refused = it.replays.create(ReplayBody::new(filter, ReplayTarget::Test {})).await.expect_err("empty");
        assert!(matches!(&refused, ReplayError::Invalid(invalid) if invalid.path == "filter"), "{refused}");
        assert_eq!(refused.code(), Code::InvalidReplay);
    }
    let fast = ReplayBody { speed: Some(100.5), ..to_nowhere() };
    assert!(matches!(it.replays.create(fast).await, Err(ReplayError::Invalid(invalid)) if invalid.path == "speed"));
}

/// The events are as in the log. The position of the handler does not move, and neither does the log.
pub async fn a_handler_gets_events_again_with_the_id_of_the_replay(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 20).await;
    it.commit_many("paid", 1).await;
    it.handler(PartitionBy::Aggregate).await;
    let before = it.it.handlers.get("again").await.expect("defined");
    let id = it.begin(to_handler()).await;
    let deliveries = it.handled(20).await;
    let status = it.over(&id).await;
    assert_eq!((status.status, status.replayed, status.failed), (ReplayState::Completed, 20, 0));
    assert!(deliveries.iter().all(|it| it.replay.as_deref() == Some(&*status.replay_id) && it.attempt == 1));
    let mut sent = numbers(&deliveries);
    sent.sort_unstable();
    assert_eq!(sent, (0..20).collect::<Vec<_>>());
    for n in 0..7 {
        let partition = format!("order/o-{n}");
        let of_it: Vec<_> =
            deliveries.iter().filter(|it| it.partition.as_deref() == Some(&*partition)).cloned().collect();
        assert!(numbers(&of_it).is_sorted(), "{partition}");
    }
    let log = it.it.log.read(annals_core::LogQuery::default()).await.expect("read").events;
    assert_eq!(log.len(), 21);
    assert!(deliveries.iter().all(|it| log[it.event.sequence_number as usize] == it.event));
    assert_eq!(it.it.handlers.get("again").await.expect("defined").position, before.position);
    it.commit(Sample { event_type: "new", ..sample() }).await;
    let own = it.it.pull("again").await;
    assert_eq!((own.len(), own[0].replay.as_deref()), (1, None));
}

/// The two orders differ here.
pub async fn events_are_sent_in_the_order_of_time_or_of_the_log(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    for n in 0..10 {
        it.commit(Sample { data: json!({ "n": n }), time: 1_000 - n * 10 / 20 * 100, ..sample() }).await;
    }
    it.handler(PartitionBy::None).await;
    it.begin(ReplayBody { batch_size: 3, ..to_handler() }).await;
    assert_eq!(numbers(&it.handled(10).await), [8, 9, 6, 7, 4, 5, 2, 3, 0, 1]);
    it.begin(ReplayBody { batch_size: 3, order: ReplayOrder::SequenceNumber, ..to_handler() }).await;
    assert_eq!(numbers(&it.handled(10).await), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

/// The options of a process that writes files of replays to this folder.
pub(super) fn into(exports: &Path) -> HostOptions {
    HostOptions { exports: Some(exports.to_owned()), ..HostOptions::default() }
}

/// Commits five events of the type `placed`, and starts a host that may write files to a folder.
pub(super) async fn with_exports(subject: &dyn Subject, folder: &Path) -> Browsed {
    let it = Browsed::with(subject.open().await, subject.clock(), into(folder));
    it.switch(Some(ViewSwitch::Auto)).await;
    it.commit_many("placed", 5).await;
    it
}

/// Returns a replay of events of the type `placed` to the file `events.jsonl`.
fn to_file() -> ReplayBody {
    ReplayBody::new(of_type("placed"), ReplayTarget::File { name: "events.jsonl".to_owned() })
}

/// Returns the path of the file of [`to_file`].
fn file_in(exports: &Path) -> PathBuf {
    exports.join(DEFAULT_TENANT).join("events.jsonl")
}

/// The replay's id is beside each event. A name that is taken is refused, and is free for other tenants.
pub async fn a_replay_to_a_file_writes_one_line_for_each_event(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let folder = tempfile::tempdir().expect("a folder");
    let it = with_exports(subject, folder.path()).await;
    it.commit_many("paid", 2).await;
    let id = it.begin(ReplayBody { batch_size: 2, ..to_file() }).await;
    let over = it.over(&id).await;
    assert_eq!((over.status, over.replayed, over.failed), (ReplayState::Completed, 5, 0));
    let text = std::fs::read_to_string(file_in(folder.path())).expect("a file");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let numbers: Vec<_> = lines.iter().map(|line| line["n"].as_i64().expect("a number")).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
    assert!(lines.iter().all(|line| line["event_type"] == "placed" && line["replay"]["id"] == *over.replay_id));
    let taken = it.replays.create(to_file()).await.expect_err("the file is there");
    assert!(matches!(&taken, ReplayError::Invalid(invalid) if invalid.path == "target.name"), "{taken}");
    let others = it.it.host.replays(OTHER_TENANT).expect("declared");
    others.create(to_file()).await.expect("another tenant has files of its own");
}

/// This holds from its start to its end, even before the file exists: a replay may have started without having reached its first event.
pub async fn a_file_is_written_by_one_replay_at_a_time(subject: &dyn Subject) {
    let folder = tempfile::tempdir().expect("a folder");
    let it = with_exports(subject, folder.path()).await;
    let first = it.begin(ReplayBody { rate: Some(1.0), ..to_file() }).await;
    it.until_replay(&first, |status| status.replayed == 1).await;
    std::fs::remove_file(file_in(folder.path())).expect("removed");
    let second = it.create(to_file()).await;
    let refused = it.replays.act(&second, ReplayAct::Start, "a test".into()).await.expect_err("the first one has it");
    assert!(matches!(&refused, ReplayError::Invalid(invalid) if invalid.path == "target.name"), "{refused}");
    it.act(&first, ReplayAct::Cancel).await;
    it.act(&second, ReplayAct::Start).await;
    let over = it.over(&second).await;
    assert_eq!((over.status, over.replayed, over.failed), (ReplayState::Completed, 5, 0));
    let text = std::fs::read_to_string(file_in(folder.path())).expect("a file");
    assert_eq!(text.lines().count(), 5);
    it.it.clock.advance_millis(25 * 3_600_000);
    assert_eq!(it.replays.clean_up(24).await, Ok(2));
    let left = it.records.count(REPLAY_FILES, &Condition::All).await.expect("counted");
    assert_eq!(left, 0, "the name goes with the replay");
}

/// On request, they also get those of another topic. Other groups get none, and events that no group takes are skipped.
pub async fn groups_get_the_events_of_their_topics_again(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    let groups = it.it.host.groups(DEFAULT_TENANT).expect("declared");
    for (name, topic) in [("a", "placed"), ("b", "placed"), ("c", "paid")] {
        groups.put(GroupDefinition::new(name, [topic])).await.expect("defined");
    }
    it.commit_many("placed", 3).await;
    it.commit_many("paid", 2).await;
    it.commit_many("shipped", 1).await;
    let pull = async |name: &str, count: usize| {
        let mut marks = Vec::new();
        while marks.len() < count {
            let body = PullBody { max: 100, wait_ms: 50_000, ..PullBody::default() };
            let deliveries = groups.pull(name, body).await.expect("pulled");
            let results = deliveries.iter().map(|it| Settlement::done(it.token.clone())).collect();
            let settled = groups.settle(name, SettleBody { results }).await.expect("settled");
            assert!(settled.iter().all(|it| it.settled));
            marks.extend(deliveries.iter().map(|it| (it.event.event_type.to_string(), it.replay.is_some())));
        }
        marks
    };
    for (name, count) in [("a", 3), ("b", 3), ("c", 2)] {
        assert!(pull(name, count).await.iter().all(|(_, is_replayed)| !is_replayed));
    }
    let types = ["placed", "paid", "shipped"].map(str::to_owned).to_vec();
    let filter = ReplayFilter { event_types: Some(types), ..ReplayFilter::default() };
    let topics = [("paid".to_owned(), "placed".into())].into();
    let id = it.begin(ReplayBody::new(filter, ReplayTarget::Topic { name: None, topics })).await;
    for name in ["a", "b"] {
        let replayed = pull(name, 5).await;
        assert!(replayed.iter().all(|(_, is_replayed)| *is_replayed), "{replayed:?}");
        assert_eq!(replayed.iter().filter(|(of, _)| of == "paid").count(), 2);
    }
    let status = it.over(&id).await;
    assert_eq!((status.replayed, status.skipped, status.failed), (5, 1, 0));
    assert!(groups.pull("c", PullBody::default()).await.expect("pulled").is_empty());
}

type Seen = Arc<Mutex<Vec<String>>>;

/// Returns a function of a consumer that notes its own name, and the type of the event that it got.
fn noting(
    name: &'static str,
    seen: Seen,
) -> impl Fn(RecordedEvent, serde_json::Value) -> Ready<Result<(), HandleFailure>> + Send + Sync + 'static {
    move |event: RecordedEvent, _: serde_json::Value| {
        seen.lock().expect("no panic").push(format!("{name} got {}", event.event_type));
        ready(Ok(()))
    }
}

async fn until_seen(seen: &Seen, count: usize) {
    while seen.lock().expect("no panic").len() < count {
        crate::between_looks().await;
    }
}

/// A function for the event's own type takes precedence.
pub async fn a_consumer_in_rust_processes_an_event_by_the_topic_that_a_replay_sends_it_to(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    let seen = Seen::default();
    consumer("a", ["placed", "shipped"])
        .on("placed", noting("placed", Arc::clone(&seen)))
        .on("shipped", noting("shipped", Arc::clone(&seen)))
        .run(&it.it.host, DEFAULT_TENANT)
        .await
        .expect("it runs");
    it.commit_many("paid", 2).await;
    it.commit_many("shipped", 1).await;
    until_seen(&seen, 1).await;
    for (event_type, count) in [("paid", 2), ("shipped", 1)] {
        let to_placed = ReplayTarget::Topic { name: Some("placed".into()), topics: Default::default() };
        let id = it.begin(ReplayBody::new(of_type(event_type), to_placed)).await;
        let over = it.over(&id).await;
        assert_eq!((over.replayed, over.failed), (count, 0), "{event_type}: {:?}", over.errors);
    }
    let expected = ["shipped got shipped", "placed got paid", "placed got paid", "shipped got shipped"];
    assert_eq!(*seen.lock().expect("no panic"), expected);
}

/// The replay counts them as sent.
pub async fn a_consumer_in_rust_that_skips_replays_gets_each_event_once(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    let seen = Seen::default();
    consumer("a", ["placed"])
        .on("placed", noting("placed", Arc::clone(&seen)))
        .skip_replays()
        .run(&it.it.host, DEFAULT_TENANT)
        .await
        .expect("it runs");
    it.commit_many("placed", 2).await;
    until_seen(&seen, 2).await;
    let to_topic = ReplayTarget::Topic { name: None, topics: Default::default() };
    let id = it.begin(ReplayBody::new(of_type("placed"), to_topic)).await;
    let over = it.over(&id).await;
    assert_eq!((over.status, over.replayed, over.failed), (ReplayState::Completed, 2, 0));
    assert_eq!(seen.lock().expect("no panic").len(), 2);
}

/// It also knows, the first time, that no replay delivers the event.
pub async fn a_handler_in_rust_knows_the_replay_that_delivers_an_event_again(subject: &dyn Subject) {
    struct Noting(Seen);
    #[async_trait]
    impl Handler for Noting {
        async fn handle(&self, _: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure> {
            self.0.lock().expect("no panic").push(effects.replay().unwrap_or("none").to_owned());
            Ok(())
        }
    }
    let it = Browsed::of(subject).await;
    let seen = Seen::default();
    let definition = HandlerDefinition::new("again");
    it.it.host.handle(DEFAULT_TENANT, definition, Noting(Arc::clone(&seen))).await.expect("defined");
    it.commit_many("placed", 1).await;
    until_seen(&seen, 1).await;
    let id = it.begin(to_handler()).await;
    let over = it.over(&id).await;
    assert_eq!((over.replayed, over.failed), (1, 0));
    assert_eq!(*seen.lock().expect("no panic"), ["none".to_owned(), over.replay_id]);
}

/// Events that are committed while it runs are not sent.
pub async fn only_events_that_were_there_at_the_start_are_sent(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 4).await;
    let id = it.begin(ReplayBody { rate: Some(1.0), ..to_nowhere() }).await;
    it.until_replay(&id, |status| status.replayed == 1).await;
    it.commit(Sample { time: 99_000, ..sample() }).await;
    loop {
        it.it.clock.advance_millis(1_000);
        let status = it.replays.get(&id).await.expect("known");
        if status.status.is_terminal() {
            assert_eq!((status.total, status.replayed), (4, 4));
            break;
        }
        crate::between_looks().await;
    }
}

/// Four seconds of history take 0.4 s at tenfold speed. The pace is that of the log also if events are sent with the time of sending.
pub async fn a_speed_keeps_the_gaps_between_events(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 5).await;
    let groups = it.it.host.groups(DEFAULT_TENANT).expect("declared");
    groups
        .put(GroupDefinition { start: GroupStart::Latest, ..GroupDefinition::new("a", ["placed"]) })
        .await
        .expect("put");
    let to_topic = ReplayTarget::Topic { name: None, topics: Default::default() };
    let to_topic = ReplayBody { preserve_timestamps: false, ..ReplayBody::new(of_type("placed"), to_topic) };
    for (body, speed, gap) in [(to_nowhere(), 10.0, 100), (to_topic, 1.0, 1_000)] {
        let id = it.begin(ReplayBody { speed: Some(speed), ..body }).await;
        let mut begun = None;
        for sent in 1..=5 {
            let status = it.until_replay(&id, |status| status.replayed == sent).await;
            begun = begun.or(status.started_at);
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            let status = it.replays.get(&id).await.expect("known");
            assert_eq!(status.replayed, sent, "the next one is not due");
            if sent < 5 {
                it.it.clock.advance_millis(gap);
            }
        }
        let took = it.it.now_plus(0).since(begun.expect("started"));
        assert_eq!(took.as_millis(), 4 * u128::try_from(gap).expect("a time"));
    }
}

/// It may send one event in each half of a second.
pub async fn a_rate_bounds_the_events_of_a_second(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 3).await;
    let id = it.begin(ReplayBody { rate: Some(2.0), ..to_nowhere() }).await;
    for sent in 1..=3 {
        it.until_replay(&id, |status| status.replayed == sent).await;
        it.it.clock.advance_millis(500);
    }
    assert_eq!(it.over(&id).await.status, ReplayState::Completed);
}

/// The clock is set back by a day after the first event, and ahead by two after the third. Set back, the pace continues from the new time.
/// Set ahead, everything is due.
pub async fn a_clock_that_jumps_delays_no_replay_and_repeats_no_event(subject: &dyn Subject) {
    let folder = tempfile::tempdir().expect("a folder");
    let it = with_exports(subject, folder.path()).await;
    let id = it.begin(ReplayBody { speed: Some(1.0), ..to_file() }).await;
    it.until_replay(&id, |status| status.replayed == 1).await;
    it.it.clock.advance_millis(-DAY);
    let mut passed = 0;
    while it.replays.get(&id).await.expect("known").replayed < 3 {
        it.it.clock.advance_millis(100);
        passed += 100;
        assert!(passed < DAY / 2, "the replay waits until the clock reaches the old time again");
        crate::between_looks().await;
    }
    it.it.clock.advance_millis(2 * DAY);
    let over = it.over(&id).await;
    assert_eq!((over.status, over.replayed, over.failed), (ReplayState::Completed, 5, 0));
    let text = std::fs::read_to_string(file_in(folder.path())).expect("a file");
    let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("a line of JSON")["n"].as_i64();
    assert_eq!(text.lines().map(line).collect::<Vec<_>>(), [0, 1, 2, 3, 4].map(Some));
}

/// The handler has processed it, though beside its own events.
pub async fn a_replay_that_processes_an_event_ends_its_dead_letter(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    let retry = ProcessingRetry { attempts: Some(1), then: Then::Park, ..ProcessingRetry::default() };
    let definition = HandlerDefinition { retry, ..HandlerDefinition::new("again") };
    it.it.define(definition.types(["placed"]).partitioned(PartitionBy::Aggregate, 4)).await;
    it.commit_many("placed", 1).await;
    let taken = it.it.pull_count("again", 1).await;
    it.it.fail("again", &taken[0]).await;
    let letters = it.it.host.dead_letters(DEFAULT_TENANT).expect("declared");
    let open = letters.list(LetterQuery::default()).await.expect("listed").items;
    assert_eq!(open[0].status, LetterStatus::Scheduled);
    let id = it.begin(to_handler()).await;
    assert!(it.handled(1).await[0].replay.is_some());
    assert_eq!(it.over(&id).await.status, ReplayState::Completed);
    assert_eq!(letters.get(&open[0].id).await.expect("kept").status, LetterStatus::Retried);
    it.it.advance(1_000_000);
    assert!(it.it.pull_now("again").await.is_empty(), "it is not delivered once more");
}

/// This holds for a file and for a handler. The log keeps its times. By default the replay sends those.
pub async fn a_replay_sends_events_with_the_time_of_sending_if_asked_to(subject: &dyn Subject) {
    let folder = tempfile::tempdir().expect("a folder");
    let it = with_exports(subject, folder.path()).await;
    let times = |preserve_timestamps: bool, name: &str| {
        let (target, path) =
            (ReplayTarget::File { name: name.to_owned() }, folder.path().join(DEFAULT_TENANT).join(name));
        let body = ReplayBody { preserve_timestamps, ..ReplayBody::new(of_type("placed"), target) };
        (body, path)
    };
    let now = it.it.now_plus(0);
    for (preserved, name) in [(true, "own.jsonl"), (false, "new.jsonl")] {
        let (body, path) = times(preserved, name);
        let id = it.begin(body).await;
        let over = it.over(&id).await;
        assert_eq!((over.status, over.replayed), (ReplayState::Completed, 5));
        assert_eq!(over.last_event_at.map(|at| at.as_millis()), Some(4_000), "the pace is that of the log");
        let text = std::fs::read_to_string(path).expect("a file");
        let line = |(n, line): (usize, &str)| {
            let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
            let sent: Timestamp = serde_json::from_value(line["timestamp"].clone()).expect("a time");
            let own = Timestamp::from_millis(1_000 * n as i64);
            assert_eq!(sent, if preserved { own } else { now }, "{name}: {line}");
        };
        text.lines().enumerate().for_each(line);
    }
    it.handler(PartitionBy::None).await;
    it.begin(ReplayBody { preserve_timestamps: false, ..to_handler() }).await;
    let deliveries = it.handled(5).await;
    let log = it.it.log.read(annals_core::LogQuery::default()).await.expect("read").events;
    for delivery in &deliveries {
        let stored = &log[delivery.event.sequence_number as usize];
        assert_eq!(delivery.event, RecordedEvent { time: now, ..stored.clone() });
        assert_ne!(stored.time, now);
    }
}

/// Consumers on such a broker do not get events of a replay; only groups that follow the log do. The refusal, also of a preview, says how
/// consumers get events again.
pub async fn a_topic_on_a_broker_of_its_own_is_refused_unless_a_group_follows_the_log(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 2).await;
    // Any broker will do: a replay does not publish to it.
    let broker = it.it.host.broker(DEFAULT_TENANT).expect("declared");
    it.it.host.use_broker(DEFAULT_TENANT, broker, TopicSettings::default());
    let target = ReplayTarget::Topic { name: None, topics: Default::default() };
    let body = ReplayBody::new(of_type("placed"), target.clone());
    let preview = || PreviewBody { filter: of_type("placed"), target: target.clone(), max_events: None };
    let groups = it.it.host.groups(DEFAULT_TENANT).expect("declared");
    groups.put(GroupDefinition::new("others", ["paid"])).await.expect("defined");
    let refused = [
        it.replays.create(body.clone()).await.expect_err("no group reads it"),
        it.replays.preview(preview()).await.expect_err("no group reads it"),
    ];
    for refused in refused {
        assert!(matches!(&refused, ReplayError::Invalid(invalid) if invalid.path == "target.kind"), "{refused}");
        assert!(refused.to_string().contains("--reset-offsets"), "{refused}");
    }
    groups.put(GroupDefinition::new("own", ["placed"])).await.expect("defined");
    assert_eq!(it.replays.preview(preview()).await.expect("counted").count, 2);
    let id = it.begin(body).await;
    it.until_replay(&id, |status| status.replayed == 2).await;
}
