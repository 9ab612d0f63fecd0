//! The state machine of one saga: a record and an input yield a changed record, which determines the next action. It does no I/O, and
//! uses neither a clock nor randomness.
//!
//! ```text
//!  Acting ── acted ──▶ Sending ── sent ──▶ Awaiting ── event ──▶ the next step, or the end
//!    ▲ │ failed                                │ limit, failure, cancel
//!    │ ▼                                       ▼
//!  Pausing                            compensations, in reverse order ── failed too often ──▶ Parked
//! ```
//!
//! INVARIANTS
//! - Everything that is to be committed is first stored in the outbox, under a request id derived from saga, step and attempt.
//! - A step whose action may have taken place is compensated if it has a compensation, unless the saga completes.
//! - The first cause of a failure is kept.

mod undo;

use bson::{Document, doc};

use super::definition::scope_of;
use super::step::{OnLimit, SagaCommand, Step};
use super::stored::{date, saga_id, time};
use super::{OutboxEntry, SagaDefinition, SagaEnding, SagaInner, SagaPhase, SagaRecord, SagaState, TimelineEntry};
use crate::processing::ProcessingRetry;
use crate::{Data, NewCommit, NewEvent, RecordedEvent, Timestamp, names};

/// The maximum number of attempts in the timeline; earlier ones are dropped.
const TIMELINE_MAX: usize = 200;
/// The maximum number of events that are kept for later steps (a further one fails the saga), and of event ids that are remembered.
const EVENTS_MAX: usize = 100;
/// The maximum size of the initial context of a saga, in bytes.
const CONTEXT_BYTES_MAX: usize = 1024 * 1024;
/// The aggregate name of sagas.
pub const SAGA_AGGREGATE: &str = "saga";

/// An input of a saga.
#[derive(Debug, Clone)]
pub enum SagaInput<'e> {
    /// An event with the saga's correlation.
    Event(&'e RecordedEvent),
    /// Time has passed, or an operator requested an act.
    Time,
    /// A function of a program ran a step or compensation.
    Acted {
        /// The step or compensation.
        work: SagaWork,
        /// Its result.
        result: Result<SagaActed, SagaFailure>,
    },
    /// The first entries of the outbox were committed.
    Sent {
        /// The number of entries.
        count: usize,
        /// Why the next one was refused, if it was.
        refused: Option<String>,
    },
}

/// The result of a step or compensation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SagaActed {
    /// The commands to commit, in this order.
    pub commands: Vec<SagaCommand>,
    /// Fields of the context to set.
    pub set: Document,
}

/// Why a step or compensation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SagaFailure {
    /// The reason.
    pub reason: String,
    /// Whether a retry is pointless.
    pub never: bool,
}

/// A step or compensation to be run by a function of a program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SagaWork {
    /// Its name.
    pub name: String,
    /// Whether it is a compensation.
    pub compensates: bool,
    /// The number of the attempt, from 1.
    pub attempt: i64,
}

impl SagaActed {
    /// Returns a result that publishes one command.
    pub fn command(command: SagaCommand) -> Self {
        Self { commands: vec![command], set: Document::new() }
    }
}

impl<S: Into<String>> From<S> for SagaFailure {
    fn from(reason: S) -> Self {
        Self { reason: reason.into(), never: false }
    }
}

/// A saga with its definition, ready to take inputs.
pub struct SagaMachine<'d> {
    definition: &'d SagaDefinition,
    saga: SagaRecord,
    now: Timestamp,
}

impl<'d> SagaMachine<'d> {
    /// Starts the saga of an event.
    pub fn start(definition: &'d SagaDefinition, event: &RecordedEvent, now: Timestamp) -> SagaRecord {
        let id = event.id.hyphenated().to_string();
        let correlation = definition.correlation(event);
        let execution_id = correlation.clone().unwrap_or_else(|_| id.clone());
        let mut machine = Self { definition, saga: begun(definition, &execution_id, id, now), now };
        machine.publish_started();
        match correlation.map_err(|why| format!("correlate: {why}")).and_then(|_| context_of(definition, event)) {
            Ok(context) => {
                machine.saga.context_data = context;
                machine.begin_step(0);
                machine.settle();
            }
            Err(why) => machine.turn_back(SagaState::Failed, why, None, false),
        }
        machine.written()
    }

    /// Resumes a saga from its stored record.
    pub fn of(definition: &'d SagaDefinition, saga: SagaRecord) -> Self {
        let now = time(saga.updated_at);
        Self { definition, saga, now }
    }

