//! `annals repair`.

use annals::Code;
use annals::operations::{self, Cut};
use clap::Args;

use super::Run;
use crate::cli::{Format, Scope};
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::progress::Progress;

/// Truncate a damaged log, set the removed part aside, and begin a new incarnation; or rebuild the indexes of records
#[derive(Debug, Args)]
#[command(
    after_help = "`annals check` prints where the damage begins. Nothing is deleted: removed data is moved to cut/ in the store's folder. Streams \
                  are cut to match their log when the store is next opened; a cut does not change records.\n\nExample:\n  annals repair --cut-at 17003 \
                  --yes\n  annals repair --indexes --yes"
)]
pub struct Repair {
    #[command(flatten)]
    what: What,
    /// Carry out the repair; without this flag, only the plan is printed
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    scope: Scope,
}

/// What to repair: exactly one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct What {
    /// Cut the log of --tenant and --scope before this sequence number: that event and all later ones are removed
    #[arg(long, value_name = "NUMBER")]
    cut_at: Option<u64>,
    /// Rebuild the indexes of the tenant's records from its records
    #[arg(long)]
    indexes: bool,
}

impl Run for Repair {
    const REACHES: Reaches = Reaches::Files;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        match self.what.cut_at {
            Some(at) => cut(context, self, at),
            None => indexes(context, self),
        }
    }
}

fn indexes(context: &Context, args: &Repair) -> Result<(), Stop> {
    let made = operations::reindex(&context.config.store.url, &context.tenant, args.yes)?;
    let mut output = context.output();
    match output.format() {
        Format::Json => output.json(&made)?,
        Format::Table => {
            for wrong in &made.wrong {
                output.text(format_args!("wrong: {wrong}"))?;
            }
            let done = if made.done { "were rebuilt" } else { "would be rebuilt" };
            output.text(format_args!("{} indexes of the records of {} {done}.", made.indexes, made.tenant))?;
        }
    }
    output.flush()?;
    finished(made.done)
}

fn finished(done: bool) -> Result<(), Stop> {
    if done {
        return Ok(());
    }
    let failure = Failure::new(Code::InvalidConfig, "nothing was changed, because --yes is missing");
    Err(failure.advise("Read the plan above, then run the same command with --yes.").into())
}

fn cut(context: &Context, args: &Repair, at: u64) -> Result<(), Stop> {
    let (tenant, scope) = (context.tenant.clone(), args.scope.scope.clone());
    let cut = Cut { tenant, scope, at, confirmed: args.yes };
    let bar = Progress::of_events();
    let repair = operations::repair(&context.config.store.url, &cut, &mut |done, all| bar.reach(done, all))?;
    drop(bar);
    let mut output = context.output();
    match output.format() {
        Format::Json => output.json(&repair)?,
        Format::Table => {
            let done = if repair.done { "The log was cut" } else { "The log would be cut" };
            output.text(format_args!("{done}: {} events stay in {}/{}.", repair.at, repair.tenant, repair.scope))?;
            if let (Some(segment), Some(offset)) = (&repair.cut_segment, repair.cut_offset) {
                output.text(format_args!("{segment} keeps its first {offset} bytes; a complete copy is set aside."))?;
            }
            for file in &repair.files {
                output.text(format_args!("{file} is set aside."))?;
            }
            for stream in &repair.streams {
                let (name, entries, stay) = (&stream.name, stream.entries, stream.stay);
                output
                    .text(format_args!("Stream {name} keeps {stay} of {entries} entries when the store is opened."))?;
            }
            output.text(format_args!("Records are not changed, not even those that resulted from removed events."))?;
            output.text(format_args!(
                "Files are set aside in {}. Incarnation {} begins; positions of incarnation {} are valid up to {}.",
                repair.kept_in, repair.next_incarnation, repair.incarnation, repair.at
            ))?;
        }
    }
    output.flush()?;
    finished(repair.done)
}
