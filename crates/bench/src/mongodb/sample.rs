//! What is committed: one event of about 120 bytes, at an expected version, as a service that decides does it.

use annals_core::{Data, ExpectedVersion, NewCommit, NewEvent};

/// Aggregates of each caller, committed to in turn.
pub const AGGREGATES: u64 = 100;

/// The name of all aggregates.
pub const NAME: &str = "order";
/// The type of all events.
pub const TYPE: &str = "order_changed";

/// The event's data.
pub fn data(n: u64) -> Data {
    let value = mongodb::bson::doc! {
        "n": n as i64, "customer": "c-20731", "total": 129.25, "currency": "EUR", "note": "leave it at the door, please",
    };
    Data::from_document(&value).unwrap_or_else(|_| Data::empty())
}

/// A commit to this aggregate, which has this version.
pub fn commit(aggregate: &str, version: u64, n: u64) -> NewCommit {
    NewCommit::new(NAME, aggregate).expect(ExpectedVersion::Exact(version)).event(NewEvent::new(TYPE, data(n)))
}

/// The turns of one caller: its aggregates one after the other, each a version further than the time before.
pub struct Turns {
    caller: usize,
    made: u64,
}

impl Turns {
    pub fn new(caller: usize) -> Self {
        Self { caller, made: 0 }
    }

    /// The next aggregate and the version that it has.
    pub fn next(&mut self) -> (String, u64) {
        let (place, version) = (self.made % AGGREGATES, self.made / AGGREGATES);
        self.made += 1;
        (format!("{:04}-{place:05}", self.caller), version)
    }
}
