//! Who leads. Everything is judged by the server's clock, so that clocks of processes may differ.
//!
//! ```text
//! sequencer-state: {_id: "lease", holder, process, epoch, until, lag, sessions: [ids of the sessions it writes with],
//!                   before: [those of earlier holders, until they are ended],
//!                   failing: {why, since}?, stalled: {database: {why, since}}?}
//!                  process: its host and process id, for people   lag: how far it was behind at the last renewal, in milliseconds
//!                  failing: why no log gets numbers   stalled: the databases whose logs get none, while the others do
//! ```
//!
//! What stands in the way of numbers is stored here, so that every process tells it, whoever found it (`witness.rs`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annals_system::{Instant, sleep};
use mongodb::Database;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReturnDocument;

use super::in_time;
use super::progress::Progress;
use super::step::{AtStep, Step};
use super::trouble::Trouble;
use super::writing::Left;
use crate::layout::names::SEQUENCER;
use crate::refused::message_of;

const ID: &str = "lease";
/// No lease lasts longer than a minute. One that ends later than this was not written by a sequencer, or before the server's clock was
/// set back: it counts as expired.
const HOLDS_MAX: Duration = Duration::from_secs(120);

pub(super) struct Lease {
    database: Database,
    holder: String,
    /// How long it holds. A process that was killed is succeeded within this and half a second.
    holds: Duration,
    at_step: AtStep,
    /// Whether the document is there, as far as is known.
    there: AtomicBool,
    /// The sessions that this process writes with, while it leads.
    sessions: Mutex<Vec<Bson>>,
    pub(super) left: Arc<Left>,
    /// What was told last of logs without numbers; none where something else may be stored.
    told: Mutex<Option<Stalled>>,
    pub(super) trouble: Trouble,
}

/// Databases whose logs get no numbers, and why.
pub(super) type Stalled = BTreeMap<String, String>;

impl Lease {
    pub(super) fn new(database: Database, holder: String, holds: Duration, at_step: AtStep) -> Self {
        Self {
            database,
            holder,
            holds,
            at_step,
            there: AtomicBool::new(false),
            sessions: Mutex::default(),
            left: Arc::default(),
            told: Mutex::default(),
            trouble: Trouble::default(),
        }
    }

