//! `annals export`.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals::operations::{Moved, export as write_export, export_without_records};
use annals::{Code, Store};
use clap::Args;

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop, note};
use crate::progress::Progress;
use crate::signals;

/// Export a whole store as JSON lines, to be imported into another one
#[derive(Debug, Args)]
#[command(
    after_help = "Numbers, ids, times, versions, tenants, scopes, records, indexes and streams are kept; records get new revisions. A \
                  backup is smaller and faster; an export moves a store to another backend. An existing file is never overwritten: the \
                  command is refused.\n\nExample:\n  annals export store.jsonl\n  annals export - | gzip > store.jsonl.gz"
)]
pub struct Export {
    /// The file to write, or - for standard output; an existing file is refused and left unchanged
    file: PathBuf,
    /// Export only events and prepare keys, if records and streams are damaged
    #[arg(long)]
    without_records: bool,
    /// Export only declared tenants and scopes, even if the store holds logs of others
    #[arg(long)]
    declared_only: bool,
}

impl Run for Export {
    const REACHES: Reaches = Reaches::Store;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        // Catch signals before the unfinished file is created: an earlier signal ends the process with nothing left to delete.
        let stopped = signals::caught()?;
        let destination = Destination::of(&self.file)?;
        let store = context.open_store(true).await?;
        let outcome = match self.left_out(&*store) {
            Ok(()) => self.write(Arc::clone(&store), destination.open()?, stopped).await,
            Err(failure) => Err(failure.into()),
        };
        store.close().await;
        let moved = outcome?;
        if self.without_records {
            note("records and streams are left out, as --without-records says");
        }
        destination.keep()?;
        if destination.file.is_none() { Ok(()) } else { print(context, &moved) }
    }
}

impl Export {
    /// Refuses an export that would silently omit logs of the store.
    fn left_out(&self, store: &dyn Store) -> Result<(), Failure> {
        let undeclared = store.undeclared_logs().map_err(annals::ReadError::from)?;
        let names: Vec<String> = undeclared.iter().map(|(tenant, scope)| format!("{tenant}/{scope}")).collect();
        if names.is_empty() {
            return Ok(());
        }
        let names = names.join(", ");
        if self.declared_only {
            note(&format!("{names} (tenant/scope) are not declared and are left out"));
            return Ok(());
        }
        let message = format!(
            "the store holds logs that are not declared and would be missing from the export: {names} (tenant/scope)"
        );
        let advice = "Declare their tenants and scopes under [tenants], or leave them out with --declared-only.";
        Err(Failure::config(message).advise(advice))
    }

    /// Writes the export in a separate task, so that signals are handled meanwhile.
    async fn write(
        &self,
        store: Arc<dyn Store>,
        out: Box<dyn Write + Send>,
        stopped: impl Future<Output = ()>,
    ) -> Result<Moved, Stop> {
        let without_records = self.without_records;
        let writing = tokio::spawn(async move {
            let bar = Progress::of_events();
            let mut out = BufWriter::with_capacity(1 << 18, out);
            let progress = &mut |done, all| bar.reach(done, all);
            match without_records {
                true => export_without_records(&*store, &mut out, progress).await,
                false => write_export(&*store, &mut out, progress).await,
            }
        });
        tokio::select! {
            moved = writing => {
                Ok(moved.map_err(|error| Failure::internal(format!("the export failed: {error}")))??)
            }
            () = stopped => {
                note(&format!("interrupted; {} was not written", self.file.display()));
                Err(Stop::Interrupted)
            }
        }
    }
}

/// The destination of an export: standard output, or a file that gets its final name once it is complete.
struct Destination<'a> {
    file: Option<&'a Path>,
    unfinished: PathBuf,
}

impl<'a> Destination<'a> {
    /// Returns the destination, and refuses a file that exists.
    fn of(file: &'a Path) -> Result<Self, Failure> {
        let file = (file != Path::new("-")).then_some(file);
        if let Some(path) = file.filter(|path| path.symlink_metadata().is_ok()) {
            return Err(exists(path));
        }
        let mut unfinished = file.map(|path| path.as_os_str().to_owned()).unwrap_or_default();
        unfinished.push(format!(".unfinished-{}", std::process::id()));
        Ok(Self { file, unfinished: unfinished.into() })
    }

