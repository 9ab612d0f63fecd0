//! `annals adopt`.

use std::fs;
use std::path::{Path, PathBuf};

use annals::adopt::{self, AdoptNames, AdoptReport};
use clap::Args;

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::progress::Progress;
use crate::target::open_options;

/// Turn a MongoDB database that Wow or a Dolittle Runtime wrote into a store; without --apply only print the plan
#[derive(Debug, Args)]
#[command(
    after_help = "Never changes what other software wrote. Commits in {aggregate}_event_stream are assigned sequence numbers; \
                  malformed ones, and those after a gap, are held. The event-log of a Dolittle Runtime is read in place, and the log \
                  continues with its next number. After an interruption, or once obstacles are removed, run it again; when nothing is \
                  left to do it changes nothing. Stop a Dolittle Runtime first, because it would keep assigning numbers, and stop every \
                  process of Annals.\n\nExample:\n  annals adopt --store mongodb://127.0.0.1/shop?replicaSet=rs0\n  \
                  annals adopt --store mongodb://127.0.0.1/shop?replicaSet=rs0 --output json | jq .names > names.json\n  \
                  annals adopt --store mongodb://127.0.0.1/shop?replicaSet=rs0 --names names.json --apply"
)]
pub struct Adopt {
    /// A JSON file that names the UUIDs of event types and aggregates in a Dolittle Runtime's log
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// Carry out the plan; without this flag, only the plan is printed
    #[arg(long)]
    apply: bool,
}

impl Run for Adopt {
    const REACHES: Reaches = Reaches::Store;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let names = self.names.as_deref().map_or_else(|| Ok(AdoptNames::default()), names)?;
        let (url, tenant, options) =
            (&context.config.store.url, &*context.tenant, open_options(&context.config, false));
        let bar = Progress::of_events();
        let mut progress = |done, all| bar.reach(done, all);
        let report = adopt::inspect(url, tenant, options.clone(), &names, &mut progress).await?;
        let report = match self.apply && report.obstacles.is_empty() {
            true => adopt::adopt(url, tenant, options, &names, &mut progress).await?,
            false => report,
        };
        drop(bar);
        let mut output = context.output();
        match output.format() {
            Format::Json => output.json(&report)?,
            Format::Table => table(&mut output, &report)?,
        }
        output.flush()?;
        report.obstacle().map_or(Ok(()), |obstacle| Err(obstacle.into()))
    }
}

fn names(file: &Path) -> Result<AdoptNames, Failure> {
    let refuse = |code, why: String| Failure::new(code, format!("{}: {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| refuse(annals::Code::UnreadableInput, error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| {
        let form = "the file is {\"event_types\": {\"UUID\": \"name\"}, \"aggregates\": {\"UUID\": \"name\"}}";
        refuse(annals::Code::InvalidNames, format!("{error}; {form}"))
    })
}

fn table(output: &mut Output, report: &AdoptReport) -> Result<(), Stop> {
    output
        .text(format_args!("Database {} of tenant {}, context {}.", report.database, report.tenant, report.context))?;
    if !report.commits.is_empty() {
        output.text(format_args!(
            "{:<32}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {:>8}",
            "COMMITS", "COMMITS", "EVENTS", "AGGREGATES", "IN THE LOG", "TO NUMBER", "TO HOLD"
        ))?;
    }
    for found in &report.commits {
        output.text(format_args!(
            "{:<32}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {:>8}",
            found.collection,
            found.commits,
            found.events,
            found.aggregates,
            found.in_log,
            found.to_number,
            found.to_hold
        ))?;
    }
    if let Some(log) = &report.log {
        output.text(format_args!(
            "The event log continues with number {}. To be taken in: {} events ({} without an aggregate, {} redacted); {} numbers have no event.",
            log.next, log.to_take_in, log.of_no_aggregate, log.redacted, log.holes
        ))?;
    }
    for (kind, list) in [("event type", &report.names.event_types), ("aggregate", &report.names.aggregates)] {
        for (uuid, name) in list {
            output.text(format_args!("{kind} {uuid}: {}", name.as_deref().unwrap_or("(no name)")))?;
        }
    }
    if !report.left.is_empty() {
        output.text(format_args!("Left unchanged: {}.", report.left.join(", ")))?;
    }
    for finding in &report.findings {
        output.text(format_args!("note[{}]: {}", finding.kind, finding.what))?;
    }
    for obstacle in &report.obstacles {
        output.text(format_args!("obstacle[{}]: {}", obstacle.code, obstacle.message))?;
    }
    steps(output, report)
}

fn steps(output: &mut Output, report: &AdoptReport) -> Result<(), Stop> {
    if report.steps.is_empty() {
        return match report.obstacles.is_empty() {
            true => output.text(format_args!("Nothing to do.")),
            false => Ok(()),
        };
    }
    output.text(format_args!("{}", if report.done { "Done:" } else { "Would be done:" }))?;
    for (place, step) in report.steps.iter().enumerate() {
        output.text(format_args!("  {}. {step}", place + 1))?;
    }
    match (report.done, report.head) {
        (true, Some(head)) => output.text(format_args!("The log holds numbers up to {head}.")),
        _ if report.obstacles.is_empty() => {
            output.text(format_args!("Nothing was written; add --apply to carry out the plan."))
        }
        _ => Ok(()),
    }
}
