//! The lease, which determines the leader. All times are those of the server's clock, so clocks of processes may differ.
//!
//! ```text
//! sequencer-state: {_id: "lease", holder, process, epoch, until, lag, sessions: [ids of the sessions it writes with],
//!                   before: [those of earlier holders, until they are ended],
//!                   failing: {why, since}?, stalled: {database: {why, since}}?}
//!                  process: its host and process id, for people   lag: how far it was behind at the last renewal, in milliseconds
//!                  failing: why no log gets numbers   stalled: the databases whose logs get none, while the others do
//! ```
//!
//! Why commits get no numbers is stored here, so that every process reports it, whichever found it (`witness.rs`).

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
/// No lease is longer than a minute. One that ends later than this was not written by a sequencer, or the server's clock was set back
/// since: it counts as expired.
const HOLDS_MAX: Duration = Duration::from_secs(120);

pub(super) struct Lease {
    database: Database,
    holder: String,
    /// Its duration. A killed process is succeeded within this time and half a second.
    holds: Duration,
    at_step: AtStep,
    /// Whether the document is believed to exist.
    there: AtomicBool,
    /// The sessions that this process writes with as leader.
    sessions: Mutex<Vec<Bson>>,
    pub(super) left: Arc<Left>,
    /// The last stored list of logs without numbers; `None` if it is not known.
    told: Mutex<Option<Stalled>>,
    pub(super) trouble: Trouble,
}

/// Databases whose logs get no numbers, with the reason.
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

    /// Takes the lease if it is free, and ends the transactions of the previous holder: one that was killed leaves a transaction open,
    /// which would block its successor for a minute.
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
            // Values that other software left here must not prevent every process from leading.
            "epoch": { "$add": [{ "$cond": [{ "$isNumber": "$epoch" }, "$epoch", 0_i64] }, 1_i64] },
            // Sessions that a previous holder did not end are still to be ended.
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

    /// Creates an expired lease if there is none.
    async fn begin(&self) -> mongodb::error::Result<()> {
        let nobodys = doc! { "$setOnInsert": { "epoch": 0_i64, "until": DateTime::from_millis(0), "sessions": [] } };
        let state = self.database.collection::<Document>(SEQUENCER);
        in_time(self.holds, state.update_one(doc! { "_id": ID }, nobodys).upsert(true)).await.map(|_| ())
    }

    /// Ends these sessions, and returns whether that succeeded.
    async fn end_sessions(&self, sessions: &[Bson]) -> bool {
        if sessions.is_empty() {
            return true;
        }
        let admin = self.database.client().database("admin");
        let command = doc! { "killSessions": sessions.to_vec() };
        // The command waits for the operations of the sessions, which may take long; leading must not wait for it.
        let ended = in_time(self.holds / 3, admin.run_command(command)).await;
        if let Err(error) = &ended {
            tracing::warn!(
                error = message_of(error),
                "transactions of a sequencer that leads no more may be open for a minute"
            );
        }
        ended.is_ok()
    }

    /// Records the sessions that this process writes with. Those of previous holders have been ended by now, or are being ended.
    pub(super) async fn note_sessions(&self, epoch: i64, sessions: Vec<Document>) -> mongodb::error::Result<bool> {
        let state = self.database.collection::<Document>(SEQUENCER);
        *self.sessions.lock().unwrap_or_else(PoisonError::into_inner) = sessions.iter().map(Bson::from).collect();
        let noted = state.update_one(self.mine(epoch), doc! { "$set": { "sessions": sessions, "before": [] } }).await?;
        Ok(noted.matched_count == 1)
    }

    /// Renews the lease until it is lost, and returns the reason. It also counts as lost if the server does not respond in time, as when
    /// it is cut off from the majority.
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

    /// Stores which logs get no numbers while others do, if that has changed.
    pub(super) async fn tell(&self, epoch: i64, stalled: &Stalled) -> mongodb::error::Result<()> {
        if self.told.lock().unwrap_or_else(PoisonError::into_inner).as_ref() == Some(stalled) {
            return Ok(());
        }
        let since = |database: &str| doc! { "$ifNull": [format!("$stalled.{database}.since"), "$$NOW"] };
        let of = |(database, why): (&String, &String)| {
            (database.clone(), Bson::from(doc! { "why": { "$literal": why }, "since": since(database) }))
        };
        let all: Document = stalled.iter().map(of).collect();
        // Uses another field first, because `$set` of a document merges it into the existing one.
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

    /// Stores why no log gets numbers. It stays until commits get numbers again.
    pub(super) async fn fail(&self, epoch: i64, why: &str) {
        let state = self.database.collection::<Document>(SEQUENCER);
        let update = vec![doc! { "$set": { "failing": failing(why) } }];
        if let Err(error) = in_time(self.holds / 3, state.update_one(self.mine(epoch), update)).await {
            self.trouble.met("other processes were not told of it", &error);
        }
    }

    /// Releases the lease, so that the next leader need not wait.
    ///
    /// Ends the sessions of this process: after it was deposed, it may have begun a transaction later than its successor ended the open
    /// ones, which would stay open for a minute. If that fails, the sessions stay recorded and the next leader ends them.
    pub(super) async fn release(&self, epoch: i64) {
        let sessions = std::mem::take(&mut *self.sessions.lock().unwrap_or_else(PoisonError::into_inner));
        let ended = self.end_sessions(&sessions).await;
        let state = self.database.collection::<Document>(SEQUENCER);
        let mut release = doc! { "until": "$$NOW" };
        if ended {
            release.insert("sessions", Vec::<Bson>::new());
        }
        match in_time(self.holds / 3, state.update_one(self.mine(epoch), vec![doc! { "$set": release }])).await {
            // No other process has recorded these sessions, and none will.
            Ok(released) if ended && released.matched_count == 1 => self.left.give_back(),
            Ok(_) => self.left.abandon(),
            Err(error) => {
                self.left.abandon();
                self.trouble.met("its lease was not given back and expires by itself", &error);
            }
        }
    }

    /// Records that the document may be gone.
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

/// Returns an expression for a field if it is an array, and for an empty array otherwise.
fn array(field: &str) -> Document {
    doc! { "$cond": [{ "$isArray": field }, field, []] }
}

/// Returns the value of `failing`, which keeps the time of an earlier one.
fn failing(why: &str) -> Document {
    doc! { "why": { "$literal": why }, "since": { "$ifNull": ["$failing.since", "$$NOW"] } }
}

/// Returns the host and process id of this process, for people.
fn process() -> String {
    let named = |name: &String| !name.trim().is_empty();
    let host = std::env::var("HOSTNAME").ok().filter(named);
    let host = host.or_else(|| std::fs::read_to_string("/etc/hostname").ok().filter(named));
    format!("{} process {}", host.as_deref().map_or("unnamed host", str::trim), std::process::id())
}
