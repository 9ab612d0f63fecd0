//! `annals log …`.

use std::sync::Arc;

use annals::{AggregateFilter, Filter, Follower, LogQuery, limits};
use clap::{Args, Subcommand};

use super::Run;
use crate::cli::Scope;
use crate::context::{Context, Reaches};
use crate::failure::Stop;
use crate::output::Output;
use crate::reconnect::Reconnect;
use crate::signals;
use crate::target::Target;

/// Read or follow the event log
#[derive(Debug, Args)]
pub struct Log {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print the events of the log
    #[command(after_help = "Example:\n  annals log read --types order_placed --limit 10 --backwards")]
    Read(Read),
    /// Print the events of the log and then each new one, until Ctrl-C
    #[command(
        after_help = "If the connection to a server breaks, the command reconnects and resumes after the last event. A store that this command opens has no other writer; use --server to follow what others commit.\n\nExample:\n  annals log tail --server http://127.0.0.1:4000 --new"
    )]
    Tail(Tail),
}

#[derive(Debug, Args)]
struct Read {
    /// The sequence number to start at; with --backwards, print the events below it
    #[arg(long, value_name = "NUMBER")]
    from: Option<u64>,
    /// The maximum number of events to print
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
    /// Print from the newest to the oldest
    #[arg(long)]
    backwards: bool,
    #[command(flatten)]
    events: Events,
    #[command(flatten)]
    scope: Scope,
}

#[derive(Debug, Args)]
struct Tail {
    /// The sequence number to start at [default: 0]
    #[arg(long, value_name = "NUMBER")]
    from: Option<u64>,
    /// Print only events committed from now on
    #[arg(long, conflicts_with = "from")]
    new: bool,
    #[command(flatten)]
    events: Events,
    #[command(flatten)]
    scope: Scope,
}

/// Which events to print.
#[derive(Debug, Args)]
struct Events {
    /// Print only events of these types
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',')]
    types: Vec<String>,
    /// Print only events that have all of these tags
    #[arg(long, value_name = "TAG,…", value_delimiter = ',')]
    tags: Vec<String>,
    /// Print only events of this aggregate, or of all aggregates of this name
    #[arg(long, value_name = "NAME[/ID]")]
    aggregate: Option<String>,
}

impl Run for Log {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        match &self.what {
            What::Read(args) => read(context, args).await,
            What::Tail(args) => tail(context, args).await,
        }
    }
}

async fn read(context: &Context, args: &Read) -> Result<(), Stop> {
    let filter = filter(&args.events);
    filter.validate()?;
    let target = context.to_read(&args.scope.scope).await?;
    target.run(async |target| print(target, args, filter, context.output()).await).await
}

/// Prints all pages up to the head that the first page reported, so that the command ends even if the log grows while it is read.
async fn print(target: &Target, args: &Read, filter: Filter, mut output: Output) -> Result<(), Stop> {
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut query = LogQuery { from: args.from, limit: limits::PAGE_MAX, backwards: args.backwards, filter };
    let mut end = None;
    while left > 0 {
        query.limit = usize::try_from(left).unwrap_or(usize::MAX).min(limits::PAGE_MAX);
        let page = target.log.read(query.clone()).await?;
        let end = *end.get_or_insert(page.head);
        for event in page.events.iter().filter(|event| event.sequence_number < end) {
            output.event(event, target)?;
        }
        left -= page.events.len() as u64;
        if page.events.is_empty() || (!query.backwards && page.next >= end) {
            break;
        }
        query.from = Some(page.next);
    }
    output.flush()
}

async fn tail(context: &Context, args: &Tail) -> Result<(), Stop> {
    let filter = filter(&args.events);
    filter.validate()?;
    let target = context.to_read(&args.scope.scope).await?;
    target
        .run(async |target| {
            // Requested in any case: if a server cannot be reached at the beginning, its URL is most likely mistyped.
            let head = target.log.head().await?;
            let from = if args.new { head } else { args.from.unwrap_or(0) };
            let follower = Follower::new(Arc::clone(&target.log), from, filter);
            tokio::select! {
                stopped = signals::stop() => Ok(stopped?),
                ended = follow(target, follower, context.output()) => ended,
            }
        })
        .await
}

async fn follow(target: &Target, mut follower: Follower, mut output: Output) -> Result<(), Stop> {
    let mut reconnect = Reconnect::new();
    loop {
        match follower.next_page().await {
            Ok(events) => {
                reconnect.reached();
                events.iter().try_for_each(|event| output.event(event, target))?;
                output.flush()?;
            }
            Err(error) => {
                let resume = format!("at sequence number {}", follower.position());
                reconnect.after(error.into(), target, &resume).await?;
            }
        }
    }
}

fn filter(args: &Events) -> Filter {
    let aggregate = args.aggregate.as_deref().map(|wanted| match wanted.split_once('/') {
        Some((name, id)) => AggregateFilter { name: name.into(), id: Some(id.into()) },
        None => AggregateFilter { name: wanted.into(), id: None },
    });
    let texts = |texts: &[String]| texts.iter().map(|text| text.as_str().into()).collect();
    Filter { types: texts(&args.types), tags: texts(&args.tags), aggregate }
}
