//! How letters end other than by a retry or by hand.

use std::sync::Arc;
use std::time::Duration;

use annals_core::dead_letters::{ARCHIVED_LETTERS, ArchivedLetter, LetterOrder, LetterStatus};
use annals_core::groups::GROUPS;
use annals_core::handlers::{Act, End, HandlerDefinition, Place, Reason};
use annals_core::processing::PartitionBy;
use annals_core::{Condition, DEFAULT_TENANT, Expected, RecordChange, RecordError, RecordQuery, TypedRecords};
use annals_runtime::HostOptions;

use super::{Lettered, at_once, because, states};
use crate::Subject;
use crate::handlers::opened::Opened;

/// Defines a handler `h` of the type `placed` that parks at the first failure.
async fn handler(it: &Lettered) {
    let definition = HandlerDefinition { retry: at_once(), ..HandlerDefinition::new("h") };
    it.it.define(definition.types(["placed"]).partitioned(PartitionBy::Aggregate, 4)).await;
}

/// It is not delivered again.
pub async fn an_open_letter_ends_when_a_replay_processes_its_event(subject: &dyn Subject) {
    ends_when_processed_again(subject, Act::Replay { from: Place::End(End::Beginning) }).await;
}

/// It ends as it does by a replay.
pub async fn an_open_letter_ends_when_its_event_is_processed_after_a_move_back(subject: &dyn Subject) {
    ends_when_processed_again(subject, Act::Move { to: Place::End(End::Beginning) }).await;
}

async fn ends_when_processed_again(subject: &dyn Subject, act: Act) {
    let it = Lettered::of(subject).await;
    handler(&it).await;
    it.it.commit("placed", &["a", "b", "a"]).await;
    for delivery in it.it.pull_count("h", 2).await {
        match delivery.position {
            0 => it.it.fail("h", &delivery).await,
            _ => it.it.done("h", &delivery).await,
        }
    }
    it.it.handle_all("h", 3).await;
    assert_eq!(states(&it.all().await), [(LetterStatus::Scheduled, 0)]);
    it.it.handlers.act("h", act, because("a test")).await.expect("moved back");
    let again = it.it.handle_all("h", 3).await;
    for position in 0..3 {
        assert!(again.contains(&position), "{again:?}");
    }
    let letters = it.all().await;
    assert_eq!(states(&letters), [(LetterStatus::Retried, 1)]);
    let history: Vec<_> = letters[0].history.iter().map(|entry| &*entry.what).collect();
    assert_eq!(history, ["received", "retried"]);
    it.it.advance(10_000);
    assert!(!it.it.pull_now("h").await.iter().any(|delivery| delivery.position == 0), "it is over");
    assert!(it.announced(2).await.contains(&"dlq_message_retried".to_owned()));
}

/// They have the reason of the deletion, like those of a group.
pub async fn letters_of_a_deleted_handler_are_given_up(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    handler(&it).await;
    it.it.commit("placed", &["a"]).await;
    let taken = it.it.pull_count("h", 1).await;
    it.it.fail("h", &taken[0]).await;
    it.it.handlers.delete("h", because("retired")).await.expect("deleted");
    let letters = it.all().await;
    assert_eq!(states(&letters), [(LetterStatus::Discarded, 0)]);
    assert_eq!(letters[0].discard_reason.as_deref(), Some("manual: its consumer was deleted: retired"));
}

/// The next process completes the deletion.
pub async fn letters_of_a_consumer_whose_deletion_was_cut_short_are_given_up(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.define("g", LetterOrder::Wait).await;
    it.it.commit("placed", &["a"]).await;
    let taken = it.pull_count("g", 1).await;
    it.fail("g", &taken[0]).await;
    let records = it.it.store.records(DEFAULT_TENANT).expect("declared");
    let deleted = RecordChange::delete_if(GROUPS, "g", Expected::Present);
    records.write(vec![deleted]).await.expect("written");
    let it = it.restarted().await;
    it.define("other", LetterOrder::Wait).await;
    it.until_count(LetterStatus::Discarded, 1).await;
}

/// The archive keeps all their content.
pub async fn letters_that_are_over_are_archived_after_the_retention_and_open_ones_stay(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.define("g", LetterOrder::Wait).await;
    it.it.commit("placed", &["a", "b"]).await;
    for delivery in it.pull_count("g", 2).await {
        it.fail("g", &delivery).await;
    }
    let letters = it.all().await;
    it.letters.discard(&letters[0].id, because("useless")).await.expect("discarded");
    it.announced(3).await;
    let Opened { store, host, clock, .. } = it.it;
    host.drain().await;
    let day = Duration::from_secs(24 * 60 * 60);
    let options = HostOptions { letter_retention: Some(day), ..HostOptions::default() };
    let it = Lettered::on(Opened::with(store, clock, options));
    it.define("other", LetterOrder::Wait).await;
    let records = it.it.store.records(DEFAULT_TENANT).expect("declared");
    let archived = async || {
        let archive = TypedRecords::<ArchivedLetter>::declared(Arc::clone(&records));
        match archive.find(RecordQuery::new(ARCHIVED_LETTERS).matching(Condition::All)).await {
            Err(RecordError::UnknownCollection(_)) => Vec::new(),
            found => found.expect("found").0,
        }
    };
    it.it.advance(23 * 60 * 60 * 1_000);
    assert_eq!(it.all().await.len(), 2, "its time is not over");
    it.it.advance(2 * 60 * 60 * 1_000);
    while it.all().await.len() > 1 {
        it.it.advance(5_000);
        tokio::task::yield_now().await;
    }
    assert_eq!(it.all().await[0].id, letters[1].id, "the open one stays");
    let kept = archived().await;
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].value.letter.id, *letters[0].id);
    assert_eq!(kept[0].value.letter.discard_reason.as_deref(), Some("manual: useless"));
}

/// Groups are shown as handlers are.
pub async fn groups_are_in_the_health_with_lag_failing_keys_and_letters(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.define("g", LetterOrder::Wait).await;
    it.it.commit("placed", &["a", "b"]).await;
    for delivery in it.pull_count("g", 2).await {
        it.fail("g", &delivery).await;
    }
    it.it.commit("placed", &["c"]).await;
    it.it.advance(5_000);
    let health = it.it.host.health().await.expect("readable");
    let group = health.iter().find(|it| it.kind == "group" && it.name == "g").expect("listed");
    assert!(group.lag() >= 1, "{group:?}");
    assert_eq!(group.letters, 2);
    it.letters.discard(&it.all().await[0].id, Reason { reason: "useless".to_owned(), by: None }).await.expect("done");
    it.it.advance(5_000);
    let health = it.it.host.health().await.expect("readable");
    assert_eq!(health.iter().find(|it| it.kind == "group").map(|it| it.letters), Some(1));
}
