//! What happens to messages that a consumer cannot process.

use annals_core::dead_letters::{LetterOrder, LetterPolicy, LetterSettings, LetterStatus};
use annals_core::handlers::{Act, DeliveryFailure, End, HandlerDefinition, Place, Settlement};
use annals_core::processing::PartitionBy;

use super::{Lettered, at_once, because, states};
use crate::Subject;

/// The letter is stored in the batch that parks the message.
pub async fn a_message_that_is_parked_becomes_a_letter_that_is_planned_and_announced(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.define("g", LetterOrder::Wait).await;
    it.it.commit("placed", &["a"]).await;
    let taken = it.pull_count("g", 1).await;
    it.fail("g", &taken[0]).await;
    let letters = it.all().await;
    assert_eq!(states(&letters), [(LetterStatus::Scheduled, 0)], "stored before the settlement was answered");
    let letter = &letters[0];
    assert_eq!((letter.group.as_deref(), &*letter.original_topic, &*letter.error), (Some("g"), "placed", "down"));
    assert_eq!((&*letter.key, letter.position, letter.attempts), ("order/a", 0, 1));
    assert_eq!(letter.next_retry_at, Some(it.it.now_plus(10_000)));
    let data = letter.event.as_raw().get_str("event_id").expect("a text");
    assert_eq!(data, taken[0].event.id.hyphenated().to_string());
    assert_eq!(it.announced(1).await, ["dlq_message_received"]);
}

/// This holds whatever other groups do.
pub async fn a_retried_letter_goes_to_its_own_group_only_and_ends_as_retried(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.define("fails", LetterOrder::Wait).await;
    it.define("works", LetterOrder::Wait).await;
    it.it.commit("placed", &["a"]).await;
    assert_eq!(it.process("works", 1).await, [0]);
    let taken = it.pull_count("fails", 1).await;
    it.fail("fails", &taken[0]).await;
    assert!(it.pull_now("fails").await.is_empty(), "it is not due");
    it.it.advance(10_000);
    let again = it.pull_count("fails", 1).await;
    assert_eq!((again[0].event.sequence_number, again[0].attempt), (0, 2));
    assert_eq!(again[0].last_reason.as_deref(), Some("down"));
    assert!(it.pull_now("works").await.is_empty());
    it.done("fails", &again[0]).await;
    let letters = it.all().await;
    assert_eq!(states(&letters), [(LetterStatus::Retried, 1)]);
    assert!(letters[0].retried_at.is_some());
    assert!(it.pull_now("fails").await.is_empty(), "it is done");
    assert_eq!(it.announced(2).await, ["dlq_message_received", "dlq_message_retried"]);
}

/// They become letters that are not attempted.
pub async fn later_messages_of_a_key_wait_behind_its_letter_and_come_in_order(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.define("g", LetterOrder::Wait).await;
    it.it.commit("placed", &["a", "a", "b", "a"]).await;
    for delivery in it.pull_count("g", 2).await {
        if delivery.event.sequence_number == 0 {
            it.fail("g", &delivery).await;
        } else {
            it.done("g", &delivery).await;
        }
    }
    while it.all().await.len() < 3 {
        assert!(it.pull_now("g").await.is_empty(), "the others of its key wait");
    }
    let letters = it.all().await;
    let shown: Vec<_> = letters.iter().map(|it| (it.position, it.follows, it.attempts)).collect();
    assert_eq!(shown, [(0, false, 1), (1, true, 0), (3, true, 0)]);
    it.it.commit("placed", &["a"]).await;
    it.it.advance(10_000);
    assert_eq!(it.process_versions("g", 4).await, [1, 2, 3, 4]);
    // The key is free again.
    it.it.commit("placed", &["a"]).await;
    assert_eq!(it.process("g", 1).await.len(), 1);
    assert!(it.all().await.iter().all(|letter| letter.status == LetterStatus::Retried));
}

/// The letters of a key are still in order among themselves.
pub async fn later_messages_of_a_key_pass_its_letter_where_the_definition_says_so(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.define("g", LetterOrder::Pass).await;
    it.it.commit("placed", &["a", "a", "a"]).await;
    for number in [0, 1] {
        let taken = it.pull_count("g", 1).await;
        assert_eq!(taken[0].event.sequence_number, number);
        it.fail("g", &taken[0]).await;
    }
    assert_eq!(it.process("g", 1).await, [2], "it has passed them");
    it.it.advance(10_000);
    assert_eq!(it.process("g", 1).await, [0]);
    it.it.advance(10_000);
    assert_eq!(it.process("g", 1).await, [1], "after the one before");
}

