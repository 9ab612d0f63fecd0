//! `annals topic …`.

use annals::ByteString;
use annals::{TopicStatus, Topics};
use clap::{Args, Subcommand};
use std::sync::Arc;

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::target::Target;
use crate::why::Why;

/// Show topics, and apply their configuration
#[derive(Debug, Args)]
pub struct Topic {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List topics with their category, partitions, retention and differences
    #[command(after_help = "Example:\n  annals topic list --output table")]
    List,
    /// Print a topic with the groups that read it
    #[command(after_help = "Example:\n  annals topic describe order_placed")]
    Describe(Named),
    /// Apply the configured partitions and retention to a topic
    #[command(after_help = "Example:\n  annals topic apply order_placed --reason 'more consumers'")]
    Apply(Apply),
}

#[derive(Debug, Args)]
struct Named {
    /// The topic's name
    name: String,
}

#[derive(Debug, Args)]
struct Apply {
    /// The topic's name
    name: String,
    #[command(flatten)]
    why: Why,
}

impl Run for Topic {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        // Missing topics are created.
        let target = match &self.what {
            What::Apply(_) => context.to_write().await?,
            What::List | What::Describe(_) => context.to_write_existing().await?,
        };
        target
            .run(async |target| {
                let mut output = context.output();
                self.work(target, &mut output).await?;
                output.flush()
            })
            .await
    }
}

impl Topic {
    async fn work(&self, target: &Target, output: &mut Output) -> Result<(), Stop> {
        match &self.what {
            What::List => list(&*target.topics()?, output).await,
            What::Describe(args) => output.json(&target.topics()?.get(&args.name).await?),
            What::Apply(args) => output.json(&target.topics()?.apply(&args.name, args.why.reason()).await?),
        }
    }
}

async fn list(topics: &dyn Topics, output: &mut Output) -> Result<(), Stop> {
    let mut after: Option<ByteString> = None;
    loop {
        let page = topics.list(after.as_deref(), 1_000).await?;
        page.items.iter().try_for_each(|it| print(output, it))?;
        after = page.cursor;
        if after.is_none() {
            return Ok(());
        }
    }
}

fn print(output: &mut Output, it: &TopicStatus) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(it),
        Format::Table => {
            output.head(format_args!(
                "{:<32}  {:<12}  {:>10}  {:>12}  DIFFERENCES",
                "NAME", "CATEGORY", "PARTITIONS", "RETENTION"
            ))?;
            let hours = it.retention_ms.map_or_else(|| "-".to_owned(), |ms| format!("{} h", ms / 3_600_000));
            let differences: Vec<&str> = it.differences.iter().map(|difference| &*difference.setting).collect();
            let differences = if differences.is_empty() { "-".to_owned() } else { differences.join(", ") };
            output.text(format_args!(
                "{:<32}  {:<12}  {:>10}  {:>12}  {differences}",
                it.name, it.category, it.partitions, hours
            ))
        }
    }
}

impl Target {
    /// Returns the topics of the tenant.
    pub fn topics(&self) -> Result<Arc<dyn Topics>, Failure> {
        self.port::<dyn Topics>(|client| Arc::new(client.topics()), |opened| opened.host.topics(&self.tenant))
    }
}
