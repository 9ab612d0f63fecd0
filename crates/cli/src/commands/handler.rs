//! `annals handler …`.

use std::io::Read;
use std::path::{Path, PathBuf};

use annals::ByteString;
use annals::handlers::{Act, HandlerDefinition, HandlerStatus, PartitionStatus};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::lines;
use crate::output::Output;
use crate::target::Target;

/// Define, list and operate handlers: programs that pull events and settle them, in order per partition
#[derive(Debug, Args)]
pub struct Handler {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Define a handler, or change how it hands events out
    #[command(
        after_help = "Its source, its partitions and where it starts cannot be changed later.\n\nExample:\n  annals handler put billing --type order_placed --partition-by aggregate --concurrency 8\n  annals handler put billing --file billing.json"
    )]
    Put(Put),
    /// List handlers with their position, lag and state
    #[command(after_help = "Example:\n  annals handler list --output table")]
    List,
    /// Print the state of a handler
    #[command(after_help = "Example:\n  annals handler show billing")]
    Show(Named),
    /// Delete a handler with its position, failing partitions and parked events
    #[command(after_help = "Example:\n  annals handler delete billing")]
    Delete(Named),
    /// List the failing partitions of a handler
    #[command(after_help = "Example:\n  annals handler partitions billing")]
    Partitions(Named),
    /// Hand out no more events; those in flight can be settled
    #[command(after_help = "Example:\n  annals handler pause billing --reason 'the mail server moves'")]
    Pause(Operate),
    /// Hand out events again
    #[command(after_help = "Example:\n  annals handler resume billing --reason 'it has moved'")]
    Resume(Operate),
    /// Attempt a failing partition's event at once, and begin its retry policy again
    #[command(after_help = "Example:\n  annals handler retry billing order/o-1 --reason 'the mail server is up'")]
    Retry(OperatePartition),
    /// Skip a failing partition's event: it is recorded, and the partition continues
    #[command(after_help = "Example:\n  annals handler skip billing order/o-1 --reason 'it was sent by hand'")]
    Skip(OperatePartition),
    /// Park a failing partition's event, and let the partition continue
    #[command(after_help = "Example:\n  annals handler park billing order/o-1 --reason 'for the day shift'")]
    Park(OperatePartition),
}

#[derive(Debug, Args)]
struct Named {
    /// The handler's name
    name: String,
}