    /// Takes the lease if it is free, and ends the transactions of whoever had it: a process that was killed leaves one open, which
    /// would hold up its successor for a minute.
    pub(super) async fn take(&self) -> mongodb::error::Result<Option<i64>> {
        if !self.there.load(Ordering::Relaxed) {
            self.begin().await?;
            self.there.store(true, Ordering::Relaxed);
        }
        let state = self.database.collection::<Document>(SEQUENCER);
        let beyond = doc! { "$add": ["$$NOW", HOLDS_MAX.as_millis() as i64] };
        let free = doc! { "$or": [{ "$lte": ["$until", "$$NOW"] }, { "$gt": ["$until", beyond] }] };
        let free = doc! { "_id": ID, "$expr": free };
        let take = vec![doc! { "$set": {
            "holder": &self.holder, "process": { "$literal": process() }, "lag": 0_i64, "until": self.until(),
            // Whatever other software left there must not keep every process from leading.
            "epoch": { "$add": [{ "$cond": [{ "$isNumber": "$epoch" }, "$epoch", 0_i64] }, 1_i64] },
            // What an earlier one did not come to end is still to be ended.
            "before": { "$setUnion": [array("$before"), array("$sessions")] }, "sessions": [],
        } }];
        let taken = state.find_one_and_update(free, take).return_document(ReturnDocument::After);
        let taken = in_time(self.holds, taken).await?;
        let Some(taken) = taken else { return Ok(None) };
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = None;
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

    /// Says whether they were ended.
    async fn end_sessions(&self, sessions: &[Bson]) -> bool {
        if sessions.is_empty() {
            return true;
        }
        let admin = self.database.client().database("admin");
        let command = doc! { "killSessions": sessions.to_vec() };
        // It waits for what the sessions are doing, which may be long; leading must not wait for it.
        let ended = in_time(self.holds / 3, admin.run_command(command)).await;
        if let Err(error) = &ended {
            tracing::warn!(error = message_of(error), "transactions of a former sequencer may stay open for a minute");
        }
        ended.is_ok()
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
    pub(super) async fn keep(&self, epoch: i64, progress: &Progress) -> &'static str {
        let state = self.database.collection::<Document>(SEQUENCER);
        let mut renewed = Instant::now();
        loop {
            sleep(self.holds / 3).await;
            let mut set = doc! { "until": self.until(), "lag": progress.lag().cast_signed() };
            if let Some(why) = progress.stuck() {
                set.insert("failing", failing(&why));
                *self.told.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            let renew = vec![doc! { "$set": set }];
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

    /// Stores which logs get no numbers while the others do, where that has changed.
    pub(super) async fn tell(&self, epoch: i64, stalled: &Stalled) -> mongodb::error::Result<()> {
        if self.told.lock().unwrap_or_else(PoisonError::into_inner).as_ref() == Some(stalled) {
            return Ok(());
        }
        let since = |database: &str| doc! { "$ifNull": [format!("$stalled.{database}.since"), "$$NOW"] };
        let of = |(database, why): (&String, &String)| {
            (database.clone(), Bson::from(doc! { "why": { "$literal": why }, "since": since(database) }))
        };
        let all: Document = stalled.iter().map(of).collect();
        // By another name first: to set a document adds to the one that is there.
        let next = if all.is_empty() { Bson::from(doc! { "$literal": {} }) } else { all.into() };
        let update = vec![
            doc! { "$set": { "next": next } },
            doc! { "$set": { "stalled": "$next" } },
            doc! { "$unset": ["next", "failing"] },
        ];
        let state = self.database.collection::<Document>(SEQUENCER);
        in_time(self.holds, state.update_one(self.mine(epoch), update)).await?;
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(stalled.clone());
        Ok(())
    }

    /// Stores that no log gets numbers. What is stored stays until some do.
    pub(super) async fn fail(&self, epoch: i64, why: &str) {
        let state = self.database.collection::<Document>(SEQUENCER);
        let update = vec![doc! { "$set": { "failing": failing(why) } }];
        if let Err(error) = in_time(self.holds / 3, state.update_one(self.mine(epoch), update)).await {
            self.trouble.met("other processes could not be notified", &error);
        }
    }

    /// Gives it back, so that the next need not wait.
    ///
    /// This process ends its sessions: one that was deposed may have begun a transaction after its successor had ended those that were
    /// open, and would leave it open for a minute. Where that cannot be done here they stay noted, and the next one ends them.
    pub(super) async fn release(&self, epoch: i64) {
        let sessions = std::mem::take(&mut *self.sessions.lock().unwrap_or_else(PoisonError::into_inner));
        let ended = self.end_sessions(&sessions).await;
        let state = self.database.collection::<Document>(SEQUENCER);
        let mut release = doc! { "until": "$$NOW" };
        if ended {
            release.insert("sessions", Vec::<Bson>::new());
        }
        match in_time(self.holds / 3, state.update_one(self.mine(epoch), vec![doc! { "$set": release }])).await {
            // Nobody else has taken note of them meanwhile, and nobody will.
            Ok(released) if ended && released.matched_count == 1 => self.left.give_back(),
            Ok(_) => self.left.abandon(),
            Err(error) => {
                self.left.abandon();
                self.trouble.met("its lease was not released; it expires by itself", &error);
            }
        }
    }

    /// Takes note that the document may be gone.
    pub(super) fn lost(&self) {
        self.there.store(false, Ordering::Relaxed);
    }

    fn until(&self) -> Document {
        doc! { "$add": ["$$NOW", self.holds.as_millis() as i64] }
    }

    fn mine(&self, epoch: i64) -> Document {
        doc! { "_id": ID, "holder": &self.holder, "epoch": epoch }
    }
}

/// The value of a field if it is an array, otherwise an empty one.
fn array(field: &str) -> Document {
    doc! { "$cond": [{ "$isArray": field }, field, []] }
}

/// What is the matter, since it was stored first.
fn failing(why: &str) -> Document {
    doc! { "why": { "$literal": why }, "since": { "$ifNull": ["$failing.since", "$$NOW"] } }
}

/// Where this process runs, for people.
fn process() -> String {
    let named = |name: &String| !name.trim().is_empty();
    let host = std::env::var("HOSTNAME").ok().filter(named);
    let host = host.or_else(|| std::fs::read_to_string("/etc/hostname").ok().filter(named));
    format!("{} process {}", host.as_deref().map_or("unnamed host", str::trim), std::process::id())
}
