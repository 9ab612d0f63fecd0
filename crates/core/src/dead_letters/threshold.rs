//! When the number of open letters requires attention.

use serde::{Deserialize, Serialize};

/// The number of open letters above which the level is a warning.
pub const WARNING_ABOVE: u64 = 100;
/// The number of open letters above which the level is critical.
pub const CRITICAL_ABOVE: u64 = 1_000;

/// The severity of the number of a tenant's open letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// No threshold is crossed.
    #[default]
    Normal,
    /// More than [`WARNING_ABOVE`].
    Warning,
    /// More than [`CRITICAL_ABOVE`].
    Critical,
}

impl Level {
    /// Returns the level for this number of open letters.
    pub fn of(open: u64) -> Self {
        match open {
            0..=WARNING_ABOVE => Self::Normal,
            _ if open <= CRITICAL_ABOVE => Self::Warning,
            _ => Self::Critical,
        }
    }

    /// Returns its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_100_is_a_warning_and_above_1000_is_critical() {
        let levels = [0, 100, 101, 1_000, 1_001].map(Level::of);
        assert_eq!(levels, [Level::Normal, Level::Normal, Level::Warning, Level::Warning, Level::Critical]);
    }
}
