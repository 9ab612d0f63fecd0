//! Watches, in every process, whether commits get numbers: the lease tells whether a process leads and what it reports, and the logs tell
//! whether other software assigned numbers. So readiness and refusals are the same in every process, including those that never led.

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

/// Interval between two checks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Logs that are checked each time, in turn: a cluster may have thousands.
const LOGS: usize = 8;
/// Checks between two checks of the indexes of the collections that this process commits to.
const SCHEMA_EVERY: u64 = 10;
/// Milliseconds without a leader, after its lease has expired, until that is reported: another process takes over within half a second.
const WITHOUT_LEADER: i64 = 5000;
/// Milliseconds of failing until it is reported. An election and a takeover are shorter.
const FAILING: i64 = 3000;

/// Checks, forever.
pub(super) async fn look(cluster: &Cluster, lease: &Lease) -> Infallible {
    let (mut turn, mut looks) = (0, 0_u64);
    loop {
        sleep(LOOK_EVERY).await;
        looks += 1;
        if looks.is_multiple_of(SCHEMA_EVERY) {
            of_schema(cluster).await;
        }
        if let Err(error) = of_lease(cluster, lease).await {
            tracing::debug!(error = message_of(&error), "what the sequencer stores of itself cannot be read");
        }
        let count = cluster.logs.len();
        for log in cluster.logs.iter().cycle().skip(turn).take(LOGS.min(count)) {
            if let Err(error) = of_log(log, cluster.lease).await {
                tracing::debug!(error = message_of(&error), tenant = log.tenant, "how far a log is cannot be read");
            }
        }
        turn = (turn + LOGS) % count.max(1);
    }
}

/// Updates from the lease which logs get no numbers.
async fn of_lease(cluster: &Cluster, lease: &Lease) -> mongodb::error::Result<()> {
    let Some(first) = cluster.logs.first() else { return Ok(()) };
    let state = first.database.collection::<RawDocumentBuf>(SEQUENCER);
    // Compared with the server's clock, like the lease itself.
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

/// Returns why no log gets numbers, if that is so.
fn of_all(lease: &RawDocument, grace: i64) -> Option<String> {
    let now = date(lease, "now")?;
    // No process has ever led, or other software wrote the lease.
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

/// Returns the databases whose logs get no numbers while others do, with the reason.
fn of_some(lease: &RawDocument) -> HashMap<String, String> {
    let stalled = inner(lease, "stalled").into_iter().flatten().flatten();
    let why = |value: mongodb::bson::RawBsonRef<'_>| Some(text(value.as_document()?, "why")?.to_owned());
    stalled.filter_map(|(database, value)| Some((database.as_str().to_owned(), why(value)?))).collect()
}

fn date(document: &RawDocument, key: &str) -> Option<i64> {
    document.get_datetime(key).ok().map(DateTime::timestamp_millis)
}

/// Checks that the collections of commits have the required unique indexes.
async fn of_schema(cluster: &Cluster) {
    for log in &cluster.logs {
        if let Err(error) = log.look_at_schema().await {
            tracing::debug!(%error, tenant = log.tenant, "the indexes of commits cannot be read");
        }
    }
}

/// Checks whether other software assigned numbers to a log.
async fn of_log(log: &Log, time: Duration) -> mongodb::error::Result<()> {
    let reach = in_time(time, reach::read(&log.database)).await?;
    let fault = reach::fault_of_open(log.database.name(), &reach);
    log.disturb(fault.map(|fault| (fault.code, fault.message)));
    Ok(())
}
