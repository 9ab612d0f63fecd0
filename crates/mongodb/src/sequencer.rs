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

mod aggregates;
mod asked;
mod assign;
mod backlog;
mod blocks;
mod bound;
pub(crate) mod catch_up;
pub(crate) mod contexts;
mod departed;
mod held;
mod lead;
mod lease;
pub(crate) mod missing;
mod place;
mod progress;
mod standby;
mod state;
pub(crate) mod step;
mod steps;
mod stream;
mod trouble;
mod witness;
mod write;
mod writing;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annals_core::{Code, SequencerStatus, StoreError};
use annals_system::{Instant, sleep};
use mongodb::Client;
use tokio::sync::watch;

use crate::log::Log;
use crate::refused::{code_of, is_garbled, message_of, passes};
pub(crate) use assign::label;
use lease::Lease;
use progress::Progress;
use step::AtStep;
use steps::Steps;

/// How long a log that failed is left alone the first time; each time twice as long, up to a minute.
const PAUSE: Duration = Duration::from_secs(2);
/// A log that failed and has not for so long begins again.
const FORGIVEN: Duration = Duration::from_secs(120);

/// A log that failed: how often, and when it did last.
struct Aside {
    times: u32,
    since: Instant,
}

/// What the sequencer works on.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// The logs of all tenants; the first one's database holds the lease.
    pub(crate) logs: Vec<Arc<Log>>,
    /// A name for this process that no other has.
    pub(crate) holder: String,
    pub(crate) at_step: AtStep,
    /// How long the lease holds.
    lease: Duration,
    /// Whether this process leads.
    leads: AtomicBool,
    progress: Arc<Progress>,
    /// What is not broken off by a stop.
    steps: Arc<Steps>,
    /// Logs that were put aside, by their databases.
    aside: Mutex<HashMap<String, Aside>>,
    /// Why logs get no numbers, by their databases, as is stored.
    stalled: Mutex<HashMap<String, String>>,
}

impl Cluster {
    pub(crate) fn new(client: Client, logs: Vec<Arc<Log>>, holder: String, lease: Duration, at_step: AtStep) -> Self {
        Self {
            client,
            logs,
            holder,
            at_step,
            lease,
            leads: AtomicBool::new(false),
            progress: Arc::default(),
            steps: Arc::default(),
            aside: Mutex::default(),
            stalled: Mutex::default(),
        }
    }

    /// What is known here about the sequencer, for a log that has so many commits held back.
    pub(crate) fn status(&self, held: u64) -> SequencerStatus {
        let leads = self.leads.load(Ordering::Relaxed);
        SequencerStatus { leads, held, lag_ms: leads.then(|| self.progress.lag()) }
    }

    /// Takes note that a log fails.
    fn put_aside(&self, database: &str) {
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = aside.entry(database.to_owned()).or_insert(Aside { times: 0, since: Instant::now() });
        *failed = Aside { times: failed.times.saturating_add(1), since: Instant::now() };
    }

    /// Takes note that a log has come through.
    fn goes_on(&self, database: &str) {
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        // One that fails with its next commit again has not.
        aside.retain(|one, failed| one != database || failed.since.elapsed() < FORGIVEN);
    }

    fn was_aside(&self, database: &str) -> bool {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner).contains_key(database)
    }

    /// Whether a log that failed may be tried again: the first time soon, then more and more seldom.
    fn may_try(&self, database: &str) -> bool {
        let aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        aside.get(database).is_none_or(|failed| failed.since.elapsed() >= PAUSE * 2_u32.pow(failed.times.min(6) - 1))
    }

    /// Why the commits of this database get no numbers, as far as is stored.
    pub(crate) fn stalled(&self, database: &str) -> Option<StoreError> {
        let stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        let why = stalled.get(database)?;
        Some(StoreError::other(Code::NotReady, format!("commits are stored and get no sequence numbers: {why}")))
    }

    /// Says how far the stream is behind: `stored` is when its newest commit was, none when it has nothing more.
    fn note_lag(&self, stored: Option<i64>) {
        let now = || self.logs.first().map_or(0, |log| log.clock.now().as_millis());
        let lag = stored.map_or(0, |stored| now().saturating_sub(stored).max(0));
        self.progress.lag.store(lag.cast_unsigned(), Ordering::Relaxed);
    }

    /// How often the lease is renewed, and how long is waited after an error.
    fn ask_every(&self) -> Duration {
        self.lease / 3
    }
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

