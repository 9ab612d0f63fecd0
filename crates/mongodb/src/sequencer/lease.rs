//! Who leads. Everything is judged by the server's clock, so that clocks of processes may differ.
//!
//! ```text
//! sequencer-state: {_id: "lease", holder, epoch, until, sessions: [ids of the sessions it writes with]}
//! ```

use std::future::IntoFuture;
use std::time::Duration;

use mongodb::Database;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReturnDocument;
use tokio::sync::OnceCell;

use super::ASK_EVERY;
use crate::layout::names::SEQUENCER;

/// How long a lease holds. A process that was killed is succeeded within this and a second.
const HOLDS: Duration = Duration::from_secs(3);
const ID: &str = "lease";

pub(super) struct Lease {
    database: Database,
    holder: String,
    there: OnceCell<()>,
}

impl Lease {
    pub(super) fn new(database: Database, holder: String) -> Self {
        Self { database, holder, there: OnceCell::new() }
    }

    /// Takes the lease if it is free, and ends the transactions of whoever had it: a process that was killed leaves one open, which
    /// would hold up its successor for a minute.
    pub(super) async fn take(&self) -> mongodb::error::Result<Option<i64>> {
        self.there.get_or_try_init(|| self.begin()).await?;
        let state = self.database.collection::<Document>(SEQUENCER);
        let free = doc! { "_id": ID, "$expr": { "$lte": ["$until", "$$NOW"] } };
        let take = vec![doc! { "$set": {
            "holder": &self.holder, "until": until(),
            "epoch": { "$add": ["$epoch", 1_i64] },
            "before": "$sessions", "sessions": [],
        } }];
        let taken = state.find_one_and_update(free, take).return_document(ReturnDocument::After).await?;
        let Some(taken) = taken else { return Ok(None) };
        if let Ok(before) = taken.get_array("before") {
            self.end_sessions(before).await;
        }
        Ok(taken.get_i64("epoch").ok())
    }

    /// Makes a lease that nobody has, where there is none.
    async fn begin(&self) -> mongodb::error::Result<()> {
        let nobodys = doc! { "$setOnInsert": { "epoch": 0_i64, "until": DateTime::from_millis(0), "sessions": [] } };
        let state = self.database.collection::<Document>(SEQUENCER);
        state.update_one(doc! { "_id": ID }, nobodys).upsert(true).await.map(|_| ())
    }

    async fn end_sessions(&self, sessions: &[Bson]) {
        if sessions.is_empty() {
            return;
        }
        let admin = self.database.client().database("admin");
        let command = doc! { "killSessions": sessions.to_vec() };
        // It waits for what the sessions are doing, which may be long; leading must not wait for it.
        match tokio::time::timeout(ASK_EVERY, admin.run_command(command).into_future()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "transactions of the earlier sequencer may be open for a minute"),
            Err(_) => tracing::warn!("transactions of the earlier sequencer are being ended"),
        }
    }

    /// Notes the sessions that this process writes with.
    pub(super) async fn note_sessions(&self, epoch: i64, sessions: Vec<Document>) -> mongodb::error::Result<bool> {
        let state = self.database.collection::<Document>(SEQUENCER);
        let noted = state.update_one(self.mine(epoch), doc! { "$set": { "sessions": sessions } }).await?;
        Ok(noted.matched_count == 1)
    }

    /// Renews the lease until it is lost, and says how.
    pub(super) async fn keep(&self, epoch: i64) -> &'static str {
        let state = self.database.collection::<Document>(SEQUENCER);
        let mut failures = 0;
        loop {
            tokio::time::sleep(ASK_EVERY).await;
            let renew = vec![doc! { "$set": { "until": until() } }];
            match state.update_one(self.mine(epoch), renew).await {
                Ok(renewed) if renewed.matched_count == 1 => failures = 0,
                Ok(_) => return "another process has taken the lease",
                Err(error) => {
                    failures += 1;
                    tracing::warn!(%error, "the sequencer's lease could not be renewed");
                    if failures > HOLDS.as_secs() {
                        return "the lease could not be renewed in time";
                    }
                }
            }
        }
    }

    /// Gives it back, so that the next need not wait. The sessions stay noted: leading may have been broken off inside a transaction, which
    /// the next one ends.
    pub(super) async fn release(&self, epoch: i64) {
        let state = self.database.collection::<Document>(SEQUENCER);
        let release = vec![doc! { "$set": { "until": "$$NOW" } }];
        if let Err(error) = state.update_one(self.mine(epoch), release).await {
            tracing::warn!(%error, "the sequencer's lease was not given back; it ends by itself");
        }
    }

    fn mine(&self, epoch: i64) -> Document {
        doc! { "_id": ID, "holder": &self.holder, "epoch": epoch }
    }
}

fn until() -> Document {
    doc! { "$add": ["$$NOW", HOLDS.as_millis() as i64] }
}
