//! `annals saga …`.

mod same_lines;

use std::path::PathBuf;
use std::sync::Arc;

use annals::ByteString;
use annals::sagas::{SagaDefinition, SagaDefinitionStatus, SagaQuery, SagaState, SagaStatus, Sagas};
use clap::{Args, Subcommand};
use serde_json::json;

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::lines;
use crate::output::Output;
use crate::target::Target;
use crate::why::Why;

/// Define, show, cancel and retry sagas
#[derive(Debug, Args)]
pub struct Saga {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Define sagas, or add a version with which new sagas begin
    #[command(after_help = "Example:\n  annals saga define order --file order.toml")]
    Define(Define),
    /// List the definitions with position, lag and the number of sagas
    #[command(after_help = "Example:\n  annals saga definitions --output table")]
    Definitions,
    /// Print a definition and its state
    #[command(after_help = "Example:\n  annals saga definition order")]
    Definition(Named),
    /// Delete a definition all of whose sagas have ended
    #[command(after_help = "Example:\n  annals saga delete order --reason 'nobody orders any more'")]
    Delete(Operate),
    /// List sagas, newest first
    #[command(after_help = "Example:\n  annals saga list --state compensating --output table")]
    List(List),
    /// Print a saga with the timeline of its steps
    #[command(after_help = "Example:\n  annals saga show 4d5c7a52-3c38-5d0a-8f6e-0a4b62f2a3c1")]
    Show(Named),
    /// Cancel a saga: its completed steps are undone
    #[command(
        after_help = "Example:\n  annals saga cancel 4d5c7a52-3c38-5d0a-8f6e-0a4b62f2a3c1 --reason 'ordered by mistake'"
    )]
    Cancel(Operate),
    /// Retry a waiting step or compensation immediately
    #[command(
        after_help = "Example:\n  annals saga retry 4d5c7a52-3c38-5d0a-8f6e-0a4b62f2a3c1 --reason 'the bank is up again'"
    )]
    Retry(Operate),
    /// Count sagas by state
    #[command(after_help = "Example:\n  annals saga statistics --name order")]
    Statistics(Counted),
}

#[derive(Debug, Args)]
struct Named {
    /// The name of the definition, or the id of the saga
    name: String,
}

