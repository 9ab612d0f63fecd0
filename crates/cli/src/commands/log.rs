//! `annals log read` and `annals log tail`.

use std::sync::Arc;

use annals::{AggregateFilter, Filter, Follower, LogQuery, limits};

use crate::args::{self, Global, LogRead, LogTail};
use crate::config::Config;
use crate::failure::Stop;
use crate::output::Output;
use crate::signals;
use crate::target::Target;

pub async fn read(global: &Global, args: &LogRead, config: &Config) -> Result<(), Stop> {
    let filter = filter(&args.filter);
    filter.validate()?;
    let target = Target::to_read(global, &args.scope.scope, config).await?;
    target.run(async |target| print(target, args, filter, Output::new(global.output)).await).await
}

/// Prints page after page, up to the head that the first page named: a log that grows while it is read has an end all the same.
async fn print(target: &Target, args: &LogRead, filter: Filter, mut output: Output) -> Result<(), Stop> {
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

pub async fn tail(global: &Global, args: &LogTail, config: &Config) -> Result<(), Stop> {
    let filter = filter(&args.filter);
    filter.validate()?;
    let target = Target::to_read(global, &args.scope.scope, config).await?;
    target
        .run(async |target| {
            let from = if args.new { target.log.head().await? } else { args.from.unwrap_or(0) };
            let follower = Follower::new(Arc::clone(&target.log), from, filter);
            tokio::select! {
                stopped = signals::stop() => Ok(stopped?),
                ended = follow(target, follower, Output::new(global.output)) => ended,
            }
        })
        .await
}

async fn follow(target: &Target, mut follower: Follower, mut output: Output) -> Result<(), Stop> {
    loop {
        for event in follower.next_page().await? {
            output.event(&event, target)?;
        }
        output.flush()?;
    }
}

fn filter(args: &args::Filter) -> Filter {
    let aggregate = args.aggregate.as_deref().map(|wanted| match wanted.split_once('/') {
        Some((name, id)) => AggregateFilter { name: name.into(), id: Some(id.into()) },
        None => AggregateFilter { name: wanted.into(), id: None },
    });
    let texts = |texts: &[String]| texts.iter().map(|text| text.as_str().into()).collect();
    Filter { types: texts(&args.types), tags: texts(&args.tags), aggregate }
}
