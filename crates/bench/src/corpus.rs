//! The content that is stored before it is read: the same events for every store, each with data of its own. Half of them are in
//! aggregates of 100 events and half in aggregates of 200. Commits of all aggregates alternate, and every hundredth event has a tag.

use crate::workload::payload;

/// One in this many events has [`TAG`].
pub const TAGGED_ONE_IN: usize = 100;
/// The tag that filtered reads look for.
pub const TAG: &str = "rare";
/// Events of the smaller and of the larger aggregates, if commits have [`COMMIT_EVENTS`].
pub const AGGREGATE_EVENTS: [usize; 2] = [100, 200];
/// Events in each commit of what is read.
pub const COMMIT_EVENTS: usize = 10;

/// A store's content.
#[derive(Debug, Clone, Copy)]
pub struct Corpus {
    /// Number of events.
    pub events: usize,
    /// Events in each commit.
    pub commit_events: usize,
}

/// One commit.
pub struct Commit {
    /// Its index among the commits.
    pub number: usize,
    /// The aggregate's id.
    pub aggregate_id: String,
    /// The data of its events, as JSON.
    pub payloads: Vec<String>,
    /// Whether the first event has [`TAG`].
    pub tagged: bool,
}

impl Corpus {
    /// Returns the number of commits.
    pub fn commits(self) -> usize {
        self.events / self.commit_events
    }

    /// Returns the number of events that have [`TAG`].
    pub fn tagged(self) -> usize {
        self.commits().div_ceil(self.tagged_commits())
    }

    /// Returns the number of the smaller and of the larger aggregates.
    pub fn aggregates(self) -> [usize; 2] {
        AGGREGATE_EVENTS.map(|events| (self.events / 2 / events).max(1))
    }

    /// Returns the id of an aggregate of one kind.
    pub fn aggregate_id(large: bool, number: usize) -> String {
        format!("{}-{number:010}", if large { "large" } else { "small" })
    }

    /// Returns the commit with this number.
    pub fn commit(self, number: usize) -> Commit {
        let [small, large] = self.aggregates();
        // A lap serves each small aggregate once and each large one twice.
        let place = number % (small + 2 * large);
        let aggregate_id = if place < small {
            Self::aggregate_id(false, place)
        } else {
            Self::aggregate_id(true, (place - small) % large)
        };
        let first = number * self.commit_events;
        let mut random = fastrand::Rng::with_seed(first as u64);
        let payloads = (first..first + self.commit_events).map(|event| payload(event, &mut random)).collect();
        Commit { number, aggregate_id, payloads, tagged: number.is_multiple_of(self.tagged_commits()) }
    }

    fn tagged_commits(self) -> usize {
        (TAGGED_ONE_IN / self.commit_events).max(1)
    }
}
