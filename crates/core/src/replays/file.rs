//! Ownership of the files that replays write.

use serde::{Deserialize, Serialize};

use crate::RecordType;

/// The collection of the files that replays write.
pub const REPLAY_FILES: &str = "annals-replay-files";

/// The name of a file, and the only replay that may write it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// The name of the file in the folder of the tenant.
    #[serde(rename = "_id")]
    pub name: String,
    /// The replay.
    pub session: String,
}

impl RecordType for FileRecord {
    const COLLECTION: &'static str = REPLAY_FILES;
}
