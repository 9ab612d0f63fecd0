//! The sequencer gives every commit its numbers: it follows the commits of all tenants by one change stream, in the order of the oplog,
//! and writes them to the logs. One process of a cluster does; the others stand by.
//!
//! ```text
//! stand by ──lease taken──▶ lead: open the stream where the logs stand ─▶ batch ─▶ one transaction a log ─▶ batch ─▶ …
//!    ▲ watch the heads                                                              │
//!    └──────────────────────── lease lost, offset moved by another, an error ◀──────┘
//! ```
//!
//! The lease is for liveness only. The fence is the offset: every transaction moves `event-log-metadata.NextEventOffset` from the number
//! at which this process believes the log to stand, so one that was deposed can never write, and nobody ever sees half a commit.

mod assign;
mod backlog;
pub(crate) mod catch_up;
mod held;
mod lead;
mod lease;
mod place;
mod standby;
mod state;
mod stream;
mod write;

use std::sync::Arc;
use std::time::Duration;

use mongodb::Client;
use tokio::sync::watch;

use crate::log::Log;
use crate::refused::message_of;
pub(crate) use assign::label;
use lease::Lease;

/// How often the lease is asked for, and after an error.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// What the sequencer works on.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// The logs of all tenants; the first one's database holds the lease.
    pub(crate) logs: Vec<Arc<Log>>,
    /// A name for this process that no other has.
    pub(crate) holder: String,
}

/// Why leading ended.
enum Ended {
    /// The store is being closed.
    Stopped,
    /// Another process leads, or may.
    Deposed(&'static str),
    /// The position in the change stream is too old for the oplog.
    Forgotten,
    Failed(mongodb::error::Error),
    /// Other software gives numbers to events.
    Disturbed(String),
    /// What is stored is not as it must be.
    Damaged(String),
}

impl From<mongodb::error::Error> for Ended {
    fn from(error: mongodb::error::Error) -> Self {
        Self::Failed(error)
    }
}

/// Stands by and leads by turns, until `stop` says so.
pub(crate) async fn run(cluster: Arc<Cluster>, mut stop: watch::Receiver<bool>) {
    let Some(first) = cluster.logs.first() else { return };
    let lease = Lease::new(first.database.clone(), cluster.holder.clone());
    // Set when the stream's position turned out to be too old: the logs are then brought up from the collections.
    let mut forgotten = false;
    loop {
        let epoch = tokio::select! {
            () = stopped(&mut stop) => return,
            epoch = standby::until_leading(&cluster, &lease) => epoch,
        };
        tracing::info!(epoch, "this process is the sequencer");
        let ended = tokio::select! {
            () = stopped(&mut stop) => Ended::Stopped,
            lost = lease.keep(epoch) => Ended::Deposed(lost),
            ended = lead::lead(&cluster, &lease, epoch, forgotten) => ended,
        };
        forgotten = matches!(ended, Ended::Forgotten);
        lease.release(epoch).await;
        match ended {
            Ended::Stopped => return,
            Ended::Deposed(why) => tracing::warn!(why, "this process is not the sequencer any more"),
            Ended::Forgotten => tracing::warn!("the oplog does not reach back; the collections are read instead"),
            Ended::Failed(error) => tracing::warn!(error = message_of(&error), "sequencing stopped; it is tried again"),
            Ended::Disturbed(sentence) => tracing::error!(sentence, "sequencing stopped; it is tried again"),
            Ended::Damaged(sentence) => tracing::error!(sentence, "sequencing stopped; it is tried again"),
        }
        if !forgotten {
            tokio::select! {
                () = stopped(&mut stop) => return,
                () = pause() => {}
            }
        }
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone is a store that was dropped.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Before the next try.
async fn pause() {
    tokio::time::sleep(ASK_EVERY).await;
}