/// It is not delivered again.
pub async fn a_letter_that_failed_as_often_as_allowed_is_discarded_and_its_key_goes_on(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.define("g", LetterOrder::Wait).await;
    it.it.commit("placed", &["a", "a"]).await;
    for attempt in 1..=3 {
        let taken = it.pull_count("g", 1).await;
        assert_eq!((taken[0].event.sequence_number, taken[0].attempt), (0, attempt));
        it.fail("g", &taken[0]).await;
        it.it.advance(10_000);
    }
    assert_eq!(it.process("g", 1).await, [1]);
    let letters = it.all().await;
    assert_eq!(states(&letters)[0], (LetterStatus::Discarded, 2));
    assert_eq!(letters[0].discard_reason.as_deref(), Some("max_retries_exceeded"));
    let history: Vec<_> = letters[0].history.iter().map(|entry| &*entry.what).collect();
    assert_eq!(history, ["received", "failed", "failed", "discarded"]);
    let announced = it.announced(4).await;
    assert!(announced.contains(&"dlq_message_discarded".to_owned()), "{announced:?}");
}

/// The restarts come after parking, and while a letter is in flight.
pub async fn letters_in_flight_and_letters_that_wait_survive_a_restart_in_order(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.define("g", LetterOrder::Wait).await;
    it.it.commit("placed", &["a", "a", "a"]).await;
    let taken = it.pull_count("g", 1).await;
    it.fail("g", &taken[0]).await;
    let it = it.restarted().await;
    while it.all().await.len() < 3 {
        assert!(it.pull_now("g").await.is_empty(), "its key is still held");
    }
    it.it.advance(10_000);
    let in_flight = it.pull_count("g", 1).await;
    assert_eq!(in_flight[0].event.sequence_number, 0);
    let it = it.restarted().await;
    it.it.commit("placed", &["a"]).await;
    assert_eq!(it.process_versions("g", 4).await, [1, 2, 3, 4]);
    let states = states(&it.all().await);
    assert!(states.iter().all(|state| *state == (LetterStatus::Retried, 1)), "{states:?}");
}

/// The letters have different keys.
pub async fn only_letters_that_are_due_are_delivered_and_a_failing_one_stops_no_other(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.define("g", LetterOrder::Wait).await;
    it.it.commit("placed", &["a", "b"]).await;
    for delivery in it.pull_count("g", 2).await {
        it.fail("g", &delivery).await;
    }
    it.it.advance(5_000);
    it.it.commit("placed", &["c"]).await;
    let taken = it.pull_count("g", 1).await;
    let third = taken[0].event.sequence_number;
    assert_eq!(&*taken[0].event.commit.aggregate.id, "c");
    it.fail("g", &taken[0]).await;
    it.it.advance(5_000);
    let due = it.pull_count("g", 2).await;
    assert!(it.pull_now("g").await.is_empty(), "the third is not due");
    let mut numbers: Vec<_> = due.iter().map(|it| it.event.sequence_number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1]);
    for delivery in &due {
        match delivery.event.sequence_number {
            0 => it.fail("g", delivery).await,
            _ => it.done("g", delivery).await,
        }
    }
    it.it.advance(5_000);
    assert_eq!(it.process("g", 1).await, [third]);
    let states = states(&it.all().await);
    let (scheduled, retried) = (LetterStatus::Scheduled, LetterStatus::Retried);
    assert_eq!(states, [(scheduled, 1), (retried, 1), (retried, 1)]);
}

