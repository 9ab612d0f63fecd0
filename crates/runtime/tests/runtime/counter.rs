//! An aggregate for tests: a number with a limit, and notes.

use std::sync::Arc;

use annals_core::{
    AggregateType, DEFAULT_SCOPE, DEFAULT_TENANT, Effect, EventLog, Loaded, NewEvent, Store, StoredEvent, Upcasters,
};
use annals_embedded::{EmbeddedStore, Options, disk::MemoryDisk};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    pub count: i64,
    pub odd: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterEvent {
    Added { n: i64 },
    Closed,
}

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
    pub fn add(&self, n: i64) -> Result<Option<CounterEvent>, TooMuch> {
        match (n, self.count + n) {
            (0, _) => Ok(None),
            (_, sum) if sum > 10_000 => Err(TooMuch(sum)),
            _ => Ok(Some(CounterEvent::Added { n })),
        }
    }

    pub fn close(&self) -> Result<[CounterEvent; 1], TooMuch> {
        Ok([CounterEvent::Closed])
    }
}

pub fn add(n: i64) -> impl Fn(&Loaded<Counter>) -> Result<Option<CounterEvent>, TooMuch> {
    move |counter| counter.add(n)
}

pub fn open() -> (EmbeddedStore, Arc<dyn EventLog>) {
    let store = EmbeddedStore::open(Arc::new(MemoryDisk::default()), Options::default()).expect("opens in memory");
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
    (store, log)
}
