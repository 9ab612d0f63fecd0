//! `annals handler …`.

pub(super) mod shown;

use annals::handlers::Handlers;
use std::path::PathBuf;
use std::sync::Arc;

use annals::bson::Bson;
use annals::handlers::{Act, End, HandlerDefinition, Place};
use annals::{ByteString, Code, Timestamp};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::Run;
use crate::cli::Scope;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::lines;
use crate::output::Output;
use crate::target::Target;
use crate::why::Why;
use shown::{print, print_act, print_partition};

/// Define, list and operate handlers: programs that pull events and settle them, in order per partition
#[derive(Debug, Args)]
pub struct Handler {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Define a handler, or change how it hands out events
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
    #[command(after_help = "Example:\n  annals handler delete billing --reason 'nobody reads the invoices'")]
    Delete(Operate),
    /// List the failing partitions of a handler
    #[command(visible_alias = "partitions", after_help = "Example:\n  annals handler failing billing")]
    Failing(Named),
    /// Print the states of handlers and filters as documents of the collection stream-processor-states of the Dolittle Runtime
    #[command(
        after_help = "Each line is a document in Extended JSON, without _id.\n\nExample:\n  annals handler states | mongoimport --db DATABASE --collection stream-processor-states --mode upsert --upsertFields EventProcessor,SourceStream"
    )]
    States(Scope),
    /// List the acts of operators on a handler, newest first, even after its deletion
    #[command(after_help = "Example:\n  annals handler acts billing")]
    Acts(Named),
    /// Stop handing out events; those in flight can still be settled
    #[command(after_help = "Example:\n  annals handler pause billing --reason 'the mail server moves'")]
    Pause(Operate),
    /// Resume handing out events
    #[command(after_help = "Example:\n  annals handler resume billing --reason 'it has moved'")]
    Resume(Operate),
    /// Retry the event of a failing partition immediately, and restart its retry policy
    #[command(after_help = "Example:\n  annals handler retry billing order/o-1 --reason 'the mail server is up'")]
    Retry(OperatePartition),
    /// Skip the event of a failing partition, so that the partition continues; the act is recorded
    #[command(after_help = "Example:\n  annals handler skip billing order/o-1 --reason 'it was sent by hand'")]
    Skip(OperateEvent),
    /// Park the event of a failing partition, so that the partition continues
    #[command(after_help = "Example:\n  annals handler park billing order/o-1 --reason 'for the day shift'")]
    Park(OperateEvent),
    /// Move to another position; skipped events are not delivered
    #[command(
        after_help = "Failing partitions at or after that position are dropped; a move forward drops all of them.\n\nExample:\n  annals handler move billing latest --reason 'the backlog was imported'"
    )]
    Move(OperatePlace),
    /// Redeliver events that the handler has passed; their deliveries are marked as replays
    #[command(
        after_help = "Example:\n  annals handler replay billing 2026-03-01T00:00:00Z --reason 'the amounts were rounded'"
    )]
    Replay(OperatePlace),
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
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
struct OperatePlace {
    /// The handler's name
    name: String,
    /// A position, beginning, latest or a time
    #[arg(value_name = "WHERE")]
    place: String,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
struct OperatePartition {
    /// The handler's name
    name: String,
    /// The partition, as `annals handler failing` prints it
    partition: String,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
struct OperateEvent {
    #[command(flatten)]
    of: OperatePartition,
    /// The position of the event; the act is refused if another event is next in the partition
    #[arg(long, value_name = "POSITION")]
    position: Option<u64>,
}

#[derive(Debug, Args)]
struct Put {
    /// The handler's name
    name: String,
    /// A file with the definition, the body of PUT /v1/handlers/NAME; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["types", "stream", "condition", "partition_by", "concurrency", "start", "stop_at"])]
    file: Option<PathBuf>,
    /// Handle only events of this type; may be repeated
    #[arg(long = "type", value_name = "TYPE", conflicts_with = "stream")]
    types: Vec<String>,
    /// Handle the events of this stream
    #[arg(long, value_name = "STREAM")]
    stream: Option<String>,
    /// Handle only events that match this condition, as JSON
    #[arg(long, value_name = "JSON")]
    condition: Option<String>,
    /// The source of an event's partition: none, aggregate or data.PATH
    #[arg(long, value_name = "WHAT")]
    partition_by: Option<String>,
    /// The maximum number of partitions in flight
    #[arg(long, value_name = "COUNT")]
    concurrency: Option<u32>,
    /// Where to start: beginning, latest, a sequence number or a time
    #[arg(long, value_name = "WHERE")]
    start: Option<String>,
    /// Stop before the first event at or after this time
    #[arg(long, value_name = "TIME")]
    stop_at: Option<String>,
}

impl Run for Handler {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        match &self.what {
            What::Put(args) => put(context, args).await,
            What::List => context.reading(annals::DEFAULT_SCOPE, list).await,
            What::States(of) => {
                context.reading(&of.scope, async |target, output| states(target, output, &of.scope).await).await
            }
            What::Show(args) => {
                context
                    .reading(annals::DEFAULT_SCOPE, async |target, output| show(target, output, &args.name).await)
                    .await
            }
            What::Delete(args) => delete(context, args).await,
            What::Acts(args) => {
                context
                    .reading(annals::DEFAULT_SCOPE, async |target, output| acts(target, output, &args.name).await)
                    .await
            }
            What::Failing(args) => {
                context
                    .reading(annals::DEFAULT_SCOPE, async |target, output| partitions(target, output, &args.name).await)
                    .await
            }
            What::Pause(args) => operate(context, &args.name, Act::Pause, &args.why).await,
            What::Resume(args) => operate(context, &args.name, Act::Resume, &args.why).await,
            What::Retry(args) => operate(context, &args.name, Act::Retry(args.partition()), &args.why).await,
            What::Skip(OperateEvent { of, position }) => {
                let act = Act::Skip { partition: of.partition(), position: *position };
                operate(context, &of.name, act, &of.why).await
            }
            What::Park(OperateEvent { of, position }) => {
                let act = Act::Park { partition: of.partition(), position: *position };
                operate(context, &of.name, act, &of.why).await
            }
            What::Move(args) => operate(context, &args.name, Act::Move { to: args.place()? }, &args.why).await,
            What::Replay(args) => operate(context, &args.name, Act::Replay { from: args.place()? }, &args.why).await,
        }
    }
}

impl OperatePartition {
    fn partition(&self) -> ByteString {
        self.partition.as_str().into()
    }
}

impl OperatePlace {
    fn place(&self) -> Result<Place, Failure> {
        match &*self.place {
            "beginning" => Ok(Place::End(End::Beginning)),
            "latest" => Ok(Place::End(End::Latest)),
            text => match text.parse() {
                Ok(position) => Ok(Place::Position(position)),
                Err(_) => match Timestamp::parse(text) {
                    Ok(time) => Ok(Place::Time { time }),
                    Err(why) => Err(Failure::new(
                        Code::InvalidBody,
                        format!("WHERE must be a position, beginning, latest or a time: {why}"),
                    )),
                },
            },
        }
    }
}

async fn put(context: &Context, args: &Put) -> Result<(), Stop> {
    let definition = HandlerDefinition::read(&args.name, definition(args)?.as_bytes())?;
    context
        .writing(async |target, output| {
            target.handlers()?.put(definition).await?;
            show(target, output, &args.name).await
        })
        .await
}

/// Returns the definition as JSON, so that flags and files are parsed by the same rules.
fn definition(args: &Put) -> Result<String, Failure> {
    if let Some(file) = &args.file {
        return lines::text(file);
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
        let read = match (start.parse::<u64>(), Timestamp::parse(start)) {
            (Ok(number), _) => json!({ "sequence_number": number }),
            (Err(_), Ok(time)) => json!({ "time": time }),
            (Err(_), Err(_)) => json!(start),
        };
        body.insert("start".to_owned(), read);
    }
    body.extend(args.stop_at.iter().map(|time| ("stop_at".to_owned(), json!(time))));
    if let Some(condition) = &args.condition {
        let read = serde_json::from_str::<Value>(condition);
        let read = read.map_err(|error| Failure::new(Code::NotJson, format!("--condition is not JSON: {error}")))?;
        body.insert("condition".to_owned(), read);
    }
    Ok(Value::Object(body).to_string())
}

async fn list(target: &Target, output: &mut Output) -> Result<(), Stop> {
    let page = async |after: Option<ByteString>| {
        let page = target.handlers()?.list(after.as_deref(), 100).await?;
        Ok((page.items, page.cursor))
    };
    output.pages(page, print).await
}

async fn states(target: &Target, output: &mut Output, scope: &str) -> Result<(), Stop> {
    let states = target.handlers()?.states(scope).await?;
    states.into_iter().try_for_each(|state| output.json(&Bson::Document(state).into_canonical_extjson()))
}

async fn show(target: &Target, output: &mut Output, name: &str) -> Result<(), Stop> {
    print(output, &target.handlers()?.get(name).await?)
}

async fn delete(context: &Context, args: &Operate) -> Result<(), Stop> {
    context
        .writing(async |target, output| {
            target.handlers()?.delete(&args.name, args.why.reason()).await?;
            output.deleted("deleted")
        })
        .await
}

async fn partitions(target: &Target, output: &mut Output, name: &str) -> Result<(), Stop> {
    let page = async |after: Option<ByteString>| {
        let page = target.handlers()?.partitions(name, after.as_deref(), 1_000).await?;
        Ok((page.items, page.cursor))
    };
    output.pages(page, print_partition).await
}

async fn acts(target: &Target, output: &mut Output, name: &str) -> Result<(), Stop> {
    let page = async |after: Option<ByteString>| {
        let page = target.handlers()?.acts(name, after.as_deref(), 1_000).await?;
        Ok((page.items, page.cursor))
    };
    output.pages(page, print_act).await
}

async fn operate(context: &Context, name: &str, act: Act, why: &Why) -> Result<(), Stop> {
    context
        .writing(async |target, output| {
            target.handlers()?.act(name, act, why.reason()).await?;
            show(target, output, name).await
        })
        .await
}

impl Target {
    /// Returns the handlers of the tenant.
    pub fn handlers(&self) -> Result<Arc<dyn Handlers>, Failure> {
        self.port::<dyn Handlers>(|client| Arc::new(client.handlers()), |opened| opened.host.handlers(&self.tenant))
    }
}
