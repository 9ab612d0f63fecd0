//! Compensation: compensations in reverse order, the end of a saga, and its six events.

use bson::{Bson, Document, doc};

use super::{EVENTS_MAX, SAGA_AGGREGATE, SagaEnding, SagaMachine, date, time};
use crate::sagas::{OutboxEntry, SagaInner, SagaPhase, SagaState};

impl SagaInner {
    /// Returns the number of attempts before an operator last retried a parked compensation.
    pub(super) fn sent_back(&self) -> u32 {
        let name = self.timeline.last().map(|entry| &entry.name);
        let mut of_this = self.timeline.iter().rev().take_while(|entry| Some(&entry.name) == name);
        let parked = of_this.find(|entry| entry.state == "parked").map_or(0, |entry| entry.attempt);
        u32::try_from(if parked < self.attempt { parked } else { 0 }).unwrap_or(0)
    }
}

impl SagaMachine<'_> {
    /// Stops the steps for a reason and begins compensation; `include` says whether to compensate the current step too.
    pub(super) fn turn_back(&mut self, state: SagaState, reason: String, by: Option<String>, include: bool) {
        let steps = self.definition.steps();
        let index = |name: &String| steps.iter().position(|step| step.name == *name);
        let mut undo: Vec<usize> = self.saga.completed_steps.iter().filter_map(index).collect();
        if include {
            undo.extend(usize::try_from(self.saga.annals.step));
        }
        let inner = &mut self.saga.annals;
        inner.undo = undo.into_iter().filter(|at| steps[*at].compensation.is_some()).map(|at| at as i64).collect();
        inner.ending = Some(SagaEnding::new(state, self.saga.current_step.clone(), reason.clone(), by));
        (inner.limit_at, inner.resume_at, inner.asked, inner.undoing) = (None, None, None, true);
        inner.arrived.clear();
        self.saga.error_message = Some(reason);
        self.saga.state = SagaState::Compensating;
        self.next_compensation();
    }

    /// Fails the saga if it has too many events for later steps to keep: without one of them, a step might wait forever. While commands are
    /// being committed, their outcome comes first.
    pub(super) fn heed_crowd(&mut self) {
        let steps = self.definition.steps();
        let inner = &mut self.saga.annals;
        // What only steps awaited that have passed is never taken.
        let from = usize::try_from(inner.step).unwrap_or(0);
        let is_due = |name: &str| steps.iter().skip(from).any(|step| step.awaited().any(|awaited| awaited == name));
        inner.arrived.retain(|event| event.get_str("type").is_ok_and(is_due));
        let can_turn = matches!(inner.phase, SagaPhase::Awaiting | SagaPhase::Pausing | SagaPhase::Acting);
        if inner.undoing || !can_turn || inner.arrived.len() <= EVENTS_MAX {
            return;
        }
        let may_have_acted = inner.sent > 0 || inner.phase != SagaPhase::Pausing;
        let newest = inner.arrived.last().and_then(|event| event.get_str("type").ok()).unwrap_or_default();
        let reason = format!(
            "{newest} came when {EVENTS_MAX} events were already kept for later steps, which is the most; await them in earlier steps, or \
             let the steps await fewer types"
        );
        self.ended_attempt("failed", Some(reason.clone()));
        self.turn_back(SagaState::Failed, reason, None, may_have_acted);
    }

    /// Runs the compensations that release what steps hold, once every step has completed.
    pub(super) fn release(&mut self) {
        let always = |(at, step): (usize, &crate::sagas::step::Step)| {
            step.compensation.as_ref().is_some_and(|it| it.always).then_some(at as i64)
        };
        self.saga.annals.undo = self.definition.steps().iter().enumerate().filter_map(always).collect();
        self.saga.annals.undoing = true;
        self.saga.annals.asked = None;
        self.next_compensation();
    }

    fn next_compensation(&mut self) {
        let Some(index) = self.saga.annals.undo.pop() else { return self.end() };
        let step = usize::try_from(index).ok().and_then(|at| self.definition.steps().get(at));
        let Some(compensation) = step.and_then(|step| step.compensation.as_ref()) else {
            return self.next_compensation();
        };
        let name = compensation.name.clone();
        let inner = &mut self.saga.annals;
        (inner.step, inner.attempt, inner.sent, inner.phase) = (index, 1, 0, SagaPhase::Acting);
        self.saga.current_step = Some(name.clone());
        if self.saga.annals.ending.is_some() {
            self.publish("saga_compensating", doc! { "compensating_step": &name });
        }
        self.note(&name, true);
    }

    /// Completes the current compensation.
    pub(super) fn compensated(&mut self) {
        self.ended_attempt("completed", None);
        if let Some(name) = self.saga.current_step.clone() {
            self.saga.compensated_steps.push(name);
        }
        self.next_compensation();
    }

    /// Parks a compensation that has failed too often.
    pub(super) fn park(&mut self) {
        let inner = &mut self.saga.annals;
        (inner.phase, inner.parked) = (SagaPhase::Parked, Some(date(self.now)));
        if let Some(last) = inner.timeline.iter_mut().rev().find(|entry| entry.state == "failed") {
            "parked".clone_into(&mut last.state);
        }
    }

    fn end(&mut self) {
        let now = self.now;
        let saga = &mut self.saga;
        saga.current_step = None;
        saga.completed_at = Some(date(now));
        saga.annals.phase = SagaPhase::Ended;
        (saga.annals.limit_at, saga.annals.ends_at, saga.annals.asked) = (None, None, None);
        saga.annals.arrived.clear();
        saga.annals.took_ms = i64::try_from(now.since(time(saga.created_at)).as_millis()).ok();
        let (completed, compensated) = (texts(&saga.completed_steps), texts(&saga.compensated_steps));
        let Some(ending) = saga.annals.ending.clone() else {
            saga.state = SagaState::Completed;
            return self.publish("saga_completed", doc! { "completed_steps": completed });
        };
        saga.state = ending.state;
        if !saga.compensated_steps.is_empty() {
            self.publish("saga_compensated", doc! { "compensated_steps": compensated.clone() });
        }
        let SagaEnding { state, step, reason, by } = ending;
        if state == SagaState::Cancelled {
            self.publish(
                "saga_cancelled",
                doc! {
                    "reason": reason, "completed_steps": completed, "compensated_steps": compensated,
                    "cancelled_at": date(now).try_to_rfc3339_string().unwrap_or_default(), "cancelled_by": by,
                },
            );
        } else {
            self.publish("saga_failed", doc! { "failed_step": step.unwrap_or_default(), "error": reason });
        }
    }

    pub(super) fn publish_started(&mut self) {
        let event = self.saga.annals.initial_event.clone();
        self.publish("saga_started", doc! { "initial_event_id": event });
    }

    /// Adds one of the six events of a saga to the outbox.
    fn publish(&mut self, event_type: &str, more: Document) {
        let saga = &mut self.saga;
        let mut data =
            doc! { "saga_id": &saga.saga_id, "saga_name": &saga.saga_name, "execution_id": &saga.execution_id };
        data.extend(more);
        let about = data.get_str("compensating_step").unwrap_or("once");
        saga.annals.outbox.push(OutboxEntry {
            request: format!("saga/{}/{about}/{event_type}", saga.saga_id),
            aggregate: SAGA_AGGREGATE.to_owned(),
            aggregate_id: saga.saga_id.clone(),
            event_type: event_type.to_owned(),
            data,
            tags: Vec::new(),
            command: false,
        });
    }
}

fn texts(names: &[String]) -> Bson {
    Bson::Array(names.iter().map(|name| Bson::String(name.clone())).collect())
}
