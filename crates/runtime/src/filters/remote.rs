//! Filling a stream by the verdicts of a client, which pulls events and settles each.
//!
//! One batch is in flight at a time and is settled in order, so events are evaluated in log order and a verdict is stored before it is
//! acknowledged. A batch whose lease expired or whose caller has gone is handed out again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use annals_core::filters::{Evaluator, FilterError, FilterFailureRecord, FilterSettlement, Verdict};
use annals_core::handlers::{Delivery, DeliveryFailure, PullBody, SettleResult, WorkerStatus};
use annals_core::trace::TraceContext;
use annals_core::{Included, Invalid, ReadError, RecordedEvent, SequenceNumber, StoreError, Timestamp};
use annals_system::Seal;
use tokio::sync::{mpsc, oneshot};

use super::owner::{IDLE_MAX, Stop, Work, superseded};
use super::source::Run;
use crate::host::{is_set, reached};

/// The number of events waiting for a pull at which reading pauses.
const QUEUE_MAX: usize = 1_000;
/// A client that has not pulled for this long is no longer listed.
const WORKER_SEEN: Duration = Duration::from_secs(60);

/// A request to the owner of a remote filter.
pub(super) enum Command {
    Pull(Pull),
    Settle { results: Vec<FilterSettlement>, answer: oneshot::Sender<Result<Vec<SettleResult>, FilterError>> },
    Look { answer: oneshot::Sender<Vec<WorkerStatus>> },
}

/// A pull that waits.
pub(super) struct Pull {
    pub body: PullBody,
    pub ends: Timestamp,
    pub answer: oneshot::Sender<Result<Handed, FilterError>>,
}

/// Deliveries on their way to a caller. If dropped before they are accepted, they are returned.
pub(super) struct Handed {
    deliveries: Vec<Delivery>,
    back: Option<(mpsc::UnboundedSender<u64>, u64)>,
}

impl Handed {
    pub fn nothing() -> Self {
        Self { deliveries: Vec::new(), back: None }
    }

    pub fn accept(mut self) -> Vec<Delivery> {
        self.back = None;
        std::mem::take(&mut self.deliveries)
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        if let Some((back, batch)) = self.back.take() {
            // An owner that is gone has forgotten the batch.
            let _ = back.send(batch);
        }
    }
}

/// An event that waits for a verdict, with its position in the source.
type Waiting = (u64, RecordedEvent);

/// A batch of events that a client evaluates. The first event has the token `first`, the second `first + 1`, and so on.
struct Batch {
    number: u64,
    first: u64,
    events: VecDeque<Waiting>,
    worker: String,
    until: Timestamp,
}

struct Remote<'w, 'o> {
    work: &'w mut Work<'o>,
    evaluator: Evaluator,
    queue: VecDeque<Waiting>,
    /// The point up to which the source was read.
    read_to: SequenceNumber,
    batch: Option<Batch>,
    batches: u64,
    next_token: u64,
    /// Seals the numbers of deliveries, because consecutive numbers can be guessed.
    seal: Seal,
    pulls: Vec<Pull>,
    returned: (mpsc::UnboundedSender<u64>, mpsc::UnboundedReceiver<u64>),
    workers: HashMap<String, Timestamp>,
    last_pull: Timestamp,
}

/// Serves pulls and settlements until something stops the owner.
pub(super) async fn run(work: &mut Work<'_>) -> Stop {
    let mut remote = Remote {
        evaluator: Evaluator::new(&work.definition),
        queue: VecDeque::new(),
        read_to: work.progress,
        batch: None,
        batches: 0,
        next_token: work.epoch() << 40,
        seal: Seal::new(&*work.owner.filters.shared.options.random),
        pulls: Vec::new(),
        returned: mpsc::unbounded_channel(),
        workers: HashMap::new(),
        last_pull: work.clock.now(),
        work,
    };
    loop {
        match remote.turn().await {
            Ok(()) => {}
            Err(Stop::Done) => {
                let _ = remote.store_progress().await;
                return Stop::Done;
            }
            Err(stop) => return stop,
        }
    }
}

