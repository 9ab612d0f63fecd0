//! How often a command is tried again after a version conflict, and when.

use std::time::Duration;

/// How often a command is tried again after a version conflict, and when: each pause is about twice the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// How often at most.
    pub count: u32,
    /// The first pause. Each lasts half as long to half as long again, by chance, so that those who met once do not meet again.
    pub first: Duration,
    /// The longest pause, before chance.
    pub max: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { count: 3, first: Duration::from_millis(500), max: Duration::from_secs(10) }
    }
}

impl Retries {
    /// None: a conflict is the caller's.
    pub const NONE: Self = Self { count: 0, first: Duration::ZERO, max: Duration::ZERO };

    /// The pause after this many conflicts, counted from 1.
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
