//! What an operator does to a failing partition.

use super::Machine;
use crate::Timestamp;

/// Why an act was refused. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActError {
    /// The partition is not failing.
    NotFailing,
    /// An attempt of its event is in flight.
    InFlight,
    /// It is catching up: no event of it has failed since it last succeeded.
    CatchingUp,
}

impl Machine {
    /// Attempts a failing partition's event at once, and begins its policy again.
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

    /// Parks a failing partition's event without handling it, and lets the partition continue. `why` is what the operator says.
    ///
    /// # Errors
    /// See [`ActError`].
    pub fn park_event(&mut self, partition: &str, why: String, now: Timestamp) -> Result<(), ActError> {
        self.can_act(partition)?;
        let Some(failing) = self.failing.get(partition) else { return Err(ActError::NotFailing) };
        let state = failing.state.clone();
        if state.attempts == 0 && failing.next.is_none() {
            return Err(ActError::CatchingUp);
        }
        let event = failing.next.clone().unwrap_or(super::Fetched {
            position: state.position,
            sequence_number: state.sequence_number,
            partition: state.partition,
        });
        self.park(&event, state.attempts, state.reason, now, Some(why));
        Ok(())
    }

    fn can_act(&self, partition: &str) -> Result<(), ActError> {
        if !self.failing.contains_key(partition) {
            return Err(ActError::NotFailing);
        }
        if self.in_flight.contains_key(partition) { Err(ActError::InFlight) } else { Ok(()) }
    }
}
