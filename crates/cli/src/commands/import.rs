//! `annals import`.

mod ids;
mod report;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use annals::{Aggregate, Code, CommitOutcome, NewCommit};

use self::ids::RequestIds;
use self::report::{Count, Progress};
use crate::args::{Global, Import};
use crate::commands::commit::parse_line;
use crate::config::Config;
use crate::failure::{Failure, Stop};
use crate::lines::{self, Line};
use crate::output::Output;
use crate::pipeline::{AfterRefusal, Outcome, Pipeline};
use crate::target::Target;

/// What is remembered of a line until it is answered.
struct Tag {
    number: u64,
    end: u64,
    /// The line as it was, if it may have to be written to the rejects.
    text: Option<Vec<u8>>,
}

pub async fn run(global: &Global, args: &Import, config: &Config) -> Result<(), Stop> {
    let input = lines::open(&args.file)?;
    let ids = RequestIds::new(&args.file, args.id_prefix.as_deref());
    let rejects = args.rejects.as_deref().map(create).transpose()?;
    let progress = Progress::new(&args.file);
    let target = Target::to_write(global, config).await?;
    let output = Output::new(global.output);
    target
        .run(async |target| {
            let after = if args.keep_going { AfterRefusal::GoOn } else { AfterRefusal::HoldBack };
            let pipeline = Pipeline::new(target.log.clone(), after);
            let (keep_going, remote) = (args.keep_going, target.is_remote());
            let run = Run { pipeline, ids, rejects, keep_going, remote, progress, count: Count::default() };
            run.all(lines::read(input), output).await
        })
        .await
}

/// Takes care not to write over what an earlier import could not take.
fn create(path: &Path) -> Result<File, Failure> {
    OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| {
        let message = format!("--rejects {}: {error}; name a file that does not exist yet", path.display());
        Failure::config(message)
    })
}

struct Run {
    pipeline: Pipeline<Tag>,
    ids: RequestIds,
    rejects: Option<File>,
    keep_going: bool,
    remote: bool,
    progress: Progress,
    count: Count,
}

impl Run {
    async fn all(mut self, mut lines: tokio::sync::mpsc::Receiver<Line>, mut output: Output) -> Result<(), Stop> {
        let mut open = true;
        while open || !self.pipeline.is_empty() {
            tokio::select! {
                line = lines.recv(), if open && self.pipeline.has_room() => match line {
                    Some(line) => open = self.submit(line).await,
                    None => open = false,
                },
                Some((tag, outcome)) = self.pipeline.next(), if !self.pipeline.is_empty() => {
                    open &= self.answered(tag, outcome)?;
                }
            }
        }
        self.progress.finish();
        if self.count.has_refused()
            && let Some(prefix) = self.ids.made_prefix()
        {
            // A corrected file has another digest, so its lines would be other requests and be committed twice.
            let _ = writeln!(
                std::io::stderr(),
                "note: to correct this file and import it again, leave every line at its number and add --id-prefix \
                 {prefix}, or what is in the log already would be committed once more"
            );
        }
        self.count.print(&mut output)?;
        self.count.first_failure.map_or(Ok(()), |code| Err(Stop::Reported(code)))
    }

    /// Puts a line under way; says whether to go on reading.
    async fn submit(&mut self, line: Line) -> bool {
        let Line { number, end, text } = line;
        let parsed = match &text {
            Ok(text) => self.parse(number, text).await.map(|commit| (commit, text.len())),
            Err(failure) => Err(failure.clone()),
        };
        let tag = Tag { number, end, text: text.ok().filter(|_| self.rejects.is_some()) };
        match parsed {
            Ok((commit, bytes)) => {
                self.pipeline.submit(tag, commit, bytes).await;
                true
            }
            Err(failure) => {
                self.pipeline.refuse(tag, failure);
                self.keep_going
            }
        }
    }

    async fn parse(&mut self, number: u64, text: &[u8]) -> Result<NewCommit, Failure> {
        if text.starts_with(b"{\"annals_export\":") {
            let message = "is the beginning of an export of a whole store, and of no commits; import it with --whole";
            return Err(Failure::new(Code::InvalidBody, message));
        }
        let mut commit = parse_line(text, self.remote)?;
        if commit.request_id.is_none() {
            commit.request_id = Some(self.ids.of_line(number).await?.into());
        }
        Ok(commit)
    }

    /// Counts and reports a line; says whether to go on reading.
    fn answered(&mut self, tag: Tag, outcome: Outcome<(Aggregate, CommitOutcome)>) -> Result<bool, Stop> {
        self.progress.reach(tag.end);
        let failure = match outcome {
            Outcome::Committed((_, outcome)) => {
                self.count.stored(&outcome);
                return Ok(true);
            }
            Outcome::HeldBack => {
                self.count.held_back += 1;
                return Ok(false);
            }
            Outcome::Unanswered(failure) => {
                // What follows from it is the same for every line under way, so one report is enough.
                if self.count.unanswered(failure.code) {
                    self.progress.pause(|| failure.at_line(tag.number).print());
                }
                return Ok(false);
            }
            Outcome::Refused(failure) => failure,
        };
        self.count.refused(failure.code);
        if let Some(rejects) = &mut self.rejects {
            let text = tag.text.unwrap_or_default();
            let wrote = rejects.write_all(&text).and_then(|()| rejects.write_all(b"\n"));
            wrote.map_err(|error| Failure::new(Code::Internal, format!("--rejects: {error}")))?;
        }
        self.progress.pause(|| failure.at_line(tag.number).print());
        Ok(self.keep_going)
    }
}
