//! One life of a store: what goes wrong, what clients do meanwhile, and how it ends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use annals_conformance::ManualClock;
use annals_conformance::model::{Answer, Operation, Operations};
use annals_core::{
    AggregateQuery, CommitError, EventLog, ExpectedVersion, Filter, Follower, NewCommit, StoreError, limits,
};
use tokio::task::JoinHandle;

use super::{Battery, Theme};
use crate::faulty_disk::Fault;
use crate::lives::{LIFE_MAX, LOOK_EVERY, Lives, WHILE_HELD};
use crate::stores::{Opened, open};

/// What clients are doing now, for those who look on.
#[derive(Default)]
struct Activity {
    /// Clients that have something to do still.
    busy: AtomicUsize,
    /// Commits that wait for their answer.
    waiting: Mutex<Vec<NewCommit>>,
}

impl Activity {
    /// Waits until no client has anything to do, or something else has come about.
    async fn until_done_or(&self, come_about: impl Fn() -> bool) {
        while self.busy.load(Ordering::SeqCst) > 0 && !come_about() {
            // tidy: allow(pause) between two looks, or the processor would be taken from those who are watched
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// What is to happen in a life after its opening.
#[derive(Default)]
pub(super) struct Plot {
    /// The operation from which on a sync hangs.
    hold_at: Option<u64>,
    /// The operation at which the process ends, counted from when that sync may go on; none lets it hang to the end.
    end_after_hold: Option<u64>,
    /// Whether the life ends by kill -9, not by power loss.
    power_stays: bool,
    /// Whether few clients do one or two things and the others none.
    short: bool,
}

type Client = JoinHandle<Operations>;

impl Battery {
    /// One life, from opening to its end.
    pub(super) async fn live_once(&mut self, lives: &mut Lives, life: usize) -> Result<(), String> {
        self.plot = match self.theme {
            Theme::Any => any_plot(lives),
            Theme::TornBatches if life.is_multiple_of(2) => Plot {
                hold_at: Some(lives.random.u64(1..12)),
                end_after_hold: Some(2),
                power_stays: false,
                short: false,
            },
            Theme::TornBatches => Plot { power_stays: lives.random.bool(), short: true, ..Plot::default() },
        };
        match open(lives.disk.clone(), lives.options.clone()) {
            Ok(opened) => self.live_in(lives, opened).await?,
            Err(error) if lives.disk.fired().is_empty() && error.code != annals_core::Code::DiskFull => {
                return Err(format!("it did not open although nothing failed: {error}"));
            }
            Err(error) => {
                lives.story.push(format!("not opened: {error}"));
                lives.end(self.plot.power_stays);
            }
        }
        self.history.restarted();
        Ok(())
    }

    async fn live_in(&mut self, lives: &mut Lives, opened: Opened) -> Result<(), String> {
        let status = opened.status();
        lives.story.push(format!("opened: head {}, recovery {:?}", status.head, status.recovery));
        if let Some(refusal) = status.refusing {
            return Err(format!("it was opened damaged: {refusal}"));
        }
        // Not before: opening would wait for the held sync for ever.
        if let Some(operation) = self.plot.hold_at {
            lives.disk.plan(operation, Fault::Hold);
        }
        let activity = Arc::new(Activity::default());
        let clients = self.start_clients(lives, &opened, &activity);
        let follower = self.start_follower(&opened);
        let probes = self.watch_over(lives, &opened, &activity).await?;
        // An orderly end now and then; else the process ends with everything under way.
        lives.close_now_and_then(&opened.store).await?;
        lives.end(self.plot.power_stays);
        self.clients = join(clients, &activity).await?;
        // All who asked the dead process must have ended: it must not seem to answer in the next life.
        for probe in probes {
            probe.abort();
            let _ = probe.await;
        }
        follower.abort();
        if let Ok(followed) = follower.await {
            self.followed = followed;
        }
        Ok(())
    }

    fn start_clients(&mut self, lives: &mut Lives, opened: &Opened, activity: &Arc<Activity>) -> Vec<Client> {
        let operations = std::mem::take(&mut self.clients);
        activity.busy.store(operations.len(), Ordering::SeqCst);
        let short = self.plot.short;
        let start = |(n, operations): (usize, Operations)| {
            let log = self.history.watch(&format!("client {n}"), opened.log.clone());
            let count = match (short, lives.random.u8(0..4)) {
                (true, 0) => lives.random.usize(1..3),
                (true, _) => 0,
                (false, _) => lives.random.usize(5..60),
            };
            let twice = lives.random.fork();
            tokio::spawn(client(operations, count, twice, log, self.clock.clone(), activity.clone()))
        };
        operations.into_iter().enumerate().map(start).collect()
    }

    fn start_follower(&self, opened: &Opened) -> JoinHandle<u64> {
        let log = self.history.watch("follower", opened.log.clone());
        let mut follower = Follower::new(log, self.followed, Filter::default());
        tokio::spawn(async move {
            while follower.next_page().await.is_ok() {}
            follower.position()
        })
    }

    /// Waits until the clients are done, or cannot go on because a sync hangs; then looks at what can be seen meanwhile.
    async fn watch_over(
        &self,
        lives: &mut Lives,
        opened: &Opened,
        activity: &Arc<Activity>,
    ) -> Result<Vec<JoinHandle<()>>, String> {
        let held = tokio::time::timeout(LIFE_MAX, activity.until_done_or(|| lives.disk.holds())).await;
        if held.is_err() {
            lives.disk.release();
            return Err("the clients are stuck".into());
        }
        if !lives.disk.holds() {
            return Ok(Vec::new());
        }
        let probes = self.probe(opened, activity);
        let _ = tokio::time::timeout(WHILE_HELD, activity.until_done_or(|| false)).await;
        // Everything that gathered while the sync hung makes one large batch, and the process may end while that one is written (an
        // operation after the sync) or synced (two after it).
        if self.plot.end_after_hold.is_some() || lives.random.u8(0..4) == 0 {
            if let Some(operation) = self.plot.end_after_hold {
                lives.disk.plan(operation, Fault::End);
            }
            lives.disk.release();
            let _ = tokio::time::timeout(LIFE_MAX, activity.until_done_or(|| false)).await;
        }
        Ok(probes)
    }

    /// Asks, while a sync hangs, everything whose answer may depend on what hangs: repeats of the waiting commits, commits that would
    /// follow them or conflict with them, and reads.
    fn probe(&self, opened: &Opened, activity: &Activity) -> Vec<JoinHandle<()>> {
        let waiting = activity.waiting.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut probes = Vec::new();
        let log = || self.history.watch("prober", opened.log.clone());
        for commit in waiting {
            let aggregate = commit.aggregate.clone();
            let conflicting = NewCommit { request_id: None, ..commit.clone() }.expect(ExpectedVersion::Empty);
            for again in [commit.clone(), conflicting] {
                let log = log();
                probes.push(tokio::spawn(async move {
                    let _ = log.commit(again).await;
                }));
            }
            let log = log();
            probes.push(tokio::spawn(async move {
                let query = AggregateQuery { limit: limits::PAGE_MAX, ..AggregateQuery::new(aggregate.clone()) };
                let _ = log.read_aggregate(query).await;
                if let Some(request) = commit.request_id {
                    let _ = log.request_exists(&aggregate, &request).await;
                }
            }));
        }
        let log = log();
        probes.push(tokio::spawn(async move {
            let _ = log.head().await;
            let _ = annals_conformance::history::read_all(&log).await;
        }));
        probes
    }
}

/// Plans what fails from the opening on, and chooses the rest.
fn any_plot(lives: &mut Lives) -> Plot {
    let near = lives.random.bool();
    let operation = if near { lives.random.u64(0..25) } else { lives.random.u64(0..150) };
    let mut plot = Plot {
        power_stays: lives.random.bool(),
        // A life that does little leaves most of what it found to the next one.
        short: lives.random.u8(0..4) == 0,
        ..Plot::default()
    };
    let fault = match lives.random.u8(0..10) {
        0 => return plot,
        1 | 2 => Fault::Error,
        3..6 => Fault::End,
        6..9 => {
            plot.hold_at = Some(operation);
            plot.end_after_hold = (lives.random.u8(0..4) == 0).then(|| lives.random.u64(1..3));
            return plot;
        }
        _ => {
            let room = lives.disk.used() + lives.random.u64(0..20_000);
            lives.story.push(format!("room for {room} bytes"));
            lives.disk.set_room(Some(room));
            return plot;
        }
    };
    lives.plan(operation, fault);
    if lives.random.u8(0..4) == 0 {
        lives.disk.plan(operation + lives.random.u64(1..20), Fault::End);
    }
    plot
}

async fn client(
    mut operations: Operations,
    count: usize,
    mut twice: fastrand::Rng,
    log: Arc<dyn EventLog>,
    clock: Arc<ManualClock>,
    activity: Arc<Activity>,
) -> Operations {
    for _ in 0..count {
        clock.advance_millis(twice.i64(0..3));
        let operation = operations.next_operation();
        let answer = if let Operation::Commit(commit) = &operation {
            activity.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(commit.clone());
            let answer = if twice.u8(0..6) == 0 {
                // A client that is impatient sends the same twice at once.
                tokio::join!(operation.run(&log), operation.run(&log)).0
            } else {
                operation.run(&log).await
            };
            let mut waiting = activity.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = waiting.iter().position(|waiting| waiting == commit) {
                waiting.swap_remove(at);
            }
            answer
        } else {
            operation.run(&log).await
        };
        operations.learn(&operation, &answer);
        if let Answer::Commit(Err(CommitError::Store(StoreError::Failed(_) | StoreError::Closed))) = answer {
            break;
        }
        tokio::task::yield_now().await;
    }
    activity.busy.fetch_sub(1, Ordering::SeqCst);
    operations
}

/// Waits for clients whose store has ended: every operation of theirs ends too, with an answer or an error.
async fn join(clients: Vec<Client>, activity: &Activity) -> Result<Vec<Operations>, String> {
    let mut operations = Vec::new();
    for client in clients {
        let ended = tokio::time::timeout(LIFE_MAX, client).await;
        let ended = ended.map_err(|_| format!("{} clients are stuck", activity.busy.load(Ordering::SeqCst)))?;
        operations.push(ended.map_err(|error| format!("a client failed: {error}"))?);
    }
    Ok(operations)
}