    /// Applies an input. Returns the record to store, or `None` if the input changes nothing.
    pub fn apply(mut self, input: SagaInput<'_>, now: Timestamp) -> Option<SagaRecord> {
        self.now = now;
        let changed = match input {
            SagaInput::Event(event) => self.event(event),
            SagaInput::Time => self.time(),
            SagaInput::Sent { count, refused } => self.sent(count, refused),
            SagaInput::Acted { work, result } => {
                let is_current = self.saga.work(self.definition).is_some_and(|current| current == work);
                if is_current {
                    self.acted(result);
                }
                is_current
            }
        };
        changed.then(|| {
            self.settle();
            self.written()
        })
    }

    fn written(mut self) -> SagaRecord {
        self.saga.turned(self.now);
        self.saga
    }

    /// Runs declarative steps until the saga needs another input.
    fn settle(&mut self) {
        while self.saga.annals.phase == SagaPhase::Acting && self.saga.work(self.definition).is_none() {
            let scope = self.scope();
            let declared = match (self.step(), self.saga.annals.undoing) {
                (None, _) => Err("its definition has no such step".to_owned()),
                (Some(step), false) => step.declared(&scope),
                (Some(step), true) => step.compensation.as_ref().map_or(Ok(Vec::new()), |it| it.declared(&scope)),
            };
            // The result depends on nothing but the context, so a retry would fail as well.
            let result = declared.map_err(|reason| SagaFailure { reason, never: true });
            self.acted(result.map(|commands| SagaActed { commands, set: Document::new() }));
        }
    }

