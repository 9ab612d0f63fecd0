//! The workload, which is the same for every system: commits of 1 or 10 events of 250 bytes of JSON to 10,000 aggregates, each with its
//! expected version and a request id of its own, in a closed loop.

use std::fmt;

use annals_core::Version;

/// The numbers of writers in the table.
pub const WRITERS: [usize; 3] = [1, 8, 64];
/// Number of aggregates, divided among the writers.
pub const AGGREGATES: usize = 10_000;
/// Bytes of an event's data as JSON.
pub const EVENT_BYTES: usize = 250;
/// Number of different payloads; enough that a repetition gives no advantage.
const PAYLOADS: usize = 1_024;

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Concurrent writers.
    pub writers: usize,
    /// Events in each commit.
    pub events: usize,
}

impl Row {
    /// Parses a row such as `8x10`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let numbers =
            text.split_once('x').and_then(|(writers, events)| Some((writers.parse().ok()?, events.parse().ok()?)));
        match numbers {
            Some((writers, events)) if (1..=AGGREGATES).contains(&writers) && (1..=10_000).contains(&events) => {
                Ok(Self { writers, events })
            }
            _ => Err(format!("{text:?} is not a row such as 8x10: 8 writers, 10 events of a commit")),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.writers, self.events)
    }
}

/// Returns payloads of exactly [`EVENT_BYTES`] that hardly compress.
pub fn payloads() -> Vec<String> {
    let mut random = fastrand::Rng::with_seed(17);
    (0..PAYLOADS).map(|number| payload(number, &mut random)).collect()
}

/// Returns one payload of exactly [`EVENT_BYTES`], mostly random letters and digits.
pub fn payload(number: usize, random: &mut fastrand::Rng) -> String {
    let mut text = format!(
        r#"{{"order":"o-{:08}","customer":{},"paid":{},"total":{}.25,"currency":"EUR","lines":[{{"sku":"{:06}","quantity":{}}}],"note":""#,
        number,
        random.u32(..),
        random.bool(),
        random.u16(..),
        random.u32(..1_000_000),
        random.u8(1..9),
    );
    let closing = "\"}";
    while text.len() + closing.len() < EVENT_BYTES {
        text.push(random.alphanumeric());
    }
    text + closing
}

/// The share of one writer: its aggregates with their versions, and its next commit.
pub struct Writer {
    number: usize,
    versions: Vec<Version>,
    committed: u64,
    random: fastrand::Rng,
}

/// The next commit of a writer.
pub struct Turn {
    /// The id of the aggregate.
    pub aggregate_id: String,
    /// The current version of the aggregate.
    pub expected_version: Version,
    /// A request id that was never used before.
    pub request_id: String,
    /// The request id as a 128-bit number whose lowest 16 bits are free, to number the events.
    #[cfg(feature = "rivals")]
    pub request_number: u128,
    /// The first payload; the others follow.
    pub payload: usize,
    /// The index of the aggregate in the writer's share.
    place: usize,
}

impl Writer {
    /// Returns the writer of this number out of `row.writers`.
    pub fn new(number: usize, row: &Row) -> Self {
        let aggregates = AGGREGATES / row.writers;
        Self { number, versions: vec![0; aggregates], committed: 0, random: fastrand::Rng::with_seed(number as u64) }
    }

    /// Returns the next commit.
    pub fn turn(&mut self) -> Turn {
        let place = self.random.usize(..self.versions.len());
        self.committed += 1;
        Turn {
            aggregate_id: format!("{:04}-{place:08}", self.number),
            expected_version: self.versions[place],
            request_id: format!("{:04}-{:011}", self.number, self.committed),
            #[cfg(feature = "rivals")]
            request_number: ((self.number as u128 + 1) << 80) | (u128::from(self.committed) << 16),
            payload: self.random.usize(..PAYLOADS),
            place,
        }
    }

    /// Notes the outcome of a commit.
    ///
    /// # Errors
    /// A sentence, unless it is the first commit of that version.
    pub fn committed(&mut self, turn: &Turn, version: Version, duplicate: bool) -> Result<(), String> {
        if duplicate || version != turn.expected_version + 1 {
            return Err(format!("{} became version {version}, duplicate: {duplicate}", turn.aggregate_id));
        }
        self.versions[turn.place] = version;
        Ok(())
    }

    /// Notes the position of the aggregate's last event, for a store that has no versions but checks a commit by the position of the last
    /// event seen. The next turn then expects that position. An aggregate without events has position 0.
    ///
    /// # Errors
    /// A sentence, unless exactly `events` events were appended after what the turn expected.
    #[cfg(feature = "rivals")]
    pub fn appended(&mut self, turn: &Turn, last: u64, events: usize) -> Result<(), String> {
        if last < turn.expected_version + events as u64 {
            return Err(format!(
                "{} ends at {last}, though {events} events follow {}",
                turn.aggregate_id, turn.expected_version
            ));
        }
        self.versions[turn.place] = last;
        Ok(())
    }
}
