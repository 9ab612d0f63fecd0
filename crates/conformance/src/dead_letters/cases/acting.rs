//! What operators do with letters.

use annals_core::bson::DateTime;
use annals_core::dead_letters::{
    BulkAct, BulkBody, BulkRecord, DeadLetterError, LetterOrder, LetterPolicy, LetterStatus, Level,
};
use annals_core::groups::GROUPS;
use annals_core::{Clock, Code, Condition, DEFAULT_TENANT, Filter, LogQuery, RecordType, RecordedEvent, TypedRecords};

use super::{Lettered, because, states, ten_seconds};
use crate::Subject;
use crate::handlers::opened::Opened;
use crate::unanswered::Unanswered;

/// Lets this many keys fail, each with one message.
pub(super) async fn fail_keys(it: &Lettered, group: &str, keys: usize) {
    let keys: Vec<String> = (0..keys).map(|n| format!("k-{n:03}")).collect();
    it.it.commit("placed", &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut failed = 0;
    while failed < keys.len() {
        for delivery in it.pull_now(group).await {
            it.fail(group, &delivery).await;
            failed += 1;
        }
        crate::between_looks().await;
    }
}

fn bulk(condition: Condition, dry_run: bool) -> BulkBody {
    BulkBody { condition: Some(condition), ids: None, reason: "a test".to_owned(), by: None, dry_run }
}

/// It waits however long that takes.
pub async fn a_manual_letter_waits_for_a_person(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.letters.put_policy("placed".into(), LetterPolicy::manual(), because("a test")).await.expect("stored");
    it.define("g", LetterOrder::Wait).await;
    fail_keys(&it, "g", 2).await;
    it.it.advance(1_000_000_000);
    assert!(it.pull_now("g").await.is_empty());
    let letters = it.all().await;
    assert_eq!(states(&letters), [(LetterStatus::Pending, 0); 2]);
    it.letters.retry(&letters[0].id, because("mended")).await.expect("retried");
    assert_eq!(it.process("g", 1).await, [0]);
    let retries: Vec<_> = it.it.host.retry_metrics().into_iter().map(|it| (it.kind, it.events, it.letters)).collect();
    assert_eq!(retries, [("group", 0, 1)], "the retry of a letter is no retry of its group");
    let discarded = it.letters.discard(&letters[1].id, because("useless")).await.expect("discarded");
    assert_eq!(discarded.discard_reason.as_deref(), Some("manual: useless"));
    assert_eq!(discarded.history.last().and_then(|entry| entry.by.as_deref()), Some("ann"));
    assert_eq!(states(&it.all().await), [(LetterStatus::Retried, 1), (LetterStatus::Discarded, 0)]);
}

/// A refusal names the letter and its state.
pub async fn what_is_over_or_unknown_is_refused_and_a_batch_says_which(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.define("g", LetterOrder::Wait).await;
    fail_keys(&it, "g", 2).await;
    let letters = it.all().await;
    let (over, open) = (&letters[0].id, &letters[1].id);
    let refused = it.letters.discard(over, because(" ")).await.expect_err("no reason");
    assert_eq!(refused.code(), Code::InvalidBody);
    it.letters.discard(over, because("useless")).await.expect("discarded");
    for act in [it.letters.retry(over, because("x")).await, it.letters.discard(over, because("x")).await] {
        assert_eq!(act.expect_err("it is over").code(), Code::StateConflict);
    }
    let unknown = it.letters.retry("group.g.77", because("x")).await.expect_err("unknown");
    assert_eq!(unknown, DeadLetterError::Unknown("group.g.77".into()));
    let ids = Some(vec![open.clone(), over.clone(), "group.g.77".into()]);
    let body = BulkBody { condition: None, ids, reason: "a test".to_owned(), by: None, dry_run: false };
    let outcome = it.letters.bulk(BulkAct::Retry, body).await.expect("done");
    assert_eq!((outcome.total, outcome.successful, outcome.failed), (3, 1, 2));
    assert!(outcome.details[1].error.as_deref().is_some_and(|error| error.contains("discarded")), "{outcome:?}");
    assert_eq!(it.process("g", 1).await, [1]);
}

/// It applies until it is deleted.
pub async fn a_policy_of_a_topic_comes_before_its_category_and_survives_a_restart(subject: &dyn Subject) {
    let it = Lettered::of(subject).await.restarted().await;
    let shown = it.letters.policy("placed").await.expect("known");
    assert_eq!((shown.is_override, shown.policy, shown.by.as_deref()), (true, ten_seconds(), Some("ann")));
    let listed = it.letters.policies(None, 10).await.expect("listed").items;
    assert_eq!(listed.iter().map(|it| &*it.topic).collect::<Vec<_>>(), ["placed"]);
    let wrong = LetterPolicy { multiplier: 0.0, ..ten_seconds() };
    let refused = it.letters.put_policy("placed".into(), wrong, because("x")).await.expect_err("invalid");
    assert_eq!(refused.code(), Code::InvalidPolicy);
    let deleted = it.letters.delete_policy("placed", because("a test")).await.expect("deleted");
    assert_eq!((deleted.is_override, deleted.policy), (false, LetterPolicy::of_category("default")));
    assert!(it.letters.policies(None, 10).await.expect("listed").items.is_empty());
}

/// The letters behind them are included.
pub async fn a_bulk_act_counts_in_a_dry_run_and_changes_each_letter_once(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.define("g", LetterOrder::Wait).await;
    fail_keys(&it, "g", 5).await;
    it.it.commit("placed", &["k-000", "k-000"]).await;
    while it.all().await.len() < 7 {
        assert!(it.pull_now("g").await.is_empty());
    }
    let of_topic = || Condition::eq("original_topic", "placed");
    let dry = it.letters.bulk(BulkAct::Retry, bulk(of_topic(), true)).await.expect("counted");
    assert_eq!((dry.dry_run, dry.total, dry.successful), (true, 7, 0));
    let before = it.all().await;
    let one_key = Condition::eq("key", "order/k-000");
    let discarded = it.letters.bulk(BulkAct::Discard, bulk(one_key, false)).await.expect("done");
    assert_eq!((discarded.total, discarded.successful, discarded.failed), (3, 3, 0));
    let retried = it.letters.bulk(BulkAct::Retry, bulk(of_topic(), false)).await.expect("done");
    assert_eq!((retried.total, retried.successful), (4, 4));
    let mut numbers = it.process("g", 4).await;
    numbers.sort_unstable();
    assert_eq!(numbers, before[1..5].iter().map(|letter| letter.sequence_number).collect::<Vec<_>>());
    let again = it.letters.bulk(BulkAct::Discard, bulk(of_topic(), false)).await.expect("done");
    assert_eq!(again.total, 0, "all are over");
    // The key whose letters were discarded is free.
    it.it.commit("placed", &["k-000"]).await;
    assert_eq!(it.process("g", 1).await.len(), 1);
}

/// Each letter is changed once.
pub async fn a_bulk_act_of_a_process_that_ended_is_finished_where_it_stood(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.define("g", LetterOrder::Wait).await;
    fail_keys(&it, "g", 3).await;
    let records = it.it.store.records(DEFAULT_TENANT).expect("declared");
    records.declare(<BulkRecord as RecordType>::collection()).await.expect("declared");
    let now = DateTime::from_millis(it.it.clock.now().as_millis());
    let begun = BulkRecord {
        id: "a-bulk-act".to_owned(),
        act: "discard".to_owned(),
        condition: serde_json::to_string(&Condition::eq("original_topic", "placed")).expect("JSON"),
        reason: "begun elsewhere".to_owned(),
        by: None,
        at: now,
        until: now,
        process: "a process that has ended".to_owned(),
        cursor: None,
        done: false,
        successful: 0,
        failed: 0,
    };
    TypedRecords::<BulkRecord>::declared(records.clone()).insert(&begun).await.expect("stored");
    let it = it.restarted().await;
    it.define("g", LetterOrder::Wait).await;
    let letters = it.until_count(LetterStatus::Discarded, 3).await;
    assert!(letters.iter().all(|it| it.discard_reason.as_deref() == Some("manual: begun elsewhere")), "{letters:?}");
    let found = TypedRecords::<BulkRecord>::declared(records).get("a-bulk-act").await.expect("read").expect("stored");
    assert_eq!((found.value.done, found.value.successful), (true, 3));
}

/// Averages have two decimals.
pub async fn statistics_count_each_status_by_topic(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    assert_eq!(it.letters.statistics().await.expect("counted").open, 0);
    it.define("g", LetterOrder::Wait).await;
    fail_keys(&it, "g", 3).await;
    let letters = it.all().await;
    it.letters.discard(&letters[0].id, because("useless")).await.expect("discarded");
    it.letters.retry(&letters[1].id, because("mended")).await.expect("retried");
    it.process("g", 1).await;
    let counted = it.letters.statistics().await.expect("counted");
    assert_eq!((counted.open, counted.level, counted.topics.len()), (1, Level::Normal, 1));
    let topic = &counted.topics[0];
    assert_eq!((&*topic.topic, topic.total_messages, topic.open()), ("placed", 3, 1));
    for status in ["scheduled", "retried", "discarded"] {
        assert_eq!(topic.status_breakdown.get(status), Some(&1), "{status}");
    }
    assert_eq!((topic.avg_retry_count, topic.max_retry_count), (0.33, 1));
    assert_eq!(topic.oldest_message, Some(letters[0].created_at));
    it.letters.discard(&letters[2].id, because("useless")).await.expect("discarded");
    assert_eq!(it.letters.statistics().await.expect("counted").topics[0].open(), 0, "the topic is still shown");
}

/// Crossings in both directions are announced.
pub async fn a_crossed_threshold_is_announced_and_unhealthy_until_it_is_crossed_back(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.define("g", LetterOrder::Wait).await;
    fail_keys(&it, "g", 101).await;
    let counted = it.letters.statistics().await.expect("counted");
    assert_eq!((counted.open, counted.level), (101, Level::Warning));
    // Open letters are counted every few seconds.
    it.it.advance(5_000);
    let crossed = |announced: &[String]| announced.iter().filter(|it| *it == "dlq_threshold_crossed").count();
    assert_eq!(crossed(&it.announced(102).await), 1);
    let health = it.it.host.health().await.expect("readable");
    let complaint = health.iter().find(|it| it.kind == "dead_letters").and_then(|it| it.degraded.clone());
    assert!(complaint.as_deref().is_some_and(|it| it.starts_with("warning: 101 dead letters")), "{complaint:?}");
    let letters = it.all().await;
    it.letters.discard(&letters[0].id, because("useless")).await.expect("discarded");
    it.it.advance(5_000);
    assert_eq!(crossed(&it.announced(104).await), 2, "with the one that was discarded");
    let health = it.it.host.health().await.expect("readable");
    assert!(health.iter().all(|it| it.kind != "dead_letters"), "{health:?}");
}

/// With one open letter fewer, the level is a warning again. The case takes many commits, so it is not among those of every store.
pub async fn more_than_a_thousand_open_letters_are_critical(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.define("g", LetterOrder::Wait).await;
    fail_keys(&it, "g", 1_001).await;
    let counted = it.letters.statistics().await.expect("counted");
    assert_eq!((counted.open, counted.level, counted.critical_above), (1_001, Level::Critical, 1_000));
    let complaint = async || {
        let health = it.it.host.health().await.expect("readable");
        let complaint = health.iter().find(|it| it.kind == "dead_letters").and_then(|it| it.degraded.clone());
        complaint.expect("a threshold is crossed")
    };
    let critical = complaint().await;
    assert!(critical.starts_with("critical: 1001 dead letters"), "{critical}");
    // Open letters are counted every few seconds.
    it.it.advance(5_000);
    let filter = Filter { types: vec!["dlq_threshold_crossed".into()], ..Filter::default() };
    let is_critical = |event: &RecordedEvent| event.data.as_raw().get_str("level").is_ok_and(|it| it == "critical");
    loop {
        let query = LogQuery { filter: filter.clone(), ..LogQuery::default() };
        if it.it.log.read(query).await.expect("read").events.iter().any(is_critical) {
            break;
        }
        crate::between_looks().await;
    }
    let letters = it.all().await;
    it.letters.discard(&letters[0].id, because("useless")).await.expect("discarded");
    let warning = complaint().await;
    assert!(warning.starts_with("warning: 1000 dead letters"), "{warning}");
}

/// The letters have the reason of the deletion.
pub async fn letters_of_a_deleted_group_are_given_up(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.define("g", LetterOrder::Wait).await;
    fail_keys(&it, "g", 2).await;
    it.groups.delete("g", because("retired")).await.expect("deleted");
    let letters = it.all().await;
    assert_eq!(states(&letters), [(LetterStatus::Discarded, 0); 2]);
    assert_eq!(letters[0].discard_reason.as_deref(), Some("manual: its consumer was deleted: retired"));
}

/// The result is the same as if the caller had waited for the answer.
pub async fn letters_of_a_deleted_group_are_given_up_although_the_caller_goes_away(subject: &dyn Subject) {
    let (store, unanswered) = Unanswered::before(subject.open().await, GROUPS);
    let it = Lettered::on(Opened::on(store, subject.clock()));
    it.letters.put_policy("placed".into(), ten_seconds(), because("a test")).await.expect("stored");
    it.define("g", LetterOrder::Wait).await;
    fail_keys(&it, "g", 2).await;
    unanswered.abandon(it.groups.delete("g", because("retired"))).await;
    let letters = it.until_count(LetterStatus::Discarded, 2).await;
    assert_eq!(letters[0].discard_reason.as_deref(), Some("manual: its consumer was deleted: retired"));
}
