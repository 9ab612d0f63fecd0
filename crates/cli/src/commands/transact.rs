//! `annals transact`.

use std::path::PathBuf;

use annals::wire::{CommitAnswer, parse_transaction};
use annals::{Aggregate, CommitOutcome};
use clap::Args;

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::Stop;
use crate::output::Output;
use crate::requests;

/// Commit to several aggregates atomically; reads JSON lines, each a body of POST /v1/transactions
#[derive(Debug, Args)]
#[command(
    after_help = "Each line is a transaction of 2 to 16 commits to different aggregates, which is stored completely or not at all. Transactions \
                  that share an aggregate are stored in the order of the lines. For each line, the output has a list with one result per \
                  commit, in the order of the lines. If a line is refused, the part that was refused is reported and the other lines are \
                  still processed; the exit code is that of the first refusal.\n\nExample:\n  echo '{\"commits\": [{\"aggregate\": {\"name\": \"account\", \"id\": \"1\"}, \
                  \"events\": [{\"type\": \"taken\", \"data\": {\"amount\": 5}}]}, {\"aggregate\": {\"name\": \"account\", \"id\": \"2\"}, \
                  \"events\": [{\"type\": \"given\", \"data\": {\"amount\": 5}}]}]}' | annals transact\n  annals transact --server \
                  http://127.0.0.1:4000 --file transfers.jsonl"
)]
pub struct Transact {
    /// A file of JSON lines; standard input when absent
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Run for Transact {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let lines = requests::read(self.file.as_deref(), "transactions")?;
        let target = context.to_write().await?;
        let parse = |text: &[u8]| Ok(parse_transaction(text)?);
        target.run(async |target| requests::send(target, lines, context.output(), parse, print).await).await
    }
}

/// Prints one line with a list of answers as JSON; in a table, one row per commit.
fn print(output: &mut Output, stored: Vec<(Aggregate, CommitOutcome)>) -> Result<(), Stop> {
    let mut answers = stored.into_iter().map(|(aggregate, outcome)| (aggregate, CommitAnswer::from(outcome)));
    match output.format() {
        Format::Json => output.json(&answers.map(|(_, answer)| answer).collect::<Vec<_>>()),
        Format::Table => answers.try_for_each(|(aggregate, answer)| output.answer(&aggregate, &answer)),
    }
}