    fn step(&self) -> Option<&'d Step> {
        self.definition.steps().get(usize::try_from(self.saga.annals.step).ok()?)
    }

    fn scope(&self) -> Document {
        let saga = &self.saga;
        let about = doc! {
            "id": &saga.saga_id,
            "name": &saga.saga_name,
            "execution_id": &saga.execution_id,
            "step": saga.current_step.as_deref().unwrap_or_default(),
            "attempt": saga.annals.attempt,
            "cause": saga.error_message.as_deref().unwrap_or_default(),
        };
        scope_of(&saga.context_data, about)
    }

    fn begin_step(&mut self, index: usize) {
        let Some(step) = self.definition.steps().get(index) else { return self.release() };
        let inner = &mut self.saga.annals;
        (inner.step, inner.attempt, inner.sent, inner.phase) = (index as i64, 1, 0, SagaPhase::Acting);
        inner.limit_at = step.limit_ms.map(|limit| date(self.now.plus(std::time::Duration::from_millis(limit))));
        self.saga.state = SagaState::Running;
        self.saga.current_step = Some(step.name.clone());
        self.note(&step.name, false);
    }

    fn acted(&mut self, result: Result<SagaActed, SagaFailure>) {
        match result {
            Ok(SagaActed { commands, set }) => {
                self.saga.context_data.extend(set);
                for (n, command) in commands.into_iter().enumerate() {
                    self.enqueue(n, command);
                }
                self.saga.annals.phase = SagaPhase::Sending;
                self.when_sent();
            }
            Err(failure) => self.failed(failure),
        }
    }

    fn enqueue(&mut self, n: usize, command: SagaCommand) {
        let saga = &mut self.saga;
        let (way, step) = (way(saga.annals.undoing), saga.current_step.as_deref().unwrap_or_default());
        let (aggregate, aggregate_id) =
            command.aggregate.unwrap_or_else(|| (SAGA_AGGREGATE.to_owned(), saga.saga_id.clone()));
        let request = format!("saga/{}/{step}/{way}/{}/{n}", saga.saga_id, saga.annals.attempt);
        saga.annals.outbox.push(OutboxEntry {
            request,
            aggregate,
            aggregate_id,
            event_type: command.event_type,
            data: command.data,
            tags: command.tags,
            command: true,
        });
    }

    fn sent(&mut self, count: usize, refused: Option<String>) -> bool {
        let inner = &mut self.saga.annals;
        let count = count.min(inner.outbox.len());
        if count == 0 && refused.is_none() {
            return false;
        }
        inner.sent += inner.outbox.drain(..count).filter(|entry| entry.command).count() as i64;
        if let Some(reason) = refused
            && !inner.outbox.is_empty()
        {
            let entry = inner.outbox.remove(0);
            let reason = format!("{} was refused: {reason}", entry.event_type);
            if entry.command {
                inner.outbox.retain(|entry| !entry.command);
                self.failed(SagaFailure { reason, never: false });
            } else {
                self.note(&entry.event_type, self.saga.annals.undoing);
                self.ended_attempt("refused", Some(reason));
            }
        }
        self.when_sent();
        true
    }

    /// Continues once all commands of the step have been sent.
    fn when_sent(&mut self) {
        let inner = &mut self.saga.annals;
        if inner.phase != SagaPhase::Sending || inner.outbox.iter().any(|entry| entry.command) {
            return;
        }
        if inner.undoing {
            return self.compensated();
        }
        match self.step().and_then(|step| step.awaits.as_ref()) {
            None => self.completed(),
            Some(_) => {
                let inner = &mut self.saga.annals;
                inner.phase = SagaPhase::Awaiting;
                if let Some(last) = inner.timeline.iter_mut().rev().find(|entry| entry.ended.is_none()) {
                    "awaiting".clone_into(&mut last.state);
                }
                self.take_arrived();
            }
        }
        self.heed_cancel();
        if self.saga.annals.phase == SagaPhase::Awaiting {
            self.heed_crowd();
        }
    }

    fn take_arrived(&mut self) {
        let Some(awaits) = self.step().and_then(|step| step.awaits.as_ref()) else { return };
        let is_awaited = |event: &Document| {
            event.get_str("type").is_ok_and(|event_type| awaits.ends(event_type) || awaits.fails(event_type))
        };
        if let Some(at) = self.saga.annals.arrived.iter().position(is_awaited) {
            let event = self.saga.annals.arrived.remove(at);
            self.awaited(&event);
        }
    }

    fn awaited(&mut self, event: &Document) {
        let Some(awaits) = self.step().and_then(|step| step.awaits.as_ref()) else { return };
        let event_type = event.get_str("type").unwrap_or_default();
        self.saga.context_data.extend(awaits.changes(event));
        if awaits.ends(event_type) {
            return self.completed();
        }
        let reason = match event.get_document("data").ok().and_then(|data| data.get_str("reason").ok()) {
            Some(reason) => format!("{event_type}: {reason}"),
            None => format!("{event_type} came"),
        };
        self.ended_attempt("failed", Some(reason.clone()));
        self.turn_back(SagaState::Failed, reason, None, true);
    }

    fn event(&mut self, event: &RecordedEvent) -> bool {
        let inner = &mut self.saga.annals;
        let id = event.id.hyphenated().to_string();
        if inner.phase == SagaPhase::Ended || inner.undoing || inner.initial_event == id || inner.taken.contains(&id) {
            return false;
        }
        let is_awaited = |step: &Step| step.awaited().any(|name| *name == *event.event_type);
        let from = usize::try_from(inner.step).unwrap_or(0);
        let cancels = self.definition.is_cancelled_by(&event.event_type);
        // Each step takes one event, so further ones of a type would never be taken.
        let steps = self.definition.steps().iter().skip(from).filter(|&step| is_awaited(step)).count();
        let is_kept = |kept: &&Document| kept.get_str("type").is_ok_and(|name| *name == *event.event_type);
        if !cancels && inner.arrived.iter().filter(is_kept).count() >= steps {
            return false;
        }
        if inner.taken.len() >= EVENTS_MAX {
            inner.taken.remove(0);
        }
        inner.taken.push(id);
        if cancels {
            let (act, reason) = ("cancel".to_owned(), format!("{} came", event.event_type));
            inner.asked = Some(super::SagaAsked { act, reason, by: None });
            self.heed_cancel();
            return true;
        }
        let Ok(document) = super::definition::document_of(event) else { return true };
        let is_awaiting = inner.phase == SagaPhase::Awaiting;
        if is_awaiting && self.step().is_some_and(is_awaited) {
            self.awaited(&document);
        } else {
            self.saga.annals.arrived.push(document);
            self.heed_crowd();
        }
        true
    }

    fn time(&mut self) -> bool {
        let heeded = self.heed();
        let inner = &self.saga.annals;
        let passed = |at: Option<bson::DateTime>| at.is_some_and(|at| time(at) <= self.now);
        let forward =
            !inner.undoing && matches!(inner.phase, SagaPhase::Awaiting | SagaPhase::Pausing | SagaPhase::Acting);
        // Compensate a step that may have acted although its outcome is unknown.
        let may_have_acted = inner.sent > 0 || matches!(inner.phase, SagaPhase::Awaiting | SagaPhase::Acting);
        if forward && passed(inner.ends_at) {
            let limit = self.definition.limit_ms().unwrap_or_default();
            self.out_of_time(format!("the saga took longer than {limit} ms"), may_have_acted);
            return true;
        }
        if forward && passed(inner.limit_at) {
            let Some(step) = self.step() else { return heeded };
            if step.on_limit == OnLimit::Continue {
                self.completed();
            } else {
                let (name, limit) = (&step.name, step.limit_ms.unwrap_or_default());
                self.out_of_time(format!("step {name:?} took longer than {limit} ms"), may_have_acted);
            }
            return true;
        }
        if inner.phase == SagaPhase::Pausing && passed(inner.resume_at) {
            self.attempt_again();
            return true;
        }
        heeded
    }

    fn out_of_time(&mut self, reason: String, include: bool) {
        self.ended_attempt("timeout", Some(reason.clone()));
        self.turn_back(SagaState::Timeout, reason, None, include);
    }

    /// Performs the act that an operator requested, if it is possible now.
    fn heed(&mut self) -> bool {
        let Some(asked) = self.saga.annals.asked.clone() else { return false };
        if asked.act != "retry" {
            return self.heed_cancel();
        }
        self.saga.annals.asked = None;
        if matches!(self.saga.annals.phase, SagaPhase::Parked | SagaPhase::Pausing) {
            self.attempt_again();
        }
        true
    }

    fn heed_cancel(&mut self) -> bool {
        let inner = &mut self.saga.annals;
        let Some(asked) = inner.asked.clone().filter(|asked| asked.act == "cancel") else { return false };
        if inner.undoing || inner.phase == SagaPhase::Ended {
            // It already ends for another reason.
            inner.asked = None;
            return true;
        }
        if !matches!(inner.phase, SagaPhase::Awaiting | SagaPhase::Pausing) {
            return false;
        }
        let include = inner.phase == SagaPhase::Awaiting || inner.sent > 0;
        inner.asked = None;
        self.ended_attempt("cancelled", None);
        self.turn_back(SagaState::Cancelled, asked.reason, asked.by, include);
        true
    }

    fn failed(&mut self, failure: SagaFailure) {
        let SagaFailure { reason, never } = failure;
        let retry = self.retry();
        let attempt = u32::try_from(self.saga.annals.attempt).unwrap_or(u32::MAX);
        self.ended_attempt("failed", Some(reason.clone()));
        // After an operator retries a parked compensation, the retry policy starts over.
        let failures = attempt.saturating_sub(self.saga.annals.sent_back());
        if !never && !retry.is_exhausted(failures) {
            let random = names::uuid_of("saga-pause", &format!("{}/{}", self.saga.saga_id, self.saga.annals.turn));
            let delay = retry.delay_ms(failures, random.as_u128() as u64);
            let inner = &mut self.saga.annals;
            inner.phase = SagaPhase::Pausing;
            inner.resume_at = Some(date(self.now.plus(std::time::Duration::from_millis(delay))));
            self.heed_cancel();
        } else if self.saga.annals.undoing {
            self.park();
        } else {
            let include = self.saga.annals.sent > 0;
            self.turn_back(SagaState::Failed, reason, None, include);
        }
    }

    fn retry(&self) -> ProcessingRetry {
        let Some(step) = self.step() else { return ProcessingRetry::default() };
        match (&step.compensation, self.saga.annals.undoing) {
            (Some(compensation), true) => compensation.retry,
            _ => step.retry,
        }
    }

    fn attempt_again(&mut self) {
        let inner = &mut self.saga.annals;
        (inner.resume_at, inner.parked, inner.phase) = (None, None, SagaPhase::Acting);
        inner.attempt += 1;
        self.saga.retry_count += 1;
        if let Some(name) = self.saga.current_step.clone() {
            self.note(&name, self.saga.annals.undoing);
        }
    }

    /// Completes the current step.
    fn completed(&mut self) {
        let Some(step) = self.step() else { return };
        self.ended_attempt("completed", None);
        self.saga.completed_steps.push(step.name.clone());
        let inner = &mut self.saga.annals;
        inner.limit_at = None;
        let next = usize::try_from(inner.step).unwrap_or(0) + 1;
        // A cancellation that was requested during the step compensates it with the others.
        if let Some(asked) = inner.asked.take_if(|asked| asked.act == "cancel" && next < self.definition.steps().len())
        {
            return self.turn_back(SagaState::Cancelled, asked.reason, asked.by, false);
        }
        self.begin_step(next);
    }

    fn note(&mut self, name: &str, undoing: bool) {
        let timeline = &mut self.saga.annals.timeline;
        if timeline.len() >= TIMELINE_MAX {
            timeline.remove(0);
        }
        timeline.push(TimelineEntry {
            name: name.to_owned(),
            kind: way(undoing).to_owned(),
            state: "running".to_owned(),
            attempt: self.saga.annals.attempt,
            at: date(self.now),
            ended: None,
            reason: None,
        });
    }

    fn ended_attempt(&mut self, state: &str, reason: Option<String>) {
        if let Some(last) = self.saga.annals.timeline.iter_mut().rev().find(|entry| entry.ended.is_none()) {
            state.clone_into(&mut last.state);
            (last.ended, last.reason) = (Some(date(self.now)), reason);
        }
    }
}

