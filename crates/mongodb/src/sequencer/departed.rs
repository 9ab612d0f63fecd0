//! Ends transactions of processes that have died (`sessions.rs`). A killed process leaves them open, and keys, versions and records that
//! they wrote stay blocked until the server expires them after a minute. The leader looks for registrations that were not renewed, and
//! ends their sessions.

use std::convert::Infallible;
use std::time::Duration;

use annals_system::sleep;
use mongodb::Database;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};

use super::{Cluster, in_time};
use crate::layout::names::SEQUENCER;
use crate::refused::{code_of, message_of};
use crate::sessions::{PREFIX, note_of};

/// Interval between two checks of a collection with few documents.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Checks and ends transactions, forever.
pub(super) async fn end_transactions(cluster: &Cluster) -> Infallible {
    loop {
        sleep(LOOK_EVERY).await;
        let Some(first) = cluster.logs.first() else { continue };
        if let Err(error) = end(&first.database, &cluster.holder, cluster.lease).await {
            tracing::debug!(error = message_of(&error), "transactions of processes that are gone may be open");
        }
    }
}

/// Ends the sessions of all other processes whose registration has expired.
async fn end(database: &Database, own: &str, time: Duration) -> mongodb::error::Result<()> {
    let others = doc! { "$regex": format!("^{PREFIX}"), "$ne": note_of(own) };
    // Compared with the server's clock, which also set the time.
    let gone = doc! { "_id": others, "$expr": { "$lt": ["$until", "$$NOW"] } };
    let notes = database.collection::<RawDocumentBuf>(SEQUENCER);
    let mut found = in_time(time, notes.find(gone)).await?;
    while in_time(time, found.advance()).await? {
        let note = Document::try_from(found.current())?;
        let sessions = note.get_array("sessions").cloned().unwrap_or_default();
        let process = note.get_str("_id").unwrap_or_default();
        tracing::warn!(
            process,
            sessions = sessions.len(),
            "a process is gone; the transactions that it left are ended"
        );
        if !sessions.is_empty() {
            let admin = database.client().database("admin");
            match in_time(time, admin.run_command(doc! { "killSessions": sessions })).await {
                Ok(_) => {}
                // The server responds and denies this user: a retry would not help.
                Err(error) if code_of(&error).is_some() => {
                    let error = message_of(&error);
                    tracing::warn!(error, "transactions of a process that is gone may be open for a minute");
                }
                Err(error) => return Err(error),
            }
        }
        // A registration that was renewed in the meantime stays.
        let until = note.get("until").cloned().unwrap_or(Bson::Null);
        in_time(time, notes.delete_one(doc! { "_id": process, "until": until })).await?;
    }
    Ok(())
}
