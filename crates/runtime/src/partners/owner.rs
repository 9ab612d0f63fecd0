//! The task that owns the partners of a tenant: while it holds the lease, it runs selection, replays and lanes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use annals_core::partners::{DeliveryRecord, EventDirection, PARTNERS};
use annals_core::{
    ChangeFollower, ChangesError, Condition, Expected, Lease, RecordChange, RecordError, RecordType, StoreError,
};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::TenantPartners;
use super::known::Known;
use super::lane::Lane;
use super::queues::Queues;
use super::writer::Job;
use crate::host::{Asked, Ended, Held, Leases, Supervised, is_set, locked};

/// How often to ask for a lease that another process holds.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// The task's name for its lease.
const TASK: &str = "partners";
/// The number of locks over which entities are distributed.
const STRIPES: usize = 256;

/// The state of the owner of a tenant's partners that survives restarts of its task.
pub(super) struct Owner {
    pub partners: Arc<TenantPartners>,
}

/// The state that the owner's tasks share.
pub(super) struct Work {
    pub partners: Arc<TenantPartners>,
    /// The epoch of this ownership, which every batch expects.
    pub epoch: i64,
    pub known: watch::Sender<Arc<Known>>,
    /// Set when nothing new may start.
    pub ending: watch::Sender<bool>,
    /// The queue of the writer; see `writer.rs`.
    pub jobs: mpsc::UnboundedSender<Job>,
    /// Whether other deliveries can wait for those in flight.
    pub queues: Queues,
    /// INVARIANT: code that decides about the order of an entity's deliveries holds the lock of the entity's stripe.
    stripes: Vec<Mutex<()>>,
}

enum Stop {
    Done,
    Lost,
    Given(String),
    Failed(String),
}

impl Supervised for Owner {
    async fn run(&mut self) -> Ended {
        loop {
            let stop = self.own().await;
            self.partners.set_owner(false);
            match stop {
                Stop::Done => {
                    *locked(&self.partners.runs) = false;
                    return Ended::Done;
                }
                Stop::Given(_) => {}
                Stop::Lost => tracing::info!(tenant = self.partners.tenant, "another process took over the partners"),
                Stop::Failed(error) => return Ended::Failed(error),
            }
        }
    }
}

impl Owner {
    async fn own(&self) -> Stop {
        let partners = &self.partners;
        if let Err(error) = partners.declare().await {
            return error.into();
        }
        let leases = Leases::new(&partners.shared, &partners.tenant, Arc::clone(&partners.records), TASK.to_owned());
        let leases = leases.spread();
        let held = match self.until_taken(&leases).await {
            Ok(held) => held,
            Err(stop) => return stop,
        };
        let stop = match self.begin(&held).await {
            Ok((work, tasks)) => self.work(&leases, &held, work, tasks).await,
            Err(error) => error.into(),
        };
        match &stop {
            Stop::Done | Stop::Failed(_) => leases.release(&held).await,
            Stop::Given(to) => leases.give(&held, to).await,
            Stop::Lost => {}
        }
        stop
    }

    async fn until_taken(&self, leases: &Leases) -> Result<Held, Stop> {
        let mut stop = self.partners.shared.stop.subscribe();
        loop {
            if let Asked::Taken(held) = leases.ask().await? {
                return Ok(held);
            }
            tokio::select! {
                biased;
                () = is_set(&mut stop) => return Err(Stop::Done),
                () = self.partners.clock().sleep(ASK_EVERY) => {}
            }
        }
    }

    async fn begin(&self, held: &Held) -> Result<(Arc<Work>, JoinSet<Result<(), String>>), RecordError> {
        let partners = &self.partners;
        let last = match partners.records.last_change(PARTNERS).await {
            Ok(last) => last,
            Err(ChangesError::Store(error)) => return Err(error.into()),
            Err(error) => return Err(StoreError::Unreachable(error.to_string()).into()),
        };
        let known = partners.load().await?;
        let (jobs, asked) = mpsc::unbounded_channel();
        let work = Arc::new(Work {
            partners: Arc::clone(partners),
            epoch: held.epoch(),
            known: watch::Sender::new(Arc::new(known)),
            ending: watch::Sender::new(false),
            jobs,
            queues: Queues::default(),
            stripes: std::iter::repeat_with(Mutex::default).take(STRIPES).collect(),
        });
        partners.set_owner(true);
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&work).follow(last));
        tasks.spawn(Arc::clone(&work).select());
        tasks.spawn(Arc::clone(&work).run_replays());
        tasks.spawn(Arc::clone(&work).copy_older());
        tasks.spawn(Arc::clone(&work).run_lanes(asked));
        Ok((work, tasks))
    }

    async fn work(
        &self,
        leases: &Leases,
        held: &Held,
        work: Arc<Work>,
        mut tasks: JoinSet<Result<(), String>>,
    ) -> Stop {
        let mut stop = self.partners.shared.stop.subscribe();
        loop {
            match leases.keeps(held).await {
                Ok(true) => {}
                Ok(false) => return Stop::Lost,
                Err(error) => return error.into(),
            }
            let given = leases.given_to();
            if let Some(to) = given {
                work.end(&mut tasks).await;
                return Stop::Given(to);
            }
            tokio::select! {
                biased;
                () = is_set(&mut stop) => {
                    work.end(&mut tasks).await;
                    return Stop::Done;
                }
                Some(ended) = tasks.join_next() => match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return Stop::Failed(error),
                    Err(error) => return Stop::Failed(error.to_string()),
                },
                () = leases.until_called_off(held) => {}
            }
        }
    }
}

