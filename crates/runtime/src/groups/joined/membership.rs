//! One membership of a group, from joining until leaving, or until an error after which the group is joined again.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use annals_core::consuming::{Consuming, ConsumingSettings, Ending, Incoming, Passing};
use annals_core::dead_letters::LetterOrder;
use annals_core::types::TypeError;
use annals_core::{BrokerError, Clock, GroupMember, GroupStep, Message, RecordedEvent, Timestamp, TopicPartition};
use futures_util::FutureExt;
use tokio::task::JoinSet;

use super::letters::{Due, Letters};
use super::{Work, event};
use crate::handler::{HandleFailure, RetryWish};
use crate::host::{is_set, message_of};

/// The most messages, and the most bytes of them, that are read ahead.
const BUFFERED: (usize, usize) = (10_000, 64 * 1024 * 1024);
/// How often offsets are committed, and the longest time that the loop waits for that.
const COMMIT_EVERY: Duration = Duration::from_millis(100);
const COMMIT_MAX: Duration = Duration::from_secs(5);
/// The pause before an operation that the store or the broker refused is repeated.
const AGAIN: Duration = Duration::from_secs(1);
/// How long attempts in flight may continue when the host is drained.
const FINISH_MAX: Duration = Duration::from_secs(4);
/// The number of messages that are processed before other tasks may run.
const TURN: usize = 200;
/// The number of letters that are stored in one batch.
const STORED_TOGETHER: usize = 100;

/// The state of a joined member.
pub(super) struct Membership<'w> {
    work: &'w Work,
    member: Box<dyn GroupMember>,
    machine: Consuming<RecordedEvent>,
    attempts: JoinSet<(Of, Result<(), HandleFailure>)>,
    letters: Letters<'w>,
    /// Passed messages whose letters could not be stored yet.
    unstored: Vec<Passing<RecordedEvent>>,
    store_at: Timestamp,
    /// Partitions to release once they are idle.
    closing: Vec<TopicPartition>,
    commit_at: Timestamp,
}

/// The target of an attempt.
enum Of {
    Message(u64),
    Letter(Box<Due>),
}

/// Turns a panic of an attempt into a failure.
async fn caught(attempt: impl Future<Output = Result<(), HandleFailure>>) -> Result<(), HandleFailure> {
    let ended = AssertUnwindSafe(attempt).catch_unwind().await;
    ended.unwrap_or_else(|panic| Err(HandleFailure::new(format!("the consumer panicked: {}", message_of(&*panic)))))
}

impl<'w> Membership<'w> {
    pub fn new(work: &'w Work, member: Box<dyn GroupMember>) -> Self {
        let definition = &work.definition;
        let settings = ConsumingSettings {
            in_flight: definition.in_flight as usize,
            buffered: BUFFERED.0,
            buffered_bytes: BUFFERED.1,
            retry: definition.retry,
            keeps_order: definition.dead_letters.order == LetterOrder::Wait,
            breaker: definition.dead_letters.breaker,
        };
        let now = work.shared.options.clock.now();
        Self {
            machine: Consuming::new(settings),
            attempts: JoinSet::new(),
            letters: Letters::new(work),
            unstored: Vec::new(),
            closing: Vec::new(),
            store_at: now,
            commit_at: now,
            work,
            member,
        }
    }

