//! Where the items of work queues are stored.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSection {
    /// `embedded`, or the URL of a Redis server.
    pub url: String,
}

impl Default for QueueSection {
    fn default() -> Self {
        Self { url: "embedded".to_owned() }
    }
}
