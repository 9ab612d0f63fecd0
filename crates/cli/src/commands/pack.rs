//! `annals pack`.

use annals::operations;
use clap::Args;

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::Stop;
use crate::progress::Progress;
use crate::target::note_recovery_of;

/// Pack the closed segments of a store that no process has open, to save disk space
#[derive(Debug, Args)]
#[command(
    after_help = "A served store packs itself in the background, a few segments behind the newest one. Readers are not affected. A segment \
                  that would shrink by less than a tenth stays as it is.\n\nExample:\n  annals pack --store embedded:./data"
)]
pub struct Pack {}

impl Run for Pack {
    const REACHES: Reaches = Reaches::Files;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        run(context)
    }
}

fn run(context: &Context) -> Result<(), Stop> {
    let bar = Progress::of_bytes();
    let report = operations::pack(&context.config.store.url, &mut |done, all| bar.reach(done, all))?;
    drop(bar);
    for log in &report.recovery {
        note_recovery_of(&log.tenant, &log.scope, &log.lines);
    }
    let mut output = context.output();
    match output.format() {
        Format::Json => output.json(&report)?,
        Format::Table => {
            output.text(format_args!(
                "{:<20}  {:<12}  {:>8}  {:>14}  {:>14}  {:>8}",
                "TENANT", "SCOPE", "PACKED", "BYTES BEFORE", "BYTES AFTER", "LEFT"
            ))?;
            for log in &report.logs {
                output.text(format_args!(
                    "{:<20}  {:<12}  {:>8}  {:>14}  {:>14}  {:>8}",
                    log.tenant, log.scope, log.segments, log.bytes_before, log.bytes_after, log.left
                ))?;
            }
        }
    }
    output.flush()
}
