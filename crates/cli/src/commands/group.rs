//! `annals group …`.

mod put;

use std::sync::Arc;

use annals::groups::{GroupDefinition, GroupStatus, Groups};
use annals::handlers::{Act, Delivery, DeliveryFailure, PullBody, SettleBody, Settlement};
use annals::{ByteString, Code};
use clap::{Args, Subcommand};
use serde_json::json;

use super::Run;
use super::handler::shown::print_partition;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::target::Target;
use crate::why::Why;
use put::Put;

/// Define, list and operate consumer groups: programs that pull messages of topics and settle them, in order per key
#[derive(Debug, Args)]
pub struct Group {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Define a group, or change how it hands out messages
    #[command(
        after_help = "Its topics and where it starts cannot be changed later.\n\nExample:\n  annals group put result-processor --topic execution_completed --topic execution_failed --in-flight 32\n  annals group put result-processor --file result-processor.json"
    )]
    Put(Put),
    /// List groups with their lag and state
    #[command(after_help = "Example:\n  annals group list --output table")]
    List,
    /// Print the state of a group, with the lag of each topic
    #[command(after_help = "Example:\n  annals group show result-processor")]
    Show(Named),
    /// Delete a group with its offsets; its dead letters are discarded
    #[command(after_help = "Example:\n  annals group delete result-processor --reason 'results are stored elsewhere'")]
    Delete(Operate),
    /// Pull deliveries from a server, one per line
    #[command(
        after_help = "Settle each delivery by its token before its lease ends; otherwise it is delivered again.\n\nExample:\n  annals group pull result-processor --max 10 --wait-ms 5000 --server http://127.0.0.1:4000"
    )]
    Pull(Pull),
    /// Settle deliveries by their tokens
    #[command(
        after_help = "Example:\n  annals group settle result-processor 10000000001.result-processor --server http://127.0.0.1:4000\n  annals group settle result-processor 10000000001.result-processor --failed 'no space' --server http://127.0.0.1:4000"
    )]
    Settle(Settle),
    /// List the failing keys of a group
    #[command(visible_alias = "partitions", after_help = "Example:\n  annals group failing result-processor")]
    Failing(Named),
    /// Stop handing out messages; those in flight can still be settled
    #[command(after_help = "Example:\n  annals group pause result-processor --reason 'the database moves'")]
    Pause(Operate),
    /// Resume handing out messages
    #[command(after_help = "Example:\n  annals group resume result-processor --reason 'it has moved'")]
    Resume(Operate),
    /// Retry the message of a failing key immediately, and restart its retry policy
    #[command(
        after_help = "Example:\n  annals group retry result-processor execution/x-1 --reason 'the database is up'"
    )]
    Retry(OperateKey),
    /// Skip the message of a failing key, so that the key continues; the act is recorded
    #[command(after_help = "Example:\n  annals group skip result-processor execution/x-1 --reason 'stored by hand'")]
    Skip(OperateMessage),
    /// Make the message of a failing key a dead letter, so that the key continues
    #[command(after_help = "Example:\n  annals group park result-processor execution/x-1 --reason 'for the day shift'")]
    Park(OperateMessage),
}

#[derive(Debug, Args)]
struct Named {
    /// The group's name
    name: String,
}

