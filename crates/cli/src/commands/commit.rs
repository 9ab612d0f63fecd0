//! `annals commit`.

use annals::wire::{CommitAnswer, parse_commit};
use annals::{Aggregate, Code, CommitOutcome, NewCommit, Reached, until_snapshot};
use serde_json::json;
use serde_json::value::RawValue;

use crate::args::{Commit, Global};
use crate::config::Config;
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::requests;
use crate::target::Target;

pub async fn run(global: &Global, args: &Commit, config: &Config) -> Result<(), Stop> {
    if let Some(aggregate) = &args.aggregate {
        let commit = from_flags(args, aggregate)?;
        commit.validate()?;
        let target = Target::to_write(global, config).await?;
        return target.run(async |target| one(target, commit, Output::new(global.output)).await).await;
    }
    let lines = requests::read(args.file.as_deref(), "commits")?;
    let target = Target::to_write(global, config).await?;
    let remote = target.is_remote();
    let parse = |text: &[u8]| parse_line(text, remote);
    let print = |output: &mut Output, (aggregate, outcome): (Aggregate, CommitOutcome)| {
        output.answer(&aggregate, &CommitAnswer::from(outcome))
    };
    target.run(async |target| requests::send(target, lines, Output::new(global.output), parse, print).await).await
}

/// The commit of a line, for a server or for a store that this process has opened.
///
/// Lines are many under way at once, and one that waited for its snapshot would hold up the others of its aggregate: a server has
/// connections for that.
pub fn parse_line(text: &[u8], remote: bool) -> Result<NewCommit, Failure> {
    let commit = parse_commit(text)?;
    if commit.wait.until == Reached::Snapshot && !remote {
        let message = "lines for a store that this command opens itself wait for \"committed\" or \"logged\"; for \"snapshot\" \
                       send them to a server (--server), or make the commit by flags (--aggregate … --wait snapshot)";
        return Err(Failure::new(Code::InvalidWait, format!("wait.for: {message}")));
    }
    Ok(commit)
}

async fn one(target: &Target, commit: NewCommit, mut output: Output) -> Result<(), Stop> {
    let (aggregate, wait) = (commit.aggregate.clone(), commit.wait);
    let time_is_up = std::pin::pin!(tokio::time::sleep(wait.time()));
    let mut outcome = target.log.commit(commit).await?;
    if wait.until == Reached::Snapshot && !target.is_remote() {
        until_snapshot(&mut outcome, &aggregate, &*target.snapshots, time_is_up).await;
    }
    output.answer(&aggregate, &CommitAnswer::from(outcome))?;
    output.flush()
}

/// Makes a body and reads it like any other, so that flags and lines keep the same rules.
fn from_flags(args: &Commit, aggregate: &str) -> Result<NewCommit, Failure> {
    let Some((name, id)) = aggregate.split_once('/') else {
        let message = format!("--aggregate {aggregate:?} has no id; write NAME/ID, for example order/o-1");
        return Err(Failure::new(Code::InvalidId, message));
    };
    let data = raw("--data", args.data.as_deref().unwrap_or("{}"))?;
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
    /// As it was typed: a parsed value would lose keys given twice and round wide integers.
    data: &'a RawValue,
    tags: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}