impl Work {
    /// Starts nothing new, and waits until everything in flight is stored.
    async fn end(&self, tasks: &mut JoinSet<Result<(), String>>) {
        self.ending.send_replace(true);
        while tasks.join_next().await.is_some() {}
    }

    /// Returns the check that makes a batch fail once another process owns the partners.
    pub fn fence(&self) -> RecordChange {
        RecordChange::check(Lease::COLLECTION, TASK, Expected::Matching(Condition::eq("epoch", self.epoch)))
    }

    /// Returns the lock of an entity's stripe.
    pub fn stripe(&self, lane: &str, entity: &str) -> &Mutex<()> {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (lane, entity).hash(&mut hasher);
        &self.stripes[hasher.finish() as usize % STRIPES]
    }

    /// Follows the changes of partners, made here and in other processes.
    async fn follow(self: Arc<Self>, last: u64) -> Result<(), String> {
        let mut ending = self.ending.subscribe();
        let mut follower = ChangeFollower::new(Arc::clone(&self.partners.records), PARTNERS, last);
        loop {
            let changes = tokio::select! {
                () = is_set(&mut ending) => return Ok(()),
                changes = follower.next_page() => changes,
            };
            let changes = match changes {
                Ok(changes) => changes,
                Err(ChangesError::Store(StoreError::Closed)) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            };
            let known = self.partners.load().await.map_err(|error| error.to_string())?;
            self.known.send_replace(Arc::new(known));
            for partner in changes.iter().filter_map(|change| change.id.as_str()) {
                for direction in EventDirection::ALL {
                    self.partners.wake_of(&DeliveryRecord::lane_of(*direction, partner)).notify_one();
                }
            }
            self.partners.replays.notify_one();
        }
    }

    /// Runs a lane for each partner and direction, and the writer of their attempts.
    async fn run_lanes(self: Arc<Self>, asked: mpsc::UnboundedReceiver<Job>) -> Result<(), String> {
        let (mut known, mut ending) = (self.known.subscribe(), self.ending.subscribe());
        // It is aborted with this task, once the lanes have ended.
        let mut writer = JoinSet::new();
        writer.spawn(Arc::clone(&self).write_jobs(asked));
        let mut lanes: JoinSet<String> = JoinSet::new();
        let mut running: BTreeMap<String, AbortHandle> = BTreeMap::new();
        loop {
            let partners: Vec<String> = known.borrow_and_update().partners.keys().cloned().collect();
            for (partner, direction) in
                partners.iter().flat_map(|it| EventDirection::ALL.iter().map(move |to| (it, *to)))
            {
                let lane = DeliveryRecord::lane_of(direction, partner);
                if !running.contains_key(&lane) && !*ending.borrow() {
                    let task = Lane::new(Arc::clone(&self), partner.clone(), direction);
                    running.insert(lane, lanes.spawn(task.run()));
                }
            }
            tokio::select! {
                () = is_set(&mut ending) => {
                    while lanes.join_next().await.is_some() {}
                    return Ok(());
                }
                changed = known.changed() => if changed.is_err() { return Ok(()) },
                Some(ended) = lanes.join_next() => match ended {
                    // Its partner was deleted. If the partner is defined again, the lane starts again.
                    Ok(lane) => { running.remove(&lane); }
                    Err(error) => return Err(error.to_string()),
                },
                Some(Err(error)) = writer.join_next() => return Err(error.to_string()),
            }
        }
    }
}

impl From<RecordError> for Stop {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(StoreError::Closed) => Self::Done,
            other => Self::Failed(other.to_string()),
        }
    }
}
