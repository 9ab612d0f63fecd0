//! Retries of a command after version conflicts.

use std::time::Duration;

/// How often a command is retried after a version conflict, and after which pauses. Each pause is about twice the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// The maximum number of retries.
    pub count: u32,
    /// The first pause. Each pause is randomised by a factor of 0.5 to 1.5, so that callers that have collided once do not collide again.
    pub first: Duration,
    /// The longest pause, before randomisation.
    pub max: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { count: 3, first: Duration::from_millis(500), max: Duration::from_secs(10) }
    }
}

impl Retries {
    /// No retries: conflicts are returned to the caller.
    pub const NONE: Self = Self { count: 0, first: Duration::ZERO, max: Duration::ZERO };

    /// Returns the pause after this many conflicts, counted from 1.
    pub fn pause(&self, conflicts: u32, random: u128) -> Duration {
        let doublings = conflicts.saturating_sub(1).min(31);
        let pause = self.first.saturating_mul(1 << doublings).min(self.max);
        let chance = f64::from((random as u32) >> 1) / f64::from(1_u32 << 31);
        pause.mul_f64(0.5 + chance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_vary_by_half() {
        let retries = Retries { max: Duration::from_millis(1500), ..Retries::default() };
        let pauses = |random| [1, 2, 3, u32::MAX].map(|conflicts| retries.pause(conflicts, random).as_millis());
        assert_eq!(pauses(0), [250, 500, 750, 750]);
        assert_eq!(pauses(1 << 31), [500, 1000, 1500, 1500]);
        assert!(
            pauses(u128::MAX)
                .iter()
                .zip([750, 1500, 2250, 2250])
                .all(|(pause, most)| (most - 2..=most).contains(pause))
        );
        assert_eq!(Retries::NONE.pause(1, 7), Duration::ZERO);
    }
}
