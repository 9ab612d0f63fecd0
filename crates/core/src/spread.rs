//! Spreads tasks that several processes can run evenly over those processes.
//!
//! Each process publishes the tasks that it wants from busier processes ([`wanted`]), and gives up tasks that a less busy one wants
//! ([`given`]). Both compare loads: the number of tasks that a process runs, counting only those that the observer could run itself. A
//! move requires a difference of two, so a task never moves back, and loads that differ by at most one are left alone. No task is given up
//! before another process stands by for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bson::DateTime;
use serde::{Deserialize, Serialize};

use crate::{RecordType, Timestamp};

/// The smallest difference in load at which a task moves.
const DIFFERENCE: usize = 2;

/// The heartbeat of a process that shares the store. Its leases depend on it, see [`Lease`](crate::Lease).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// Its name.
    #[serde(rename = "_id")]
    pub process: String,
    /// When the process counts as dead unless it renews this record.
    pub until: DateTime,
    /// The tasks that it stands by for and wants from the processes that run them.
    pub wants: Vec<String>,
    /// The number of its life, from 1; 0 if no lease depends on it.
    #[serde(default)]
    pub life: i64,
    /// The time within which the process renews this record, in milliseconds; 0 in records of builds that did not store it. Processes can
    /// have different leases, and no other process may expect this one to renew earlier.
    #[serde(default)]
    pub lease_ms: i64,
}

impl RecordType for ProcessRecord {
    const COLLECTION: &'static str = "annals-processes";
}

impl ProcessRecord {
    /// Creates the record of a process that is alive until this time.
    pub fn new(process: &str, until: Timestamp, life: i64, wants: Vec<String>) -> Self {
        Self { process: process.to_owned(), until: DateTime::from_millis(until.as_millis()), wants, life, lease_ms: 0 }
    }

    /// Sets the time within which the process renews the record.
    #[must_use]
    pub fn lasting(self, lease: Duration) -> Self {
        Self { lease_ms: i64::try_from(lease.as_millis()).unwrap_or(i64::MAX), ..self }
    }

    /// Returns the time within which the process renews the record; zero if the record does not have it.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.lease_ms).unwrap_or(0))
    }

    /// Returns when the process counts as dead.
    pub fn until(&self) -> Timestamp {
        Timestamp::from_millis(self.until.timestamp_millis())
    }
}

/// Returns the tasks that a process wants from others. It runs `held` tasks and stands by for those in `elsewhere`, each of which names
/// the process that runs it.
pub fn wanted(held: usize, elsewhere: &BTreeMap<String, String>) -> Vec<String> {
    let mut holders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (task, holder) in elsewhere {
        holders.entry(holder).or_default().push(task);
    }
    let mut wanted = Vec::new();
    while let Some(tasks) = holders.values_mut().max_by_key(|tasks| tasks.len())
        && tasks.len() >= held + wanted.len() + DIFFERENCE
        && let Some(task) = tasks.pop()
    {
        wanted.push(task.to_owned());
    }
    wanted
}

