//! The retention of finished dead letters.

use std::time::Duration;

use serde::{Deserialize, Serialize};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct DeadLettersSection {
    /// The number of days after which finished letters are moved to the archive, `dlq_messages_archive`; 0 leaves them in place.
    pub retention_days: u32,
}

impl DeadLettersSection {
    /// Returns the retention for the task host; `None` keeps the letters in place.
    pub fn retention(&self) -> Option<Duration> {
        (self.retention_days > 0).then(|| DAY * self.retention_days)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_stay_unless_a_retention_is_configured() {
        assert_eq!(DeadLettersSection::default().retention(), None);
        assert_eq!(DeadLettersSection { retention_days: 2 }.retention(), Some(DAY * 2));
    }
}
