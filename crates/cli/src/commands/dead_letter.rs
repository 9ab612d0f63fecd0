//! `annals dead-letter …`.

mod policy;
mod shown;

use std::sync::Arc;

use annals::dead_letters::{BulkAct, BulkBody, DeadLetters, LetterQuery, LetterStatus};
use annals::handlers::Reason;
use annals::{ByteString, Code, Condition, Timestamp};
use clap::{Args, Subcommand};

use super::Run;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::target::Target;
use crate::why::Why;
use policy::PolicyCommand;

/// List, retry and discard events that a consumer could not process
#[derive(Debug, Args)]
pub struct DeadLetter {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List dead letters, most recently failed first
    #[command(
        after_help = "Example:\n  annals dead-letter list --status scheduled --group result-processor --output table"
    )]
    List(Which),
    /// Print a dead letter with its event and its history
    #[command(after_help = "Example:\n  annals dead-letter show group.result-processor.42")]
    Show(Named),
    /// Make letters due immediately, regardless of their policy
    #[command(
        after_help = "Example:\n  annals dead-letter retry group.result-processor.42 --reason 'the database is up'\n  annals dead-letter retry --group result-processor --dry-run --reason 'the database is up'"
    )]
    Retry(Bulk),
    /// Discard letters
    #[command(
        after_help = "Example:\n  annals dead-letter discard group.result-processor.42 --reason 'a test event'\n  annals dead-letter discard --topic execution_failed --reason 'a test run'"
    )]
    Discard(Bulk),
    /// Count letters by topic and status
    #[command(after_help = "Example:\n  annals dead-letter statistics --output table")]
    Statistics,
    /// Show and change the retry policies of topics
    Policy(PolicyCommand),
}

#[derive(Debug, Args)]
struct Named {
    /// The letter's id
    id: String,
}

#[derive(Debug, Args)]
struct Which {
    #[command(flatten)]
    filter: Filter,
    /// pending, scheduled, retried or discarded
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Only letters whose consumer failed at this time or later
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
}

#[derive(Debug, Args)]
struct Filter {
    /// Only letters of this topic
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only letters of this group
    #[arg(long, value_name = "GROUP", conflicts_with = "handler")]
    group: Option<String>,
    /// Only letters of this handler
    #[arg(long, value_name = "HANDLER")]
    handler: Option<String>,
    /// Only letters of this partner
    #[arg(long, value_name = "PARTNER", conflicts_with_all = ["group", "handler"])]
    partner: Option<String>,
    /// Only letters of events of this type
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
}

#[derive(Debug, Args)]
struct Bulk {
    /// The letters' ids; without one, --topic, --group, --handler, --partner, --type, --condition or --all selects open letters
    #[arg(value_name = "ID", conflicts_with_all = ["topic", "group", "handler", "partner", "event_type", "condition", "all"])]
    ids: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    /// Open letters whose stored fields match this condition, as JSON
    #[arg(long, value_name = "JSON")]
    condition: Option<String>,
    /// Every open letter
    #[arg(long, conflicts_with_all = ["topic", "group", "handler", "partner", "event_type", "condition"])]
    all: bool,
    /// Count the letters without changing any
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    why: Why,
}

impl Run for DeadLetter {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        match &self.what {
            What::List(args) => {
                let query = args.query()?;
                context.reading(annals::DEFAULT_SCOPE, async |target, output| list(target, output, query).await).await
            }
            What::Show(args) => {
                context
                    .reading(annals::DEFAULT_SCOPE, async |target, output| {
                        shown::print(output, &target.dead_letters()?.get(&args.id).await?)
                    })
                    .await
            }
            What::Retry(args) => act(context, BulkAct::Retry, args).await,
            What::Discard(args) => act(context, BulkAct::Discard, args).await,
            What::Statistics => {
                context
                    .reading(annals::DEFAULT_SCOPE, async |target, output| {
                        shown::print_statistics(output, &target.dead_letters()?.statistics().await?)
                    })
                    .await
            }
            What::Policy(command) => command.run(context).await,
        }
    }
}

