//! How consumers of topics see registered types.

use std::sync::Arc;

use annals_core::dead_letters::{LetterQuery, LetterStatus, LetterView};
use annals_core::groups::{GroupDefinition, Groups};
use annals_core::handlers::{Delivery, PullBody, Reason, SettleBody, Settlement};
use annals_core::processing::{ProcessingRetry, Then};
use annals_core::types::{Compatibility, EventTypes, TypeDefinition, UnknownTypes, UpcastStep};
use annals_core::{Clock, Code, DEFAULT_TENANT, LogQuery};
use annals_runtime::types::TypedStore;
use serde_json::{Value, json};

use super::order;
use crate::Subject;
use crate::handlers::opened::Opened;

/// A store whose events are checked, with a host and a group of the topic `placed`.
struct Consumed {
    it: Opened,
    types: Arc<dyn EventTypes>,
    groups: Arc<dyn Groups>,
}

impl Consumed {
    async fn of(subject: &dyn Subject) -> Self {
        let store = Arc::new(TypedStore::new(subject.open().await, subject.clock()));
        let it = Opened::on(store, subject.clock());
        let groups = it.host.groups(DEFAULT_TENANT).expect("declared");
        let types = it.store.event_types(DEFAULT_TENANT).expect("declared");
        Self { it, types, groups }
    }

    async fn define(&self) {
        self.groups.put(GroupDefinition::new("g", ["placed"])).await.expect("defined");
    }

    /// Pulls until `count` messages have come, and settles them.
    async fn process(&self, count: usize) -> Vec<Delivery> {
        let mut all = Vec::new();
        while all.len() < count {
            let pull = PullBody { max: 100, worker: "w".to_owned(), ..PullBody::default() };
            for delivery in self.groups.pull("g", pull).await.expect("pulled") {
                let results = vec![Settlement::done(delivery.token.clone())];
                self.groups.settle("g", SettleBody { results }).await.expect("settled");
                all.push(delivery);
            }
            crate::between_looks().await;
        }
        all
    }

    /// Waits for `count` letters, and returns them.
    async fn letters(&self, count: usize) -> Vec<LetterView> {
        let letters = self.it.host.dead_letters(DEFAULT_TENANT).expect("declared");
        loop {
            let pull = PullBody { max: 100, worker: "w".to_owned(), ..PullBody::default() };
            assert!(self.groups.pull("g", pull).await.expect("pulled").is_empty());
            let found = letters.list(LetterQuery::default()).await.expect("listed").items;
            if found.len() >= count {
                return found;
            }
            crate::between_looks().await;
        }
    }

    /// Registers a type of a category, and defines a group of its topic with the same name, which parks a message at the first failure.
    async fn define_for(&self, event_type: &'static str, category: &'static str) {
        let definition = TypeDefinition::new(event_type, json!({"type": "object"})).category(category);
        self.types.put(definition).await.expect("registered");
        let retry = ProcessingRetry { attempts: Some(1), then: Then::Park, ..ProcessingRetry::default() };
        let group = GroupDefinition { retry, ..GroupDefinition::new(event_type, [event_type]) };
        self.groups.put(group).await.expect("defined");
    }

    /// Pulls until the only message of a group arrives.
    async fn pull_one(&self, group: &str) -> Delivery {
        loop {
            let pull = PullBody { max: 1, worker: "w".to_owned(), ..PullBody::default() };
            if let Some(delivery) = self.groups.pull(group, pull).await.expect("pulled").pop() {
                return delivery;
            }
            crate::between_looks().await;
        }
    }

    async fn settle_one(&self, group: &str, settlement: Settlement) {
        let settled = self.groups.settle(group, SettleBody { results: vec![settlement] }).await.expect("settled");
        assert!(settled[0].settled, "{settled:?}");
    }

    /// Returns the only letter of a group.
    async fn letter_of(&self, group: &'static str) -> LetterView {
        let letters = self.it.host.dead_letters(DEFAULT_TENANT).expect("declared");
        let query = LetterQuery { group: Some(group.into()), ..LetterQuery::default() };
        let mut found = letters.list(query).await.expect("listed").items;
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }
}

fn shown(delivery: &Delivery) -> Value {
    serde_json::to_value(&delivery.event.data).expect("JSON")
}

fn cents() -> TypeDefinition {
    let schema = json!({
        "type": "object", "required": ["amount"],
        "properties": {"amount": {"type": "object", "required": ["cents", "currency"]}},
    });
    let steps = json!([
        {"rename": {"from": "total", "to": "amount.cents"}},
        {"set": {"path": "amount.currency", "value": "EUR"}},
        {"remove": "note"},
    ]);
    let steps: Vec<UpcastStep> = serde_json::from_value(steps).expect("steps");
    TypeDefinition::new("placed", schema).generation(2).upcaster(steps)
}

/// The log stays unchanged.
pub async fn an_older_event_reaches_consumers_in_the_newest_generation(subject: &dyn Subject) {
    let it = Consumed::of(subject).await;
    it.types.put(TypeDefinition::new("placed", order())).await.expect("registered");
    it.it.commit_data("order", "a", &json!({"total": 5, "note": "x"})).await;
    it.types.put(cents()).await.expect("an upcaster bridges what is incompatible");
    it.define().await;
    let delivered = it.process(1).await;
    assert_eq!(shown(&delivered[0]), json!({"amount": {"cents": 5, "currency": "EUR"}}));
    assert_eq!(delivered[0].event.generation, 2);
    let page = it.it.log.read(LogQuery::default()).await.expect("read");
    assert_eq!(page.events[0].generation, 1);
    assert_eq!(serde_json::to_value(&page.events[0].data).expect("JSON"), json!({"total": 5, "note": "x"}));
    // An upcaster can be corrected, and its output is checked.
    let mended = TypeDefinition { upcaster: vec![UpcastStep::Remove("total".to_owned())], ..cents() };
    it.types.put(mended).await.expect("changed");
    it.it.commit_data("order", "b", &json!({"total": 6})).await;
    let letters = it.letters(1).await;
    assert!(letters[0].error.contains("data.amount"), "{letters:?}");
}