fn context_of(definition: &SagaDefinition, event: &RecordedEvent) -> Result<Document, String> {
    let context = definition.context(event)?;
    match bson::serialize_to_raw_document_buf(&context) {
        Ok(raw) if raw.as_bytes().len() <= CONTEXT_BYTES_MAX => Ok(context),
        Ok(raw) => Err(format!(
            "context: has {} bytes; at most {CONTEXT_BYTES_MAX} are allowed, so keep a reference in it",
            raw.as_bytes().len()
        )),
        Err(error) => Err(format!("context: {error}")),
    }
}

fn way(undoing: bool) -> &'static str {
    if undoing { "compensation" } else { "action" }
}

fn begun(definition: &SagaDefinition, execution_id: &str, event: String, now: Timestamp) -> SagaRecord {
    let id = saga_id(&definition.name, execution_id);
    let ends_at = definition.limit_ms().map(|limit| date(now.plus(std::time::Duration::from_millis(limit))));
    SagaRecord {
        saga_id: id.clone(),
        id,
        saga_name: definition.name.to_string(),
        execution_id: execution_id.to_owned(),
        state: SagaState::Created,
        current_step: None,
        completed_steps: Vec::new(),
        compensated_steps: Vec::new(),
        context_data: Document::new(),
        error_message: None,
        created_at: date(now),
        updated_at: date(now),
        completed_at: None,
        retry_count: 0,
        revision_id: bson::Uuid::from_bytes([0; 16]),
        annals: SagaInner {
            version: definition.version().unwrap_or(1).into(),
            turn: 0,
            phase: SagaPhase::Acting,
            step: 0,
            attempt: 1,
            sent: 0,
            due: None,
            resume_at: None,
            limit_at: None,
            ends_at,
            parked: None,
            outbox: Vec::new(),
            arrived: Vec::new(),
            taken: Vec::new(),
            undo: Vec::new(),
            undoing: false,
            ending: None,
            asked: None,
            timeline: Vec::new(),
            initial_event: event,
            took_ms: None,
        },
    }
}

