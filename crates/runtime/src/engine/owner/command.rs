//! The requests to an owner.

use annals_core::handlers::{
    Act, Delivery, HandlerDefinition, HandlerError, PullBody, Reason, SettleResult, Settlement, WorkerStatus,
};
use annals_core::processing::{Machine, Taken};
use annals_core::{ByteString, RecordChange, Timestamp};
use tokio::sync::{mpsc, oneshot};

use super::hand_out::waits;
use super::{Stop, Work};

pub(super) type Answer<T> = oneshot::Sender<Result<T, HandlerError>>;

/// A request to the owner of a processor. If the answer is dropped unsent, the owner ended; the caller asks again.
pub(crate) enum Command {
    Pull {
        body: PullBody,
        answer: Answer<Handed>,
    },
    Settle {
        settling: Vec<Settling>,
        answer: Answer<Vec<SettleResult>>,
    },
    Act {
        act: Box<(Act, Reason)>,
        answer: Answer<()>,
    },
    /// Applies a changed definition from now on.
    Redefine {
        definition: Box<HandlerDefinition>,
    },
    /// Ends the owner, because the handler is deleted.
    Delete {
        answer: Answer<()>,
    },
    Look {
        answer: Answer<Snapshot>,
    },
    /// Looks for dead letters that are due, because a person changed some.
    Letters,
    /// Answers once the awaited event is handled.
    UntilHandled {
        awaited: Awaited,
        answer: Answer<()>,
    },
}

/// Settlements of one partition. If there are effects, which only handlers of this process have, all settlements are successes and are
/// stored together with them.
#[derive(Debug, Clone)]
pub(crate) struct Settling {
    pub settlements: Vec<Settlement>,
    pub effects: Vec<RecordChange>,
}

/// What a caller waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// An event of the processor is to be handled.
    Event { position: u64, partition: ByteString },
    /// The source is to be read up to this position, past an event that does not match it.
    ReadTo(u64),
}

/// A caller that waits until an event is handled.
pub(super) struct Waiter {
    awaited: Awaited,
    answer: Answer<()>,
}

/// What the owner knows beyond the stored state.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub workers: Vec<WorkerStatus>,
}

/// A pull that waits for events.
pub(super) struct Pull {
    pub body: PullBody,
    pub ends: Timestamp,
    pub answer: Answer<Handed>,
}

/// Deliveries on their way to a worker. If dropped before they are accepted, they are returned as if they had not been taken.
#[derive(Debug)]
pub(crate) struct Handed {
    deliveries: Vec<Delivery>,
    taken: Vec<Taken>,
    back: Option<mpsc::UnboundedSender<Vec<Taken>>>,
}

impl Handed {
    pub fn new(deliveries: Vec<Delivery>, taken: Vec<Taken>, back: &mpsc::UnboundedSender<Vec<Taken>>) -> Self {
        let back = (!taken.is_empty()).then(|| back.clone());
        Self { deliveries, taken, back }
    }

    /// Returns an empty result, for a pull that timed out.
    pub fn nothing() -> Self {
        Self { deliveries: Vec::new(), taken: Vec::new(), back: None }
    }

    /// Accepts the deliveries, which have arrived.
    pub fn accept(mut self) -> Vec<Delivery> {
        self.back = None;
        std::mem::take(&mut self.deliveries)
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        if let Some(back) = self.back.take() {
            // The send fails only if the owner has ended, and then nothing is in flight.
            let _ = back.send(std::mem::take(&mut self.taken));
        }
    }
}

impl Work<'_> {
    /// Carries out a command and all that are queued with it. Consecutive settlements are stored together.
    pub(super) async fn commands(&mut self, first: Command) -> Result<(), Stop> {
        self.expire(self.clock.now()).await?;
        let mut next = Some(first);
        let mut settling = Vec::new();
        while let Some(command) = next {
            match command {
                Command::Settle { settling: these, answer } => settling.push((these, answer)),
                other => {
                    // Settlements that arrived before this command take effect before it.
                    self.settle(std::mem::take(&mut settling)).await?;
                    self.command(other).await?;
                }
            }
            next = self.owner.commands.try_recv().ok();
        }
        self.settle(settling).await
    }

    async fn command(&mut self, command: Command) -> Result<(), Stop> {
        match command {
            Command::Pull { body, answer } => self.pull(body, answer),
            Command::Settle { settling, answer } => return self.settle(vec![(settling, answer)]).await,
            Command::Act { act, answer } => return self.act(act.0, act.1, answer).await,
            Command::Redefine { definition } => {
                let ends_elsewhere = definition.stop_at != self.owner.definition.stop_at;
                self.machine.set(definition.settings());
                self.owner.definition = *definition;
                if ends_elsewhere {
                    self.store_progress().await?;
                    return Err(Stop::Again);
                }
            }
            Command::Delete { answer } => {
                let _ = answer.send(Ok(()));
                return Err(Stop::Done);
            }
            Command::Look { answer } => {
                // The caller reads the rest from the store.
                self.store_progress().await?;
                let _ = answer.send(Ok(self.look()));
            }
            Command::Letters => self.letters_changed(),
            Command::UntilHandled { awaited, answer } => self.waiters.push(Waiter { awaited, answer }),
        }
        Ok(())
    }

    fn look(&self) -> Snapshot {
        let in_flight = self.machine.workers();
        let now = self.clock.now();
        let is_seen = |worker: &str, at: Timestamp| now.since(at) < super::WORKER_SEEN || waits(&self.pulls, worker);
        let seen = self.workers.iter().filter(|(worker, at)| is_seen(worker, **at));
        let workers = seen.map(|(worker, at)| WorkerStatus {
            worker: worker.clone(),
            last_pull: *at,
            in_flight: in_flight.get(&**worker).copied().unwrap_or(0),
        });
        let mut workers: Vec<WorkerStatus> = workers.collect();
        workers.sort_by(|one, other| one.worker.cmp(&other.worker));
        Snapshot { workers }
    }

    /// Answers the callers whose events are handled by now, and drops those that have gone.
    pub(super) fn answer_waiters(&mut self) {
        let machine = &self.machine;
        let is_over = |waiter: &mut Waiter| waiter.answer.is_closed() || is_handled(machine, &waiter.awaited);
        for waiter in self.waiters.extract_if(.., is_over) {
            // A caller that has gone needs no answer.
            let _ = waiter.answer.send(Ok(()));
        }
    }
}

fn is_handled(machine: &Machine, awaited: &Awaited) -> bool {
    match awaited {
        Awaited::Event { position, partition } => machine.has_handled(partition, *position),
        Awaited::ReadTo(position) => machine.read_to() >= *position,
    }
}
