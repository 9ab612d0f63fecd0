//! `annals subscription …`.

use std::path::PathBuf;

use annals::horizon::{SubscriptionDefinition, SubscriptionStatus};
use annals::{ByteString, DEFAULT_TENANT};
use clap::{Args, Subcommand};
use serde_json::json;

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::lines;
use crate::output::Output;
use crate::why::Why;

/// Receive public streams of other microservices over the event horizon
#[derive(Debug, Args)]
pub struct Subscription {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Define what a scope receives from a producer, or retry a subscription immediately
    #[command(
        after_help = "The scope must be declared under tenants.scopes.\n\nExample:\n  annals subscription put orders --producer http://127.0.0.1:4000 --stream public-orders --partition north --into inbox"
    )]
    Put(Put),
    /// List subscriptions with their position, lag and state
    #[command(after_help = "Example:\n  annals subscription list --output table")]
    List,
    /// Print the state of a subscription
    #[command(after_help = "Example:\n  annals subscription show orders")]
    Show(Named),
    /// Delete a subscription; the received events and its position are kept
    #[command(after_help = "Example:\n  annals subscription delete orders --reason 'nobody ships any more'")]
    Delete(Delete),
}

#[derive(Debug, Args)]
struct Named {
    /// The name of the subscription
    name: String,
}

#[derive(Debug, Args)]
struct Delete {
    #[command(flatten)]
    of: Named,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
struct Put {
    #[command(flatten)]
    of: Named,
    /// The URL of the producer's server, or local: for another tenant of the same store
    #[arg(long, value_name = "URL")]
    producer: String,
    /// The producer's tenant
    #[arg(long, value_name = "TENANT", default_value = DEFAULT_TENANT)]
    producer_tenant: String,
    /// The producer's public stream
    #[arg(long, value_name = "STREAM")]
    stream: String,
    /// The partition of that stream; entries without a partition when absent
    #[arg(long, value_name = "PARTITION", default_value = "")]
    partition: String,
    /// The scope that receives
    #[arg(long, value_name = "SCOPE")]
    into: String,
    /// A file with the credential that is sent to the producer as a bearer token; - for standard input
    #[arg(long, value_name = "FILE")]
    producer_credential_file: Option<PathBuf>,
}

impl Run for Subscription {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        match &self.what {
            What::Put(args) => put(context, args).await,
            What::List => list(context).await,
            What::Show(args) => show(context, args).await,
            What::Delete(args) => delete(context, args).await,
        }
    }
}

fn definition(args: &Put) -> Result<SubscriptionDefinition, Failure> {
    let (name, producer) = (args.of.name.as_str(), args.producer.as_str());
    let definition = SubscriptionDefinition::new(name, producer, args.stream.as_str(), args.into.as_str())
        .from_tenant(args.producer_tenant.as_str())
        .of_partition(args.partition.as_str());
    let definition = match &args.producer_credential_file {
        None => definition,
        Some(file) => definition.with_credential(lines::text(file)?.trim()),
    };
    definition.validate()?;
    Ok(definition)
}

async fn put(context: &Context, args: &Put) -> Result<(), Stop> {
    let definition = definition(args)?;
    context
        .writing(async |target, output| {
            let name = definition.name.clone();
            target.horizon()?.put_subscription(definition).await?;
            print(output, &target.horizon()?.subscription(&name).await?)
        })
        .await
}

async fn list(context: &Context) -> Result<(), Stop> {
    context
        .reading(annals::DEFAULT_SCOPE, async |target, output| {
            let page = async |after: Option<ByteString>| {
                let page = target.horizon()?.subscriptions(after.as_deref(), 100).await?;
                Ok((page.items, page.cursor))
            };
            output.pages(page, print).await
        })
        .await
}

async fn show(context: &Context, args: &Named) -> Result<(), Stop> {
    context
        .reading(annals::DEFAULT_SCOPE, async |target, output| {
            print(output, &target.horizon()?.subscription(&args.name).await?)
        })
        .await
}

async fn delete(context: &Context, args: &Delete) -> Result<(), Stop> {
    context
        .writing(async |target, output| {
            target.horizon()?.delete_subscription(&args.of.name, args.why.reason()).await?;
            output.deleted("deleted")
        })
        .await
}

fn print(output: &mut Output, status: &SubscriptionStatus) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(status),
        Format::Table => {
            output.head(format_args!(
                "{:<24}  {:<10}  {:<16}  {:>12}  {:>10}  REASON",
                "SUBSCRIPTION", "STATE", "SCOPE", "POSITION", "LAG"
            ))?;
            let state = json!(status.state);
            output.text(format_args!(
                "{:<24}  {:<10}  {:<16}  {:>12}  {:>10}  {}",
                status.name,
                state.as_str().unwrap_or_default(),
                status.scope,
                status.position,
                status.lag,
                status.last_reason.as_deref().unwrap_or("-")
            ))
        }
    }
}
