//! `annals transact`.

use annals::wire::{CommitAnswer, parse_transaction};
use annals::{Aggregate, CommitOutcome};

use crate::args::{Format, Global, Transact};
use crate::config::Config;
use crate::failure::Stop;
use crate::output::Output;
use crate::requests;
use crate::target::Target;

pub async fn run(global: &Global, args: &Transact, config: &Config) -> Result<(), Stop> {
    let lines = requests::read(args.file.as_deref(), "transactions")?;
    let target = Target::to_write(global, config).await?;
    let parse = |text: &[u8]| Ok(parse_transaction(text)?);
    target.run(async |target| requests::send(target, lines, Output::new(global.output), parse, print).await).await
}

/// As JSON one line, a list of answers; in a table one row for each commit.
fn print(output: &mut Output, stored: Vec<(Aggregate, CommitOutcome)>) -> Result<(), Stop> {
    let mut answers = stored.into_iter().map(|(aggregate, outcome)| (aggregate, CommitAnswer::from(outcome)));
    match output.format() {
        Format::Json => output.json(&answers.map(|(_, answer)| answer).collect::<Vec<_>>()),
        Format::Table => answers.try_for_each(|(aggregate, answer)| output.answer(&aggregate, &answer)),
    }
}
