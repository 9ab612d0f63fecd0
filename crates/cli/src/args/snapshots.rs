//! What is said of the snapshots of aggregates.

use annals::Version;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum Snapshot {
    /// Print the snapshot of an aggregate
    #[command(after_help = "Example:\n  annals snapshot show order o-1")]
    Show(SnapshotOf),
    /// Save a snapshot, unless one of a later version is there
    #[command(
        after_help = "Takes what PUT /v1/snapshots/{aggregate}/{id} takes; \"saved\" is false where a later version is kept.\n\nExample:\n  annals snapshot save order o-1 '{\"version\": 3, \"state\": {\"status\": \"paid\"}}'"
    )]
    Save(SnapshotSave),
    /// Declare indexes of the snapshots of aggregates of a name; what is there stays
    #[command(
        after_help = "Indexes are as for `annals record declare`, on fields of the layout or paths of the state such as state.status. A unique one refuses snapshots that break it, with duplicate_key. `annals record explain {aggregate}_snapshot` says which one a query uses.\n\nExample:\n  annals snapshot declare order --indexes '[{\"fields\": [{\"field\": \"state.status\"}]}]'"
    )]
    Declare(SnapshotDeclare),
    /// Delete the snapshot of an aggregate; whoever needs it makes it anew of its commits
    #[command(after_help = "Example:\n  annals snapshot delete order o-1 --version 3")]
    Delete(SnapshotDelete),
}

#[derive(Debug, Args)]
pub struct SnapshotOf {
    /// The aggregate's name
    pub name: String,
    /// The aggregate's id
    pub id: String,
}

#[derive(Debug, Args)]
pub struct SnapshotDeclare {
    /// The aggregates' name
    pub name: String,
    /// Indexes, as a JSON list
    #[arg(long, value_name = "JSON")]
    pub indexes: String,
}

#[derive(Debug, Args)]
pub struct SnapshotSave {
    #[command(flatten)]
    pub of: SnapshotOf,
    /// The snapshot, as JSON
    pub snapshot: String,
}

#[derive(Debug, Args)]
pub struct SnapshotDelete {
    #[command(flatten)]
    pub of: SnapshotOf,
    /// Only if it is of this version
    #[arg(long, value_name = "N")]
    pub version: Option<Version>,
}
