//! What holds the items of work queues.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSection {
    /// `embedded`, or a Redis.
    pub url: String,
}

impl Default for QueueSection {
    fn default() -> Self {
        Self { url: "embedded".to_owned() }
    }
}