/// Returns the tasks that a process gives up, each with the process that takes it over. It runs `held` and stands by for those in
/// `elsewhere`. `wants` lists the other live processes with the tasks that each wants.
pub fn given(
    held: &BTreeSet<String>,
    elsewhere: &BTreeMap<String, String>,
    wants: &BTreeMap<String, BTreeSet<String>>,
) -> BTreeMap<String, String> {
    let mut loads: BTreeMap<&str, usize> = wants.keys().map(|process| (&**process, 0)).collect();
    for holder in elsewhere.values() {
        *loads.entry(holder).or_default() += 1;
    }
    let mut given: BTreeMap<String, String> = BTreeMap::new();
    loop {
        let next_of =
            |process: &str| wants[process].iter().find(|task| held.contains(*task) && !given.contains_key(*task));
        let takers = wants.keys().filter_map(|process| Some((loads[&**process], process, next_of(process)?)));
        let Some((load, process, task)) = takers.min() else { return given };
        if held.len() - given.len() < load + DIFFERENCE {
            return given;
        }
        given.insert(task.clone(), process.clone());
        *loads.entry(process).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which process runs each task.
    type Holders = BTreeMap<String, String>;

    fn tasks(count: usize, holder: &str) -> Holders {
        (0..count).map(|n| (format!("handler/{n:03}"), holder.to_owned())).collect()
    }

    fn held(holders: &Holders, process: &str) -> BTreeSet<String> {
        holders.iter().filter(|(_, holder)| *holder == process).map(|(task, _)| task.clone()).collect()
    }

    fn elsewhere(holders: &Holders, process: &str) -> BTreeMap<String, String> {
        holders.iter().filter(|(_, holder)| *holder != process).map(|(t, h)| (t.clone(), h.clone())).collect()
    }

    /// One round: all publish what they want, then all give up. Returns how many tasks moved.
    fn round(holders: &mut Holders, processes: &[&str]) -> usize {
        let before = holders.clone();
        let wants: BTreeMap<String, BTreeSet<String>> = processes
            .iter()
            .map(|me| {
                ((*me).to_owned(), wanted(held(&before, me).len(), &elsewhere(&before, me)).into_iter().collect())
            })
            .collect();
        let mut moved = 0;
        for me in processes {
            let others =
                wants.iter().filter(|(process, _)| process != me).map(|(p, w)| (p.clone(), w.clone())).collect();
            for (task, to) in given(&held(&before, me), &elsewhere(&before, me), &others) {
                assert_eq!(holders.insert(task, to).as_deref(), Some(*me), "a process gives up what it holds");
                moved += 1;
            }
        }
        moved
    }

    fn loads(holders: &Holders, processes: &[&str]) -> Vec<usize> {
        processes.iter().map(|process| held(holders, process).len()).collect()
    }

    #[test]
    fn a_heartbeat_of_an_earlier_build_does_not_say_how_long_it_lasts() {
        let stored = bson::doc! { "_id": "one", "until": DateTime::from_millis(9), "wants": [], "life": 3_i64 };
        let read: ProcessRecord = bson::deserialize_from_document(stored).expect("a heartbeat");
        assert_eq!((read.life, read.lease()), (3, Duration::ZERO));
        assert_eq!(read.lasting(Duration::from_secs(4)).lease(), Duration::from_secs(4));
    }

    #[test]
    fn tasks_spread_evenly_whoever_joins_and_whatever_was_before() {
        for count in 0..40 {
            let processes = ["a", "b", "c", "d", "e"];
            for members in 1..=processes.len() {
                let processes = &processes[..members];
                let mut holders = tasks(count, "a");
                let rounds = (0..20).take_while(|_| round(&mut holders, processes) > 0).count();
                let loads = loads(&holders, processes);
                let (least, most) = (loads.iter().min().copied(), loads.iter().max().copied());
                assert!(most <= least.map(|least| least + 1), "{count} tasks: {loads:?}");
                assert!(rounds <= 6, "{count} tasks of {members} processes took {rounds} rounds");
            }
        }
    }

    #[test]
    fn a_spread_that_is_even_stays_as_it_is() {
        let mut holders = tasks(2, "a");
        holders.insert("handler/one".to_owned(), "b".to_owned());
        assert_eq!(round(&mut holders, &["a", "b"]), 0, "two and one differ by one");
        assert_eq!(round(&mut tasks(1, "a"), &["a", "b"]), 0, "one task has nowhere better to go");
    }

    #[test]
    fn a_task_goes_only_to_a_process_that_stands_by_for_it() {
        let holders = tasks(6, "a");
        let only = BTreeSet::from(["handler/002".to_owned(), "unknown".to_owned()]);
        let wants = BTreeMap::from([("b".to_owned(), only), ("c".to_owned(), BTreeSet::new())]);
        let given = given(&held(&holders, "a"), &elsewhere(&holders, "a"), &wants);
        assert_eq!(given, BTreeMap::from([("handler/002".to_owned(), "b".to_owned())]));
    }
}
