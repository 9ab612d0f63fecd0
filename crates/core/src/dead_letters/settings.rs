//! What a consumer's definition says about its dead letters.

use serde::{Deserialize, Serialize};

/// What becomes of later events of a key while an earlier one is a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LetterOrder {
    /// They wait behind it, as letters that are not attempted: the order of the key is kept.
    #[default]
    Wait,
    /// They are delivered while it waits.
    Pass,
}

/// What a consumer's definition says about its dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LetterSettings {
    /// What becomes of later events of the key.
    pub order: LetterOrder,
    /// After this many events in a row became letters without a success in between, none does until one succeeds. 0 is without end.
    pub breaker: u32,
}

impl Default for LetterSettings {
    fn default() -> Self {
        Self { order: LetterOrder::Wait, breaker: 10 }
    }
}
