//! `annals check`.

use annals::Code;
use annals::operations::{self, CheckReport, Finding};
use clap::Args;

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::Stop;
use crate::output::Output;
use crate::progress::Progress;

/// Check a store that no process has open: every checksum and every invariant of its files
#[derive(Debug, Args)]
#[command(
    after_help = "Writes nothing. For each damaged place, prints the file, the byte, the sequence number and what to do; the exit code is 6 if \
                  there is any.\n\nExample:\n  annals check --store embedded:./data"
)]
pub struct Check {}

impl Run for Check {
    const REACHES: Reaches = Reaches::Files;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        run(context)
    }
}

fn run(context: &Context) -> Result<(), Stop> {
    let bar = Progress::of_bytes();
    let report = operations::check(&context.config.store.url, &mut |done, all| bar.reach(done, all))?;
    drop(bar);
    let mut output = context.output();
    match output.format() {
        Format::Json => output.json(&report)?,
        Format::Table => table(&mut output, &report)?,
    }
    output.flush()?;
    if report.is_sound() { Ok(()) } else { Err(Stop::Reported(Code::StoreDamaged)) }
}

fn table(output: &mut Output, report: &CheckReport) -> Result<(), Stop> {
    output.text(format_args!(
        "{:<20}  {:<12}  {:>8}  {:>8}  {:>12}  {:>12}  {:>12}  EVENTS' HASH",
        "TENANT", "SCOPE", "SEGMENTS", "INDEXES", "COMMITS", "EVENTS", "AGGREGATES"
    ))?;
    for log in &report.logs {
        let hash = log.events_hash.map_or("-".to_owned(), |hash| hash.to_string());
        output.text(format_args!(
            "{:<20}  {:<12}  {:>8}  {:>8}  {:>12}  {:>12}  {:>12}  {hash}",
            log.tenant, log.scope, log.segments, log.indexes, log.commits, log.events, log.aggregates
        ))?;
    }
    maps(output, report)?;
    for note in &report.notes {
        finding(output, "note", note)?;
    }
    for damage in &report.damage {
        finding(output, "damage", damage)?;
    }
    let count = report.damage.len() as u64 + report.more_damage;
    if report.more_damage > 0 {
        output.text(format_args!("… and {} more", report.more_damage))?;
    }
    match count {
        0 => output.text(format_args!("No damage.")),
        count => output.text(format_args!("Damage in {count} place{}.", if count == 1 { "" } else { "s" })),
    }
}

fn maps(output: &mut Output, report: &CheckReport) -> Result<(), Stop> {
    if report.maps.is_empty() {
        return Ok(());
    }
    output.text(format_args!(
        "{:<20}  {:>11}  {:>12}  {:>13}  {:>12}  {:>8}  {:>14}",
        "TENANT", "COLLECTIONS", "RECORDS", "INDEX ENTRIES", "CHANGES", "STREAMS", "STREAM ENTRIES"
    ))?;
    for map in &report.maps {
        output.text(format_args!(
            "{:<20}  {:>11}  {:>12}  {:>13}  {:>12}  {:>8}  {:>14}",
            map.tenant, map.collections, map.records, map.index_entries, map.changes, map.streams, map.stream_entries
        ))?;
    }
    Ok(())
}

fn finding(output: &mut Output, word: &str, finding: &Finding) -> Result<(), Stop> {
    output.text(format_args!("{word}[{}]: {}", finding.kind, finding.what))?;
    output.text(format_args!("  help: {}", finding.advice))
}