/// It is not handed out, and its key continues.
pub async fn an_event_that_is_no_value_of_its_type_becomes_a_letter_and_its_key_goes_on(subject: &dyn Subject) {
    let it = Consumed::of(subject).await;
    it.it.commit_data("order", "a", &json!({"total": "many"})).await;
    it.it.commit_data("order", "a", &json!({"total": 1})).await;
    it.it.commit_data("order", "b", &json!({"total": 2})).await;
    it.types.put(TypeDefinition::new("placed", order())).await.expect("registered after it was committed");
    it.define().await;
    let mut totals: Vec<_> = it.process(2).await.iter().map(shown).collect();
    totals.sort_by_key(|data| data["total"].as_i64());
    assert_eq!(totals, [json!({"total": 1}), json!({"total": 2})]);
    let letters = it.letters(1).await;
    assert_eq!((letters.len(), letters[0].status, &*letters[0].key), (1, LetterStatus::Pending, "order/a"));
    assert!(letters[0].error.contains("data.total"), "{}", letters[0].error);
    let status = it.groups.get("g").await.expect("defined").processor;
    assert_eq!((status.failing, status.parked), (0, 1));
}

/// Then it is processed.
pub async fn an_unknown_type_is_quarantined_until_it_is_registered(subject: &dyn Subject) {
    let it = Consumed::of(subject).await;
    it.types.set_unknown(UnknownTypes::Quarantine).await.expect("set");
    it.it.commit_data("order", "a", &json!({"total": 1})).await;
    it.define().await;
    let letters = it.letters(1).await;
    assert_eq!(letters[0].status, LetterStatus::Pending);
    assert!(letters[0].error.contains("not registered"), "{}", letters[0].error);
    it.types.put(TypeDefinition::new("placed", order())).await.expect("registered");
    let port = it.it.host.dead_letters(DEFAULT_TENANT).expect("declared");
    let because = Reason { reason: "it is registered".to_owned(), by: None };
    port.retry(&letters[0].id, because).await.expect("retried");
    assert_eq!(shown(&it.process(1).await[0]), json!({"total": 1}));
    assert_eq!(port.get(&letters[0].id).await.expect("kept").status, LetterStatus::Retried);
}

/// A generation without one is compared for compatibility.
pub async fn an_upcaster_of_the_first_generation_is_refused(subject: &dyn Subject) {
    let it = Consumed::of(subject).await;
    let first = TypeDefinition { generation: 1, ..cents() };
    assert_eq!(it.types.put(first).await.expect_err("there is none before it").code(), Code::InvalidType);
    it.types.put(TypeDefinition::new("placed", order())).await.expect("registered");
    let without = TypeDefinition { upcaster: Vec::new(), compatibility: Compatibility::Backward, ..cents() };
    assert_eq!(it.types.put(without).await.expect_err("incompatible").code(), Code::TypeIncompatible);
    it.types.put(cents()).await.expect("bridged");
    let status = it.types.get("placed").await.expect("registered");
    assert_eq!(status.generations[1].upcaster, cents().upcaster);
}

/// Behaviour statements 66 and 68: the delays are those of the category, varied by 10 % and never above the cap. A retry that succeeds
/// ends the letter.
pub async fn statements_66_and_68_letters_are_retried_by_the_policy_of_their_types_category(subject: &dyn Subject) {
    let it = Consumed::of(subject).await;
    for (event_type, category, seconds, cap) in [
        ("execution_started", "execution", vec![30_i64, 60, 120, 240, 300], 300_i64),
        ("pod_created", "pod", vec![60, 180, 540], 600),
        ("result_stored", "result", vec![0], 0),
    ] {
        it.define_for(event_type, category).await;
        it.it.commit(event_type, &[category]).await;
        for (count, exact) in (0_u64..).zip(seconds.iter().copied()) {
            let delivery = it.pull_one(event_type).await;
            it.settle_one(event_type, Settlement::failed(delivery.token, "down")).await;
            let letter = it.letter_of(event_type).await;
            assert_eq!((letter.status, letter.retry_count), (LetterStatus::Scheduled, count), "{category}");
            let now = it.it.clock.now().as_millis();
            let delay = letter.next_retry_at.expect("it is planned").as_millis() - now;
            let allowed = exact * 900..=(exact * 1_100).min(cap * 1_000);
            assert!(allowed.contains(&delay), "{category}: retry {count} after {delay} ms");
            if delay > 0 {
                it.it.advance(delay - 1);
                let pull = PullBody { max: 1, worker: "w".to_owned(), ..PullBody::default() };
                assert!(it.groups.pull(event_type, pull).await.expect("pulled").is_empty(), "{category}: not yet due");
                it.it.advance(1);
            }
        }
        let delivery = it.pull_one(event_type).await;
        it.settle_one(event_type, Settlement::done(delivery.token)).await;
        let letter = it.letter_of(event_type).await;
        assert_eq!((letter.status, letter.retry_count), (LetterStatus::Retried, seconds.len() as u64), "{category}");
    }
}
