//! Runs other event stores under the same work. The store checks each commit of an aggregate by its own means against what the writer saw
//! last, and acknowledges it after its sync. Each store runs as it is shipped.
//!
//! Without the feature `rivals`, none of them is built, and requesting them is an error that says so.

use std::path::Path;

use crate::cell::{Cell, Measured};
use crate::workload::Row;

/// A rival, in one way of using it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rival {
    /// Tephra in this process, with a task per writer.
    Tephra,
    /// Tephra in this process, with a thread per writer.
    TephraThreads,
    /// Tephra's server and its blocking client, with a socket and a thread per writer.
    TephraServer,
    /// Tephra's server and its asynchronous client, whose socket all writers share.
    TephraShared,
    /// UmaDB's engine in this process, with a thread that batches waiting requests.
    Umadb,
    /// UmaDB's server and its asynchronous client, with a connection per writer.
    UmadbServer,
}

impl Rival {
    /// All of them, libraries and servers alternating.
    pub const ALL: [Self; 6] =
        [Self::Tephra, Self::TephraThreads, Self::TephraServer, Self::TephraShared, Self::Umadb, Self::UmadbServer];

    /// Returns its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tephra => "tephra",
            Self::TephraThreads => "tephra-threads",
            Self::TephraServer => "tephra-server",
            Self::TephraShared => "tephra-socket",
            Self::Umadb => "umadb",
            Self::UmadbServer => "umadb-server",
        }
    }

    /// Measures a new store in `folder`. The servers' programs are in `programs`.
    #[cfg(feature = "rivals")]
    pub async fn measure(self, row: &Row, cell: &Cell, folder: &Path, programs: &Path) -> Result<Measured, String> {
        match self {
            Self::Tephra => crate::tephra::measure(row, cell, folder).await,
            Self::TephraThreads => crate::tephra::measure_threads(row, cell, folder).await,
            Self::TephraServer => crate::tephra_server::measure(row, cell, folder, programs).await,
            Self::TephraShared => crate::tephra_server::measure_shared(row, cell, folder, programs).await,
            Self::Umadb => crate::umadb::measure(row, cell, folder).await,
            Self::UmadbServer => crate::umadb_server::measure(row, cell, folder, programs).await,
        }
    }

    /// Refuses: they are not part of this build.
    #[cfg(not(feature = "rivals"))]
    pub async fn measure(self, _: &Row, _: &Cell, _: &Path, _: &Path) -> Result<Measured, String> {
        Err(NOT_BUILT.to_owned())
    }
}

/// The message if rivals are requested and not built.
#[cfg(not(feature = "rivals"))]
pub const NOT_BUILT: &str = "the rivals are not part of this build; `cargo xtask bench --rivals` builds them";

impl std::fmt::Display for Rival {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tephra => "Tephra library",
            Self::TephraThreads => "Tephra library, threads",
            Self::TephraServer => "Tephra server",
            Self::TephraShared => "Tephra server, one socket",
            Self::Umadb => "UmaDB library",
            Self::UmadbServer => "UmaDB server",
        })
    }
}