impl SagaRecord {
    /// Returns the step or compensation that a function of a program has to run now.
    pub fn work(&self, definition: &SagaDefinition) -> Option<SagaWork> {
        let inner = &self.annals;
        let step = definition.steps().get(usize::try_from(inner.step).ok()?)?;
        let is_program = match (&step.compensation, inner.undoing) {
            (Some(compensation), true) => compensation.is_program,
            (None, true) => false,
            (_, false) => step.is_program,
        };
        let name = self.current_step.clone()?;
        let is_due = inner.phase == SagaPhase::Acting && is_program;
        is_due.then_some(SagaWork { name, compensates: inner.undoing, attempt: inner.attempt })
    }
}

impl OutboxEntry {
    /// Returns the commit for this entry.
    ///
    /// # Errors
    /// A sentence that says why it cannot be committed.
    pub fn commit(&self, saga: &SagaRecord) -> Result<NewCommit, String> {
        let mut event = NewEvent::new(self.event_type.as_str(), Data::from_document(&self.data)?);
        event.tags = self.tags.iter().map(|tag| tag.as_str().into()).collect();
        let mut commit = NewCommit::new(self.aggregate.as_str(), self.aggregate_id.as_str())
            .event(event)
            .request_id(self.request.as_str());
        commit.correlation_id = Some(saga.execution_id.as_str().into());
        commit.causation_id = Some(saga.saga_id.as_str().into());
        Ok(commit)
    }
}

impl SagaEnding {
    fn new(state: SagaState, step: Option<String>, reason: String, by: Option<String>) -> Self {
        Self { state, step, reason, by }
    }
}
