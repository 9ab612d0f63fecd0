//! Standing by: watches the heads that the leader moves, until the lease is free.

use std::collections::HashMap;
use std::time::Duration;

use annals_system::sleep;
use mongodb::bson::{Document, RawDocumentBuf, doc};

use super::{Cluster, lease::Lease};
use crate::layout::entry;
use crate::layout::fields::{inner, text};
use crate::layout::names::{ENTRIES, EVENT_LOG, EVENT_LOG_METADATA, HELD};
use crate::log::Log;
use crate::log::numbers::Place;

/// How often the lease is requested: a killed process is succeeded within its lease and this interval.
const TAKE_EVERY: Duration = Duration::from_millis(500);

/// Waits until this process leads, and returns the epoch.
pub(super) async fn until_leading(cluster: &Cluster, lease: &Lease) -> i64 {
    // Usually the lease is free or about to be, and a watch would be wasted.
    if let Some(epoch) = ask(cluster, lease).await {
        return epoch;
    }
    tokio::select! {
        epoch = asking(cluster, lease) => epoch,
        never = watching(cluster, lease) => match never {},
    }
}

async fn asking(cluster: &Cluster, lease: &Lease) -> i64 {
    loop {
        sleep(cluster.ask_every().min(TAKE_EVERY)).await;
        if let Some(epoch) = ask(cluster, lease).await {
            return epoch;
        }
    }
}

async fn ask(cluster: &Cluster, lease: &Lease) -> Option<i64> {
    let _step = cluster.steps.begin().await;
    match lease.take().await {
        Ok(epoch) => {
            lease.trouble.over();
            epoch
        }
        Err(error) => {
            lease.trouble.met("its lease cannot be taken", &error);
            None
        }
    }
}

/// Wakes local waiters for what the leader in another process has done. This is only a wake-up: waiters also check for themselves.
async fn watching(cluster: &Cluster, lease: &Lease) -> std::convert::Infallible {
    loop {
        if let Err(error) = watch(cluster).await {
            lease.trouble.met("the heads of the logs cannot be watched", &error);
        }
        sleep(cluster.ask_every()).await;
    }
}

async fn watch(cluster: &Cluster) -> mongodb::error::Result<()> {
    let databases: Vec<_> = cluster.logs.iter().map(|log| log.database.name()).collect();
    // The offsets of streams are in the same collection as that of the log.
    let heads = doc! { "$match": {
        "ns.db": { "$in": databases },
        "$or": [{ "ns.coll": EVENT_LOG_METADATA, "documentKey._id": EVENT_LOG }, { "ns.coll": HELD }],
    } };
    let mut changes = cluster.client.watch().pipeline([heads]).await?.with_type::<RawDocumentBuf>();
    let logs: HashMap<&str, &Log> = cluster.logs.iter().map(|log| (log.database.name(), &**log)).collect();
    for log in &cluster.logs {
        count_held(log).await?;
    }
    while changes.is_alive() {
        let Some(change) = changes.next_if_any().await? else { continue };
        let Some(place) = inner(&change, "ns") else { continue };
        let Some(log) = text(place, "db").and_then(|database| logs.get(database)) else { continue };
        match text(place, "coll") {
            Some(HELD) => count_held(log).await?,
            _ => look(log).await?,
        }
    }
    Ok(())
}

async fn count_held(log: &Log) -> mongodb::error::Result<()> {
    let held = log.database.collection::<Document>(HELD).count_documents(doc! {}).await?;
    log.held.set(held);
    Ok(())
}

/// Reads the head, and the numbers that callers wait for.
async fn look(log: &Log) -> mongodb::error::Result<()> {
    // Reading the head also announces it.
    let _ = annals_core::EventLog::head(log).await;
    let mut wanted: HashMap<String, Vec<String>> = HashMap::new();
    for Place { collection, commit } in log.numbers.waiting() {
        wanted.entry(collection).or_default().push(commit);
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let any: Vec<Document> = wanted
        .into_iter()
        .map(|(collection, commits)| doc! { "coll": collection, "commit": { "$in": commits } })
        .collect();
    let mut found = log.database.collection::<RawDocumentBuf>(ENTRIES).find(doc! { "$or": any }).await?;
    while found.advance().await? {
        if let Ok(entry) = entry::read(found.current()) {
            log.numbers.give(&Place::new(&entry.collection, &entry.commit), entry.first);
        }
    }
    Ok(())
}
