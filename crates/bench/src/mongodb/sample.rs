//! The commits of the measurements: one event of about 120 bytes at an expected version, like those of a service that makes decisions.

use annals_core::{Data, ExpectedVersion, NewCommit, NewEvent};

/// Aggregates of each caller, to which it commits in turn.
pub const AGGREGATES: u64 = 100;

/// The name of all aggregates.
pub const NAME: &str = "order";
/// The type of all events.
pub const TYPE: &str = "order_changed";

/// Returns the event's data.
pub fn data(n: u64) -> Data {
    let value = mongodb::bson::doc! {
        "n": n as i64, "customer": "c-20731", "total": 129.25, "currency": "EUR", "note": "leave it at the door, please",
    };
    Data::from_document(&value).unwrap_or_else(|_| Data::empty())
}

/// Returns a commit to this aggregate, which has this version.
pub fn commit(aggregate: &str, version: u64, n: u64) -> NewCommit {
    NewCommit::new(NAME, aggregate).expect(ExpectedVersion::Exact(version)).event(NewEvent::new(TYPE, data(n)))
}

/// The commits of one caller: to its aggregates one after the other, each at the version after the previous one.
pub struct Turns {
    caller: usize,
    made: u64,
}

impl Turns {
    pub fn new(caller: usize) -> Self {
        Self { caller, made: 0 }
    }

    /// Returns the next aggregate and its version.
    pub fn next(&mut self) -> (String, u64) {
        let (place, version) = (self.made % AGGREGATES, self.made / AGGREGATES);
        self.made += 1;
        (format!("{:04}-{place:05}", self.caller), version)
    }
}
