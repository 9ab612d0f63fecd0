//! Replays of a processor: events that it has passed are handed out again.

use std::collections::HashMap;

use bytestring::ByteString;

use super::{Fetched, Machine};

/// A replay. It begins when the position is moved back, and ends when everything below `to` is settled again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// Its id.
    pub id: ByteString,
    /// The position before it was moved back.
    pub to: u64,
    /// The partitions that were failing at that time, each with the position of its next event. Events from there on had not been passed.
    pub unhandled: HashMap<ByteString, u64>,
}

impl Machine {
    /// Marks events that are handed out as part of this replay, if they are.
    pub fn replaying(&mut self, replay: Option<Replay>) {
        self.replay = replay;
    }

    /// Returns whether there is a replay and all of its events are settled again.
    pub fn has_replayed(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| {
            self.progress.position >= replay.to
                && self.failing.values().all(|failing| failing.state.position >= replay.to)
        })
    }

    /// Returns the replay to which an event belongs.
    pub(super) fn replay_of(&self, event: &Fetched) -> Option<&ByteString> {
        let replay = self.replay.as_ref()?;
        let failed_before = replay.unhandled.get(&event.partition).is_some_and(|from| event.position >= *from);
        (event.position < replay.to && !failed_before).then_some(&replay.id)
    }

    /// Returns how many events of a partition can be handed out together: either all of them belong to the replay, or none does.
    pub(super) fn batch_of(&self, partition: &ByteString) -> usize {
        let Some(queue) = self.waiting.get(partition) else { return 0 };
        let most = queue.len().min(self.settings.batch);
        let Some(first) = queue.front() else { return 0 };
        let replay = self.replay_of(first);
        queue.iter().take(most).take_while(|event| self.replay_of(event) == replay).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processing::{Outcome, ProcessingRetry, Progress, Settings, Taken};
    use crate::{ByteString, Timestamp};

    const NOW: Timestamp = Timestamp::from_millis(0);

    fn machine(failing_max: usize, batch: usize, partitions: &[&str]) -> Machine {
        let retry = ProcessingRetry { attempts: Some(1), ..ProcessingRetry::default() };
        let settings =
            Settings { partitioned: true, concurrency: 4, batch, retry, failing_max, keeps_order: false, breaker: 0 };
        let mut machine = Machine::resume(settings, Progress::at(0), [], 0);
        let events = partitions.iter().enumerate().map(|(n, partition)| Fetched {
            position: n as u64,
            sequence_number: n as u64,
            partition: ByteString::from(*partition),
            time: NOW,
        });
        machine.read(events, partitions.len() as u64);
        machine
    }

    fn take(machine: &mut Machine) -> Vec<Taken> {
        machine.take(10, NOW, Timestamp::from_millis(1_000), "w")
    }

    #[test]
    fn a_batch_is_of_the_replay_or_of_what_follows_it() {
        let mut machine = machine(10, 5, &["a", "a", "b", "a"]);
        let unhandled = [(ByteString::from("b"), 2)].into();
        machine.replaying(Some(Replay { id: "r".into(), to: 3, unhandled }));
        let taken = take(&mut machine);
        let marks: Vec<_> = taken.iter().map(|it| (it.event.position, it.replay.is_some())).collect();
        assert_eq!(marks, [(0, true), (1, true), (2, false)], "b had failed, so it was not handled");
        for one in &taken {
            assert!(!machine.has_replayed());
            machine.settle(one.token, Outcome::Done, NOW, 0).expect("in flight");
        }
        assert!(machine.has_replayed());
        assert_eq!(take(&mut machine)[0].replay, None);
    }

    #[test]
    fn with_as_many_failing_partitions_as_can_be_nothing_new_is_handed_out() {
        let mut machine = machine(2, 1, &["a", "b", "c", "d"]);
        let taken = take(&mut machine);
        assert_eq!(taken.len(), 2, "any of them may fail");
        for one in &taken {
            machine.settle(one.token, Outcome::Failed { reason: "down".into() }, NOW, 0).expect("in flight");
        }
        assert!(machine.is_full() && machine.is_blocked() && take(&mut machine).is_empty());
        assert_eq!(machine.failing_counts(), (2, 2));
        machine.park_event("a", None, "broken".into(), NOW).expect("it is failing");
        machine.fetched("a", None, 4);
        assert!(!machine.is_blocked());
        assert_eq!(take(&mut machine)[0].event.position, 2);
    }
}
