//! `annals repair`.

use annals::Code;
use annals::operations::{self, Cut};

use crate::args::{self, Format, Global};
use crate::config::Config;
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::progress::Progress;

pub fn run(global: &Global, args: &args::Repair, config: &Config) -> Result<(), Stop> {
    match args.what.cut_at {
        Some(at) => cut(global, args, at, config),
        None => indexes(global, args, config),
    }
}

fn indexes(global: &Global, args: &args::Repair, config: &Config) -> Result<(), Stop> {
    let made = operations::reindex(&config.store.url, &global.tenant, args.yes)?;
    let mut output = Output::new(global.output);
    match output.format() {
        Format::Json => output.json(&made)?,
        Format::Table => {
            for wrong in &made.wrong {
                output.text(format_args!("wrong: {wrong}"))?;
            }
            let done = if made.done { "were made again" } else { "would be made again" };
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
    let message = "nothing was done yet; give --yes to do it";
    Err(Failure::new(Code::InvalidConfig, message).into())
}

fn cut(global: &Global, args: &args::Repair, at: u64, config: &Config) -> Result<(), Stop> {
    let (tenant, scope) = (global.tenant.clone(), args.scope.scope.clone());
    let cut = Cut { tenant, scope, at, confirmed: args.yes };
    let bar = Progress::of_events();
    let repair = operations::repair(&config.store.url, &cut, &mut |done, all| bar.reach(done, all))?;
    drop(bar);
    let mut output = Output::new(global.output);
    match output.format() {
        Format::Json => output.json(&repair)?,
        Format::Table => {
            let done = if repair.done { "The log was cut" } else { "The log would be cut" };
            output.text(format_args!("{done}: {} events stay in {}/{}.", repair.at, repair.tenant, repair.scope))?;
            if let (Some(segment), Some(offset)) = (&repair.cut_segment, repair.cut_offset) {
                output.text(format_args!("{segment} keeps its first {offset} bytes; a whole copy goes aside."))?;
            }
            for file in &repair.files {
                output.text(format_args!("{file} goes aside."))?;
            }
            for stream in &repair.streams {
                let (name, entries, stay) = (&stream.name, stream.entries, stream.stay);
                output
                    .text(format_args!("Stream {name} keeps {stay} of {entries} entries when the store is opened."))?;
            }
            output.text(format_args!("Records stay as they are: they are not made of events."))?;
            output.text(format_args!(
                "Aside is {}. Incarnation {} begins; positions of incarnation {} are good up to {}.",
                repair.kept_in, repair.next_incarnation, repair.incarnation, repair.at
            ))?;
        }
    }
    output.flush()?;
    finished(repair.done)
}
