//! `annals consent …`.

use crate::target::Target;
use annals::horizon::Consent as Given;
use annals::horizon::Horizon;
use annals::{ByteString, DEFAULT_TENANT};
use clap::{Args, Subcommand};
use std::sync::Arc;

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::why::Why;

/// Let consumers receive public streams over the event horizon
#[derive(Debug, Args)]
pub struct Consent {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Create or change a consent
    #[command(
        after_help = "Example:\n  annals consent put shipping --microservice shipping --stream public-orders --partition north"
    )]
    Put(Put),
    /// List consents
    #[command(after_help = "Example:\n  annals consent list --output table")]
    List,
    /// Print a consent
    #[command(after_help = "Example:\n  annals consent show shipping")]
    Show(Named),
    /// Revoke a consent; sending stops within a second, and the consumer keeps what it has received
    #[command(after_help = "Example:\n  annals consent revoke shipping --reason 'the contract has ended'")]
    Revoke(Revoke),
}

#[derive(Debug, Args)]
struct Named {
    /// The id of the consent
    id: String,
}

#[derive(Debug, Args)]
struct Revoke {
    #[command(flatten)]
    of: Named,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
struct Put {
    #[command(flatten)]
    of: Named,
    /// The public stream
    #[arg(long, value_name = "STREAM")]
    stream: String,
    /// The partition of that stream; its entries without a partition when absent
    #[arg(long, value_name = "PARTITION", default_value = "")]
    partition: String,
    /// The consumer's microservice
    #[arg(long, value_name = "NAME", default_value = DEFAULT_TENANT)]
    microservice: String,
    /// The consumer's tenant
    #[arg(long, value_name = "TENANT", default_value = DEFAULT_TENANT)]
    consumer_tenant: String,
}

impl Run for Consent {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        match &self.what {
            What::Put(args) => put(context, args).await,
            What::List => list(context).await,
            What::Show(args) => show(context, args).await,
            What::Revoke(args) => revoke(context, args).await,
        }
    }
}

async fn put(context: &Context, args: &Put) -> Result<(), Stop> {
    let consent = Given::new(args.of.id.as_str(), args.stream.as_str())
        .to(args.microservice.as_str(), args.consumer_tenant.as_str())
        .of_partition(args.partition.as_str());
    consent.validate()?;
    context
        .writing(async |target, output| {
            target.horizon()?.put_consent(consent.clone()).await?;
            print(output, &consent)
        })
        .await
}

async fn list(context: &Context) -> Result<(), Stop> {
    context
        .reading(annals::DEFAULT_SCOPE, async |target, output| {
            let page = async |after: Option<ByteString>| {
                let page = target.horizon()?.consents(after.as_deref(), 100).await?;
                Ok((page.items, page.cursor))
            };
            output.pages(page, print).await
        })
        .await
}

async fn show(context: &Context, args: &Named) -> Result<(), Stop> {
    context
        .reading(annals::DEFAULT_SCOPE, async |target, output| {
            print(output, &target.horizon()?.consent(&args.id).await?)
        })
        .await
}

async fn revoke(context: &Context, args: &Revoke) -> Result<(), Stop> {
    context
        .writing(async |target, output| {
            target.horizon()?.revoke_consent(&args.of.id, args.why.reason()).await?;
            output.deleted("revoked")
        })
        .await
}

fn print(output: &mut Output, consent: &Given) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(consent),
        Format::Table => {
            output.head(format_args!(
                "{:<24}  {:<24}  {:<16}  {:<32}  PARTITION",
                "ID", "MICROSERVICE", "TENANT", "STREAM"
            ))?;
            let Given { id, microservice, tenant, stream, partition } = consent;
            output.text(format_args!("{id:<24}  {microservice:<24}  {tenant:<16}  {stream:<32}  {partition}"))
        }
    }
}

impl Target {
    /// Returns the consents and subscriptions of the tenant.
    pub fn horizon(&self) -> Result<Arc<dyn Horizon>, Failure> {
        self.port::<dyn Horizon>(|client| Arc::new(client.horizon()), |opened| opened.host.horizon(&self.tenant))
    }
}
