//! `annals record group`.

use annals::{Aggregation, Every, GroupQuery, limits};
use clap::{Args, ValueEnum};

use super::to_read;
use crate::context::Context;
use crate::failure::Stop;
use crate::selection::{Matching, any_time};

#[derive(Debug, Args)]
pub struct Group {
    /// The collection
    collection: String,
    /// The field whose value is the group's key; one group of all records when absent
    #[arg(long, value_name = "FIELD")]
    by: Option<String>,
    /// Group dates by hour or day, in UTC
    #[arg(long, requires = "by")]
    every: Option<Unit>,
    /// Fields to sum
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    sum: Vec<String>,
    /// Fields to average
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    avg: Vec<String>,
    /// Fields whose lowest value to print
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    min: Vec<String>,
    /// Fields whose highest value to print
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    max: Vec<String>,
    #[command(flatten)]
    matching: Matching,
    /// The maximum number of groups to print; all when absent
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Unit {
    Hour,
    Day,
}

/// Prints the groups, page by page.
pub async fn group(context: &Context, args: &Group) -> Result<(), Stop> {
    let mut query =
        GroupQuery::new(args.collection.as_str()).matching(args.matching.condition()?).limit(limits::PAGE_MAX);
    query.by.clone_from(&args.by);
    query.every = args.every.map(|unit| match unit {
        Unit::Hour => Every::Hour,
        Unit::Day => Every::Day,
    });
    let all = [&args.sum, &args.avg, &args.min, &args.max];
    for (what, paths) in [Aggregation::Sum, Aggregation::Avg, Aggregation::Min, Aggregation::Max].into_iter().zip(all) {
        for path in paths {
            query = query.figure(format!("{}({path})", what.name()), what, path.as_str());
        }
    }
    query.clone().resolved(&any_time())?.validate()?;
    let target = to_read(context).await?;
    target
        .run(async |target| {
            let (mut output, mut left) = (context.output(), args.limit.unwrap_or(u64::MAX));
            while left > 0 {
                query.limit = usize::try_from(left).unwrap_or(usize::MAX).min(limits::PAGE_MAX);
                let page = target.records()?.group(query.clone()).await?;
                for group in &page.groups {
                    output.group(&query, group)?;
                }
                left -= page.groups.len() as u64;
                match page.next {
                    Some(next) => query.after = Some(next),
                    None => break,
                }
            }
            output.flush()
        })
        .await
}
