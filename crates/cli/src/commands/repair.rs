//! `annals repair`.

use annals::Code;
use annals::operations::{self, Cut};

use crate::args::{self, Format, Global};
use crate::config::Config;
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::progress::Progress;

pub fn run(global: &Global, args: &args::Repair, config: &Config) -> Result<(), Stop> {
    let (tenant, scope) = (global.tenant.clone(), args.scope.scope.clone());
    let cut = Cut { tenant, scope, at: args.cut_at, confirmed: args.yes };
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
            output.text(format_args!(
                "Aside is {}. Incarnation {} begins; positions of incarnation {} are good up to {}.",
                repair.kept_in, repair.next_incarnation, repair.incarnation, repair.at
            ))?;
        }
    }
    output.flush()?;
    if repair.done {
        return Ok(());
    }
    let message = "nothing was done yet; give --yes to do it";
    Err(Failure::new(Code::InvalidConfig, message).into())
}
