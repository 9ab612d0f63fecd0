//! `annals projection …`.

use annals::projections::Projections;
use std::path::PathBuf;
use std::sync::Arc;

use annals::projections::{ProjectionAct, ProjectionDefinition, ProjectionStatus};
use annals::{ByteString, Condition, DocumentView, RecordQuery};
use clap::{Args, Subcommand};
use serde_json::json;

use super::Run;
use super::handler::shown::print_act;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::lines;
use crate::output::Output;
use crate::target::Target;
use crate::why::Why;

/// Define, read and operate projections: records derived from the events of the log
#[derive(Debug, Args)]
pub struct Projection {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Define a projection, or build a changed definition beside the live records
    #[command(after_help = "Example:\n  annals projection put orders --file orders.json")]
    Put(Put),
    /// List projections with their position, lag and state
    #[command(after_help = "Example:\n  annals projection list --output table")]
    List,
    /// Print the state of a projection
    #[command(after_help = "Example:\n  annals projection show orders")]
    Show(Named),
    /// Print the records of a projection
    #[command(
        after_help = "Example:\n  annals projection records orders --condition \"state = 'paid' and total > 50\" --sort=-total"
    )]
    Records(Records),
    /// Pause a projection
    #[command(after_help = "Example:\n  annals projection pause orders --reason 'the disk is replaced'")]
    Pause(Operate),
    /// Resume a projection that is paused or blocked
    #[command(after_help = "Example:\n  annals projection resume orders --reason 'it is replaced'")]
    Resume(Operate),
    /// Rebuild the records from the first event, beside the live ones
    #[command(after_help = "Example:\n  annals projection rebuild orders --reason 'a record was edited by hand'")]
    Rebuild(Operate),
    /// List the acts of operators on a projection, newest first, even after its deletion
    #[command(after_help = "Example:\n  annals projection acts orders")]
    Acts(Named),
    /// Delete a projection and its records
    #[command(after_help = "Example:\n  annals projection delete orders --reason 'nobody reads it'")]
    Delete(Operate),
}

#[derive(Debug, Args)]
struct Named {
    /// The projection's name
    name: String,
}

#[derive(Debug, Args)]
struct Operate {
    /// The projection's name
    name: String,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
struct Put {
    /// The projection's name
    name: String,
    /// A file with the definition, the body of PUT /v1/projections/NAME; - for standard input
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
}

#[derive(Debug, Args)]
struct Records {
    /// The projection's name
    name: String,
    /// The condition on the records, for example "state = 'paid' and total > 50"; all when absent
    #[arg(long, value_name = "TEXT", default_value = "")]
    condition: String,
    /// The fields to sort by, separated by commas; - before a field for descending order
    #[arg(long, value_name = "FIELDS", default_value = "")]
    sort: String,
    /// The maximum number of entries to print
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: usize,
}

impl Run for Projection {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        match &self.what {
            What::Put(args) => put(context, args).await,
            What::List => context.reading(annals::DEFAULT_SCOPE, list).await,
            What::Show(args) => {
                context
                    .reading(annals::DEFAULT_SCOPE, async |target, output| show(target, output, &args.name).await)
                    .await
            }
            What::Records(args) => {
                context.reading(annals::DEFAULT_SCOPE, async |target, output| records(target, output, args).await).await
            }
            What::Acts(args) => {
                context
                    .reading(annals::DEFAULT_SCOPE, async |target, output| acts(target, output, &args.name).await)
                    .await
            }
            What::Pause(args) => operate(context, args, ProjectionAct::Pause).await,
            What::Resume(args) => operate(context, args, ProjectionAct::Resume).await,
            What::Rebuild(args) => operate(context, args, ProjectionAct::Rebuild).await,
            What::Delete(args) => delete(context, args).await,
        }
    }
}

async fn put(context: &Context, args: &Put) -> Result<(), Stop> {
    let definition = ProjectionDefinition::read(&args.name, lines::text(&args.file)?.as_bytes())?;
    context
        .writing(async |target, output| {
            target.projections()?.put(definition).await?;
            show(target, output, &args.name).await
        })
        .await
}

async fn list(target: &Target, output: &mut Output) -> Result<(), Stop> {
    let page = async |after: Option<ByteString>| {
        let page = target.projections()?.list(after.as_deref(), 100).await?;
        Ok((page.items, page.cursor))
    };
    output.pages(page, print).await
}

async fn show(target: &Target, output: &mut Output, name: &str) -> Result<(), Stop> {
    print(output, &target.projections()?.get(name).await?)
}

async fn records(target: &Target, output: &mut Output, args: &Records) -> Result<(), Stop> {
    let mut query = RecordQuery::new("").matching(Condition::parse(&args.condition)?);
    for field in args.sort.split(',').filter(|field| !field.is_empty()) {
        query = match field.strip_prefix('-') {
            Some(field) => query.descending(field),
            None => query.ascending(field),
        };
    }
    let mut left = args.limit;
    while left > 0 {
        query.limit = left.min(annals::limits::PAGE_MAX);
        let page = target.projections()?.find(&args.name, query.clone()).await?;
        left -= page.records.len();
        page.records.iter().try_for_each(|record| output.json(&DocumentView(&record.document)))?;
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    Ok(())
}

async fn acts(target: &Target, output: &mut Output, name: &str) -> Result<(), Stop> {
    let page = async |after: Option<ByteString>| {
        let page = target.projections()?.acts(name, after.as_deref(), 1_000).await?;
        Ok((page.items, page.cursor))
    };
    output.pages(page, print_act).await
}

async fn operate(context: &Context, args: &Operate, act: ProjectionAct) -> Result<(), Stop> {
    context
        .writing(async |target, output| {
            target.projections()?.act(&args.name, act, args.why.reason()).await?;
            show(target, output, &args.name).await
        })
        .await
}

async fn delete(context: &Context, args: &Operate) -> Result<(), Stop> {
    context
        .writing(async |target, output| {
            target.projections()?.delete(&args.name, args.why.reason()).await?;
            output.deleted("deleted")
        })
        .await
}

fn print(output: &mut Output, status: &ProjectionStatus) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(status),
        Format::Table => {
            output.head(format_args!(
                "{:<24}  {:<8}  {:>5}  {:>12}  {:>10}  {:>8}  REASON",
                "NAME", "STATE", "BUILD", "POSITION", "LAG", "BUILDING"
            ))?;
            let state = json!(status.state);
            let building = status.building.as_ref().map(|building| format!("{:.0} %", building.progress * 100.0));
            output.text(format_args!(
                "{:<24}  {:<8}  {:>5}  {:>12}  {:>10}  {:>8}  {}",
                status.name,
                state.as_str().unwrap_or_default(),
                status.build,
                status.position,
                status.lag,
                building.as_deref().unwrap_or("-"),
                status.last_reason.as_deref().unwrap_or("-")
            ))
        }
    }
}

impl Target {
    /// Returns the projections of the tenant.
    pub fn projections(&self) -> Result<Arc<dyn Projections>, Failure> {
        self.port::<dyn Projections>(
            |client| Arc::new(client.projections()),
            |opened| opened.host.projections(&self.tenant),
        )
    }
}
