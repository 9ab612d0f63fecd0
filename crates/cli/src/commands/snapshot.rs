//! `annals snapshot …`.

use annals::wire::records::Encoding;
use annals::wire::{read_snapshot, write_snapshot};
use annals::{Aggregate, Code, DocumentView, snapshot_collection, snapshot_indexes};
use serde_json::json;

use crate::args::{Format, Global, Snapshot, SnapshotDeclare, SnapshotOf};
use crate::commands::record;
use crate::config::Config;
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::target::Target;

pub async fn run(global: &Global, args: &Snapshot, config: &Config) -> Result<(), Stop> {
    let mut output = Output::new(global.output);
    let (what, done) = match args {
        Snapshot::Declare(args) => return declare(global, args, config).await,
        Snapshot::Show(of) => return show(global, &aggregate(of), config).await,
        Snapshot::Save(args) => {
            let read = read_snapshot(&aggregate(&args.of), args.snapshot.as_bytes(), Encoding::Json)?;
            let target = Target::to_write(global, config).await?;
            let snapshots = target.snapshots.clone();
            ("saved", told(target, async move || Ok(snapshots.save(&read).await?)).await?)
        }
        Snapshot::Delete(args) => {
            let target = Target::to_read(global, annals::DEFAULT_SCOPE, config).await?;
            let (snapshots, aggregate) = (target.snapshots.clone(), aggregate(&args.of));
            ("deleted", told(target, async move || Ok(snapshots.delete(&aggregate, args.version).await?)).await?)
        }
    };
    match output.format() {
        Format::Json => output.json(&json!({ what: done }))?,
        Format::Table if done => output.text(format_args!("{what}"))?,
        Format::Table => output.text(format_args!("not {what}"))?,
    }
    output.flush()
}

async fn declare(global: &Global, args: &SnapshotDeclare, config: &Config) -> Result<(), Stop> {
    let declared = record::declared(&snapshot_collection(&args.name)?, &args.indexes)?;
    snapshot_indexes(&args.name, declared.indexes.clone())?;
    let target = Target::to_write(global, config).await?;
    target
        .run(async |target| {
            target.snapshots.declare(&args.name, declared.indexes.clone()).await?;
            let mut output = Output::new(global.output);
            output.collection(&declared)?;
            output.flush()
        })
        .await
}

async fn told(target: Target, work: impl AsyncFnOnce() -> Result<bool, Failure>) -> Result<bool, Stop> {
    let mut done = false;
    target
        .run(async |_| {
            done = work().await?;
            Ok(())
        })
        .await?;
    Ok(done)
}

async fn show(global: &Global, aggregate: &Aggregate, config: &Config) -> Result<(), Stop> {
    let target = Target::to_read(global, annals::DEFAULT_SCOPE, config).await?;
    target
        .run(async |target| {
            let Some(snapshot) = target.snapshots.load(aggregate).await? else {
                return Err(Failure::new(Code::UnknownSnapshot, format!("{aggregate} has no snapshot")).into());
            };
            let mut output = Output::new(global.output);
            match output.format() {
                Format::Json => output.json(&DocumentView(&write_snapshot(&snapshot)))?,
                Format::Table => {
                    let deleted = if snapshot.info.deleted { ", deleted" } else { "" };
                    let state = serde_json::to_string(&snapshot.state).unwrap_or_default();
                    output.text(format_args!("{aggregate} version {}{deleted}: {state}", snapshot.info.version))?;
                }
            }
            output.flush()
        })
        .await
}

fn aggregate(of: &SnapshotOf) -> Aggregate {
    Aggregate::new(of.name.as_str(), of.id.as_str())
}