/// Other messages wait, and are processed once the dependency is back.
pub async fn an_outage_parks_no_more_than_the_breaker_allows(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    it.define_with("g", LetterSettings { order: LetterOrder::Wait, breaker: 3 }).await;
    let keys: Vec<String> = (0..12).map(|n| format!("k-{n:02}")).collect();
    it.it.commit("placed", &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut attempts = 0;
    while attempts < 40 {
        for delivery in it.pull_now("g").await {
            it.fail("g", &delivery).await;
            attempts += 1;
        }
        it.it.advance(1_000);
    }
    let letters = it.all().await;
    assert_eq!(letters.len(), 3, "{letters:#?}");
    assert!(letters.iter().all(|letter| letter.status == LetterStatus::Scheduled), "{letters:#?}");
    let mut processed = Vec::new();
    while processed.len() < 12 {
        for delivery in it.pull_now("g").await {
            it.done("g", &delivery).await;
            processed.push(delivery.event.sequence_number);
        }
        it.it.advance(1_000);
    }
    processed.sort_unstable();
    assert_eq!(processed, (0..12).collect::<Vec<_>>());
}

/// A group of which one event has failed, which is an outage for its breaker. Its policy retries at once.
async fn with_an_outage(subject: &dyn Subject) -> Lettered {
    let it = Lettered::of(subject).await;
    it.letters.put_policy("placed".into(), LetterPolicy::immediate(1), because("a test")).await.expect("stored");
    it.define_with("g", LetterSettings { order: LetterOrder::Wait, breaker: 1 }).await;
    it.it.commit("placed", &["a"]).await;
    let taken = it.pull_count("g", 1).await;
    it.fail("g", &taken[0]).await;
    it
}

/// By a policy that waits for nothing, too: an attempt that does not count uses up no retry, and would follow the last one at once.
pub async fn a_letter_that_fails_during_an_outage_keeps_its_retries_and_pauses(subject: &dyn Subject) {
    let it = with_an_outage(subject).await;
    for attempts in 2..5 {
        let probe = it.pull_count("g", 1).await;
        assert_eq!(u64::from(probe[0].attempt), attempts);
        it.fail("g", &probe[0]).await;
        let letters = it.all().await;
        assert_eq!(states(&letters), [(LetterStatus::Scheduled, 0)]);
        assert_eq!((letters[0].attempts, letters[0].next_retry_at), (attempts, Some(it.it.now_plus(1_000))));
        assert!(it.pull_now("g").await.is_empty(), "it is not due");
        it.it.advance(1_000);
    }
    let last = it.pull_count("g", 1).await;
    it.done("g", &last[0]).await;
    assert_eq!(it.all().await[0].status, LetterStatus::Retried);
}

/// A delay longer than the pause is kept.
pub async fn a_delay_of_a_worker_does_not_shorten_the_pause_of_an_outage(subject: &dyn Subject) {
    let it = with_an_outage(subject).await;
    for (asked, pause) in [(0, 1_000_u64), (7_000, 7_000)] {
        let probe = it.pull_count("g", 1).await;
        let failure = DeliveryFailure { reason: "down".to_owned(), retry_after_ms: Some(asked), never: false };
        it.settle("g", Settlement { token: probe[0].token.clone(), failure: Some(failure) }).await;
        let letters = it.all().await;
        assert_eq!(states(&letters), [(LetterStatus::Scheduled, 0)]);
        assert_eq!(letters[0].next_retry_at, Some(it.it.now_plus(pause)), "asked for {asked} ms");
        it.it.advance(pause.cast_signed());
    }
    let last = it.pull_count("g", 1).await;
    it.done("g", &last[0]).await;
    assert_eq!(it.all().await[0].status, LetterStatus::Retried);
}

/// The letter has the same states.
pub async fn an_event_that_a_handler_parks_is_a_letter_of_that_handler(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    let definition = HandlerDefinition { retry: at_once(), ..HandlerDefinition::new("h") };
    it.it.define(definition.types(["placed"]).partitioned(PartitionBy::Aggregate, 4)).await;
    it.it.commit("placed", &["a", "a"]).await;
    let taken = it.it.pull_count("h", 1).await;
    it.it.fail("h", &taken[0]).await;
    let next = it.it.pull_count("h", 1).await;
    assert_eq!(next[0].position, 1, "the partition goes on");
    it.it.done("h", &next[0]).await;
    let letters = it.all().await;
    assert_eq!((letters[0].handler.as_deref(), letters[0].group.as_deref()), (Some("h"), None));
    it.it.advance(10_000);
    let again = it.it.pull_count("h", 1).await;
    assert_eq!(again[0].position, 0);
    it.it.done("h", &again[0]).await;
    assert_eq!(states(&it.all().await), [(LetterStatus::Retried, 1)]);
}

/// It also keeps the number of its retries.
pub async fn a_letter_that_fails_again_after_a_replay_keeps_its_history(subject: &dyn Subject) {
    let it = Lettered::of(subject).await;
    let definition = HandlerDefinition { retry: at_once(), ..HandlerDefinition::new("h") };
    it.it.define(definition.types(["placed"]).partitioned(PartitionBy::Aggregate, 4)).await;
    it.it.commit("placed", &["a"]).await;
    let taken = it.it.pull_count("h", 1).await;
    it.it.fail("h", &taken[0]).await;
    it.it.advance(10_000);
    let again = it.it.pull_count("h", 1).await;
    it.it.done("h", &again[0]).await;
    let from = Act::Replay { from: Place::End(End::Beginning) };
    it.it.handlers.act("h", from, because("a test")).await.expect("replayed");
    let replayed = it.it.pull_count("h", 1).await;
    it.it.fail("h", &replayed[0]).await;
    let letters = it.all().await;
    assert_eq!(states(&letters), [(LetterStatus::Scheduled, 1)]);
    let history: Vec<_> = letters[0].history.iter().map(|entry| &*entry.what).collect();
    assert_eq!(history, ["received", "retried", "reopened"]);
    assert!(letters[0].retried_at.is_none());
}
