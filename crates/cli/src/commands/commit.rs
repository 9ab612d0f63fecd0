//! `annals commit`.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use annals::wire::{CommitAnswer, parse_commit};
use annals::{Code, NewCommit};
use serde_json::json;
use serde_json::value::RawValue;

use crate::args::{Commit, Global};
use crate::config::Config;
use crate::failure::{Failure, Stop};
use crate::lines::{self, Line};
use crate::output::Output;
use crate::pipeline::{AfterRefusal, Outcome, Pipeline};
use crate::target::Target;

pub async fn run(global: &Global, args: &Commit, config: &Config) -> Result<(), Stop> {
    if let Some(aggregate) = &args.aggregate {
        let commit = from_flags(args, aggregate)?;
        commit.validate()?;
        let target = Target::to_write(global, config).await?;
        return target.run(async |target| one(target, commit, Output::new(global.output)).await).await;
    }
    let input = lines::open(args.file.as_deref().unwrap_or(Path::new("-")))?;
    if args.file.is_none() && io::stdin().is_terminal() {
        let _ = writeln!(io::stderr(), "Reading commits as JSON lines from the terminal; end with Ctrl-D.");
    }
    let target = Target::to_write(global, config).await?;
    target.run(async |target| many(target, lines::read(input), Output::new(global.output)).await).await
}

async fn one(target: &Target, commit: NewCommit, mut output: Output) -> Result<(), Stop> {
    let aggregate = commit.aggregate.clone();
    let outcome = target.log.commit(commit).await?;
    output.answer(&aggregate, &CommitAnswer::from(outcome))?;
    output.flush()
}

async fn many(target: &Target, mut lines: tokio::sync::mpsc::Receiver<Line>, mut output: Output) -> Result<(), Stop> {
    let mut pipeline = Pipeline::new(target.log.clone(), AfterRefusal::GoOn);
    let mut first_failure: Option<Code> = None;
    let (mut open, mut answering) = (true, true);
    while open || !pipeline.is_empty() {
        tokio::select! {
            line = lines.recv(), if open && pipeline.has_room() => match line {
                Some(line) => submit(&mut pipeline, line).await,
                None => open = false,
            },
            Some((number, outcome)) = pipeline.next(), if !pipeline.is_empty() => {
                let failure = match outcome {
                    Outcome::Committed(aggregate, outcome) => {
                        output.answer(&aggregate, &CommitAnswer::from(outcome))?;
                        None
                    }
                    Outcome::Refused(failure) => Some(failure),
                    // What follows from it is the same for every line under way, so one report is enough.
                    Outcome::Unanswered(failure) => {
                        open = false;
                        std::mem::take(&mut answering).then_some(failure)
                    }
                    Outcome::HeldBack => None,
                };
                if let Some(failure) = failure {
                    first_failure.get_or_insert(failure.code);
                    output.flush()?;
                    failure.at_line(number).print();
                }
                // Someone may wait for this answer before they write the next line.
                if pipeline.is_empty() {
                    output.flush()?;
                }
            }
        }
    }
    output.flush()?;
    first_failure.map_or(Ok(()), |code| Err(Stop::Reported(code)))
}

async fn submit(pipeline: &mut Pipeline<u64>, line: Line) {
    let number = line.number;
    let parsed = line.text.and_then(|text| Ok((parse_commit(&text)?, text.len())));
    match parsed {
        Ok((commit, bytes)) => pipeline.submit(number, commit, bytes).await,
        Err(failure) => pipeline.refuse(number, failure),
    }
}

/// Makes a body and reads it like any other, so that flags and lines keep the same rules.
fn from_flags(args: &Commit, aggregate: &str) -> Result<NewCommit, Failure> {
    let Some((name, id)) = aggregate.split_once('/') else {
        let message = format!("--aggregate {aggregate:?} has no id; write NAME/ID, for example order/o-1");
        return Err(Failure::new(Code::InvalidId, message));
    };
    let data = RawValue::from_string(args.data.clone().unwrap_or_else(|| "{}".to_owned()))
        .map_err(|error| Failure::new(Code::NotJson, format!("--data: not JSON: {error}")))?;
    let mut body = json!({ "aggregate": { "name": name, "id": id } });
    if let Some(expect) = &args.expect {
        body["expected_version"] = expect.parse::<u64>().map_or_else(|_| json!(expect), |version| json!(version));
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
    let event = Event { event_type: args.event_type.as_deref().unwrap_or_default(), data: &data, tags: &args.tags };
    let body = Body { rest: body, events: [event] };
    let json = serde_json::to_vec(&body).map_err(|error| Failure::internal(error.to_string()))?;
    Ok(parse_commit(&json)?)
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
}
