//! `annals hold …`.

use annals::archive::{Archive, HoldBody};
use clap::{Args, Subcommand};

use super::Run;
use super::events::Selection;
use crate::context::{Context, Reaches};
use crate::failure::Stop;
use crate::output::Output;
use crate::target::Target;
use crate::why::Why;

/// Protect events from retention and deletion
#[derive(Debug, Args)]
pub struct Hold {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Protect the events that a filter selects
    #[command(after_help = "Example:\n  annals hold set case-7 --user-id ada --reason 'a court asked for it'")]
    Set(Box<Set>),
    /// List the holds
    #[command(after_help = "Example:\n  annals hold list")]
    List,
    /// Print a hold
    #[command(after_help = "Example:\n  annals hold get case-7")]
    Get(Named),
    /// Remove a hold; its events then expire according to their retention
    #[command(after_help = "Example:\n  annals hold remove case-7 --reason 'the case is closed'")]
    Remove(Remove),
}

#[derive(Debug, Args)]
struct Set {
    /// The name of the hold
    name: String,
    #[command(flatten)]
    selection: Selection,
    /// The reason, for the record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// The user who acts, for the record
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

#[derive(Debug, Args)]
struct Named {
    /// The name of the hold
    name: String,
}

#[derive(Debug, Args)]
struct Remove {
    /// The name of the hold
    name: String,
    #[command(flatten)]
    why: Why,
}

impl Run for Hold {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        // Opening the store archives what is due.
        let work = async |target: &Target, output: &mut Output| self.work(&*target.archive()?, output).await;
        match &self.what {
            What::Set(_) => context.writing(work).await,
            _ => context.writing_existing(work).await,
        }
    }
}

impl Hold {
    async fn work(&self, archive: &dyn Archive, output: &mut Output) -> Result<(), Stop> {
        match &self.what {
            What::Set(args) => {
                let (reason, by) = (args.reason.clone(), args.by.clone());
                let body = HoldBody { filter: args.selection.filter(), reason, by };
                output.json(&archive.put_hold(&args.name, body).await?.0)
            }
            What::List => {
                let page = async |after: Option<String>| {
                    let page = archive.holds(after.as_deref(), 1_000).await?;
                    Ok((page.items, page.cursor))
                };
                output.pages(page, Output::json).await
            }
            What::Get(args) => output.json(&archive.hold(&args.name).await?),
            What::Remove(args) => {
                archive.remove_hold(&args.name, args.why.reason()).await?;
                output.json(&serde_json::json!({ "deleted": true }))
            }
        }
    }
}
