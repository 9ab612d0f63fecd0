//! The aggregate of the cases: a counter with a limit, whose history may hold events that no program knows.

use annals_core::{AggregateType, Data, Effect, Loaded, NewCommit, NewEvent, StoredEvent, Upcasters};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A counter of at most 10,000.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    /// The sum of all additions.
    pub count: i64,
    /// The types of events that a counter does not know.
    pub odd: Vec<String>,
}

/// The events of a counter. An earlier program recorded `increased` with `by`, as generation 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterEvent {
    /// A number was added.
    Added {
        /// The number.
        n: i64,
    },
    /// The counter was deleted.
    Closed,
}

/// The refusal of a sum beyond the limit.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0} is too much")]
pub struct TooMuch(pub i64);

impl AggregateType for Counter {
    const NAME: &'static str = "counter";
    type Event = CounterEvent;

    fn evolve(&mut self, event: CounterEvent) {
        if let CounterEvent::Added { n } = event {
            self.count += n;
        }
    }

    fn evolve_unknown(&mut self, event: &StoredEvent) {
        self.odd.push(event.event_type.to_string());
    }

    fn effect(event: &CounterEvent) -> Option<Effect> {
        (*event == CounterEvent::Closed).then_some(Effect::Deleted)
    }

    fn annotate(event: &CounterEvent, new: NewEvent) -> NewEvent {
        if let CounterEvent::Added { n } = event { new.tag(format!("n:{n}")) } else { new }
    }

    fn upcasters() -> Upcasters {
        Upcasters::new().rename("increased", "added").upcast("added", 1, |data| {
            if let Some(by) = data.remove("by") {
                data.insert("n", by);
            }
        })
    }
}

impl Counter {
    /// Adds `n`. Adding 0 has no event.
    ///
    /// # Errors
    /// [`TooMuch`] when the sum exceeds the limit.
    pub fn add(&self, n: i64) -> Result<Option<CounterEvent>, TooMuch> {
        match (n, self.count + n) {
            (0, _) => Ok(None),
            (_, sum) if sum > 10_000 => Err(TooMuch(sum)),
            _ => Ok(Some(CounterEvent::Added { n })),
        }
    }
}

/// Returns the command to add `n`.
pub fn add(n: i64) -> impl Fn(&Loaded<Counter>) -> Result<Option<CounterEvent>, TooMuch> {
    move |counter| counter.add(n)
}

/// Returns a commit of a counter with one event, without a request id and at any version.
pub fn recorded(id: &str, event_type: &str, data: &Value) -> NewCommit {
    NewCommit::new(Counter::NAME, id).event(NewEvent::new(event_type, Data::from_value(data).expect("an object")))
}

/// Returns a commit by which an earlier program added `by`.
pub fn increased(id: &str, by: i64) -> NewCommit {
    recorded(id, "increased", &json!({ "by": by }))
}
