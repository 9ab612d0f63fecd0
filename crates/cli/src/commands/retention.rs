//! `annals retention …`.

use std::sync::Arc;

use annals::archive::{Archive, ArchiveError, ArchiveTarget, RetentionBody};
use clap::{Args, Subcommand, ValueEnum};

use super::Run;
use super::events::{Days, days};
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::target::Target;
use crate::why::Why;

/// Set how long the browse view keeps events, and where they are archived
#[derive(Debug, Args)]
pub struct Retention {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Set the retention of a category or an event type, including existing events
    #[command(
        after_help = "Example:\n  annals retention set order_placed --ttl-days 30 --archive collection --dry-run\n  \
                            annals retention set execution --ttl-days 30 --archive files"
    )]
    Set(Set),
    /// Print the retention of every category and type that has one, and the state of the archive
    #[command(after_help = "Example:\n  annals retention list")]
    List,
    /// Remove the retention of a category or an event type
    #[command(after_help = "Example:\n  annals retention remove order_placed --reason 'as the others' --dry-run")]
    Remove(Remove),
}

#[derive(Debug, Args)]
struct Set {
    /// The category or the event type
    name: String,
    /// The number of days for which the view keeps an event, or `forever`
    #[arg(long, value_name = "DAYS", value_parser = days, default_value = "90")]
    ttl_days: Days,
    /// Where an event is copied before it is deleted from the view
    #[arg(long, value_enum, default_value_t = Goes::None)]
    archive: Goes,
    /// Change nothing, and print how many events the rule would remove from the view now
    #[arg(long)]
    dry_run: bool,
    /// The reason, for the record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// The user who acts, for the record
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Goes {
    None,
    Collection,
    Files,
}

#[derive(Debug, Args)]
struct Remove {
    /// The category or the event type
    name: String,
    /// Only print the retention that would be removed
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    why: Why,
}

impl Run for Retention {
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

impl Retention {
    async fn work(&self, archive: &dyn Archive, output: &mut Output) -> Result<(), Stop> {
        match &self.what {
            What::Set(args) => {
                let target = match args.archive {
                    Goes::None => ArchiveTarget::None,
                    Goes::Collection => ArchiveTarget::Collection,
                    Goes::Files => ArchiveTarget::Files,
                };
                let (reason, by) = (args.reason.clone(), args.by.clone());
                let body =
                    RetentionBody { ttl_days: args.ttl_days.0, archive: target, dry_run: args.dry_run, reason, by };
                output.json(&archive.put_rule(&args.name, body).await?)
            }
            What::List => output.json(&archive.rules(None, 1_000).await?),
            What::Remove(args) if args.dry_run => {
                let rules = archive.rules(None, 1_000).await?.items;
                let rule = rules.iter().find(|rule| rule.name == args.name);
                output.json(rule.ok_or_else(|| ArchiveError::UnknownRule(args.name.clone()))?)
            }
            What::Remove(args) => {
                archive.remove_rule(&args.name, args.why.reason()).await?;
                output.json(&serde_json::json!({ "deleted": true }))
            }
        }
    }
}

impl Target {
    /// Returns the archive of the tenant.
    pub fn archive(&self) -> Result<Arc<dyn Archive>, Failure> {
        self.port::<dyn Archive>(
            |client| Arc::new(client.archive()),
            |opened| {
                opened.host.start_defined();
                opened.host.archive(&self.tenant)
            },
        )
    }
}
