//! `annals held …`.

use annals::{Ask, Asked, HeldId, limits};
use clap::{Args, Subcommand};

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::Stop;
use crate::output::Output;
use crate::target::Target;

/// List, retry or accept held commits: stored, but without sequence numbers; for a store on MongoDB
#[derive(Debug, Args)]
pub struct Held {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print the held commits, each with the reason
    #[command(after_help = "Example:\n  annals held list --server http://127.0.0.1:4000")]
    List,
    /// Check a held commit again, after it was corrected or deleted in the database
    #[command(
        after_help = "Prints the outcome: the commit has sequence numbers, is still held for a reason, or is no longer stored.\n\nExample:\n  annals held retry order_event_stream 0190ff"
    )]
    Retry(One),
    /// Assign the next sequence numbers to a held commit although earlier versions are missing
    #[command(
        after_help = "Accepts only a gap. Correct or delete a malformed commit where it is stored, then retry it. Missing versions that arrive later are held as late.\n\nExample:\n  annals held accept order_event_stream 0190ff"
    )]
    Accept(One),
}

#[derive(Debug, Args)]
struct One {
    /// The collection that it is stored in
    collection: String,
    /// Its _id
    commit: String,
}

impl Run for Held {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let target = context.to_read(annals::DEFAULT_SCOPE).await?;
        target
            .run(async |target| match &self.what {
                What::List => list(target, context.output()).await,
                What::Retry(one) => ask(target, one, Ask::Retry, context.output()).await,
                What::Accept(one) => ask(target, one, Ask::Accept, context.output()).await,
            })
            .await
    }
}

async fn list(target: &Target, mut output: Output) -> Result<(), Stop> {
    let mut after = None;
    loop {
        let page = target.sequencing()?.held(after, limits::PAGE_MAX).await?;
        for one in &page {
            if output.format() == Format::Json {
                output.json(one)?;
                continue;
            }
            let since = one.since.map(|since| since.to_string()).unwrap_or_default();
            let (HeldId { collection, commit }, reason) = (&one.id, &one.reason);
            let (name, id) = (&one.aggregate_name, &one.aggregate_id);
            output.text(format_args!("{since:<24}  {collection}  {commit}  {name}/{id}  {reason}"))?;
        }
        match page.into_iter().last() {
            Some(last) => after = Some(last.id),
            None => return output.flush(),
        }
    }
}

async fn ask(target: &Target, one: &One, what: Ask, mut output: Output) -> Result<(), Stop> {
    let commit = HeldId { collection: one.collection.clone(), commit: one.commit.clone() };
    let asked = target.sequencing()?.ask(commit, what).await?;
    if output.format() == Format::Json {
        output.json(&asked)?;
        return output.flush();
    }
    match asked {
        Asked::Numbered { sequence_number } => {
            output.text(format_args!("it has sequence numbers from {sequence_number}"))?
        }
        Asked::Held { reason } => output.text(format_args!("it is still held: {reason}"))?,
        Asked::Gone => output.text(format_args!("it is no longer stored, so it is no longer held"))?,
    }
    output.flush()
}