#[derive(Debug, Args)]
struct Operate {
    /// The handler's name
    name: String,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

#[derive(Debug, Args)]
struct OperatePartition {
    /// The handler's name
    name: String,
    /// The partition, as `annals handler partitions` prints it
    partition: String,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

#[derive(Debug, Args)]
struct Put {
    /// The handler's name
    name: String,
    /// A file with the definition, the body of PUT /v1/handlers/NAME; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["types", "stream", "partition_by", "concurrency", "start"])]
    file: Option<PathBuf>,
    /// Handle only events of this type; may be repeated
    #[arg(long = "type", value_name = "TYPE", conflicts_with = "stream")]
    types: Vec<String>,
    /// Handle the events of this stream
    #[arg(long, value_name = "STREAM")]
    stream: Option<String>,
    /// What decides an event's partition: none, aggregate or data.PATH
    #[arg(long, value_name = "WHAT")]
    partition_by: Option<String>,
    /// How many partitions are in flight at most
    #[arg(long, value_name = "COUNT")]
    concurrency: Option<u32>,
    /// Where to start: beginning, latest or a sequence number
    #[arg(long, value_name = "WHERE")]
    start: Option<String>,
}

impl Run for Handler {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        match &self.what {
            What::Put(args) => put(context, args).await,
            What::List => reading(context, list).await,
            What::Show(args) => reading(context, async |target, output| show(target, output, &args.name).await).await,
            What::Delete(args) => delete(context, &args.name).await,
            What::Partitions(args) => {
                reading(context, async |target, output| partitions(target, output, &args.name).await).await
            }
            What::Pause(args) => operate(context, &args.name, Act::Pause, &args.reason).await,
            What::Resume(args) => operate(context, &args.name, Act::Resume, &args.reason).await,
            What::Retry(args) => operate(context, &args.name, Act::Retry(args.partition()), &args.reason).await,
            What::Skip(args) => operate(context, &args.name, Act::Skip(args.partition()), &args.reason).await,
            What::Park(args) => operate(context, &args.name, Act::Park(args.partition()), &args.reason).await,
        }
    }
}

impl OperatePartition {
    fn partition(&self) -> ByteString {
        self.partition.as_str().into()
    }
}

async fn reading(
    context: &Context,
    work: impl AsyncFnOnce(&Target, &mut Output) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let target = context.to_read(annals::DEFAULT_SCOPE).await?;
    target
        .run(async |target| {
            let mut output = context.output();
            work(target, &mut output).await?;
            output.flush()
        })
        .await
}

async fn put(context: &Context, args: &Put) -> Result<(), Stop> {
    let definition = HandlerDefinition::read(&args.name, definition(args)?.as_bytes())?;
    let target = context.to_write().await?;
    target
        .run(async |target| {
            target.handlers.put(definition).await?;
            let mut output = context.output();
            show(target, &mut output, &args.name).await?;
            output.flush()
        })
        .await
}

/// The definition as JSON, so that flags and files are read by the same rules.
fn definition(args: &Put) -> Result<String, Failure> {
    if let Some(file) = &args.file {
        let mut text = String::new();
        let read = lines::open(file)?.read_to_string(&mut text);
        read.map_err(|error| lines::unreadable(Path::new(file), &error))?;
        return Ok(text);
    }
    let mut body = Map::new();
    if !args.types.is_empty() {
        body.insert("types".to_owned(), json!(args.types));
    }
    for (key, text) in [("stream", &args.stream), ("partition_by", &args.partition_by)] {
        body.extend(text.iter().map(|text| (key.to_owned(), json!(text))));
    }
    body.extend(args.concurrency.map(|count| ("concurrency".to_owned(), json!(count))));
    if let Some(start) = &args.start {
        let number = start.parse::<u64>().map(|number| json!({ "sequence_number": number }));
        body.insert("start".to_owned(), number.unwrap_or_else(|_| json!(start)));
    }
    Ok(Value::Object(body).to_string())
}

async fn list(target: &Target, output: &mut Output) -> Result<(), Stop> {
    let mut after: Option<ByteString> = None;
    loop {
        let page = target.handlers.list(after.as_deref(), 100).await?;
        page.items.iter().try_for_each(|status| print(output, status))?;
        after = page.cursor;
        if after.is_none() {
            return Ok(());
        }
    }
}

async fn show(target: &Target, output: &mut Output, name: &str) -> Result<(), Stop> {
    print(output, &target.handlers.get(name).await?)
}

fn print(output: &mut Output, status: &HandlerStatus) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(status),
        Format::Table => {
            output.head(format_args!(
                "{:<24}  {:<8}  {:>12}  {:>10}  {:>8}  {:>8}  REASON",
                "NAME", "STATE", "POSITION", "LAG", "FAILING", "PARKED"
            ))?;
            let state = json!(status.state);
            output.text(format_args!(
                "{:<24}  {:<8}  {:>12}  {:>10}  {:>8}  {:>8}  {}",
                status.name,
                state.as_str().unwrap_or_default(),
                status.position,
                status.lag,
                status.failing,
                status.parked,
                status.last_reason.as_deref().unwrap_or("-")
            ))
        }
    }
}

async fn delete(context: &Context, name: &str) -> Result<(), Stop> {
    let target = context.to_write().await?;
    target
        .run(async |target| {
            target.handlers.delete(name).await?;
            let mut output = context.output();
            match output.format() {
                Format::Json => output.json(&json!({ "deleted": true }))?,
                Format::Table => output.text(format_args!("deleted"))?,
            }
            output.flush()
        })
        .await
}

async fn partitions(target: &Target, output: &mut Output, name: &str) -> Result<(), Stop> {
    let mut after: Option<ByteString> = None;
    loop {
        let page = target.handlers.partitions(name, after.as_deref(), 1_000).await?;
        page.items.iter().try_for_each(|partition| print_partition(output, partition))?;
        after = page.cursor;
        if after.is_none() {
            return Ok(());
        }
    }
}

fn print_partition(output: &mut Output, failing: &PartitionStatus) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(failing),
        Format::Table => {
            output.head(format_args!(
                "{:<32}  {:>10}  {:>8}  {:<24}  REASON",
                "PARTITION", "NUMBER", "ATTEMPTS", "RETRY_AT"
            ))?;
            let retry_at = failing.retry_at.map_or_else(|| "-".to_owned(), |at| at.to_string());
            output.text(format_args!(
                "{:<32}  {:>10}  {:>8}  {:<24}  {}",
                failing.partition, failing.sequence_number, failing.attempts, retry_at, failing.reason
            ))
        }
    }
}

async fn operate(context: &Context, name: &str, act: Act, reason: &str) -> Result<(), Stop> {
    let target = context.to_write().await?;
    target
        .run(async |target| {
            target.handlers.act(name, act, reason).await?;
            let mut output = context.output();
            show(target, &mut output, name).await?;
            output.flush()
        })
        .await
}
