//! Settings for dead letters in a consumer's definition.

use serde::{Deserialize, Serialize};

/// What happens to later events of a key while an earlier one is a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LetterOrder {
    /// They wait as letters that are not attempted: the order of the key is kept.
    #[default]
    Wait,
    /// They are delivered while the letter waits.
    Pass,
}

/// Settings for dead letters in a consumer's definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LetterSettings {
    /// What happens to later events of a letter's key.
    pub order: LetterOrder,
    /// After this many events in a row became letters without a success in between, no more do until one succeeds. 0 means no limit.
    pub breaker: u32,
}

impl Default for LetterSettings {
    fn default() -> Self {
        Self { order: LetterOrder::Wait, breaker: 10 }
    }
}
