//! Acts of an operator on a failing partition.

use super::Machine;
use crate::Timestamp;

/// Why an act was refused. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActError {
    /// The partition is not failing.
    NotFailing,
    /// An attempt of its event is in flight.
    InFlight,
    /// The partition is catching up: none of its events has failed since its last success.
    CatchingUp,
    /// The partition is failing at another event than the operator named: the one at this position.
    AnotherEvent(u64),
}

impl Machine {
    /// Attempts a failing partition's event at once, and restarts its retry policy.
    ///
    /// # Errors
    /// See [`ActError`].
    pub fn retry(&mut self, partition: &str, now: Timestamp) -> Result<(), ActError> {
        self.can_act(partition)?;
        let Some(failing) = self.failing.get_mut(partition) else { return Err(ActError::NotFailing) };
        failing.state.attempts = 0;
        let name = failing.state.partition.clone();
        self.schedule(&name, Some(now));
        Ok(())
    }

    /// Parks a failing partition's event without handling it, and lets the partition continue. `why` is the operator's reason. If `meant`
    /// is given, the event must be at that position. Returns the event's position.
    ///
    /// # Errors
    /// See [`ActError`].
    pub fn park_event(
        &mut self,
        partition: &str,
        meant: Option<u64>,
        why: String,
        now: Timestamp,
    ) -> Result<u64, ActError> {
        self.can_act(partition)?;
        let Some(failing) = self.failing.get(partition) else { return Err(ActError::NotFailing) };
        let state = failing.state.clone();
        if state.attempts == 0 && failing.next.is_none() {
            return Err(ActError::CatchingUp);
        }
        if meant.is_some_and(|meant| meant != state.position) {
            return Err(ActError::AnotherEvent(state.position));
        }
        let event = failing.next.clone().unwrap_or(super::Fetched {
            position: state.position,
            sequence_number: state.sequence_number,
            partition: state.partition,
            time: state.event_time,
        });
        self.park(&event, state.attempts, state.reason, now, Some(why));
        Ok(event.position)
    }

    fn can_act(&self, partition: &str) -> Result<(), ActError> {
        if !self.failing.contains_key(partition) {
            return Err(ActError::NotFailing);
        }
        if self.in_flight.contains_key(partition) { Err(ActError::InFlight) } else { Ok(()) }
    }
}
