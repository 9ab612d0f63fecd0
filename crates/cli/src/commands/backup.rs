//! `annals backup` and `annals restore`.

use annals::operations::{self, Manifest, Receiver, Restored};
use annals::{Client, Code, DEFAULT_SCOPE};

use crate::args::{self, Format, Global};
use crate::config::Config;
use crate::failure::{Failure, Stop, written};
use crate::output::Output;
use crate::progress::Progress;
use crate::target::open_store;

pub async fn backup(global: &Global, args: &args::Backup, config: &Config) -> Result<(), Stop> {
    // Looked at first: a place that cannot take it should not cost a start of the store.
    let receiver = operations::keep_backup(&args.to)?;
    if args.without_records && receiver.earlier().is_some() {
        let message = "the folder holds an earlier backup, which may have the records; name a new file or folder";
        return Err(Failure::new(Code::FolderNotEmpty, message).into());
    }
    let manifest = match &global.server {
        Some(server) => of_server(server, &global.tenant, args.without_records, receiver).await?,
        None => of_store(config, args.without_records, receiver).await?,
    };
    for left_out in &manifest.left_out {
        let why = match left_out.ends_with("/_engine") {
            true => "records and streams are left out, as it was asked for",
            false => "it is not declared; declare it to have it there",
        };
        let note = format!("note: {left_out} is not in the backup: {why}");
        written(std::io::Write::write_all(&mut std::io::stderr(), format!("{note}\n").as_bytes()))?;
    }
    let mut output = Output::new(global.output);
    print_backup(&mut output, &manifest)?;
    output.flush()
}

async fn of_server(
    server: &str,
    tenant: &str,
    without_records: bool,
    mut receiver: Receiver,
) -> Result<Manifest, Stop> {
    let client = Client::new(server, tenant, DEFAULT_SCOPE)?;
    let mut stream = match without_records {
        true => client.backup_without_records().await?,
        false => client.backup(receiver.earlier().map(<[u8]>::to_vec)).await?,
    };
    let bar = Progress::of_bytes();
    let mut done = 0;
    while let Some(piece) = stream.next().await.map_err(annals::ReadError::from)? {
        done += piece.len() as u64;
        bar.reach(done, done);
        receiver.push(&piece)?;
    }
    Ok(receiver.finish()?)
}

async fn of_store(config: &Config, without_records: bool, mut receiver: Receiver) -> Result<Manifest, Stop> {
    let store = open_store(config, true).await?;
    let taken = (|| {
        let begun = match without_records {
            true => store.backup_without_records(),
            false => store.backup(receiver.earlier()),
        };
        let mut backup = begun.map_err(annals::ReadError::from)?;
        let bar = Progress::of_bytes();
        let (mut done, all) = (0, backup.total_bytes());
        while let Some(piece) = backup.next().map_err(annals::ReadError::from)? {
            done += piece.len() as u64;
            bar.reach(done.min(all), all);
            receiver.push(&piece)?;
        }
        Ok::<_, Failure>(receiver.finish()?)
    })();
    store.close().await;
    Ok(taken?)
}

fn print_backup(output: &mut Output, manifest: &Manifest) -> Result<(), Stop> {
    if output.format() == Format::Table {
        output
            .text(format_args!("{:<20}  {:<12}  {:>12}  {:>14}  EVENTS' HASH", "TENANT", "SCOPE", "EVENTS", "BYTES"))?;
    }
    for tenant in &manifest.tenants {
        for log in &tenant.logs {
            let bytes: u64 = log.segments.iter().map(|segment| segment.file.bytes).sum();
            match output.format() {
                Format::Json => output.json(&serde_json::json!({
                    "tenant": tenant.tenant, "scope": log.scope, "store_id": tenant.store_id,
                    "incarnation": tenant.incarnation, "head": log.head, "bytes": bytes, "events_hash": log.events_hash,
                }))?,
                Format::Table => output.text(format_args!(
                    "{:<20}  {:<12}  {:>12}  {bytes:>14}  {}",
                    tenant.tenant, log.scope, log.head, log.events_hash
                ))?,
            }
        }
    }
    for tenant in &manifest.tenants {
        if let Some(map) = &tenant.map {
            match output.format() {
                Format::Json => {
                    output.json(
                        &serde_json::json!({ "tenant": tenant.tenant, "records_and_streams_bytes": map.bytes }),
                    )?;
                }
                Format::Table => {
                    output.text(format_args!("Records and streams of {}: {} bytes.", tenant.tenant, map.bytes))?;
                }
            }
        }
    }
    Ok(())
}

pub fn restore(global: &Global, args: &args::Restore, config: &Config) -> Result<(), Stop> {
    let cut = args.to_sequence_number.map(|at| (global.tenant.clone(), args.scope.clone(), at));
    let bar = Progress::of_bytes();
    let restored =
        operations::restore(&args.from, &config.store.url, &operations::Restore { cut }, &mut |done, all| {
            bar.reach(done, all);
        })?;
    drop(bar);
    let mut output = Output::new(global.output);
    print_restored(&mut output, &restored)?;
    output.flush()
}

fn print_restored(output: &mut Output, restored: &Restored) -> Result<(), Stop> {
    if output.format() == Format::Table {
        output.text(format_args!(
            "{:<20}  {:<12}  {:>12}  {:>12}  EVENTS' HASH",
            "TENANT", "SCOPE", "EVENTS", "INCARNATION"
        ))?;
    }
    for log in &restored.logs {
        match output.format() {
            Format::Json => output.json(log)?,
            Format::Table => output.text(format_args!(
                "{:<20}  {:<12}  {:>12}  {:>12}  {}",
                log.tenant, log.scope, log.head, log.incarnation, log.events_hash
            ))?,
        }
    }
    for map in &restored.maps {
        match output.format() {
            Format::Json => output.json(&serde_json::json!({
                "tenant": map.tenant, "records_and_streams_bytes": map.bytes, "map_entries": map.entries,
            }))?,
            Format::Table => output.text(format_args!(
                "Records and streams of {}: {} bytes, {} entries of their map.",
                map.tenant, map.bytes, map.entries
            ))?,
        }
    }
    Ok(())
}
