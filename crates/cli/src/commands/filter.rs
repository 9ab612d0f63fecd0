//! `annals filter …`.

use annals::filters::Filters;
use std::path::PathBuf;
use std::sync::Arc;

use annals::filters::{FilterDefinition, FilterName, FilterStatus};
use annals::{ByteString, Code};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::Run;
use super::handler::shown::print_act;
use crate::cli::{Format, Scope};
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::lines;
use crate::output::Output;
use crate::target::Target;
use crate::why::Why;

/// Define and list filters, which fill streams with events of the log
#[derive(Debug, Args)]
pub struct Filter {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Define a filter, or change its definition if the change agrees with the content of its stream
    #[command(
        visible_alias = "register",
        after_help = "A change that contradicts the content of the stream is refused; the message names the first event that differs.\n\nExample:\n  annals filter put orders --type order_placed --type order_paid --partition-by aggregate\n  annals filter put public-orders --type order_placed --public\n  annals filter put orders --file orders.json"
    )]
    Put(Put),
    /// List filters with their position, lag and state
    #[command(after_help = "Example:\n  annals filter list --output table")]
    List,
    /// Print the state of a filter
    #[command(after_help = "Example:\n  annals filter show orders")]
    Show(Named),
    /// List the acts of operators on a filter, newest first, even after its deletion
    #[command(after_help = "Example:\n  annals filter acts orders")]
    Acts(Named),
    /// Delete a filter; its stream keeps its entries and gets no more
    #[command(after_help = "Example:\n  annals filter delete orders --reason 'nobody reads the stream'")]
    Delete(Delete),
}

#[derive(Debug, Args)]
struct Named {
    /// The stream that the filter fills
    stream: String,
    #[command(flatten)]
    scope: Scope,
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
    /// A file with the definition, the body of PUT /v1/filters/STREAM; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["types", "source", "condition", "partition_by", "public", "remote"])]
    file: Option<PathBuf>,
    /// Include only events of this type; may be repeated
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Include only events that match this condition, as JSON
    #[arg(long, value_name = "JSON")]
    condition: Option<String>,
    /// Evaluate the events of this stream instead of the log's
    #[arg(long, value_name = "STREAM")]
    source: Option<String>,
    /// The source of an event's partition: none, aggregate or data.PATH
    #[arg(long, value_name = "WHAT")]
    partition_by: Option<String>,
    /// Make the stream public: partners may see it, and events that are not public are excluded
    #[arg(long)]
    public: bool,
    /// Let a client evaluate the events, which it pulls over HTTP
    #[arg(long)]
    remote: bool,
}

impl Run for Filter {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        match &self.what {
            What::Put(args) => put(context, args).await,
            What::List => list(context).await,
            What::Show(args) => show(context, args).await,
            What::Acts(args) => acts(context, args).await,
            What::Delete(args) => delete(context, args).await,
        }
    }
}

impl Named {
    fn name(&self) -> FilterName {
        FilterName::of_scope(self.scope.scope.as_str(), self.stream.as_str())
    }
}

async fn put(context: &Context, args: &Put) -> Result<(), Stop> {
    let definition = definition(args)?;
    let definition = FilterDefinition::read(&args.of.stream, &args.of.scope.scope, definition.as_bytes())?;
    context
        .writing(async |target, output| {
            let name = definition.name.clone();
            target.filters()?.put(definition).await?;
            print(output, &target.filters()?.get(&name).await?)
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
    for (key, text) in [("source", &args.source), ("partition_by", &args.partition_by)] {
        body.extend(text.iter().map(|text| (key.to_owned(), json!(text))));
    }
    for (key, given) in [("public", args.public), ("remote", args.remote)] {
        body.extend(given.then(|| (key.to_owned(), json!(true))));
    }
    if let Some(condition) = &args.condition {
        let read = serde_json::from_str::<Value>(condition);
        let read = read.map_err(|error| Failure::new(Code::NotJson, format!("--condition is not JSON: {error}")))?;
        body.insert("condition".to_owned(), read);
    }
    Ok(Value::Object(body).to_string())
}

async fn list(context: &Context) -> Result<(), Stop> {
    context
        .reading(annals::DEFAULT_SCOPE, async |target, output| {
            let page = async |after: Option<ByteString>| {
                let page = target.filters()?.list(after.as_deref(), 100).await?;
                Ok((page.items, page.cursor))
            };
            output.pages(page, print).await
        })
        .await
}

async fn show(context: &Context, args: &Named) -> Result<(), Stop> {
    context
        .reading(&args.scope.scope, async |target, output| print(output, &target.filters()?.get(&args.name()).await?))
        .await
}

async fn acts(context: &Context, args: &Named) -> Result<(), Stop> {
    context
        .reading(&args.scope.scope, async |target, output| {
            let page = async |after: Option<ByteString>| {
                let page = target.filters()?.acts(&args.name(), after.as_deref(), 1_000).await?;
                Ok((page.items, page.cursor))
            };
            output.pages(page, print_act).await
        })
        .await
}

async fn delete(context: &Context, args: &Delete) -> Result<(), Stop> {
    context
        .writing(async |target, output| {
            target.filters()?.delete(&args.of.name(), args.why.reason()).await?;
            output.deleted("deleted")
        })
        .await
}

fn print(output: &mut Output, status: &FilterStatus) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(status),
        Format::Table => {
            output.head(format_args!(
                "{:<32}  {:<8}  {:>12}  {:>10}  {:>12}  REASON",
                "STREAM", "STATE", "POSITION", "LAG", "ENTRIES"
            ))?;
            let state = json!(status.state);
            output.text(format_args!(
                "{:<32}  {:<8}  {:>12}  {:>10}  {:>12}  {}",
                FilterName::of_scope(status.scope.clone(), status.stream.clone()).key(),
                state.as_str().unwrap_or_default(),
                status.position,
                status.lag,
                status.entries,
                status.degraded.as_deref().or(status.last_reason.as_deref()).unwrap_or("-")
            ))
        }
    }
}

impl Target {
    /// Returns the filters of the tenant.
    pub fn filters(&self) -> Result<Arc<dyn Filters>, Failure> {
        self.port::<dyn Filters>(|client| Arc::new(client.filters()), |opened| opened.host.filters(&self.tenant))
    }
}