impl Which {
    fn query(&self) -> Result<LetterQuery, Failure> {
        let name = |text: &Option<String>| text.as_deref().map(ByteString::from);
        let status = self.status.as_deref().map(|text| {
            let wrong = || {
                Failure::new(Code::InvalidQuery, format!("--status: {text:?} is unknown; `--help` lists the values"))
            };
            LetterStatus::from_name(text).ok_or_else(wrong)
        });
        let since = self.since.as_deref().map(|text| {
            Timestamp::parse(text).map_err(|why| Failure::new(Code::InvalidQuery, format!("--since: {why}")))
        });
        Ok(LetterQuery {
            status: status.transpose()?,
            topic: name(&self.filter.topic),
            group: name(&self.filter.group),
            handler: name(&self.filter.handler),
            partner: name(&self.filter.partner),
            event_type: name(&self.filter.event_type),
            since: since.transpose()?,
            limit: Some(100),
            cursor: None,
        })
    }
}

impl Bulk {
    fn body(&self) -> Result<BulkBody, Failure> {
        let Reason { reason, by } = self.why.reason();
        if !self.ids.is_empty() {
            let ids = self.ids.iter().map(|id| id.as_str().into()).collect();
            return Ok(BulkBody { condition: None, ids: Some(ids), reason, by, dry_run: self.dry_run });
        }
        let name = |text: &Option<String>| text.as_deref().map(ByteString::from);
        let filter = &self.filter;
        let query = LetterQuery {
            topic: name(&filter.topic),
            group: name(&filter.group),
            handler: name(&filter.handler),
            partner: name(&filter.partner),
            event_type: name(&filter.event_type),
            ..LetterQuery::default()
        };
        let mut parts = Vec::new();
        if query != LetterQuery::default() {
            parts.push(query.condition());
        }
        if let Some(text) = &self.condition {
            let read = serde_json::from_str::<Condition>(text);
            parts.push(read.map_err(|error| Failure::new(Code::InvalidCondition, format!("--condition: {error}")))?);
        }
        if parts.is_empty() && !self.all {
            let message = "name letters by id, or select open ones with --topic, --group, --handler, --partner, --type, --condition or --all";
            return Err(Failure::new(Code::InvalidBody, message));
        }
        let condition = if self.all { Condition::All } else { Condition::and(parts) };
        Ok(BulkBody { condition: Some(condition), ids: None, reason, by, dry_run: self.dry_run })
    }
}

async fn list(target: &Target, output: &mut Output, query: LetterQuery) -> Result<(), Stop> {
    let page = async |after: Option<ByteString>| {
        let query = LetterQuery { cursor: after, ..query.clone() };
        let page = target.dead_letters()?.list(query).await?;
        Ok((page.items, page.cursor))
    };
    output.pages(page, shown::print).await
}

/// Applies an act. A single letter is printed in its new state; for several letters, the outcome is summarised.
async fn act(context: &Context, act: BulkAct, args: &Bulk) -> Result<(), Stop> {
    let body = args.body()?;
    context
        .writing(async |target, output| {
            let letters = target.dead_letters()?;
            if let ([id], false) = (&*args.ids, args.dry_run) {
                let reason = args.why.reason();
                let letter = match act {
                    BulkAct::Retry => letters.retry(id, reason).await?,
                    BulkAct::Discard => letters.discard(id, reason).await?,
                };
                return shown::print(output, &letter);
            }
            output.json(&letters.bulk(act, body).await?)
        })
        .await
}

impl Target {
    /// Returns the dead letters of the tenant.
    pub fn dead_letters(&self) -> Result<Arc<dyn DeadLetters>, Failure> {
        self.port::<dyn DeadLetters>(
            |client| Arc::new(client.dead_letters()),
            |opened| opened.host.dead_letters(&self.tenant),
        )
    }
}
