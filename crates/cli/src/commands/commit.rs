//! `annals commit`.

use std::io::Read;
use std::path::{Path, PathBuf};

use annals::runtime::Host;
use annals::wire::{CommitAnswer, parse_commit};
use annals::{Aggregate, Code, CommitOutcome, NewCommit, limits};
use clap::Args;
use serde_json::json;
use serde_json::value::RawValue;

use super::Run;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::target::Target;
use crate::{lines, requests};

/// Commit events: JSON lines, each a body of POST /v1/commits, or one event from flags
#[derive(Debug, Args)]
#[command(
    after_help = "Results are printed in the order of the lines. Lines of one aggregate are committed in their order; a line with an \
                  append_condition or prepare keys is committed after every line before it and before every line after it. A refused line \
                  is reported and the other lines continue; the exit code is that of the first refusal.\n\nExample:\n  annals commit \
                  --aggregate order/o-1 --type order_placed --data '{\"total\": 12.5}' --expect empty\n  annals commit --server \
                  http://127.0.0.1:4000 < commits.jsonl"
)]
pub struct Commit {
    /// A file of JSON lines; standard input when neither it nor --aggregate is given
    #[arg(long, value_name = "FILE", conflicts_with = "aggregate")]
    file: Option<PathBuf>,
    /// The aggregate of one event given by flags
    #[arg(long, value_name = "NAME/ID", requires = "event_type")]
    aggregate: Option<String>,
    /// The event's type
    #[arg(long = "type", id = "event_type", value_name = "TYPE", requires = "aggregate")]
    event_type: Option<String>,
    /// The event's data: a JSON object, @FILE for a file that contains one, or @- for standard input [default: {}]
    #[arg(long, value_name = "JSON|@FILE", requires = "aggregate")]
    data: Option<String>,
    /// A tag of the event; may be repeated
    #[arg(long = "tag", value_name = "TAG", requires = "aggregate")]
    tags: Vec<String>,
    /// The event's metadata: a JSON object of strings and numbers
    #[arg(long, value_name = "JSON", requires = "aggregate")]
    metadata: Option<String>,
    /// The version the aggregate must have: a number, any, empty or exists
    #[arg(long, value_name = "VERSION", requires = "aggregate", allow_hyphen_values = true)]
    expect: Option<String>,
    /// The id of the request: a repeat returns the first outcome and adds nothing
    #[arg(long, value_name = "ID", requires = "aggregate")]
    request_id: Option<String>,
    /// The stage to wait for: committed (stored), logged (has its sequence number), snapshot (the aggregate's snapshot has reached it),
    /// published (its events are on their topics), handled:NAME (the handler has handled its events) or projected:NAME (its events are in
    /// the projection's records)
    #[arg(long, value_name = "STAGE", requires = "aggregate")]
    wait: Option<String>,
    /// The id that correlates everything with the same cause
    #[arg(long, value_name = "ID", requires = "aggregate")]
    correlation_id: Option<String>,
    /// The id of the direct cause
    #[arg(long, value_name = "ID", requires = "aggregate")]
    causation_id: Option<String>,
}

impl Run for Commit {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        if let Some(aggregate) = &self.aggregate {
            let commit = from_flags(self, aggregate)?;
            commit.validate()?;
            let target = context.to_write().await?;
            return target.run(async |target| one(target, commit, context.output()).await).await;
        }
        let lines = requests::read(self.file.as_deref(), "commits")?;
        let target = context.to_write().await?;
        let remote = target.is_remote();
        let parse = |text: &[u8]| parse_line(text, remote);
        let print = |output: &mut Output, (aggregate, outcome): (Aggregate, CommitOutcome)| {
            output.answer(&aggregate, &CommitAnswer::from(outcome))
        };
        target.run(async |target| requests::send(target, lines, context.output(), parse, print).await).await
    }
}

/// Parses a line into a commit, for a server or for a store that this process has opened.
///
/// In a store of this process, lines must not wait for a named stage: many are in flight at once, and one that waited would delay the
/// others of its aggregate. A server has connections for that.
pub fn parse_line(text: &[u8], remote: bool) -> Result<NewCommit, Failure> {
    let commit = parse_commit(text)?;
    if let Some(stage) = commit.wait.until.stage()
        && !remote
    {
        annals::runtime::check_stage(stage)?;
        let message = format!(
            "lines for a store that this command opens itself wait for \"committed\" or \"logged\"; for {stage:?} send them to a \
             server (--server), or make the commit by flags (--aggregate … --wait {stage})",
            stage = &**stage
        );
        return Err(Failure::new(Code::InvalidWait, format!("wait.for: {message}")));
    }
    Ok(commit)
}

