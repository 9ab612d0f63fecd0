//! `annals aggregate …`.

use annals::{Aggregate as Id, AggregateIdsQuery, AggregateQuery, Timestamp, Version, limits};
use clap::{Args, Subcommand};

use super::Run;
use crate::cli::Scope;
use crate::context::{Context, Reaches};
use crate::failure::Stop;

/// Read or list aggregates
#[derive(Debug, Args)]
pub struct Aggregate {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print the commits of one aggregate, in order of version
    #[command(
        after_help = "Both ends of a range are included.\n\nExample:\n  annals aggregate read order o-1 --from-version 2"
    )]
    Read(Read),
    /// Print the ids of the aggregates of one name, in order
    #[command(after_help = "Example:\n  annals aggregate list order --after o-1000")]
    List(List),
}

#[derive(Debug, Args)]
struct Read {
    /// The aggregate's name
    name: String,
    /// The aggregate's id
    id: String,
    /// The first version to print
    #[arg(long, value_name = "VERSION", default_value_t = 1)]
    from_version: u64,
    /// The last version to print
    #[arg(long, value_name = "VERSION")]
    to_version: Option<u64>,
    /// The earliest time to print, RFC 3339
    #[arg(long, value_name = "TIME", value_parser = Timestamp::parse)]
    from_time: Option<Timestamp>,
    /// The latest time to print, RFC 3339
    #[arg(long, value_name = "TIME", value_parser = Timestamp::parse)]
    to_time: Option<Timestamp>,
    /// Print only the last commit of the range
    #[arg(long)]
    last: bool,
    #[command(flatten)]
    scope: Scope,
}

#[derive(Debug, Args)]
struct List {
    /// The aggregates' name
    name: String,
    /// Print only ids after this one
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    #[command(flatten)]
    scope: Scope,
}

impl Run for Aggregate {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        match &self.what {
            What::Read(args) => read(context, args).await,
            What::List(args) => list(context, args).await,
        }
    }
}

async fn read(context: &Context, args: &Read) -> Result<(), Stop> {
    let mut query = AggregateQuery {
        from_version: args.from_version,
        to_version: args.to_version.unwrap_or(Version::MAX),
        from_time: args.from_time,
        to_time: args.to_time,
        limit: if args.last { 1 } else { limits::PAGE_MAX },
        last: args.last,
        ..AggregateQuery::new(Id::new(args.name.as_str(), args.id.as_str()))
    };
    query.validate()?;
    let target = context.to_read(&args.scope.scope).await?;
    target
        .run(async |target| {
            let mut output = context.output();
            loop {
                let page = target.log.read_aggregate(query.clone()).await?;
                for commit in &page.commits {
                    output.commit(commit, target)?;
                }
                match page.commits.last() {
                    Some(last) if !query.last && last.info.version < query.to_version => {
                        query.from_version = last.info.version + 1;
                    }
                    _ => return output.flush(),
                }
            }
        })
        .await
}

async fn list(context: &Context, args: &List) -> Result<(), Stop> {
    let mut query = AggregateIdsQuery {
        name: args.name.as_str().into(),
        after: args.after.as_deref().map(Into::into),
        limit: limits::PAGE_MAX,
    };
    query.validate()?;
    let target = context.to_read(&args.scope.scope).await?;
    target
        .run(async |target| {
            let mut output = context.output();
            loop {
                let page = target.log.aggregate_ids(query.clone()).await?;
                for known in &page {
                    output.aggregate(known)?;
                }
                match page.into_iter().last() {
                    Some(last) => query.after = Some(last.id),
                    None => return output.flush(),
                }
            }
        })
        .await
}
