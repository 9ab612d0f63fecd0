//! What an operator gives to check, cut, count, back up, restore and move a store.

use std::path::PathBuf;

use clap::Args;

use super::Scope;

#[derive(Debug, Args)]
pub struct Repair {
    #[command(flatten)]
    pub what: RepairWhat,
    /// Do it; without this it is only said what would be done
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub scope: Scope,
}

/// What is to be repaired: one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct RepairWhat {
    /// Cut the log of --tenant and --scope: how many events stay, the sequence number of the first one that goes
    #[arg(long, value_name = "NUMBER")]
    pub cut_at: Option<u64>,
    /// Make the indexes of the tenant's records again from its records
    #[arg(long)]
    pub indexes: bool,
}

#[derive(Debug, Args)]
pub struct Adopt {
    /// A JSON file with the names of the UUIDs of event types and aggregates in a Dolittle Runtime's log
    #[arg(long, value_name = "FILE")]
    pub names: Option<PathBuf>,
    /// Do it; without this it is only said what would be done
    #[arg(long)]
    pub apply: bool,
}

#[derive(Debug, Args)]
pub struct Stats {
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Args)]
pub struct Backup {
    /// Where to keep it: one file if the name ends in .tar, else a folder, to which a later backup adds only what has grown
    #[arg(long, value_name = "FOLDER|FILE.tar")]
    pub to: PathBuf,
    /// Leave records and streams out, because they are damaged: the logs alone, into a new file or folder
    #[arg(long)]
    pub without_records: bool,
}

#[derive(Debug, Args)]
pub struct Restore {
    /// The folder or file of the backup
    #[arg(long, value_name = "FOLDER|FILE.tar")]
    pub from: PathBuf,
    /// Leave out the events of the log of --tenant and --scope from this number on; the other logs are restored whole
    #[arg(long, value_name = "NUMBER")]
    pub to_sequence_number: Option<u64>,
    /// The scope that --to-sequence-number means
    #[arg(long, default_value = annals::DEFAULT_SCOPE, requires = "to_sequence_number")]
    pub scope: String,
}

#[derive(Debug, Args)]
pub struct Export {
    /// The file to write, or - for standard output; one that is there already is refused and stays as it is
    pub file: PathBuf,
    /// Leave records and streams out, because they are damaged: the events and prepare keys alone
    #[arg(long)]
    pub without_records: bool,
}
