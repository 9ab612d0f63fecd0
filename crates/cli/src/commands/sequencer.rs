//! `annals sequencer` and `annals held`.

use annals::{Ask, Asked, HeldId, limits};

use crate::args::{Format, Global, Held, HeldOne};
use crate::config::Config;
use crate::failure::Stop;
use crate::output::Output;
use crate::target::Target;

pub async fn state(global: &Global, config: &Config) -> Result<(), Stop> {
    let target = Target::to_read(global, annals::DEFAULT_SCOPE, config).await?;
    target
        .run(async |target| {
            let state = target.sequencing.state().await?;
            let mut output = Output::new(global.output);
            if output.format() == Format::Json {
                output.json(&state)?;
                return output.flush();
            }
            match &state.leader {
                Some(leader) => {
                    let here = if leader.here { " (the process that answers)" } else { "" };
                    output.text(format_args!("leader   {}{here}", leader.process))?;
                    output.text(format_args!("epoch    {}", leader.epoch))?;
                    output.text(format_args!("until    {}", leader.until))?;
                    output.text(format_args!("lag      {} ms", leader.lag_ms))?;
                }
                None => output.text(format_args!("leader   none at the moment"))?,
            }
            output.text(format_args!("head     {}", state.head))?;
            output.text(format_args!("held     {}", state.held))?;
            for context in &state.other_contexts {
                output.text(format_args!("warning  commits of context {context:?} have come to this database too"))?;
            }
            output.flush()
        })
        .await
}

pub async fn held(global: &Global, args: &Held, config: &Config) -> Result<(), Stop> {
    let target = Target::to_read(global, annals::DEFAULT_SCOPE, config).await?;
    target
        .run(async |target| match args {
            Held::List => list(target, Output::new(global.output)).await,
            Held::Retry(one) => ask(target, one, Ask::Retry, Output::new(global.output)).await,
            Held::Accept(one) => ask(target, one, Ask::Accept, Output::new(global.output)).await,
        })
        .await
}

async fn list(target: &Target, mut output: Output) -> Result<(), Stop> {
    let mut after = None;
    loop {
        let page = target.sequencing.held(after, limits::PAGE_MAX).await?;
        for one in &page {
            if output.format() == Format::Json {
                output.json(one)?;
                continue;
            }
            let since = one.since.map(|since| since.to_string()).unwrap_or_default();
            let (HeldId { collection, commit }, reason) = (&one.id, &one.reason);
            let (name, id) = (&one.aggregate_name, &one.aggregate_id);
            output.text(format_args!("{since:<24}  {collection}  {commit}  {name}/{id}  {reason}"))?;
        }
        match page.into_iter().last() {
            Some(last) => after = Some(last.id),
            None => return output.flush(),
        }
    }
}

async fn ask(target: &Target, one: &HeldOne, what: Ask, mut output: Output) -> Result<(), Stop> {
    let commit = HeldId { collection: one.collection.clone(), commit: one.commit.clone() };
    let asked = target.sequencing.ask(commit, what).await?;
    if output.format() == Format::Json {
        output.json(&asked)?;
        return output.flush();
    }
    match asked {
        Asked::Numbered { sequence_number } => output.text(format_args!("it has numbers from {sequence_number} on"))?,
        Asked::Held { reason } => output.text(format_args!("it is held back still: {reason}"))?,
        Asked::Gone => output.text(format_args!("it is not stored any more, and nothing is held back for it"))?,
    }
    output.flush()
}