    fn clock(&self) -> &'w dyn Clock {
        &*self.work.shared.options.clock
    }

    fn random(&self) -> u64 {
        self.work.shared.options.random.bits() as u64
    }

    /// Consumes until the host is drained, or until the group must be joined again.
    pub async fn run(mut self) -> Result<(), BrokerError> {
        let mut stop = self.work.shared.stop.subscribe();
        loop {
            self.start_attempts().await;
            self.machine.make_room();
            self.store_letters().await;
            self.look_at_letters().await;
            self.commit(false).await;
            self.release().await?;
            let (wake, room) = (self.wake_at(), self.machine.room());
            let clock = self.clock();
            tokio::select! {
                biased;
                () = is_set(&mut stop) => return self.leave().await,
                Some(ended) = self.attempts.join_next(), if !self.attempts.is_empty() => {
                    if let Ok((of, ending)) = ended {
                        self.ended(of, ending).await;
                    }
                }
                step = self.member.next(room) => match step {
                    Ok(step) => self.step(step).await,
                    // The member continues by itself once the broker is back.
                    Err(error @ BrokerError::Unavailable(_)) => self.work.says(Some(error.to_string())),
                    // Offsets of a deleted topic are meaningless on a topic that is created in its place.
                    Err(error @ BrokerError::UnknownTopic(_)) => return Err(error),
                    Err(error) => {
                        // Commit what is processed, if the broker still accepts it, so that it need not be repeated.
                        self.commit(true).await;
                        return Err(error);
                    }
                },
                () = clock.sleep_until(wake) => {}
            }
        }
    }

    /// Starts the attempts that are allowed now. An attempt that completes at once needs no task.
    async fn start_attempts(&mut self) {
        for turn in 1.. {
            let Some(attempt) = self.machine.take(self.clock().now()) else { return };
            let mut attempting = Box::pin(self.attempting(attempt.message));
            match attempting.as_mut().now_or_never() {
                Some(ending) => self.settle(attempt.token, ending),
                None => {
                    let of = Of::Message(attempt.token);
                    self.attempts.spawn(attempting.map(|ending| (of, ending)));
                }
            }
            if turn % TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    fn attempting(&self, event: RecordedEvent) -> impl Future<Output = Result<(), HandleFailure>> + Send + 'static {
        let (types, functions) = (Arc::clone(&self.work.types), Arc::clone(&self.work.functions));
        let guard = self.work.guard.clone();
        async move {
            // The event as the registry defines it now: upgraded to its newest generation, and validated.
            let attempt = async {
                let event = match types.consume(&event).await {
                    Ok(current) => current.unwrap_or(event),
                    Err(TypeError::Store(error)) => return Err(HandleFailure::from(error)),
                    Err(refused) => return Err(HandleFailure::never(refused.to_string())),
                };
                let call = async { functions.call(&event, None).await };
                match guard {
                    // A function that panics gives its key up like one that fails.
                    Some(guard) => guard.attempt(&event, caught(call)).await,
                    None => call.await,
                }
            };
            caught(attempt).await
        }
    }

    fn settle(&mut self, token: u64, ending: Result<(), HandleFailure>) {
        let succeeded = ending.is_ok();
        let ending = match ending {
            Ok(()) => Ending::Done,
            Err(HandleFailure { reason, retry }) => Ending::Failed {
                reason,
                retry_after_ms: if let RetryWish::After(millis) = retry { Some(millis) } else { None },
                never: retry == RetryWish::Never,
            },
        };
        let (now, random) = (self.clock().now(), if succeeded { 0 } else { self.random() });
        self.machine.settle(token, ending, now, random);
        let broken = self.machine.is_broken();
        self.work.status.send_if_modified(|status| {
            (status.processed, status.failed) =
                (status.processed + u64::from(succeeded), status.failed + u64::from(!succeeded));
            std::mem::replace(&mut status.broken, broken) != broken
        });
    }

    async fn ended(&mut self, of: Of, ending: Result<(), HandleFailure>) {
        match of {
            Of::Message(token) => self.settle(token, ending),
            Of::Letter(due) => {
                if ending.is_ok() {
                    self.machine.succeeded();
                }
                match self.letters.settled(&due, ending, !self.machine.is_broken()).await {
                    Ok(ended) => ended.iter().for_each(|key| self.machine.let_go(key)),
                    Err(error) => self.work.says(Some(format!("a dead letter could not be stored: {error}"))),
                }
            }
        }
    }

    /// Stores passed messages as dead letters. Until that succeeds, none of them counts as processed.
    async fn store_letters(&mut self) {
        while self.machine.has_passing() || !self.unstored.is_empty() {
            if !self.unstored.is_empty() && self.clock().now() < self.store_at {
                return;
            }
            let room = STORED_TOGETHER.saturating_sub(self.unstored.len());
            self.unstored.extend(self.machine.take_passing(room));
            match self.letters.store(&self.unstored).await {
                Ok(ended) => {
                    let stored = std::mem::take(&mut self.unstored);
                    stored.iter().for_each(|passing| self.machine.passed(passing));
                    ended.iter().for_each(|key| self.machine.let_go(key));
                    let count = stored.len() as u64;
                    self.work.status.send_modify(|status| status.dead_letters += count);
                    self.letters.look_at = self.clock().now();
                }
                Err(error) => {
                    tracing::warn!(group = &*self.work.definition.name, %error, "could not store dead letters; retrying");
                    self.work.says(Some(format!("dead letters could not be stored: {error}")));
                    self.store_at = self.clock().now().plus(AGAIN);
                    return;
                }
            }
        }
    }

    /// Processes due letters, and finds out which keys are free again.
    async fn look_at_letters(&mut self) {
        if self.clock().now() < self.letters.look_at {
            return;
        }
        let due = self.letters.due().await;
        let looked = match due {
            Ok(due) => {
                for due in due {
                    let attempting = Box::pin(self.attempting_letter(&due));
                    self.attempts.spawn(attempting.map(|ending| (Of::Letter(Box::new(due)), ending)));
                }
                match self.machine.holds_any() {
                    true => self.letters.held_keys().await.map(|keys| self.machine.hold_only(keys)),
                    false => Ok(()),
                }
            }
            Err(error) => Err(error),
        };
        if let Err(error) = looked {
            self.work.says(Some(format!("dead letters could not be read: {error}")));
        }
    }

    fn attempting_letter(&self, due: &Due) -> impl Future<Output = Result<(), HandleFailure>> + Send + 'static {
        let unreadable = event::is_unreadable(due.event.sequence_number);
        let attempt = (!unreadable).then(|| self.attempting(due.event.clone()));
        async move {
            match attempt {
                Some(attempt) => attempt.await,
                None => Err(HandleFailure::never("the message still cannot be read as an event of its topic")),
            }
        }
    }

    async fn step(&mut self, step: GroupStep) {
        match step {
            GroupStep::Assigned(assigned) => {
                self.hold_keys().await;
                assigned.into_iter().for_each(|it| self.machine.assigned(it.at, it.offset));
                self.work.says(None);
            }
            GroupStep::Revoked(partitions) => {
                partitions.iter().for_each(|at| self.machine.closing(at));
                self.closing.extend(partitions);
            }
            GroupStep::Lost(partitions) => {
                partitions.iter().for_each(|at| self.machine.removed(at));
                self.closing.retain(|at| !partitions.contains(at));
            }
            GroupStep::Messages(messages) => messages.into_iter().for_each(|message| self.push(message)),
        }
        let partitions = self.machine.partitions();
        self.work.status.send_if_modified(|status| std::mem::replace(&mut status.partitions, partitions) != partitions);
    }

    /// Loads the keys with open letters, because another member may have passed messages of keys that are assigned to this one now.
    /// Nothing is processed until this succeeds.
    async fn hold_keys(&mut self) {
        loop {
            match self.letters.held_keys().await {
                Ok(keys) => return self.machine.hold_only(keys),
                Err(error) => {
                    self.work.says(Some(format!("dead letters could not be read: {error}")));
                    let mut stop = self.work.shared.stop.subscribe();
                    tokio::select! {
                        () = is_set(&mut stop) => return,
                        () = self.clock().sleep(AGAIN) => {}
                    }
                }
            }
        }
    }

    fn push(&mut self, message: Message) {
        let event_type = self.work.type_of(&message.at.topic).to_owned();
        let (key, bytes) = (event::key_of(&message), event::bytes_of(&message));
        let read = event::read(&message, &event_type);
        let incoming = |message: &Message, event| Incoming {
            at: message.at.clone(),
            offset: message.offset,
            key,
            bytes,
            message: event,
        };
        match read {
            Ok(event) => self.machine.push(incoming(&message, event)),
            Err(reason) => {
                let (topic, partition) = (&*message.at.topic, message.at.partition);
                tracing::warn!(
                    topic,
                    partition,
                    offset = message.offset,
                    reason,
                    "cannot read a message as an event of its topic"
                );
                let event = event::unreadable(&message, &event_type);
                self.machine.push_unreadable(incoming(&message, event), reason);
                self.work.status.send_modify(|status| status.unreadable += 1);
            }
        }
    }

    /// Commits the offsets of processed messages.
    async fn commit(&mut self, now: bool) {
        let time = self.clock().now();
        if time < self.commit_at && !now {
            return;
        }
        let offsets = self.machine.uncommitted();
        if offsets.is_empty() {
            return;
        }
        self.commit_at = time.plus(COMMIT_EVERY);
        let clock = self.clock();
        let committed = tokio::select! {
            committed = self.member.commit(&offsets) => committed,
            () = clock.sleep(COMMIT_MAX) => Err(BrokerError::Unavailable("offsets were not committed in time".to_owned())),
        };
        match committed {
            Ok(()) => self.machine.committed(&offsets),
            // The event that reports the revocation follows.
            Err(BrokerError::NotAssigned(..)) => self.commit_at = time.plus(AGAIN),
            Err(error) => {
                self.work.says(Some(error.to_string()));
                self.commit_at = time.plus(AGAIN);
            }
        }
    }

    /// Releases revoked partitions that have nothing in flight.
    async fn release(&mut self) -> Result<(), BrokerError> {
        let (idle, busy) = std::mem::take(&mut self.closing).into_iter().partition(|at| self.machine.is_idle(at));
        self.closing = busy;
        let idle: Vec<TopicPartition> = idle;
        if idle.is_empty() {
            return Ok(());
        }
        self.commit(true).await;
        self.member.release(&idle).await?;
        idle.iter().for_each(|at| self.machine.removed(at));
        Ok(())
    }

    /// Returns when there is something to do even if nothing happens on the broker.
    fn wake_at(&self) -> Timestamp {
        let mut wake = self.letters.look_at;
        if !self.machine.uncommitted().is_empty() {
            wake = wake.min(self.commit_at);
        }
        if !self.unstored.is_empty() {
            wake = wake.min(self.store_at);
        }
        self.machine.due_at().map_or(wake, |due| wake.min(due))
    }

    /// Waits for attempts in flight, commits offsets, and leaves the group.
    async fn leave(mut self) -> Result<(), BrokerError> {
        let clock = self.clock();
        let ends = clock.now().plus(FINISH_MAX);
        while !self.attempts.is_empty() {
            tokio::select! {
                ended = self.attempts.join_next() => if let Some(Ok((of, ending))) = ended {
                    self.ended(of, ending).await;
                },
                () = clock.sleep_until(ends) => break,
            }
        }
        self.store_letters().await;
        self.commit(true).await;
        self.letters.release().await;
        // An unreachable broker notices when the member's session expires.
        if let Err(error) = self.member.leave().await {
            tracing::debug!(%error, "could not tell the group that a consumer is leaving");
        }
        Ok(())
    }
}