impl Remote<'_, '_> {
    async fn turn(&mut self) -> Result<(), Stop> {
        let clock = Arc::clone(&self.work.clock);
        let now = clock.now();
        self.work.keep_lease().await?;
        self.work.notice(now);
        self.expire(now).await?;
        if now >= self.work.store_at() {
            self.store_progress().await?;
        }
        self.serve(now);
        let shared = self.work.owner.filters.shared.may_share();
        let is_idle = self.pulls.is_empty() && self.batch.is_none() && now.since(self.last_pull) >= IDLE_MAX;
        if shared && is_idle {
            return Err(Stop::Done);
        }
        let (reads, next_look) = (self.queue.len() < QUEUE_MAX, self.next_look(now, shared));
        let mut stop = self.work.owner.filters.shared.stop.subscribe();
        let mut changed = self.work.owner.slot.changed.subscribe();
        let change = self.work.change();
        let work = &mut *self.work;
        tokio::select! {
            biased;
            () = is_set(&mut stop) => Err(Stop::Done),
            // The change counter has advanced. Waiting pulls are repeated by their callers.
            () = superseded(&mut changed, change) => Err(Stop::Again),
            Some(batch) = self.returned.1.recv() => {
                if self.batch.as_ref().is_some_and(|it| it.number == batch) {
                    self.release();
                }
                Ok(())
            }
            command = work.owner.commands.recv() => match command {
                Some(command) => self.command(command).await,
                None => Err(Stop::Done),
            },
            () = work.leases.until_called_off(work.held) => Ok(()),
            found = work.source.step(self.read_to, &*clock), if reads => self.read(found),
            () = reached(&*clock, now, next_look) => Ok(()),
        }
    }

    fn read(&mut self, found: Result<Run, ReadError>) -> Result<(), Stop> {
        match found {
            Ok(run) => {
                let evaluator = &self.evaluator;
                self.queue.extend(run.events.into_iter().filter(|(_, event)| evaluator.admits(event)));
                self.read_to = run.next;
                Ok(())
            }
            Err(ReadError::Store(StoreError::Closed)) => Err(Stop::Closed),
            Err(error) => Err(Stop::Failed(error.to_string())),
        }
    }

    async fn command(&mut self, command: Command) -> Result<(), Stop> {
        let now = self.work.clock.now();
        match command {
            Command::Pull(pull) => {
                self.last_pull = now;
                self.workers.insert(pull.body.worker.clone(), now);
                self.workers.retain(|_, seen| now.since(*seen) < WORKER_SEEN);
                self.pulls.push(pull);
                Ok(())
            }
            Command::Settle { results, answer } => self.settle(&results, answer).await,
            Command::Look { answer } => {
                let _ = answer.send(self.seen());
                Ok(())
            }
        }
    }

    fn seen(&self) -> Vec<WorkerStatus> {
        let in_flight = |worker: &str| {
            let batch = self.batch.as_ref().filter(|batch| batch.worker == worker);
            batch.map_or(0, |batch| batch.events.len())
        };
        let seen = |(worker, last_pull): (&String, &Timestamp)| WorkerStatus {
            worker: worker.clone(),
            last_pull: *last_pull,
            in_flight: in_flight(worker),
        };
        self.workers.iter().map(seen).collect()
    }

    /// Hands out events, and ends pulls that have timed out.
    fn serve(&mut self, now: Timestamp) {
        self.pulls.retain(|pull| !pull.answer.is_closed());
        let hands_out = self.batch.is_none() && !self.queue.is_empty() && self.work.may_attempt(now);
        if hands_out && !self.pulls.is_empty() {
            let pull = self.pulls.remove(0);
            self.hand_out(pull, now);
        }
        for pull in self.pulls.extract_if(.., |pull| pull.ends <= now) {
            let _ = pull.answer.send(Ok(Handed::nothing()));
        }
    }

    fn hand_out(&mut self, pull: Pull, now: Timestamp) {
        let count = pull.body.max.min(self.queue.len());
        let events: VecDeque<Waiting> = self.queue.drain(..count).collect();
        let first = self.next_token;
        self.next_token += count as u64;
        self.batches += 1;
        let until = now.plus(Duration::from_millis(pull.body.lease_ms));
        let deliveries = events.iter().zip(first..).map(|((position, event), token)| {
            let failure = self.work.failure.as_ref();
            let failure = failure.filter(|failure| failure.sequence_number == event.sequence_number.cast_signed());
            Delivery {
                token: self.token(token),
                event: event.clone(),
                position: *position,
                partition: None,
                attempt: failure.map_or(0, FilterFailureRecord::attempts) + 1,
                last_reason: failure.map(|failure| failure.reason.clone()),
                until,
                replay: None,
                topic: None,
                trace: TraceContext::of_header(&event.commit.header),
            }
        });
        let deliveries = deliveries.collect();
        let back = Some((self.returned.0.clone(), self.batches));
        self.batch = Some(Batch { number: self.batches, first, events, worker: pull.body.worker, until });
        // If the caller has gone, the deliveries are returned.
        let _ = pull.answer.send(Ok(Handed { deliveries, back }));
    }

    fn token(&self, number: u64) -> String {
        format!("{}.{}", self.seal.seal(number), self.work.owner.key)
    }

    /// Puts the events of the batch back at the front of the queue.
    fn release(&mut self) {
        if let Some(batch) = self.batch.take() {
            batch.events.into_iter().rev().for_each(|event| self.queue.push_front(event));
        }
    }

