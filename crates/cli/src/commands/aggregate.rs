//! `annals aggregate read` and `annals aggregate list`.

use annals::{Aggregate, AggregateIdsQuery, AggregateQuery, Version, limits};

use crate::args::{AggregateList, AggregateRead, Global};
use crate::config::Config;
use crate::failure::Stop;
use crate::output::Output;
use crate::target::Target;

pub async fn read(global: &Global, args: &AggregateRead, config: &Config) -> Result<(), Stop> {
    let mut query = AggregateQuery {
        from_version: args.from_version,
        to_version: args.to_version.unwrap_or(Version::MAX),
        from_time: args.from_time,
        to_time: args.to_time,
        limit: if args.last { 1 } else { limits::PAGE_MAX },
        last: args.last,
        ..AggregateQuery::new(Aggregate::new(args.name.as_str(), args.id.as_str()))
    };
    query.validate()?;
    let target = Target::to_read(global, &args.scope.scope, config).await?;
    target
        .run(async |target| {
            let mut output = Output::new(global.output);
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

pub async fn list(global: &Global, args: &AggregateList, config: &Config) -> Result<(), Stop> {
    let mut query = AggregateIdsQuery {
        name: args.name.as_str().into(),
        after: args.after.as_deref().map(Into::into),
        limit: limits::PAGE_MAX,
    };
    query.validate()?;
    let target = Target::to_read(global, &args.scope.scope, config).await?;
    target
        .run(async |target| {
            let mut output = Output::new(global.output);
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
