//! `annals stats`.

use annals::LogStats;
use clap::Args;

use super::Run;
use crate::cli::{Format, Scope};
use crate::context::{Context, Reaches};
use crate::failure::Stop;
use crate::output::Output;
use crate::progress::Progress;

/// Count the contents of a log: commits, aggregates, events of each type, bytes
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  annals stats --server http://127.0.0.1:4000 --output table")]
pub struct Stats {
    #[command(flatten)]
    scope: Scope,
}

impl Run for Stats {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let target = context.to_read(&self.scope.scope).await?;
        target
            .run(async |target| {
                let bar = Progress::of_events();
                let stats = target.log.stats(&mut |done, all| bar.reach(done, all)).await?;
                drop(bar);
                print(&mut context.output(), &stats)
            })
            .await
    }
}

fn print(output: &mut Output, stats: &LogStats) -> Result<(), Stop> {
    if output.format() == Format::Json {
        output.json(stats)?;
        return output.flush();
    }
    let numbers = [
        ("events", stats.events),
        ("commits", stats.commits),
        ("aggregates", stats.aggregates),
        ("segments", stats.segments),
        ("bytes", stats.bytes),
    ];
    for (name, number) in numbers {
        output.text(format_args!("{name:<24}  {number:>14}"))?;
    }
    for (name, time) in [("oldest event", stats.oldest), ("newest event", stats.newest)] {
        if let Some(time) = time {
            output.text(format_args!("{name:<24}  {time}"))?;
        }
    }
    for (heading, counts) in [("AGGREGATES", &stats.aggregates_by_name), ("EVENTS OF TYPE", &stats.events_by_type)] {
        output.text(format_args!(""))?;
        output.text(format_args!("{heading:<40}  {:>14}", "COUNT"))?;
        for (name, count) in counts {
            output.text(format_args!("{name:<40}  {count:>14}"))?;
        }
    }
    output.flush()
}
