//! Reads requests from lines of input. Many are in flight at once, and their outcomes are printed in the order of the lines.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use annals::Code;
use tokio::sync::mpsc::Receiver;

use crate::failure::{Failure, Stop};
use crate::lines::{self, Line, Spread};
use crate::output::Output;
use crate::pipeline::{AfterRefusal, Outcome, Pipeline, Request};
use crate::target::Target;

/// Starts to read a file or standard input. On a terminal, it prints that it waits for `what`.
pub fn read(file: Option<&Path>, what: &str) -> Result<Receiver<Line>, Failure> {
    let input = lines::open(file.unwrap_or(Path::new("-")))?;
    if file.is_none() && io::stdin().is_terminal() {
        let _ = writeln!(io::stderr(), "Reading {what} as JSON lines from the terminal; end with Ctrl-D.");
    }
    Ok(lines::read(input))
}

/// Sends every line to the log. A refused line is reported, and the others continue.
pub async fn send<R: Request>(
    target: &Target,
    mut lines: Receiver<Line>,
    mut output: Output,
    parse: impl Fn(&[u8]) -> Result<R, Failure>,
    print: impl Fn(&mut Output, R::Stored) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut pipeline = Pipeline::new(target.log.clone(), AfterRefusal::GoOn);
    let mut first_failure: Option<Code> = None;
    let mut spread = Spread::default();
    let (mut open, mut answering) = (true, true);
    while open || !pipeline.is_empty() {
        tokio::select! {
            line = lines.recv(), if open && pipeline.has_room() => match line {
                Some(line) => submit(&mut pipeline, &mut spread, line, &parse).await,
                None => open = false,
            },
            Some((number, outcome)) = pipeline.next(), if !pipeline.is_empty() => {
                let failure = match outcome {
                    Outcome::Committed(stored) => {
                        print(&mut output, stored)?;
                        None
                    }
                    Outcome::Refused(failure) => Some(failure),
                    // The consequences are the same for every line in flight, so one report is enough.
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
                // The caller may wait for this answer before writing the next line.
                if pipeline.is_empty() {
                    output.flush()?;
                }
            }
        }
    }
    output.flush()?;
    first_failure.map_or(Ok(()), |code| Err(Stop::Reported(code)))
}

/// Submits a line.
async fn submit<R: Request>(
    pipeline: &mut Pipeline<u64, R>,
    spread: &mut Spread,
    line: Line,
    parse: impl Fn(&[u8]) -> Result<R, Failure>,
) {
    let Line { number, text, .. } = line;
    let text = match text {
        Ok(text) => text,
        Err(failure) => return pipeline.refuse(number, failure),
    };
    match parse(&text) {
        Ok(request) => {
            spread.whole();
            pipeline.submit(number, request, text.len()).await;
        }
        Err(failure) => {
            if let Some(failure) = spread.refused(&text, failure) {
                pipeline.refuse(number, failure);
            }
        }
    }
}