impl Ended {
    /// What went wrong, unless it is part of how processes take turns.
    fn failure(&self) -> Option<String> {
        match self {
            Self::Stopped | Self::Deposed(_) | Self::Forgotten => None,
            Self::Failed(error) => Some(message_of(error)),
            Self::Disturbed(why) | Self::Damaged(why) => Some(why.clone()),
        }
    }

    /// What went wrong with one log, where the others can go on.
    ///
    /// # Errors
    /// Itself, where it is about all of them.
    fn of_one(self) -> Result<String, Self> {
        match &self {
            Self::Disturbed(why) | Self::Damaged(why) => Ok(why.clone()),
            Self::Failed(error) if (code_of(error).is_some() || is_garbled(error)) && !passes(error) => {
                Ok(message_of(error))
            }
            _ => Err(self),
        }
    }
}

impl From<mongodb::error::Error> for Ended {
    fn from(error: mongodb::error::Error) -> Self {
        Self::Failed(error)
    }
}

/// Stands by and leads by turns, until `stop` says so. Meanwhile what is stored says whether commits get numbers.
pub(crate) async fn run(cluster: Arc<Cluster>, stop: watch::Receiver<bool>) {
    let Some(first) = cluster.logs.first() else { return };
    let lease = Lease::new(first.database.clone(), cluster.holder.clone(), cluster.lease, cluster.at_step);
    tokio::select! {
        () = by_turns(&cluster, &lease, stop) => {}
        never = witness::look(&cluster, &lease) => match never {},
    }
}

async fn by_turns(cluster: &Cluster, lease: &Lease, mut stop: watch::Receiver<bool>) {
    // Set when the stream's position turned out to be too old: the logs are then brought up from the collections.
    let mut forgotten = false;
    loop {
        let epoch = tokio::select! {
            () = stopped(cluster, &mut stop) => return,
            epoch = standby::until_leading(cluster, lease) => epoch,
        };
        tracing::info!(epoch, "this process is the sequencer");
        cluster.leads.store(true, Ordering::Relaxed);
        let ended = tokio::select! {
            () = stopped(cluster, &mut stop) => Ended::Stopped,
            lost = lease.keep(epoch, &cluster.progress) => Ended::Deposed(lost),
            ended = lead::lead(cluster, lease, epoch, forgotten) => ended,
            never = departed::end_transactions(cluster) => match never {},
            never = blocks::write(cluster) => match never {},
            never = missing::look(cluster) => match never {},
        };
        cluster.leads.store(false, Ordering::Relaxed);
        forgotten = matches!(ended, Ended::Forgotten);
        cluster.progress.rests();
        if let Some(why) = ended.failure() {
            lease.fail(epoch, &why).await;
        }
        lease.release(epoch).await;
        match ended {
            Ended::Stopped => return,
            Ended::Deposed(why) => tracing::warn!(why, "this process is no longer the sequencer"),
            Ended::Forgotten => {
                tracing::warn!("the oplog does not reach back far enough; reading the collections instead")
            }
            Ended::Failed(error) => lease.trouble.met("sequencing stopped", &error),
            Ended::Disturbed(sentence) => tracing::error!(sentence, "sequencing stopped; retrying"),
            Ended::Damaged(sentence) => tracing::error!(sentence, "sequencing stopped; retrying"),
        }
        if !forgotten {
            tokio::select! {
                () = stopped(cluster, &mut stop) => return,
                () = sleep(cluster.ask_every()) => {}
            }
        }
    }
}

/// Waits until the process is to stop, and then until the steps that are under way are taken.
async fn stopped(cluster: &Cluster, stop: &mut watch::Receiver<bool>) {
    // A sender that is gone is a store that was dropped.
    let _ = stop.wait_for(|stop| *stop).await;
    cluster.steps.ended().await;
}

/// What the server does not answer in time is an error: one that is cut off from the majority may answer never.
async fn in_time<T>(
    time: Duration,
    operation: impl IntoFuture<Output = mongodb::error::Result<T>>,
) -> mongodb::error::Result<T> {
    let answered = tokio::time::timeout(time, operation.into_future()).await;
    answered.unwrap_or_else(|_| Err(mongodb::error::Error::custom("the server does not answer")))
}
