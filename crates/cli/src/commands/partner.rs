//! `annals partner …`.

use std::path::PathBuf;
use std::sync::Arc;

use annals::partners::{Ending, EventDirection, EventStatus, EventsQuery, PartnerDefinition, Partners};
use clap::{Args, Subcommand};

use super::Run;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::lines;
use crate::output::Output;
use crate::target::Target;
use crate::why::Why;

/// Exchange events with partners over HTTP
#[derive(Debug, Args)]
pub struct Partner {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Define a partner, or change it
    #[command(
        after_help = "The file holds the body of PUT /v1/partners/ID.\n\nExample:\n  annals partner put acme --file acme.json"
    )]
    Put(Put),
    /// List partners, without their secrets
    #[command(after_help = "Example:\n  annals partner list")]
    List,
    /// Print a partner, without its secrets
    #[command(after_help = "Example:\n  annals partner show acme")]
    Show(Named),
    /// Pause sending to a partner; its events are still recorded
    #[command(after_help = "Example:\n  annals partner pause acme --reason 'they move to another host'")]
    Pause(Act),
    /// Resume sending to a partner
    #[command(after_help = "Example:\n  annals partner resume acme --reason 'they have moved'")]
    Resume(Act),
    /// Delete a partner; its events stay
    #[command(after_help = "Example:\n  annals partner delete acme --reason 'the contract has ended'")]
    Delete(Act),
    /// List the newest events of a partner
    #[command(after_help = "Example:\n  annals partner events acme --status FAILED")]
    Events(Events),
    /// Print an event
    #[command(after_help = "Example:\n  annals partner event 62a9c38946e0fb00017f6bbb")]
    Event(Named),
    /// Retry an event immediately, with five more attempts
    #[command(after_help = "Example:\n  annals partner resend 62a9c38946e0fb00017f6bbb --reason 'the partner is back'")]
    Resend(Act),
    /// Cancel an event that is pending or failed
    #[command(after_help = "Example:\n  annals partner cancel 62a9c38946e0fb00017f6bbb --reason 'sent by mail'")]
    Cancel(Act),
    /// Resend the selected events of a range of the log
    #[command(after_help = "Example:\n  annals partner replay acme --from 100 --to 200 --reason 'they lost a day'")]
    Replay(Replay),
    /// Count the events of a partner by state
    #[command(after_help = "Example:\n  annals partner statistics acme")]
    Statistics(Named),
}

#[derive(Debug, Args)]
struct Named {
    /// The id
    id: String,
}

#[derive(Debug, Args)]
struct Put {
    /// The id of the partner
    id: String,
    /// A file with the definition as JSON; - for standard input
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
}

#[derive(Debug, Args)]
struct Act {
    /// The id
    id: String,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
struct Events {
    /// The id of the partner
    id: String,
    /// IN or OUT
    #[arg(long, value_name = "DIRECTION")]
    direction: Option<String>,
    /// PENDING, PROCESSING, SUCCESS or FAILED
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// The type of the event
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// The id of the entity
    #[arg(long, value_name = "ID")]
    entity: Option<String>,
    /// The kind of the entity
    #[arg(long, value_name = "TYPE")]
    entity_type: Option<String>,
    /// The day on which it was recorded: days since 1970-01-01
    #[arg(long, value_name = "NUMBER")]
    day: Option<i32>,
    /// Only events with this ending: success, exhausted, refused or cancelled
    #[arg(long, value_name = "ENDING")]
    ended: Option<String>,
    /// Only events that are due for an attempt now
    #[arg(long)]
    due: bool,
    /// The maximum number of events to print
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: usize,
}

#[derive(Debug, Args)]
struct Replay {
    #[command(flatten)]
    act: Act,
    /// The first sequence number
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    from: u64,
    /// The sequence number after the last; the head of the log when absent
    #[arg(long, value_name = "NUMBER")]
    to: Option<u64>,
}

impl Run for Partner {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let work = async |target: &Target, output: &mut Output| self.work(&*target.partners()?, output).await;
        match &self.what {
            What::List | What::Show(_) | What::Events(_) | What::Event(_) | What::Statistics(_) => {
                context.reading(annals::DEFAULT_SCOPE, work).await
            }
            _ => context.writing(work).await,
        }
    }
}

impl Partner {
    async fn work(&self, partners: &dyn Partners, output: &mut Output) -> Result<(), Stop> {
        match &self.what {
            What::Put(args) => {
                partners.put(definition(args)?).await?;
                output.json(&partners.get(&args.id).await?)
            }
            What::List => list(partners, output).await,
            What::Show(args) => output.json(&partners.get(&args.id).await?),
            What::Pause(args) => output.json(&partners.switch(&args.id, true, args.why.reason()).await?),
            What::Resume(args) => output.json(&partners.switch(&args.id, false, args.why.reason()).await?),
            What::Delete(args) => {
                partners.delete(&args.id, args.why.reason()).await?;
                output.json(&serde_json::json!({ "deleted": true }))
            }
            What::Events(args) => {
                let page = partners.events(&args.id, query(args)?).await?;
                page.items.iter().try_for_each(|event| output.json(event))
            }
            What::Event(args) => output.json(&partners.event(&args.id).await?),
            What::Resend(args) => output.json(&partners.resend(&args.id, args.why.reason()).await?),
            What::Cancel(args) => output.json(&partners.cancel(&args.id, args.why.reason()).await?),
            What::Replay(args) => {
                output.json(&partners.replay(&args.act.id, args.from, args.to, args.act.why.reason()).await?)
            }
            What::Statistics(args) => output.json(&partners.statistics(&args.id).await?),
        }
    }
}

fn definition(args: &Put) -> Result<PartnerDefinition, Failure> {
    Ok(PartnerDefinition::read(&args.id, lines::text(&args.file)?.as_bytes())?)
}

fn query(args: &Events) -> Result<EventsQuery, Failure> {
    let wrong = |flag: &str, text: &str| {
        Failure::new(annals::Code::InvalidQuery, format!("{flag}: {text:?} is unknown; `--help` lists the values"))
    };
    let direction = args.direction.as_deref().map(|text| {
        let found = EventDirection::ALL.iter().copied().find(|it| it.as_str() == text);
        found.ok_or_else(|| wrong("--direction", text))
    });
    let status = args.status.as_deref().map(|text| {
        let found = EventStatus::ALL.iter().copied().find(|it| it.as_str() == text);
        found.ok_or_else(|| wrong("--status", text))
    });
    let ended = args.ended.as_deref().map(|text| {
        let found = Ending::ALL.iter().copied().find(|it| it.as_str() == text);
        found.ok_or_else(|| wrong("--ended", text))
    });
    Ok(EventsQuery {
        direction: direction.transpose()?,
        status: status.transpose()?,
        event_type: args.event_type.clone(),
        entity_id: args.entity.clone(),
        entity_type: args.entity_type.clone(),
        day: args.day,
        due: args.due,
        ended: ended.transpose()?,
        limit: args.limit,
        cursor: None,
    })
}

async fn list(partners: &dyn Partners, output: &mut Output) -> Result<(), Stop> {
    let page = async |after: Option<String>| {
        let page = partners.list(after.as_deref(), 1_000).await?;
        Ok((page.items, page.cursor))
    };
    output.pages(page, Output::json).await
}

impl Target {
    /// Returns the partners of the tenant.
    pub fn partners(&self) -> Result<Arc<dyn Partners>, Failure> {
        self.port::<dyn Partners>(|client| Arc::new(client.partners()), |opened| opened.host.partners(&self.tenant))
    }
}
