//! `annals import`.

mod ids;
mod report;
mod whole;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use annals::{Aggregate, Code, CommitOutcome, NewCommit};
use clap::Args;

use self::ids::RequestIds;
use self::report::{Count, Progress};
use super::Run;
use super::commit::parse_line;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop, note};
use crate::lines::{self, Line, Spread};
use crate::output::Output;
use crate::pipeline::{AfterRefusal, Outcome, Pipeline};

/// Import a file of JSON lines, each a body of POST /v1/commits; or, with --whole, an export of another store
#[derive(Debug, Args)]
#[command(
    after_help = "Ids and times in the file are kept. Many lines are in flight at once; the lines of one aggregate are stored in order. A line \
                  without request_id gets one that is derived from the digest of the file and the line number, so that you can repeat an \
                  interrupted import: lines that are already stored count as duplicates. If you change the file, its digest changes: then use \
                  --id-prefix with the prefix of the first import.\n\nWith --whole, every commit is copied with its sequence numbers, ids, \
                  times and version. The target must be a new store, or a store that an interrupted import of the same export began. \
                  At the end the hashes of the logs are compared. If the import fails, the message states what was written, and you can \
                  run it again.\n\nExample:\n  annals \
                  import history.jsonl\n  zcat history.jsonl.gz | annals import - --id-prefix history-2025\n  annals import --whole \
                  store.jsonl --store embedded:./new"
)]
pub struct Import {
    /// The file, or - for standard input
    file: PathBuf,
    /// Import an export of a whole store directly into a store; does not work with --server
    #[arg(long, conflicts_with_all = ["id_prefix", "keep_going"])]
    whole: bool,
    /// Give lines without a request id the id PREFIX:LINE_NUMBER; required for such lines on standard input
    #[arg(long, value_name = "PREFIX")]
    id_prefix: Option<String>,
    /// Continue after refused lines
    #[arg(long)]
    keep_going: bool,
    /// Write refused lines to this file, unchanged
    #[arg(long, value_name = "FILE", requires = "keep_going")]
    rejects: Option<PathBuf>,
}

impl Run for Import {
    const REACHES: Reaches = Reaches::ServerOrStore;

    fn reaches(&self) -> Reaches {
        if self.whole { Reaches::Store } else { Self::REACHES }
    }

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        if self.whole {
            return whole::run(context, &self.file).await;
        }
        let input = lines::open(&self.file)?;
        let ids = RequestIds::new(&self.file, self.id_prefix.as_deref());
        let rejects = self.rejects.as_deref().map(create).transpose()?;
        let progress = Progress::new(&self.file);
        let target = context.to_write().await?;
        let output = context.output();
        target
            .run(async |target| {
                let after = if self.keep_going { AfterRefusal::GoOn } else { AfterRefusal::HoldBack };
                let pipeline = Pipeline::new(target.log.clone(), after);
                let (keep_going, remote) = (self.keep_going, target.is_remote());
                let import = Lines {
                    pipeline,
                    ids,
                    rejects,
                    keep_going,
                    remote,
                    progress,
                    count: Count::default(),
                    spread: Spread::default(),
                };
                import.all(lines::read(input), output).await
            })
            .await
    }
}

/// What the import remembers about a line until its outcome is known.
struct Tag {
    number: u64,
    end: u64,
    /// The original line, if it may have to be written to the rejects.
    text: Option<Vec<u8>>,
    /// Whether it is a further piece of a document that was refused.
    piece: bool,
}

/// Creates the file of rejects. An existing file is refused, so that the rejects of an earlier import are never overwritten.
fn create(path: &Path) -> Result<File, Failure> {
    OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| {
        let message = format!("--rejects {}: {error}; name a file that does not exist yet", path.display());
        Failure::config(message)
    })
}

struct Lines {
    pipeline: Pipeline<Tag>,
    ids: RequestIds,
    rejects: Option<File>,
    keep_going: bool,
    remote: bool,
    progress: Progress,
    count: Count,
    spread: Spread,
}

impl Lines {
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
            // A corrected file has another digest, so its lines would get other request ids and be committed twice.
            note(&format!(
                "to import a corrected file, keep every line at its line number and add --id-prefix {prefix}, \
                 because without it the lines that are already stored would be committed a second time"
            ));
        }
        self.count.print(&mut output)?;
        self.count.first_failure.map_or(Ok(()), |code| Err(Stop::Reported(code)))
    }

    /// Submits a line. Returns whether to continue reading.
    async fn submit(&mut self, line: Line) -> bool {
        let Line { number, end, text } = line;
        let parsed = match &text {
            Ok(text) => self.parse(number, text).await.map(|commit| (commit, text.len())),
            Err(failure) => Err(failure.clone()),
        };
        let mut tag = Tag { number, end, text: None, piece: false };
        let (commit, bytes) = match parsed {
            Ok(parsed) => parsed,
            Err(failure) => {
                let reported = match &text {
                    Ok(text) => self.spread.refused(text, failure.clone()),
                    Err(failure) => Some(failure.clone()),
                };
                tag.piece = reported.is_none();
                tag.text = self.kept(text);
                self.pipeline.refuse(tag, reported.unwrap_or(failure));
                return self.keep_going;
            }
        };
        self.spread.whole();
        tag.text = self.kept(text);
        self.pipeline.submit(tag, commit, bytes).await;
        true
    }

    /// Returns the text of a line that may have to be written to the rejects.
    fn kept(&self, text: Result<Vec<u8>, Failure>) -> Option<Vec<u8>> {
        text.ok().filter(|_| self.rejects.is_some())
    }

    async fn parse(&mut self, number: u64, text: &[u8]) -> Result<NewCommit, Failure> {
        if text.starts_with(b"{\"annals_export\":") {
            let message = "is the header of an export of a whole store; import it with --whole";
            return Err(Failure::new(Code::InvalidBody, message));
        }
        let mut commit = parse_line(text, self.remote)?;
        if commit.request_id.is_none() {
            commit.request_id = Some(self.ids.of_line(number).await?.into());
        }
        Ok(commit)
    }

    /// Counts and reports a line. Returns whether to continue reading.
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
                // The consequences are the same for every line in flight, so one report is enough.
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
        if !tag.piece {
            self.progress.pause(|| failure.at_line(tag.number).print());
        }
        Ok(self.keep_going)
    }
}
