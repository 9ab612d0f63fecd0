//! `annals type …`.

use annals::types::EventTypes;
use std::path::PathBuf;
use std::sync::Arc;

use annals::ByteString;
use annals::types::{TypeDefinition, TypeStatus, UnknownTypes};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::lines;
use crate::output::Output;
use crate::target::Target;

/// Register and show event types: their schemas and categories
#[derive(Debug, Args)]
pub struct Type {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Register the event types that files define
    #[command(after_help = "Example:\n  annals type register types/order_placed.json")]
    Register(Register),
    /// List event types
    #[command(after_help = "Example:\n  annals type list --output table")]
    List,
    /// Print an event type with all its generations
    #[command(after_help = "Example:\n  annals type show order_placed")]
    Show(Named),
    /// Accept, refuse or quarantine events whose type is not registered
    #[command(after_help = "Example:\n  annals type unknown refuse")]
    Unknown(Unknown),
}

#[derive(Debug, Args)]
struct Register {
    /// JSON files, each with the body of PUT /v1/types/NAME plus a field `name`, or an array of such objects; - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
struct Named {
    /// The type's name
    name: String,
}

#[derive(Debug, Args)]
struct Unknown {
    /// What to do with such events
    what: Choice,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Choice {
    Accept,
    Refuse,
    Quarantine,
}

impl Run for Type {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        match &self.what {
            What::Register(args) => register(context, args).await,
            What::List => context.reading(annals::DEFAULT_SCOPE, list).await,
            What::Show(args) => {
                context
                    .reading(annals::DEFAULT_SCOPE, async |target, output| {
                        output.json(&target.types()?.get(&args.name).await?)
                    })
                    .await
            }
            What::Unknown(args) => unknown(context, args.what).await,
        }
    }
}

/// Reads all files before the first type is registered.
async fn register(context: &Context, args: &Register) -> Result<(), Stop> {
    let mut definitions = Vec::new();
    for file in &args.files {
        let read = TypeDefinition::read_all(lines::text(file)?.as_bytes());
        definitions
            .extend(read.map_err(|invalid| Failure::new(invalid.code, format!("{}: {invalid}", file.display())))?);
    }
    context
        .writing(async |target, output| {
            for definition in definitions {
                let name = definition.name.clone();
                target.types()?.put(definition).await?;
                print(output, &target.types()?.get(&name).await?)?;
            }
            Ok(())
        })
        .await
}

async fn list(target: &Target, output: &mut Output) -> Result<(), Stop> {
    let page = async |after: Option<ByteString>| {
        let page = target.types()?.list(after.as_deref(), 100).await?;
        Ok((page.items, page.cursor))
    };
    output.pages(page, print).await
}

async fn unknown(context: &Context, choice: Choice) -> Result<(), Stop> {
    let unknown = match choice {
        Choice::Accept => UnknownTypes::Accept,
        Choice::Refuse => UnknownTypes::Refuse,
        Choice::Quarantine => UnknownTypes::Quarantine,
    };
    context
        .writing(async |target, output| {
            target.types()?.set_unknown(unknown).await?;
            match output.format() {
                Format::Json => output.json(&json!({ "unknown": unknown }))?,
                Format::Table => output.text(format_args!("{}", json!(unknown).as_str().unwrap_or_default()))?,
            }
            Ok(())
        })
        .await
}

fn print(output: &mut Output, it: &TypeStatus) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(&json!({
            "name": it.name, "id": it.id, "generation": it.generation, "category": it.category, "policy": it.policy,
        })),
        Format::Table => {
            output
                .head(format_args!("{:<32}  {:>10}  {:<12}  {:<8}  ID", "NAME", "GENERATION", "CATEGORY", "POLICY"))?;
            let policy = json!(it.policy);
            output.text(format_args!(
                "{:<32}  {:>10}  {:<12}  {:<8}  {}",
                it.name,
                it.generation,
                it.category,
                policy.as_str().unwrap_or_default(),
                it.id
            ))
        }
    }
}

impl Target {
    /// Returns the event types of the tenant.
    pub fn types(&self) -> Result<Arc<dyn EventTypes>, Failure> {
        self.port::<dyn EventTypes>(
            |client| Arc::new(client.event_types()),
            |opened| opened.store.event_types(&self.tenant),
        )
    }
}