#[derive(Debug, Args)]
struct Operate {
    /// The group's name
    name: String,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
struct OperateKey {
    /// The group's name
    name: String,
    /// The key, as `annals group failing` prints it
    key: String,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
struct OperateMessage {
    #[command(flatten)]
    of: OperateKey,
    /// The position of the message; the act is refused if another message is next for the key
    #[arg(long, value_name = "POSITION")]
    position: Option<u64>,
}

#[derive(Debug, Args)]
struct Pull {
    /// The group's name
    name: String,
    /// The maximum number of deliveries
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    max: usize,
    /// How long to wait for the first delivery, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    wait_ms: u64,
    /// The length of the leases, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    lease_ms: u64,
    /// The name of this consumer
    #[arg(long, value_name = "NAME", default_value = "annals group pull")]
    worker: String,
}

#[derive(Debug, Args)]
struct Settle {
    /// The group's name
    name: String,
    /// The tokens of the deliveries
    #[arg(required = true, value_name = "TOKEN")]
    tokens: Vec<String>,
    /// Settle them as failed, with this reason
    #[arg(long, value_name = "TEXT")]
    failed: Option<String>,
    /// The failure is permanent: no retry can succeed
    #[arg(long, requires = "failed")]
    never: bool,
    /// The delay before the retry, in milliseconds, instead of that of the group's policy
    #[arg(long, value_name = "MS", requires = "failed", conflicts_with = "never")]
    retry_after_ms: Option<u64>,
}

impl Run for Group {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        match &self.what {
            What::Put(args) => put(context, args.definition()?).await,
            What::List => context.reading(annals::DEFAULT_SCOPE, list).await,
            What::Show(args) => {
                context
                    .reading(annals::DEFAULT_SCOPE, async |target, output| show(target, output, &args.name).await)
                    .await
            }
            What::Delete(args) => {
                context
                    .writing(async |target, output| {
                        target.groups()?.delete(&args.name, args.why.reason()).await?;
                        output.deleted("deleted")
                    })
                    .await
            }
            What::Pull(args) => pull(context, args).await,
            What::Settle(args) => settle(context, args).await,
            What::Failing(args) => {
                context
                    .reading(annals::DEFAULT_SCOPE, async |target, output| failing(target, output, &args.name).await)
                    .await
            }
            What::Pause(args) => operate(context, &args.name, Act::Pause, &args.why).await,
            What::Resume(args) => operate(context, &args.name, Act::Resume, &args.why).await,
            What::Retry(args) => operate(context, &args.name, Act::Retry(args.key()), &args.why).await,
            What::Skip(OperateMessage { of, position }) => {
                let act = Act::Skip { partition: of.key(), position: *position };
                operate(context, &of.name, act, &of.why).await
            }
            What::Park(OperateMessage { of, position }) => {
                let act = Act::Park { partition: of.key(), position: *position };
                operate(context, &of.name, act, &of.why).await
            }
        }
    }
}

impl OperateKey {
    fn key(&self) -> ByteString {
        self.key.as_str().into()
    }
}

async fn put(context: &Context, definition: GroupDefinition) -> Result<(), Stop> {
    let name = definition.name.clone();
    context
        .writing(async |target, output| {
            target.groups()?.put(definition).await?;
            show(target, output, &name).await
        })
        .await
}

async fn list(target: &Target, output: &mut Output) -> Result<(), Stop> {
    let page = async |after: Option<ByteString>| {
        let page = target.groups()?.list(after.as_deref(), 100).await?;
        Ok((page.items, page.cursor))
    };
    output.pages(page, print).await
}

async fn show(target: &Target, output: &mut Output, name: &str) -> Result<(), Stop> {
    print(output, &target.groups()?.get(name).await?)
}

async fn failing(target: &Target, output: &mut Output, name: &str) -> Result<(), Stop> {
    let page = async |after: Option<ByteString>| {
        let page = target.groups()?.partitions(name, after.as_deref(), 1_000).await?;
        Ok((page.items, page.cursor))
    };
    output.pages(page, print_partition).await
}

async fn operate(context: &Context, name: &str, act: Act, why: &Why) -> Result<(), Stop> {
    context
        .writing(async |target, output| {
            target.groups()?.act(name, act, why.reason()).await?;
            show(target, output, name).await
        })
        .await
}

/// Refuses to work without a server: leases end with the process that owns the group, so deliveries must come from one that keeps
/// running.
fn on_server(target: &Target) -> Result<(), Failure> {
    if target.host().is_none() {
        return Ok(());
    }
    let message = "deliveries are leased by a running server; name it with --server URL";
    Err(Failure::new(Code::InvalidConfig, message))
}

async fn pull(context: &Context, args: &Pull) -> Result<(), Stop> {
    context
        .writing(async |target, output| {
            on_server(target)?;
            let pull =
                PullBody { max: args.max, wait_ms: args.wait_ms, lease_ms: args.lease_ms, worker: args.worker.clone() };
            let deliveries = target.groups()?.pull(&args.name, pull).await?;
            deliveries.iter().try_for_each(|delivery| print_delivery(output, delivery, target))
        })
        .await
}

async fn settle(context: &Context, args: &Settle) -> Result<(), Stop> {
    let settlement = |token: &String| Settlement {
        token: token.clone(),
        failure: args.failed.clone().map(|reason| DeliveryFailure {
            reason,
            retry_after_ms: args.retry_after_ms,
            never: args.never,
        }),
    };
    let results = args.tokens.iter().map(settlement).collect();
    context
        .writing(async |target, output| {
            on_server(target)?;
            let settled = target.groups()?.settle(&args.name, SettleBody { results }).await?;
            settled.iter().try_for_each(|result| output.json(result))?;
            match settled.iter().find(|result| !result.settled) {
                None => Ok(()),
                Some(lost) => {
                    let message = format!(
                        "delivery {} was not settled: {}; pull the event again",
                        lost.token,
                        lost.error.as_deref().unwrap_or("its lease ended")
                    );
                    Err(Failure::new(Code::StateConflict, message).into())
                }
            }
        })
        .await
}

fn print_delivery(output: &mut Output, delivery: &Delivery, target: &Target) -> Result<(), Stop> {
    match output.format() {
        Format::Json => {
            let event = output.event_value(&delivery.event, target);
            output.json(&json!({
            "token": delivery.token,
            "event": event,
            "position": delivery.position,
            "partition": delivery.partition,
            "attempt": delivery.attempt,
            "last_reason": delivery.last_reason,
            }))
        }
        Format::Table => {
            output.head(format_args!("{:<40}  {:>10}  {:<24}  {:<32}  ATTEMPT", "TOKEN", "POSITION", "TYPE", "KEY"))?;
            output.text(format_args!(
                "{:<40}  {:>10}  {:<24}  {:<32}  {}",
                delivery.token,
                delivery.position,
                delivery.event.event_type,
                delivery.partition.as_deref().unwrap_or("-"),
                delivery.attempt
            ))
        }
    }
}

fn print(output: &mut Output, status: &GroupStatus) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(status),
        Format::Table => {
            output.head(format_args!(
                "{:<24}  {:<8}  {:>10}  {:>8}  {:>8}  TOPICS",
                "NAME", "STATE", "LAG", "FAILING", "PARKED"
            ))?;
            let (it, state) = (&status.processor, json!(status.processor.state));
            let topics: Vec<String> = status.topics.iter().map(|it| format!("{} {}", it.topic, it.lag)).collect();
            output.text(format_args!(
                "{:<24}  {:<8}  {:>10}  {:>8}  {:>8}  {}",
                it.name,
                state.as_str().unwrap_or_default(),
                it.lag,
                it.failing,
                it.parked,
                topics.join(", ")
            ))
        }
    }
}

impl Target {
    /// Returns the consumer groups of the tenant.
    pub fn groups(&self) -> Result<Arc<dyn Groups>, Failure> {
        self.port::<dyn Groups>(|client| Arc::new(client.groups()), |opened| opened.host.groups(&self.tenant))
    }
}
