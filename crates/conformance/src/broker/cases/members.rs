//! Cases for brokers that hold copies. Consumers join their groups there, and upcast and validate what they read.

use std::sync::{Arc, Mutex};

use annals_core::dead_letters::{LetterQuery, LetterStatus};
use annals_core::types::{TypeDefinition, UpcastStep};
use annals_core::{DEFAULT_TENANT, RecordedEvent};
use annals_runtime::consumer;
use serde_json::{Value, json};

use super::{Brokered, until};
use crate::Subject;

/// The same holds for groups that follow the log, which the suite of event types shows.
pub async fn an_event_is_upcast_for_a_member_and_one_that_is_no_value_of_its_type_holds_up_no_other_key(
    subject: &dyn Subject,
) {
    let it = Brokered::of(subject).await;
    let first = json!({"type": "object", "required": ["total"], "properties": {"total": {"type": "number"}}});
    it.types.put(TypeDefinition::new("placed", first)).await.expect("registered");
    it.topics.create_missing().await.expect("created");
    for (id, total) in [("c", -1), ("a", 5), ("b", 6)] {
        it.it.commit_data("order", id, &json!({ "total": total })).await;
    }
    let second =
        json!({"type": "object", "required": ["amount"], "properties": {"amount": {"type": "number", "minimum": 0}}});
    let steps: Vec<UpcastStep> =
        serde_json::from_value(json!([{"rename": {"from": "total", "to": "amount"}}])).expect("steps");
    it.types.put(TypeDefinition::new("placed", second).generation(2).upcaster(steps)).await.expect("bridged");
    let seen: Arc<Mutex<Vec<(String, u32, Value)>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let of_group = consumer("billing", ["placed"]).on("placed", move |event: RecordedEvent, data: Value| {
        let id = event.commit.aggregate.id.to_string();
        noted.lock().expect("no panic").push((id, event.generation, data));
        async { Ok(()) }
    });
    of_group.run(&it.it.host, DEFAULT_TENANT).await.expect("it runs");
    until("the others are processed", async || seen.lock().expect("no panic").len() == 2).await;
    let letters = it.it.host.dead_letters(DEFAULT_TENANT).expect("declared");
    let query = LetterQuery { group: Some("billing".into()), ..LetterQuery::default() };
    let list = async || letters.list(query.clone()).await.expect("listed").items;
    until("the one that does not match is a letter", async || list().await.len() == 1).await;
    let letter = list().await.remove(0);
    assert_eq!((letter.status, letter.attempts), (LetterStatus::Pending, 1));
    assert!(letter.error.contains("data.amount"), "{}", letter.error);
    let mut seen = std::mem::take(&mut *seen.lock().expect("no panic"));
    seen.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [("a", 5), ("b", 6)].map(|(id, total)| (id.to_owned(), 2_u32, json!({ "amount": total })));
    assert_eq!(seen, expected);
}