    fn open(&self) -> Result<Box<dyn Write + Send>, Failure> {
        let Some(path) = self.file else { return Ok(Box::new(io::stdout())) };
        match OpenOptions::new().write(true).create_new(true).open(&self.unfinished) {
            Ok(file) => Ok(Box::new(file)),
            Err(error) => {
                Err(Failure::new(Code::UnwritableOutput, format!("{} cannot be created: {error}", path.display())))
            }
        }
    }

    /// Gives the complete export its final name. A file that another process has created meanwhile is left alone.
    fn keep(&self) -> Result<(), Failure> {
        let Some(path) = self.file else { return Ok(()) };
        match name(&self.unfinished, path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(path)),
            Err(error) => {
                Err(Failure::new(Code::UnwritableOutput, format!("{} cannot be created: {error}", path.display())))
            }
        }
    }
}

impl Drop for Destination<'_> {
    /// Deletes an incomplete export.
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = fs::remove_file(&self.unfinished);
        }
    }
}

/// Moves a complete file to a name that is free. Fails with `AlreadyExists` if it is not, at whatever moment it was taken: a hard link, in
/// contrast to a rename, never replaces a file.
fn name(unfinished: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(unfinished, path) {
        Ok(()) => {}
        // NFS repeats a request whose response was lost, and the repeated one finds the name that the first one has created.
        Err(_) if is_same_file(unfinished, path) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
        // Some file systems have no hard links, such as FAT. They report this in several ways.
        Err(_) => return name_without_links(unfinished, path),
    }
    // If this fails, the export is complete nevertheless, and the destination deletes the second name when it is dropped.
    let _ = fs::remove_file(unfinished);
    Ok(())
}

/// Returns whether two paths are names of one file. A symbolic link is a file of its own.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (one.symlink_metadata(), other.symlink_metadata()) else { return false };
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Does the same on a file system without hard links: an empty file takes the name, and the rename replaces that file. If the process is
/// killed between the two, the empty file remains.
fn name_without_links(unfinished: &Path, path: &Path) -> io::Result<()> {
    drop(OpenOptions::new().write(true).create_new(true).open(path)?);
    let renamed = fs::rename(unfinished, path);
    if renamed.is_err() {
        let _ = fs::remove_file(path);
    }
    renamed
}

fn exists(path: &Path) -> Failure {
    let message = format!("{} already exists and was not changed; name a new file", path.display());
    Failure::new(Code::FolderNotEmpty, message)
}

/// Prints what was transferred, one line or row per log, collection and stream.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_whose_name_was_created_by_a_request_without_a_response_is_complete() {
        let folder = tempfile::tempdir().expect("a folder");
        let (unfinished, path) = (folder.path().join("unfinished"), folder.path().join("store.jsonl"));
        fs::write(&unfinished, "the export").expect("written");
        fs::hard_link(&unfinished, &path).expect("the first request");
        name(&unfinished, &path).expect("the second request finds its own file");
        assert_eq!(fs::read_to_string(&path).expect("read"), "the export");
        assert!(!unfinished.exists(), "it has one name");
        // A symbolic link to the export has its name from somebody else.
        fs::write(&unfinished, "another export").expect("written");
        let link = folder.path().join("link.jsonl");
        std::os::unix::fs::symlink(&unfinished, &link).expect("linked");
        let refused = name(&unfinished, &link).expect_err("the name is taken");
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&unfinished).expect("read"), "another export");
    }

    #[test]
    fn an_export_never_replaces_a_file_that_another_process_creates_meanwhile() {
        let ways: [fn(&Path, &Path) -> io::Result<()>; 2] = [name, name_without_links];
        for way in ways {
            let folder = tempfile::tempdir().expect("a folder");
            let (unfinished, path) = (folder.path().join("unfinished"), folder.path().join("store.jsonl"));
            fs::write(&unfinished, "the export").expect("written");
            fs::write(&path, "of another process").expect("written");
            let refused = way(&unfinished, &path).expect_err("the name is taken");
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read_to_string(&path).expect("read"), "of another process");
            assert_eq!(fs::read_to_string(&unfinished).expect("read"), "the export");
            fs::remove_file(&path).expect("removed");
            way(&unfinished, &path).expect("the name is free");
            assert_eq!(fs::read_to_string(&path).expect("read"), "the export");
            assert!(!unfinished.exists(), "it has one name");
        }
    }
}
