//! Transactions of processes that are gone (`sessions.rs`): one that was killed leaves them open, and keys, versions and records that
//! they wrote are blocked until the server gives them up, after a minute. Whoever leads looks for notes that were not renewed, and ends
//! their sessions.

use std::convert::Infallible;
use std::time::Duration;

use annals_system::sleep;
use mongodb::Database;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};

use super::{Cluster, in_time};
use crate::layout::names::SEQUENCER;
use crate::refused::{code_of, message_of};
use crate::sessions::{PREFIX, note_of};

/// Between two looks, at a collection of some documents.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks and ends, for ever.
pub(super) async fn end_transactions(cluster: &Cluster) -> Infallible {
    loop {
        sleep(LOOK_EVERY).await;
        let Some(first) = cluster.logs.first() else { continue };
        if let Err(error) = end(&first.database, &cluster.holder, cluster.lease).await {
            tracing::debug!(error = message_of(&error), "transactions of processes that have died may be open");
        }
    }
}

/// Of every process but this one.
async fn end(database: &Database, own: &str, time: Duration) -> mongodb::error::Result<()> {
    let others = doc! { "$regex": format!("^{PREFIX}"), "$ne": note_of(own) };
    // Judged by the server's clock, by which they were noted.
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
            "a process has died; ending the transactions that it left open"
        );
        if !sessions.is_empty() {
            let admin = database.client().database("admin");
            match in_time(time, admin.run_command(doc! { "killSessions": sessions })).await {
                Ok(_) => {}
                // The server answers, and does not let this user: asking again changes nothing.
                Err(error) if code_of(&error).is_some() => {
                    let error = message_of(&error);
                    tracing::warn!(error, "transactions of a process that has died may stay open for a minute");
                }
                Err(error) => return Err(error),
            }
        }
        // One that was renewed meanwhile stays.
        let until = note.get("until").cloned().unwrap_or(Bson::Null);
        in_time(time, notes.delete_one(doc! { "_id": process, "until": until })).await?;
    }
    Ok(())
}