#[derive(Debug, Args)]
struct Operate {
    /// The name of the definition, or the id of the saga
    name: String,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
struct Define {
    /// The name of the definition
    name: String,
    /// A file with the definition as JSON, or as TOML if its name ends in .toml; - for JSON from standard input
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
}

#[derive(Debug, Args)]
struct List {
    /// Only sagas of this definition
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only sagas in this state
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Option<SagaState>,
    /// Only sagas of this correlation
    #[arg(long, value_name = "ID")]
    execution_id: Option<String>,
    /// Only sagas with a compensation that needs an operator
    #[arg(long)]
    parked: bool,
}

#[derive(Debug, Args)]
struct Counted {
    /// Only sagas of this definition
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

fn state(name: &str) -> Result<SagaState, String> {
    let known = || SagaState::ALL.map(SagaState::name).join(", ");
    SagaState::from_name(name).ok_or_else(|| format!("the states are {}", known()))
}

impl Run for Saga {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let definition = match &self.what {
            What::Define(args) => Some(read(args)?),
            _ => None,
        };
        let changes = matches!(self.what, What::Define(_) | What::Delete(_) | What::Cancel(_) | What::Retry(_));
        let target = match changes {
            true => context.to_write().await?,
            false => context.to_read(annals::DEFAULT_SCOPE).await?,
        };
        target
            .run(async |target| {
                let mut output = context.output();
                self.work(&*target.sagas()?, definition, &mut output).await?;
                output.flush()
            })
            .await
    }
}

impl Saga {
    async fn work(
        &self,
        sagas: &dyn Sagas,
        definition: Option<SagaDefinition>,
        output: &mut Output,
    ) -> Result<(), Stop> {
        match &self.what {
            What::Define(args) => {
                if let Some(definition) = definition {
                    sagas.define(definition).await?;
                }
                print_definition(output, &sagas.definition(&args.name).await?)
            }
            What::Definitions => definitions(sagas, output).await,
            What::Definition(args) => print_definition(output, &sagas.definition(&args.name).await?),
            What::Delete(args) => {
                sagas.delete_definition(&args.name, args.why.reason()).await?;
                match output.format() {
                    Format::Json => output.json(&json!({ "deleted": true })),
                    Format::Table => output.text(format_args!("deleted")),
                }
            }
            What::List(args) => list(sagas, output, args).await,
            What::Show(args) => show(output, &sagas.get(&args.name).await?),
            What::Cancel(args) => show(output, &sagas.cancel(&args.name, args.why.reason()).await?),
            What::Retry(args) => show(output, &sagas.retry(&args.name, args.why.reason()).await?),
            What::Statistics(args) => output.json(&sagas.statistics(args.name.as_deref()).await?),
        }
    }
}

fn read(args: &Define) -> Result<SagaDefinition, Stop> {
    let mut text = lines::text(&args.file)?;
    if args.file.extension().is_some_and(|extension| extension == "toml") {
        let not_toml = |why: String| annals::Invalid::new(annals::Code::InvalidSaga, "", why);
        text = same_lines::json_of_toml(&text).map_err(not_toml)?;
    }
    Ok(SagaDefinition::read(&args.name, text.as_bytes())?)
}

async fn definitions(sagas: &dyn Sagas, output: &mut Output) -> Result<(), Stop> {
    let mut after: Option<ByteString> = None;
    loop {
        let page = sagas.definitions(after.as_deref(), 100).await?;
        page.items.iter().try_for_each(|status| print_definition(output, status))?;
        after = page.cursor;
        if after.is_none() {
            return Ok(());
        }
    }
}

async fn list(sagas: &dyn Sagas, output: &mut Output, args: &List) -> Result<(), Stop> {
    let mut query = SagaQuery {
        name: args.name.clone(),
        state: args.state,
        execution_id: args.execution_id.clone(),
        parked: args.parked,
        limit: 1_000,
        cursor: None,
    };
    loop {
        let page = sagas.list(query.clone()).await?;
        page.items.iter().try_for_each(|status| print(output, status))?;
        query.cursor = page.cursor;
        if query.cursor.is_none() {
            return Ok(());
        }
    }
}

fn print_definition(output: &mut Output, status: &SagaDefinitionStatus) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(status),
        Format::Table => {
            output.head(format_args!(
                "{:<24}  {:>7}  {:>12}  {:>10}  {:>8}  {:>8}  OWNER",
                "NAME", "VERSION", "POSITION", "LAG", "ACTIVE", "PARKED"
            ))?;
            output.text(format_args!(
                "{:<24}  {:>7}  {:>12}  {:>10}  {:>8}  {:>8}  {}",
                status.name,
                status.version,
                status.position,
                status.lag,
                status.active,
                status.parked,
                status.owner.as_deref().unwrap_or("-")
            ))
        }
    }
}

fn print(output: &mut Output, status: &SagaStatus) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(status),
        Format::Table => {
            output.head(format_args!(
                "{:<36}  {:<20}  {:<20}  {:<12}  {:<20}  CAUSE",
                "ID", "NAME", "EXECUTION", "STATE", "STEP"
            ))?;
            output.text(format_args!(
                "{:<36}  {:<20}  {:<20}  {:<12}  {:<20}  {}",
                status.id,
                status.name,
                status.execution_id,
                status.state.name(),
                status.current_step.as_deref().unwrap_or("-"),
                status.cause.as_deref().unwrap_or("-")
            ))
        }
    }
}

/// Prints a saga. As a table, prints its timeline.
fn show(output: &mut Output, status: &SagaStatus) -> Result<(), Stop> {
    if let Format::Json = output.format() {
        return output.json(status);
    }
    output.head(format_args!(
        "{:<24}  {:<12}  {:<10}  {:>7}  {:<24}  REASON",
        "STEP", "KIND", "STATE", "ATTEMPT", "AT"
    ))?;
    for step in &status.steps {
        output.text(format_args!(
            "{:<24}  {:<12}  {:<10}  {:>7}  {:<24}  {}",
            step.name,
            step.kind,
            step.state,
            step.attempt,
            step.at,
            step.reason.as_deref().unwrap_or("-")
        ))?;
    }
    Ok(())
}

impl Target {
    /// Returns the sagas of the tenant.
    pub fn sagas(&self) -> Result<Arc<dyn Sagas>, Failure> {
        self.port::<dyn Sagas>(
            |client| Arc::new(client.sagas()),
            |opened| Ok(opened.host.sagas(&self.tenant)? as Arc<dyn Sagas>),
        )
    }
}
