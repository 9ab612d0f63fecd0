//! Handing out events to workers that pull.

use std::collections::VecDeque;
use std::time::Duration;

use annals_core::handlers::{Delivery, PullBody};
use annals_core::processing::Taken;
use annals_core::{RecordedEvent, Timestamp, limits};

use super::command::{Answer, Handed, Pull};
use super::consumed::Consumed;
use super::{Owner, Stop, WORKER_SEEN, Work};
use crate::groups::GROUPS;

/// Returns whether a pull of this worker is waiting.
pub(super) fn waits(pulls: &VecDeque<Pull>, worker: &str) -> bool {
    pulls.iter().any(|pull| pull.body.worker == worker && !pull.answer.is_closed())
}

impl Work<'_> {
    pub(super) fn pull(&mut self, body: PullBody, answer: Answer<Handed>) {
        let now = self.clock.now();
        self.last_pull = now;
        self.workers.insert(body.worker.clone(), now);
        let pulls = &self.pulls;
        self.workers.retain(|worker, at| now.since(*at) < WORKER_SEEN || waits(pulls, worker));
        let ends = now.plus(Duration::from_millis(body.wait_ms));
        self.pulls.push_back(Pull { body, ends, answer });
    }

    /// Serves waiting pulls in order, and answers those that have timed out.
    pub(super) async fn serve(&mut self, now: Timestamp) -> Result<(), Stop> {
        let paused = self.journal.record().paused || self.giving_since.is_some();
        let mut waiting = std::mem::take(&mut self.pulls);
        while let Some(pull) = waiting.pop_front() {
            if pull.answer.is_closed() {
                continue;
            }
            let until = now.plus(Duration::from_millis(pull.body.lease_ms));
            let (taken, consumed) = match paused {
                true => Default::default(),
                false => self.take(&pull, now, until).await?,
            };
            if taken.is_empty() && now < pull.ends {
                self.pulls.push_back(pull);
                continue;
            }
            let taken = self.bounded(taken, now);
            let mut deliveries = Vec::with_capacity(taken.len());
            deliveries.extend(taken.iter().filter_map(|taken| self.delivery(taken, until, &consumed)));
            self.last_pull = now;
            self.count_retries(&taken);
            // If the worker has gone, dropping the answer sends the deliveries back.
            let _ = pull.answer.send(Ok(Handed::new(deliveries, taken, &self.returned.0)));
        }
        Ok(())
    }

    /// Takes the events for a pull, without duplicates and without events that are not valid for their types. Events that were removed
    /// may make room for others.
    async fn take(&mut self, pull: &Pull, now: Timestamp, until: Timestamp) -> Result<(Vec<Taken>, Consumed), Stop> {
        loop {
            let taken = self.machine.take(pull.body.max, now, until, &pull.body.worker);
            if taken.is_empty() {
                return Ok(Default::default());
            }
            let (taken, consumed) = self.consumed(taken).await?;
            let taken = self.guarded(taken, &consumed, until, now).await?;
            if self.machine.has_changes() || self.guarded.has_changes() {
                self.store(&[]).await?;
            }
            if !taken.is_empty() {
                return Ok((taken, consumed));
            }
        }
    }

    /// Counts the attempts that are retries.
    pub(super) fn count_retries(&self, taken: &[Taken]) {
        let again = taken.iter().filter(|taken| taken.attempt > 1);
        let (letters, events): (Vec<_>, Vec<_>) = again.partition(|taken| self.machine.is_letter(taken.token));
        let Owner { shared, tenant, definition, definitions, .. } = &*self.owner;
        let kind = if *definitions == GROUPS { "group" } else { "handler" };
        shared.retries.handed_out(tenant, kind, &definition.name, (events.len() as u64, letters.len() as u64));
    }

    /// Limits the events to what fits into a response, but keeps all those of the first partition. The others are handed out to the next
    /// pull.
    fn bounded(&mut self, mut taken: Vec<Taken>, now: Timestamp) -> Vec<Taken> {
        // In most cases everything that is held would fit.
        if self.bytes <= limits::PAGE_BYTES_MAX {
            return taken;
        }
        let mut bytes = 0;
        let size = |taken: &Taken| self.events.get(&taken.event.position).map_or(0, RecordedEvent::page_bytes);
        let past = taken.iter().position(|taken| {
            bytes += size(taken);
            bytes > limits::PAGE_BYTES_MAX
        });
        let Some(past) = past else { return taken };
        let partition = taken[past].event.partition.clone();
        let begins = taken.iter().position(|taken| taken.event.partition == partition).unwrap_or(0);
        let ends = taken.iter().position(|it| it.event.partition != taken[0].event.partition).unwrap_or(taken.len());
        let cut = if begins == 0 { ends } else { begins };
        let too_many = taken.split_off(cut);
        self.machine.release(&too_many, now);
        self.guard_released(now);
        taken
    }

    fn delivery(&mut self, taken: &Taken, until: Timestamp, consumed: &Consumed) -> Option<Delivery> {
        let position = taken.event.position;
        let event = consumed.get(&position).or_else(|| self.events.get(&position));
        debug_assert!(event.is_some(), "an event that is handed out is held");
        let event = event?.clone();
        let partitioned = self.owner.definition.partition_by.is_partitioned();
        let trace = self.traces.begin(taken, &event, until);
        Some(Delivery {
            token: format!("{}.{}", self.seal.seal(taken.token), self.owner.definition.name),
            event,
            position: taken.event.position,
            partition: partitioned.then(|| taken.event.partition.clone()),
            attempt: taken.attempt,
            last_reason: taken.last_reason.clone(),
            until,
            replay: taken.replay.clone(),
            topic: None,
            trace,
        })
    }
}
