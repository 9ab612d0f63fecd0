//! What stands in the way of numbers, as every process sees it: whether a process leads and what it says of itself is read from the
//! lease, whether other software gave numbers from the logs. So readiness and refusals are the same wherever they are asked for, also in a
//! process that never led.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::PoisonError;
use std::time::Duration;

use annals_system::sleep;
use mongodb::bson::{DateTime, RawDocument, RawDocumentBuf, doc};

use super::lease::Lease;
use super::{Cluster, in_time};
use crate::layout::fields::{inner, text};
use crate::layout::names::SEQUENCER;
use crate::log::Log;
use crate::reach;
use crate::refused::message_of;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Logs that are looked at each time, in turn: a cluster may have thousands.
const LOGS: usize = 8;
/// Looks between two at the indexes of the collections that this process commits to.
const SCHEMA_EVERY: u64 = 10;
/// How long nobody leads before that is told, beside the time of a lease: another process takes over within half a second.
const WITHOUT_LEADER: i64 = 5000;
/// What fails for so long is told. An election, and a leader that takes over, are shorter.
const FAILING: i64 = 3000;

/// Looks, for ever.
pub(super) async fn look(cluster: &Cluster, lease: &Lease) -> Infallible {
    let (mut turn, mut looks) = (0, 0_u64);
    loop {
        sleep(LOOK_EVERY).await;
        looks += 1;
        if looks.is_multiple_of(SCHEMA_EVERY) {
            of_schema(cluster).await;
        }
        if let Err(error) = of_lease(cluster, lease).await {
            tracing::debug!(error = message_of(&error), "the sequencer's own records cannot be read");
        }
        let count = cluster.logs.len();
        for log in cluster.logs.iter().cycle().skip(turn).take(LOGS.min(count)) {
            if let Err(error) = of_log(log, cluster.lease).await {
                tracing::debug!(
                    error = message_of(&error),
                    tenant = log.tenant,
                    "the progress of a log cannot be read"
                );
            }
        }
        turn = (turn + LOGS) % count.max(1);
    }
}

/// Whether commits get numbers, as the lease says.
async fn of_lease(cluster: &Cluster, lease: &Lease) -> mongodb::error::Result<()> {
    let Some(first) = cluster.logs.first() else { return Ok(()) };
    let state = first.database.collection::<RawDocumentBuf>(SEQUENCER);
    // Judged by the server's clock, as the lease is.
    let pipeline = [doc! { "$match": { "_id": "lease" } }, doc! { "$set": { "now": "$$NOW" } }];
    let read = async {
        let mut found = state.aggregate(pipeline).with_type::<RawDocumentBuf>().await?;
        match found.advance().await? {
            true => found.deserialize_current().map(Some),
            false => Ok(None),
        }
    };
    let found = in_time(cluster.lease, read).await?;
    if found.is_none() {
        lease.lost();
    }
    let grace = cluster.lease.as_millis() as i64 + WITHOUT_LEADER;
    let of_all =
        found.as_deref().map_or_else(|| Some("no process is the sequencer".to_owned()), |found| of_all(found, grace));
    let stalled: HashMap<String, String> = match &of_all {
        Some(why) => cluster.logs.iter().map(|log| (log.database.name().to_owned(), why.clone())).collect(),
        None => found.as_deref().map(of_some).unwrap_or_default(),
    };
    *cluster.stalled.lock().unwrap_or_else(PoisonError::into_inner) = stalled;
    Ok(())
}

/// Why no log gets numbers.
fn of_all(lease: &RawDocument, grace: i64) -> Option<String> {
    let now = date(lease, "now")?;
    // Nobody has ever led, or other software wrote the lease.
    let Some(until) = date(lease, "until").filter(|until| *until > 0) else {
        return Some("no process is the sequencer".to_owned());
    };
    let gone = now.saturating_sub(until);
    if gone > grace {
        return Some(format!("no process has been the sequencer for {} s", gone / 1000));
    }
    let failing = inner(lease, "failing")?;
    let lasts = now - date(failing, "since")?;
    let why = text(failing, "why").unwrap_or_default();
    (lasts >= FAILING).then(|| format!("the sequencer has been failing for {} s: {why}", lasts / 1000))
}

/// The databases whose logs get no numbers while the others do, and why.
fn of_some(lease: &RawDocument) -> HashMap<String, String> {
    let stalled = inner(lease, "stalled").into_iter().flatten().flatten();
    let why = |value: mongodb::bson::RawBsonRef<'_>| Some(text(value.as_document()?, "why")?.to_owned());
    stalled.filter_map(|(database, value)| Some((database.as_str().to_owned(), why(value)?))).collect()
}

fn date(document: &RawDocument, key: &str) -> Option<i64> {
    document.get_datetime(key).ok().map(DateTime::timestamp_millis)
}

/// Whether the collections of commits have the indexes that decide.
async fn of_schema(cluster: &Cluster) {
    for log in &cluster.logs {
        if let Err(error) = log.look_at_schema().await {
            tracing::debug!(%error, tenant = log.tenant, "the indexes of commits cannot be read");
        }
    }
}

/// Whether anybody else gave numbers to a log.
async fn of_log(log: &Log, time: Duration) -> mongodb::error::Result<()> {
    let reach = in_time(time, reach::read(&log.database)).await?;
    let fault = reach::fault_of_open(log.database.name(), &reach);
    log.disturb(fault.map(|fault| (fault.code, fault.message)));
    Ok(())
}
