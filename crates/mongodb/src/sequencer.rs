//! The sequencer assigns sequence numbers to commits: it follows the commits of all tenants in a single change stream, in oplog order, and
//! writes them to the logs. One process of a cluster leads; the others stand by.
//!
//! ```text
//! stand by ──lease taken──▶ lead: open the stream where the logs stand ─▶ batch ─▶ one transaction a log ─▶ batch ─▶ …
//!    ▲ watch the heads                                                              │
//!    └──────────────────────── lease lost, offset moved by another, an error ◀──────┘
//! ```
//!
//! INVARIANT: the lease serves liveness only; the offset is the fence. Every transaction moves `event-log-metadata.NextEventOffset` from
//! the value that this process expects, so a deposed leader cannot write, and no reader sees part of a commit.

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

/// Pause after a log's first failure. It doubles with each further failure, up to 64 seconds.
const PAUSE: Duration = Duration::from_secs(2);
/// A log that has run this long since its last failure starts over with the first pause.
const FORGIVEN: Duration = Duration::from_secs(120);

/// A log that failed: how often, and when it last failed.
struct Aside {
    times: u32,
    since: Instant,
}

/// The state that the tasks of the sequencer share.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// The logs of all tenants. The lease is stored in the database of the first one.
    pub(crate) logs: Vec<Arc<Log>>,
    /// The unique name of this process.
    pub(crate) holder: String,
    pub(crate) at_step: AtStep,
    /// The duration of the lease.
    lease: Duration,
    /// Whether this process is the leader.
    leads: AtomicBool,
    progress: Arc<Progress>,
    /// Steps that a stop does not interrupt.
    steps: Arc<Steps>,
    /// Logs that were put aside after a failure, by database.
    aside: Mutex<HashMap<String, Aside>>,
    /// Why logs get no sequence numbers, by database, as last read from the stored state.
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

    /// Returns the sequencer's status as this process knows it, for a log with `held` held commits.
    pub(crate) fn status(&self, held: u64) -> SequencerStatus {
        let leads = self.leads.load(Ordering::Relaxed);
        SequencerStatus { leads, held, lag_ms: leads.then(|| self.progress.lag()) }
    }

    /// Records a failure of a log.
    fn put_aside(&self, database: &str) {
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = aside.entry(database.to_owned()).or_insert(Aside { times: 0, since: Instant::now() });
        *failed = Aside { times: failed.times.saturating_add(1), since: Instant::now() };
    }

    /// Records that a log was brought up, and forgets a failure that is old enough.
    fn goes_on(&self, database: &str) {
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        // A log that fails on its next commit again must keep its longer pause.
        aside.retain(|one, failed| one != database || failed.since.elapsed() < FORGIVEN);
    }

    fn was_aside(&self, database: &str) -> bool {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner).contains_key(database)
    }

    /// Returns whether the pause after a log's last failure is over.
    fn may_try(&self, database: &str) -> bool {
        let aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        aside.get(database).is_none_or(|failed| failed.since.elapsed() >= PAUSE * 2_u32.pow(failed.times.min(6) - 1))
    }

    /// Returns the stored reason why commits of this database get no sequence numbers, if there is one.
    pub(crate) fn stalled(&self, database: &str) -> Option<StoreError> {
        let stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        let why = stalled.get(database)?;
        Some(StoreError::other(Code::NotReady, format!("commits are stored and get no sequence numbers: {why}")))
    }

    /// Records the lag: `stored` is when the newest commit was stored; `None` means that the stream has nothing more.
    fn note_lag(&self, stored: Option<i64>) {
        let now = || self.logs.first().map_or(0, |log| log.clock.now().as_millis());
        let lag = stored.map_or(0, |stored| now().saturating_sub(stored).max(0));
        self.progress.lag.store(lag.cast_unsigned(), Ordering::Relaxed);
    }

    /// The interval between renewals of the lease, which is also the pause after an error.
    fn ask_every(&self) -> Duration {
        self.lease / 3
    }
}

/// Why a term as leader ended.
enum Ended {
    /// The store is being closed.
    Stopped,
    /// Another process leads, or may lead.
    Deposed(&'static str),
    /// The resume token is older than the oplog.
    Forgotten,
    Failed(mongodb::error::Error),
    /// Other software assigns sequence numbers.
    Disturbed(String),
    /// Stored data violates its layout.
    Damaged(String),
}

impl Ended {
    /// Returns what went wrong; `None` for the ordinary ways in which a term ends.
    fn failure(&self) -> Option<String> {
        match self {
            Self::Stopped | Self::Deposed(_) | Self::Forgotten => None,
            Self::Failed(error) => Some(message_of(error)),
            Self::Disturbed(why) | Self::Damaged(why) => Some(why.clone()),
        }
    }

    /// Returns what went wrong with a single log, if the other logs can continue.
    ///
    /// # Errors
    /// The value itself, if it concerns all logs.
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

/// Alternates between standing by and leading until `stop` is set. Meanwhile, watches the stored state for whether commits get numbers.
pub(crate) async fn run(cluster: Arc<Cluster>, stop: watch::Receiver<bool>) {
    let Some(first) = cluster.logs.first() else { return };
    let lease = Lease::new(first.database.clone(), cluster.holder.clone(), cluster.lease, cluster.at_step);
    tokio::select! {
        () = by_turns(&cluster, &lease, stop) => {}
        never = witness::look(&cluster, &lease) => match never {},
    }
}

async fn by_turns(cluster: &Cluster, lease: &Lease, mut stop: watch::Receiver<bool>) {
    // Set when the resume token was too old: the next term then reads the collections instead.
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
            Ended::Deposed(why) => tracing::warn!(why, "this process is not the sequencer any more"),
            Ended::Forgotten => tracing::warn!("the oplog does not reach back; the collections are read instead"),
            Ended::Failed(error) => lease.trouble.met("sequencing stopped", &error),
            Ended::Disturbed(sentence) => tracing::error!(sentence, "sequencing stopped; it is tried again"),
            Ended::Damaged(sentence) => tracing::error!(sentence, "sequencing stopped; it is tried again"),
        }
        if !forgotten {
            tokio::select! {
                () = stopped(cluster, &mut stop) => return,
                () = sleep(cluster.ask_every()) => {}
            }
        }
    }
}

/// Waits for the stop signal, and then for the steps in flight to complete.
async fn stopped(cluster: &Cluster, stop: &mut watch::Receiver<bool>) {
    // If the sender is gone, the store was dropped.
    let _ = stop.wait_for(|stop| *stop).await;
    cluster.steps.ended().await;
}

/// Applies a timeout to an operation: a server that is cut off from the majority may never respond.
async fn in_time<T>(
    time: Duration,
    operation: impl IntoFuture<Output = mongodb::error::Result<T>>,
) -> mongodb::error::Result<T> {
    let answered = tokio::time::timeout(time, operation.into_future()).await;
    answered.unwrap_or_else(|_| Err(mongodb::error::Error::custom("the server gives no answer")))
}
