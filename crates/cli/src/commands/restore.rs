//! `annals restore`.

use std::path::PathBuf;

use annals::operations::{self, Restored};
use clap::Args;

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::Stop;
use crate::output::Output;
use crate::progress::Progress;

/// Create a new store from a backup; it begins a new incarnation
#[derive(Debug, Args)]
#[command(
    after_help = "The folder of --store must be new or empty.\n\nExample:\n  annals restore --from backup.tar --store \
                  embedded:./restored\n  annals restore --from backup.tar --store embedded:./before --to-sequence-number 17003"
)]
pub struct Restore {
    /// The folder or file of the backup
    #[arg(long, value_name = "FOLDER|FILE.tar")]
    from: PathBuf,
    /// Omit the events of the log of --tenant and --scope from this sequence number on; the other logs are restored completely
    #[arg(long, value_name = "NUMBER")]
    to_sequence_number: Option<u64>,
    /// The scope that --to-sequence-number applies to
    #[arg(long, default_value = annals::DEFAULT_SCOPE, requires = "to_sequence_number")]
    scope: String,
}

impl Run for Restore {
    const REACHES: Reaches = Reaches::Files;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let cut = self.to_sequence_number.map(|at| (context.tenant.clone(), self.scope.clone(), at));
        let bar = Progress::of_bytes();
        let (url, what) = (&context.config.store.url, operations::Restore { cut });
        let restored = operations::restore(&self.from, url, &what, &mut |done, all| bar.reach(done, all))?;
        drop(bar);
        let mut output = context.output();
        print_restored(&mut output, &restored)?;
        output.flush()
    }
}

fn print_restored(output: &mut Output, restored: &Restored) -> Result<(), Stop> {
    if output.format() == Format::Table {
        output.text(format_args!(
            "{:<20}  {:<12}  {:>12}  {:>12}  EVENTS' HASH",
            "TENANT", "SCOPE", "EVENTS", "INCARNATION"
        ))?;
    }
    for log in &restored.logs {
        match output.format() {
            Format::Json => output.json(log)?,
            Format::Table => output.text(format_args!(
                "{:<20}  {:<12}  {:>12}  {:>12}  {}",
                log.tenant, log.scope, log.head, log.incarnation, log.events_hash
            ))?,
        }
    }
    for map in &restored.maps {
        match output.format() {
            Format::Json => output.json(&serde_json::json!({
                "tenant": map.tenant, "records_and_streams_bytes": map.bytes, "map_entries": map.entries,
            }))?,
            Format::Table => output.text(format_args!(
                "Records and streams of {}: {} bytes, {} entries of their map.",
                map.tenant, map.bytes, map.entries
            ))?,
        }
    }
    Ok(())
}