    /// Ends the batch in flight if its lease has expired.
    async fn expire(&mut self, now: Timestamp) -> Result<(), Stop> {
        let Some(batch) = self.batch.as_ref().filter(|batch| batch.until <= now) else { return Ok(()) };
        let reason = format!("the lease of worker {:?} ended without a verdict", batch.worker);
        let failure = DeliveryFailure { reason, retry_after_ms: None, never: false };
        self.release();
        match self.queue.front() {
            Some((_, event)) => self.work.failed(event.sequence_number, &failure).await,
            None => Ok(()),
        }
    }

    /// Returns the first event without a stored verdict, or the point up to which the source was read.
    fn undecided(&self) -> SequenceNumber {
        let in_flight = self.batch.as_ref().and_then(|batch| batch.events.front());
        in_flight.or(self.queue.front()).map_or(self.read_to, |(_, event)| event.sequence_number)
    }

    /// Stores a progress without entries.
    async fn store_progress(&mut self) -> Result<(), Stop> {
        let to = self.undecided();
        if to > self.work.progress { self.work.append(to, Vec::new()).await } else { Ok(()) }
    }

    async fn settle(
        &mut self,
        results: &[FilterSettlement],
        answer: oneshot::Sender<Result<Vec<SettleResult>, FilterError>>,
    ) -> Result<(), Stop> {
        let verdicts = match read(results, self.work.definition.partition_by.is_none()) {
            Ok(verdicts) => verdicts,
            Err(invalid) => {
                let _ = answer.send(Err(invalid.into()));
                return Ok(());
            }
        };
        let (mut answers, mut included, mut failed) = (Vec::with_capacity(results.len()), Vec::new(), None);
        let mut decided = 0;
        for (result, verdict) in results.iter().zip(verdicts) {
            let error = match self.place_of(&result.token) {
                None => Some("lease_lost"),
                Some(0) if failed.is_none() => None,
                Some(_) => Some("out_of_order"),
            };
            match (error, verdict) {
                (None, Ok(verdict)) => {
                    included.extend(self.decide(verdict));
                    decided += 1;
                }
                (None, Err(failure)) => failed = Some(failure),
                (Some(_), _) => {}
            }
            let (token, error) = (result.token.clone(), error.map(str::to_owned));
            answers.push(SettleResult { token, settled: error.is_none(), error });
        }
        let stored = self.store(decided > 0, included, failed).await;
        let answered = match &stored {
            Ok(()) => Ok(answers),
            Err(_) => Err(FilterError::Store(StoreError::Unreachable(
                "the filter was restarted in the meantime; retry".to_owned(),
            ))),
        };
        let _ = answer.send(answered);
        stored
    }

    /// Returns the index of a token in the batch in flight.
    fn place_of(&self, token: &str) -> Option<u64> {
        let batch = self.batch.as_ref()?;
        let (number, key) = token.split_once('.')?;
        let number = self.seal.open(number).filter(|_| key == self.work.owner.key)?;
        let last = batch.first + batch.events.len() as u64;
        (batch.first..last).contains(&number).then(|| number - batch.first)
    }

    /// Takes the first event out of the batch, and returns its entry if the verdict includes it.
    fn decide(&mut self, verdict: Verdict) -> Option<Included> {
        let batch = self.batch.as_mut()?;
        let (_, event) = batch.events.pop_front()?;
        batch.first += 1;
        self.evaluator.entry(&event, verdict)
    }

    async fn store(
        &mut self,
        decided: bool,
        included: Vec<Included>,
        failed: Option<&DeliveryFailure>,
    ) -> Result<(), Stop> {
        if decided {
            self.work.append(self.undecided(), included).await?;
            self.work.succeeded().await?;
        }
        if let Some(failure) = failed {
            let at = self.undecided();
            self.release();
            self.work.failed(at, failure).await?;
        }
        if self.batch.as_ref().is_some_and(|batch| batch.events.is_empty()) {
            self.batch = None;
        }
        Ok(())
    }

    fn next_look(&self, now: Timestamp, shared: bool) -> Timestamp {
        let stores = (self.undecided() > self.work.progress).then(|| self.work.store_at());
        let pulls = self.pulls.iter().map(|pull| pull.ends).min();
        let lease = self.batch.as_ref().map(|batch| batch.until);
        let retry = self.work.failure.as_ref().and_then(FilterFailureRecord::retry_at);
        let idles = shared.then(|| self.last_pull.max(now).plus(IDLE_MAX));
        let looks = [stores, pulls, lease, retry, idles];
        let first = looks.into_iter().flatten().filter(|at| *at > now).min();
        first.unwrap_or(now.plus(Duration::from_secs(3600)))
    }
}

type Read<'a> = Vec<Result<Verdict, &'a DeliveryFailure>>;

fn read(results: &[FilterSettlement], partitions: bool) -> Result<Read<'_>, Invalid> {
    let read = results.iter().enumerate();
    read.map(|(n, result)| result.read(partitions).map_err(|invalid| invalid.inside(&format!("results[{n}]"))))
        .collect()
}
