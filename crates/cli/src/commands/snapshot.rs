//! `annals snapshot …`.

use annals::Snapshots;
use annals::wire::records::Encoding;
use annals::wire::{read_snapshot, write_snapshot};
use annals::{Aggregate, Code, DocumentView, Version, save_snapshot, snapshot_collection, snapshot_indexes};
use clap::{Args, Subcommand};
use serde_json::json;
use std::sync::Arc;

use super::Run;
use super::record::declared;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::target::Target;

/// Show, save or delete snapshots: the states of aggregates at a version
#[derive(Debug, Args)]
pub struct Snapshot {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print the snapshot of an aggregate
    #[command(after_help = "Example:\n  annals snapshot show order o-1")]
    Show(Of),
    /// Save a snapshot, unless one of a later version exists
    #[command(
        after_help = "Takes the body of PUT /v1/snapshots/{aggregate}/{id}; \"saved\" is false if a later version is kept.\n\nExample:\n  annals snapshot save order o-1 '{\"version\": 3, \"state\": {\"status\": \"paid\"}}'"
    )]
    Save(Save),
    /// Declare indexes for the snapshots of all aggregates with one name; existing indexes are kept
    #[command(
        after_help = "Indexes are written as for `annals record declare`, on fields of the layout or on paths of the state such as state.status. A unique index refuses snapshots that violate it, with duplicate_key. `annals record explain {aggregate}_snapshot` prints which index a query uses.\n\nExample:\n  annals snapshot declare order --indexes '[{\"fields\": [{\"field\": \"state.status\"}]}]'"
    )]
    Declare(Declare),
    /// Delete the snapshot of an aggregate; readers rebuild it from the commits when they need it
    #[command(after_help = "Example:\n  annals snapshot delete order o-1 --version 3")]
    Delete(Delete),
}

#[derive(Debug, Args)]
struct Of {
    /// The aggregate's name
    name: String,
    /// The aggregate's id
    id: String,
}

#[derive(Debug, Args)]
struct Declare {
    /// The aggregates' name
    name: String,
    /// The indexes, as a JSON list
    #[arg(long, value_name = "JSON")]
    indexes: String,
}

#[derive(Debug, Args)]
struct Save {
    #[command(flatten)]
    of: Of,
    /// The snapshot, as JSON
    snapshot: String,
}

#[derive(Debug, Args)]
struct Delete {
    #[command(flatten)]
    of: Of,
    /// Delete it only if it has this version
    #[arg(long, value_name = "VERSION")]
    version: Option<Version>,
}

impl Run for Snapshot {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let mut output = context.output();
        let (what, done) = match &self.what {
            What::Declare(args) => return declare(context, args).await,
            What::Show(of) => return show(context, &aggregate(of)).await,
            What::Save(args) => {
                let read = read_snapshot(&aggregate(&args.of), args.snapshot.as_bytes(), Encoding::Json)?;
                let target = context.to_write().await?;
                let (log, snapshots) = (target.log.clone(), target.snapshots()?);
                let save = async move || Ok(save_snapshot(&*log, &*snapshots, &read).await?);
                ("saved", told(target, save).await?)
            }
            What::Delete(args) => {
                let target = context.to_read(annals::DEFAULT_SCOPE).await?;
                let (snapshots, aggregate) = (target.snapshots()?, aggregate(&args.of));
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
}

async fn declare(context: &Context, args: &Declare) -> Result<(), Stop> {
    let declared = declared(&snapshot_collection(&args.name)?, &args.indexes)?;
    snapshot_indexes(&args.name, declared.indexes.clone())?;
    let target = context.to_write().await?;
    target
        .run(async |target| {
            target.snapshots()?.declare(&args.name, declared.indexes.clone()).await?;
            let mut output = context.output();
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

async fn show(context: &Context, aggregate: &Aggregate) -> Result<(), Stop> {
    let target = context.to_read(annals::DEFAULT_SCOPE).await?;
    target
        .run(async |target| {
            let Some(snapshot) = target.snapshots()?.load(aggregate).await? else {
                return Err(Failure::new(Code::UnknownSnapshot, format!("{aggregate} has no snapshot")).into());
            };
            let mut output = context.output();
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

fn aggregate(of: &Of) -> Aggregate {
    Aggregate::new(of.name.as_str(), of.id.as_str())
}

impl Target {
    /// Returns the snapshots of the tenant.
    pub fn snapshots(&self) -> Result<Arc<dyn Snapshots>, Failure> {
        self.port::<dyn Snapshots>(|client| Arc::new(client.snapshots()), |opened| opened.store.snapshots(&self.tenant))
    }
}
