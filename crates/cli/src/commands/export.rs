//! `annals export` and `annals import --whole`.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use annals::Code;
use annals::operations::{ExportReader, Moved, export as write_export, export_without_records};

use crate::args::{self, Format, Global};
use crate::config::Config;
use crate::failure::{Failure, Stop};
use crate::lines;
use crate::output::Output;
use crate::progress::Progress;
use crate::target::open_store;

pub async fn export(global: &Global, args: &args::Export, config: &Config) -> Result<(), Stop> {
    let to_output = args.file == Path::new("-");
    let mut out: Box<dyn Write + Send> = if to_output { Box::new(io::stdout()) } else { Box::new(create(&args.file)?) };
    let store = match open_store(config, true).await {
        Ok(store) => store,
        Err(failure) => {
            drop_file(args, to_output);
            return Err(failure.into());
        }
    };
    let bar = Progress::of_events();
    let mut buffered = BufWriter::with_capacity(1 << 18, &mut out);
    let progress = &mut |done, all| bar.reach(done, all);
    let moved = match args.without_records {
        true => export_without_records(&*store, &mut buffered, progress).await,
        false => write_export(&*store, &mut buffered, progress).await,
    };
    drop(buffered);
    drop(bar);
    store.close().await;
    if moved.is_ok() && args.without_records {
        let _ = writeln!(io::stderr(), "note: records and streams are left out, as it was asked for");
    }
    match moved {
        Ok(_) if to_output => Ok(()),
        Ok(moved) => print(global, &moved),
        Err(error) => {
            drop_file(args, to_output);
            Err(error.into())
        }
    }
}

/// What was begun is no export.
fn drop_file(args: &args::Export, to_output: bool) {
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

pub async fn import(global: &Global, args: &args::Import, config: &Config) -> Result<(), Stop> {
    if global.server.is_some() {
        let message = "--whole copies into a store, which a server would have open; stop it and name its store";
        return Err(Failure::config(message).into());
    }
    let reader = ExportReader::new(lines::open(&args.file)?)?;
    let mut declared = config.clone();
    for (tenant, scope) in reader.logs() {
        if !declared.tenants.names.contains(&tenant) {
            declared.tenants.names.push(tenant);
        }
        if scope != annals::DEFAULT_SCOPE && !declared.tenants.scopes.contains(&scope) {
            declared.tenants.scopes.push(scope);
        }
    }
    let store = open_store(&declared, false).await?;
    let bar = Progress::of_events();
    let moved = reader.import_into(&*store, &mut |done, all| bar.reach(done, all)).await;
    drop(bar);
    store.close().await;
    let moved = moved?;
    if declared != *config {
        let _ = writeln!(
            io::stderr(),
            "note: the export holds tenants or scopes that are not declared; declare them under [tenants] to use them"
        );
    }
    print(global, &moved)
}

fn print(global: &Global, moved: &Moved) -> Result<(), Stop> {
    let mut output = Output::new(global.output);
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
