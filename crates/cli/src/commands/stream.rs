//! `annals stream …`.

use annals::Streams;
use annals::{Partitions, StreamPosition, StreamQuery, StreamsQuery, limits};
use clap::{Args, Subcommand};
use std::sync::Arc;

use super::Run;
use crate::cli::Scope;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::target::Target;

/// List or read streams, which are filtered sequences of the log
#[derive(Debug, Args)]
pub struct Stream {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print the streams, each with its number of entries and the progress of its filter
    #[command(after_help = "Example:\n  annals stream list")]
    List(List),
    /// Print the events of a stream, in order of position
    #[command(after_help = "Example:\n  annals stream read stream-7 --partition o-1 --limit 10")]
    Read(Read),
}

#[derive(Debug, Args)]
struct List {
    /// Print only names after this one
    #[arg(long, value_name = "NAME")]
    after: Option<String>,
    #[command(flatten)]
    scope: Scope,
}

#[derive(Debug, Args)]
struct Read {
    /// The stream's name
    name: String,
    /// The position to start at
    #[arg(long, value_name = "POSITION", default_value_t = 0)]
    from: u64,
    /// The position to end before
    #[arg(long, value_name = "POSITION")]
    to: Option<u64>,
    /// The maximum number of events to print
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
    /// Print only events of this partition
    #[arg(long, value_name = "PARTITION", conflicts_with = "without_partition")]
    partition: Option<String>,
    /// Print only events without a partition
    #[arg(long)]
    without_partition: bool,
    #[command(flatten)]
    scope: Scope,
}

impl Run for Stream {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        match &self.what {
            What::List(args) => list(context, args).await,
            What::Read(args) => read(context, args).await,
        }
    }
}

async fn list(context: &Context, args: &List) -> Result<(), Stop> {
    let mut query = StreamsQuery { after: args.after.as_deref().map(Into::into), limit: limits::PAGE_MAX };
    let target = context.to_read(&args.scope.scope).await?;
    target
        .run(async |target| {
            let mut output = context.output();
            loop {
                let page = target.streams()?.list(query.clone()).await?;
                for info in &page {
                    output.stream(info)?;
                }
                match page.into_iter().last() {
                    Some(last) => query.after = Some(last.name),
                    None => return output.flush(),
                }
            }
        })
        .await
}

async fn read(context: &Context, args: &Read) -> Result<(), Stop> {
    let partitions = match &args.partition {
        Some(partition) => Partitions::One(partition.as_str().into()),
        None if args.without_partition => Partitions::Without,
        None => Partitions::All,
    };
    let query = StreamQuery {
        from: args.from,
        to: args.to.unwrap_or(StreamPosition::MAX),
        partitions,
        limit: limits::PAGE_MAX,
        ..StreamQuery::new(args.name.as_str())
    };
    query.validate()?;
    let target = context.to_read(&args.scope.scope).await?;
    target.run(async |target| print(target, query, args.limit, context.output()).await).await
}

/// Prints all pages up to the head that the first page reported, so that the command ends even if the stream grows while it is read.
async fn print(target: &Target, mut query: StreamQuery, limit: Option<u64>, mut output: Output) -> Result<(), Stop> {
    let mut left = limit.unwrap_or(u64::MAX);
    while left > 0 {
        query.limit = usize::try_from(left).unwrap_or(usize::MAX).min(limits::PAGE_MAX);
        let page = target.streams()?.read_events(query.clone()).await?;
        query.to = query.to.min(page.head);
        for event in &page.events {
            output.stream_event(event, target)?;
        }
        left -= page.events.len() as u64;
        if page.events.is_empty() || page.next >= query.to {
            break;
        }
        query.from = page.next;
    }
    output.flush()
}

impl Target {
    /// Returns the streams of the scope.
    pub fn streams(&self) -> Result<Arc<dyn Streams>, Failure> {
        self.port::<dyn Streams>(
            |client| Arc::new(client.streams()),
            |opened| opened.store.streams(&self.tenant, &self.scope),
        )
    }
}
