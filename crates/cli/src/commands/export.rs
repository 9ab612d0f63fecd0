//! `annals export`.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use annals::Code;
use annals::operations::{Moved, export as write_export, export_without_records};
use clap::Args;

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::progress::Progress;

/// Export a whole store as JSON lines, to be imported into another one
#[derive(Debug, Args)]
#[command(
    after_help = "Numbers, ids, times, versions, tenants, scopes, records, indexes and streams are kept; records get new revisions. A \
                  backup is smaller and faster; an export moves a store to another backend. An existing file is never overwritten: the \
                  command is refused.\n\nExample:\n  annals export store.jsonl\n  annals export - | gzip > store.jsonl.gz"
)]
pub struct Export {
    /// The file to write, or - for standard output; an existing file is refused and stays as it is
    file: PathBuf,
    /// Export the events and prepare keys alone, because records and streams are damaged
    #[arg(long)]
    without_records: bool,
}

impl Run for Export {
    const REACHES: Reaches = Reaches::Store;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let to_output = self.file == Path::new("-");
        let mut out: Box<dyn Write + Send> =
            if to_output { Box::new(io::stdout()) } else { Box::new(create(&self.file)?) };
        let store = match context.open_store(true).await {
            Ok(store) => store,
            Err(failure) => {
                drop_file(self, to_output);
                return Err(failure.into());
            }
        };
        let bar = Progress::of_events();
        let mut buffered = BufWriter::with_capacity(1 << 18, &mut out);
        let progress = &mut |done, all| bar.reach(done, all);
        let moved = match self.without_records {
            true => export_without_records(&*store, &mut buffered, progress).await,
            false => write_export(&*store, &mut buffered, progress).await,
        };
        drop(buffered);
        drop(bar);
        store.close().await;
        if moved.is_ok() && self.without_records {
            let _ = writeln!(io::stderr(), "note: records and streams are left out, as it was asked for");
        }
        match moved {
            Ok(_) if to_output => Ok(()),
            Ok(moved) => print(context, &moved),
            Err(error) => {
                drop_file(self, to_output);
                Err(error.into())
            }
        }
    }
}

/// What was begun is no export.
fn drop_file(args: &Export, to_output: bool) {
    if !to_output {
        let _ = fs::remove_file(&args.file);
    }
}

fn create(path: &Path) -> Result<fs::File, Failure> {
    OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let message = format!("{} is there already and was not touched; name a file that is not", path.display());
            Failure::new(Code::FolderNotEmpty, message)
        }
        _ => Failure::config(format!("{} cannot be made: {error}", path.display())),
    })
}

/// Prints what was moved, one line or row per log, collection and stream.
pub fn print(context: &Context, moved: &Moved) -> Result<(), Stop> {
    let mut output = context.output();
    if output.format() == Format::Json {
        moved.logs.iter().try_for_each(|log| output.json(log))?;
        moved.collections.iter().try_for_each(|collection| output.json(collection))?;
        moved.streams.iter().try_for_each(|stream| output.json(stream))?;
        moved.keys.iter().try_for_each(|keys| output.json(keys))?;
        return output.flush();
    }
    output.text(format_args!("{:<20}  {:<12}  {:>12}  EVENTS' HASH", "TENANT", "SCOPE", "EVENTS"))?;
    for log in &moved.logs {
        output.text(format_args!("{:<20}  {:<12}  {:>12}  {}", log.tenant, log.scope, log.head, log.events_hash))?;
    }
    if !moved.collections.is_empty() {
        output.text(format_args!("{:<20}  {:<12}  {:>12}  RECORDS' HASH", "TENANT", "COLLECTION", "RECORDS"))?;
    }
    for it in &moved.collections {
        output.text(format_args!("{:<20}  {:<12}  {:>12}  {}", it.tenant, it.name, it.records, it.records_hash))?;
    }
    if !moved.streams.is_empty() {
        output
            .text(format_args!("{:<20}  {:<12}  {:>12}  {:>12}  STREAM", "TENANT", "SCOPE", "ENTRIES", "JUDGED TO"))?;
    }
    for it in &moved.streams {
        output.text(format_args!(
            "{:<20}  {:<12}  {:>12}  {:>12}  {}",
            it.tenant, it.scope, it.entries, it.progress, it.name
        ))?;
    }
    for it in &moved.keys {
        output.text(format_args!("{:<20}  prepare keys that changed without a commit: {}", it.tenant, it.keys))?;
    }
    output.flush()
}
