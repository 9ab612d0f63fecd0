//! `annals backup`.

use std::path::PathBuf;

use annals::operations::{self, Leftovers, Manifest, Receiver};
use annals::{Client, Code, DEFAULT_SCOPE};
use clap::Args;

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop, note};
use crate::output::Output;
use crate::printable;
use crate::progress::Progress;

/// Back up a whole store, even while a server uses it; includes everything that is durable when the backup begins
#[derive(Debug, Args)]
#[command(
    after_help = "A backup contains the secret key with which the store looks up request ids: protect it like the store itself.\n\nExample:\n  annals \
                  backup --server http://127.0.0.1:4000 --to backup.tar\n  annals backup --to /backups/annals"
)]
pub struct Backup {
    /// The destination: one file if the name ends in .tar, otherwise a folder, to which a later backup adds only what is new
    #[arg(long, value_name = "FOLDER|FILE.tar")]
    to: PathBuf,
    /// Back up only the logs, into a new file or folder, if records and streams are damaged
    #[arg(long)]
    without_records: bool,
}

impl Run for Backup {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        // Checked first: an unusable destination must not cost opening the store.
        let receiver = operations::keep_backup(&self.to)?;
        if self.without_records && receiver.earlier().is_some() {
            let message = "the folder contains an earlier backup, which may include records; name a new file or folder";
            return Err(Failure::new(Code::FolderNotEmpty, message).into());
        }
        let (manifest, leftovers) = match &context.server {
            Some(server) => of_server(server, context, self.without_records, receiver).await?,
            None => of_store(context, self.without_records, receiver).await?,
        };
        for left_out in &manifest.left_out {
            let why = match left_out.ends_with("/_engine") {
                true => "records and streams are left out, as requested",
                false => "it is not declared; declare it under [tenants] to include it",
            };
            note(&format!("{left_out} is not in the backup: {why}"));
        }
        tell(&leftovers);
        let mut output = context.output();
        print_backup(&mut output, &manifest)?;
        output.flush()
    }
}

async fn of_server(
    server: &str,
    context: &Context,
    without_records: bool,
    mut receiver: Receiver,
) -> Result<(Manifest, Leftovers), Stop> {
    let client = Client::with(server, &context.tenant, DEFAULT_SCOPE, &context.client)?;
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
    Ok(receiver.finish_and_clear()?)
}

async fn of_store(
    context: &Context,
    without_records: bool,
    mut receiver: Receiver,
) -> Result<(Manifest, Leftovers), Stop> {
    let store = context.open_store(true).await?;
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
        Ok::<_, Failure>(receiver.finish_and_clear()?)
    })();
    store.close().await;
    Ok(taken?)
}

/// The most files that are listed one by one.
const LISTED_MAX: usize = 20;

/// Reports what the folder holds beside the backup.
fn tell(leftovers: &Leftovers) {
    if !leftovers.removed.is_empty() {
        note(&format!("removed {} unfinished files that interrupted backups left", leftovers.removed.len()));
    }
    for path in leftovers.unnamed.iter().take(LISTED_MAX) {
        let path = printable::line(path);
        note(&format!("{path} is not part of the backup; delete it if an interrupted backup left it"));
    }
    let more = leftovers.unnamed.len().saturating_sub(LISTED_MAX);
    if more > 0 {
        note(&format!("{more} more files are not part of the backup"));
    }
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
