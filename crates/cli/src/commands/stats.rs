//! `annals stats`.

use annals::LogStats;

use crate::args::{self, Format, Global};
use crate::config::Config;
use crate::failure::Stop;
use crate::output::Output;
use crate::progress::Progress;
use crate::target::Target;

pub async fn run(global: &Global, args: &args::Stats, config: &Config) -> Result<(), Stop> {
    let target = Target::to_read(global, &args.scope.scope, config).await?;
    target
        .run(async |target| {
            let bar = Progress::of_events();
            let stats = target.log.stats(&mut |done, all| bar.reach(done, all)).await?;
            drop(bar);
            print(&mut Output::new(global.output), &stats)
        })
        .await
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
        output.text(format_args!("\n{heading:<40}  {:>14}", "COUNT"))?;
        for (name, count) in counts {
            output.text(format_args!("{name:<40}  {count:>14}"))?;
        }
    }
    output.flush()
}
