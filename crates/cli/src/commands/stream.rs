//! `annals stream list` and `annals stream read`.

use annals::{Partitions, StreamPosition, StreamQuery, StreamsQuery, limits};

use crate::args::{Global, StreamList, StreamRead};
use crate::config::Config;
use crate::failure::Stop;
use crate::output::Output;
use crate::target::Target;

pub async fn list(global: &Global, args: &StreamList, config: &Config) -> Result<(), Stop> {
    let mut query = StreamsQuery { after: args.after.as_deref().map(Into::into), limit: limits::PAGE_MAX };
    let target = Target::to_read(global, &args.scope.scope, config).await?;
    target
        .run(async |target| {
            let mut output = Output::new(global.output);
            loop {
                let page = target.streams.list(query.clone()).await?;
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

pub async fn read(global: &Global, args: &StreamRead, config: &Config) -> Result<(), Stop> {
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
    let target = Target::to_read(global, &args.scope.scope, config).await?;
    target.run(async |target| print(target, query, args.limit, Output::new(global.output)).await).await
}

/// Prints page after page, up to the head that the first page named: a stream that grows while it is read has an end all the same.
async fn print(target: &Target, mut query: StreamQuery, limit: Option<u64>, mut output: Output) -> Result<(), Stop> {
    let mut left = limit.unwrap_or(u64::MAX);
    while left > 0 {
        query.limit = usize::try_from(left).unwrap_or(usize::MAX).min(limits::PAGE_MAX);
        let page = target.streams.read_events(query.clone()).await?;
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