async fn one(target: &Target, commit: NewCommit, mut output: Output) -> Result<(), Stop> {
    let aggregate = commit.aggregate.clone();
    let outcome = match (target.host(), commit.wait.until.stage().cloned()) {
        (Some(host), Some(stage)) => until_stage(target, host, commit, &stage).await?,
        _ => target.log.commit(commit).await?,
    };
    output.answer(&aggregate, &CommitAnswer::from(outcome))?;
    output.flush()
}

/// Commits to a store of this process and waits for the stage, as a server would.
async fn until_stage(target: &Target, host: &Host, commit: NewCommit, stage: &str) -> Result<CommitOutcome, Failure> {
    let stage = host.stage(&target.tenant, stage).await?;
    let (aggregate, at_most) = (commit.aggregate.clone(), commit.wait.time());
    let mut outcome = target.log.commit(commit).await?;
    stage.wait(&aggregate, &mut outcome, at_most).await;
    Ok(outcome)
}

/// Builds a request body from the flags and parses it like any other, so that flags and lines follow the same rules.
fn from_flags(args: &Commit, aggregate: &str) -> Result<NewCommit, Failure> {
    let Some((name, id)) = aggregate.split_once('/') else {
        let message = format!("--aggregate {aggregate:?} has no id; write NAME/ID, for example order/o-1");
        return Err(Failure::new(Code::InvalidId, message));
    };
    let data = raw("--data", &data(args.data.as_deref())?)?;
    let metadata = args.metadata.as_deref().map(|given| raw("--metadata", given)).transpose()?;
    let mut body = json!({ "aggregate": { "name": name, "id": id } });
    if let Some(expect) = &args.expect {
        body["expected_version"] = expect.parse::<u64>().map_or_else(|_| json!(expect), |version| json!(version));
    }
    if let Some(stage) = &args.wait {
        body["wait"] = json!({ "for": stage });
    }
    for (key, value) in [
        ("request_id", &args.request_id),
        ("correlation_id", &args.correlation_id),
        ("causation_id", &args.causation_id),
    ] {
        if let Some(value) = value {
            body[key] = json!(value);
        }
    }
    let event_type = args.event_type.as_deref().unwrap_or_default();
    let event = Event { event_type, data: &data, tags: &args.tags, metadata: metadata.as_deref() };
    let body = Body { rest: body, events: [event] };
    let json = serde_json::to_vec(&body).map_err(|error| Failure::internal(error.to_string()))?;
    Ok(parse_commit(&json)?)
}

/// Returns the text of `--data`: the argument itself, or the content of the file named after `@`.
fn data(given: Option<&str>) -> Result<String, Failure> {
    let Some(given) = given else { return Ok("{}".to_owned()) };
    let Some(file) = given.strip_prefix('@') else { return Ok(given.to_owned()) };
    let mut text = String::new();
    let read = lines::open(Path::new(file))?
        .take(limits::BODY_BYTES_MAX as u64 + 1)
        .read_to_string(&mut text)
        .map_err(|error| lines::unreadable(Path::new(file), &error))?;
    if read > limits::BODY_BYTES_MAX {
        let message = format!("--data {given}: more than {} bytes", limits::BODY_BYTES_MAX);
        return Err(Failure::new(Code::EventTooLarge, message));
    }
    Ok(text)
}

fn raw(flag: &str, json: &str) -> Result<Box<RawValue>, Failure> {
    RawValue::from_string(json.to_owned())
        .map_err(|error| Failure::new(Code::NotJson, format!("{flag}: not JSON: {error}")))
}

#[derive(serde::Serialize)]
struct Body<'a> {
    #[serde(flatten)]
    rest: serde_json::Value,
    events: [Event<'a>; 1],
}

#[derive(serde::Serialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    event_type: &'a str,
    /// Kept as typed: a parsed value would lose duplicate keys and round wide integers.
    data: &'a RawValue,
    tags: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}
