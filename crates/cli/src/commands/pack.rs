//! `annals pack`.

use annals::operations;

use crate::args::{Format, Global};
use crate::config::Config;
use crate::failure::Stop;
use crate::output::Output;
use crate::progress::Progress;

pub fn run(global: &Global, config: &Config) -> Result<(), Stop> {
    let bar = Progress::of_bytes();
    let report = operations::pack(&config.store.url, &mut |done, all| bar.reach(done, all))?;
    drop(bar);
    let mut output = Output::new(global.output);
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
