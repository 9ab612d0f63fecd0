//! Who leads. Everything is judged by the server's clock, so that clocks of processes may differ.
//!
//! ```text
//! sequencer-state: {_id: "lease", holder, process, epoch, until, lag, sessions: [ids of the sessions it writes with],
//!                   before: [those of earlier holders, until they are ended]}
//!                  process: its host and process id, for people   lag: how far it was behind at the last renewal, in milliseconds
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use annals_system::{Instant, sleep};
use mongodb::Database;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReturnDocument;
use tokio::sync::OnceCell;

use super::in_time;
use super::step::{AtStep, Step};
use super::trouble::Trouble;
use crate::layout::names::SEQUENCER;
use crate::refused::message_of;

const ID: &str = "lease";

pub(super) struct Lease {
    database: Database,
    holder: String,
    /// How long it holds. A process that was killed is succeeded within this and half a second.
    holds: Duration,
    at_step: AtStep,
    there: OnceCell<()>,
    /// The sessions that this process writes with, while it leads.
    sessions: Mutex<Vec<Bson>>,
    pub(super) trouble: Trouble,
}

impl Lease {
    pub(super) fn new(database: Database, holder: String, holds: Duration, at_step: AtStep) -> Self {
        Self {
            database,
            holder,
            holds,
            at_step,
            there: OnceCell::new(),
            sessions: Mutex::default(),
            trouble: Trouble::default(),
        }
    }

    /// Takes the lease if it is free, and ends the transactions of whoever had it: a process that was killed leaves one open, which
    /// would hold up its successor for a minute.
    pub(super) async fn take(&self) -> mongodb::error::Result<Option<i64>> {
        self.there.get_or_try_init(|| self.begin()).await?;
        let state = self.database.collection::<Document>(SEQUENCER);
        let free = doc! { "_id": ID, "$expr": { "$lte": ["$until", "$$NOW"] } };
        let take = vec![doc! { "$set": {
            "holder": &self.holder, "process": { "$literal": process() }, "lag": 0_i64, "until": self.until(),
            "epoch": { "$add": ["$epoch", 1_i64] },
            // What an earlier one did not come to end is still to be ended.
            "before": { "$setUnion": [{ "$ifNull": ["$before", []] }, { "$ifNull": ["$sessions", []] }] }, "sessions": [],
        } }];
        let taken = state.find_one_and_update(free, take).return_document(ReturnDocument::After);
        let taken = in_time(self.holds, taken).await?;
        let Some(taken) = taken else { return Ok(None) };
        (self.at_step)(Step::LeaseTaken);
        if let Ok(before) = taken.get_array("before") {
            self.end_sessions(before).await;
        }
        Ok(taken.get_i64("epoch").ok())
    }

    /// Makes a lease that nobody has, where there is none.
    async fn begin(&self) -> mongodb::error::Result<()> {
        let nobodys = doc! { "$setOnInsert": { "epoch": 0_i64, "until": DateTime::from_millis(0), "sessions": [] } };
        let state = self.database.collection::<Document>(SEQUENCER);
        in_time(self.holds, state.update_one(doc! { "_id": ID }, nobodys).upsert(true)).await.map(|_| ())
    }

    async fn end_sessions(&self, sessions: &[Bson]) {
        if sessions.is_empty() {
            return;
        }
        let admin = self.database.client().database("admin");
        let command = doc! { "killSessions": sessions.to_vec() };
        // It waits for what the sessions are doing, which may be long; leading must not wait for it.
        if let Err(error) = in_time(self.holds / 3, admin.run_command(command)).await {
            tracing::warn!(
                error = message_of(&error),
                "transactions of a sequencer that leads no more may be open for a minute"
            );
        }
    }

    /// Notes the sessions that this process writes with. Those of earlier holders are ended by now, or are being ended.
    pub(super) async fn note_sessions(&self, epoch: i64, sessions: Vec<Document>) -> mongodb::error::Result<bool> {
        let state = self.database.collection::<Document>(SEQUENCER);
        *self.sessions.lock().unwrap_or_else(PoisonError::into_inner) = sessions.iter().map(Bson::from).collect();
        let noted = state.update_one(self.mine(epoch), doc! { "$set": { "sessions": sessions, "before": [] } }).await?;
        Ok(noted.matched_count == 1)
    }

    /// Renews the lease until it is lost, and says how. By a server that does not answer, as one that is cut off from the majority, it is
    /// lost too.
    pub(super) async fn keep(&self, epoch: i64, lag: &AtomicU64) -> &'static str {
        let state = self.database.collection::<Document>(SEQUENCER);
        let mut renewed = Instant::now();
        loop {
            sleep(self.holds / 3).await;
            let renew =
                vec![doc! { "$set": { "until": self.until(), "lag": lag.load(Ordering::Relaxed).cast_signed() } }];
            match in_time(self.holds, state.update_one(self.mine(epoch), renew)).await {
                Ok(answer) if answer.matched_count == 1 => {
                    self.trouble.over();
                    renewed = Instant::now();
                }
                Ok(_) => return "another process has taken the lease",
                Err(error) => {
                    self.trouble.met("its lease could not be renewed", &error);
                    if renewed.elapsed() > self.holds {
                        return "the lease could not be renewed in time";
                    }
                }
            }
        }
    }

    /// Gives it back, so that the next need not wait. The sessions stay noted: leading may have been broken off inside a transaction, which
    /// the next one ends.
    ///
    /// This process ends them too: one that was deposed may have begun a transaction after its successor had ended those that were open,
    /// and would leave it open for a minute.
    pub(super) async fn release(&self, epoch: i64) {
        let sessions = std::mem::take(&mut *self.sessions.lock().unwrap_or_else(PoisonError::into_inner));
        self.end_sessions(&sessions).await;
        let state = self.database.collection::<Document>(SEQUENCER);
        let release = vec![doc! { "$set": { "until": "$$NOW" } }];
        if let Err(error) = in_time(self.holds / 3, state.update_one(self.mine(epoch), release)).await {
            self.trouble.met("its lease was not given back and expires by itself", &error);
        }
    }

    fn until(&self) -> Document {
        doc! { "$add": ["$$NOW", self.holds.as_millis() as i64] }
    }

    fn mine(&self, epoch: i64) -> Document {
        doc! { "_id": ID, "holder": &self.holder, "epoch": epoch }
    }
}

/// Where this process runs, for people.
fn process() -> String {
    let named = |name: &String| !name.trim().is_empty();
    let host = std::env::var("HOSTNAME").ok().filter(named);
    let host = host.or_else(|| std::fs::read_to_string("/etc/hostname").ok().filter(named));
    format!("{} process {}", host.as_deref().map_or("unnamed host", str::trim), std::process::id())
}
