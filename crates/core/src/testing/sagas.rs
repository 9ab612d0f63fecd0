//! A test kit for sagas with a simulated clock: given a definition, when events arrive or time passes, then these commands are published
//! and the saga is in this state. It needs no store and no runtime. Every state is converted to its stored form and back.
//!
//! ```
//! use std::time::Duration;
//!
//! use annals_core::sagas::{SagaDefinition, SagaState};
//! use annals_core::testing::sagas::saga;
//! use serde_json::json;
//!
//! let definition = SagaDefinition::read("order", br#"{
//!     "start": {"on": ["order_placed"]},
//!     "steps": [{
//!         "name": "pay", "publish": {"type": "request_payment", "data": {"total": "$context.total"}},
//!         "await": {"on": ["paid"]}, "limit_ms": 2592000000,
//!         "compensation": {"name": "cancel_payment", "publish": {"type": "cancel_payment"}}
//!     }]
//! }"#)?;
//! saga(definition)
//!     .event("order_placed", json!({"total": 7}))
//!     .published(["saga_started", "request_payment"])
//!     .after(Duration::from_secs(30 * 24 * 60 * 60))
//!     .published(["saga_compensating", "cancel_payment", "saga_compensated", "saga_failed"])
//!     .state(SagaState::Timeout);
//! # Ok::<(), annals_core::Invalid>(())
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::records::decode::decode;
use crate::sagas::{
    OutboxEntry, SagaActed, SagaAsked, SagaDefinition, SagaFailure, SagaInput, SagaMachine, SagaRecord, SagaState,
    SagaWork,
};
use crate::{Aggregate, CommitInfo, DEFAULT_TENANT_ID, Data, RecordedEvent, Timestamp};

type Function = Box<dyn FnMut(&SagaRecord, &SagaWork) -> Result<SagaActed, SagaFailure>>;

/// Starts a test of one saga of this definition.
pub fn saga(definition: SagaDefinition) -> SagaTest {
    SagaTest {
        definition,
        functions: HashMap::new(),
        refused: HashMap::new(),
        record: None,
        now: Timestamp::from_millis(0),
        events: 0,
        published: Vec::new(),
    }
}

/// A saga in a test.
pub struct SagaTest {
    definition: SagaDefinition,
    functions: HashMap<String, Function>,
    refused: HashMap<String, usize>,
    record: Option<SagaRecord>,
    now: Timestamp,
    events: u64,
    published: Vec<OutboxEntry>,
}

impl SagaTest {
    /// Registers the function that runs a step or compensation of a program.
    #[must_use]
    pub fn function(
        mut self,
        name: &str,
        function: impl FnMut(&SagaRecord, &SagaWork) -> Result<SagaActed, SagaFailure> + 'static,
    ) -> Self {
        self.functions.insert(name.to_owned(), Box::new(function));
        self
    }

    /// Refuses the next `times` commits of events of this type.
    #[must_use]
    pub fn refusing(mut self, event_type: &str, times: usize) -> Self {
        self.refused.insert(event_type.to_owned(), times);
        self
    }

    /// Delivers an event of the aggregate `test/t-1`.
    #[must_use]
    #[track_caller]
    pub fn event(self, event_type: &str, data: serde_json::Value) -> Self {
        let id = Uuid::from_u128(u128::from(self.events) + 1);
        self.event_of(id, event_type, data)
    }

    /// Delivers an event with this id.
    #[must_use]
    #[track_caller]
    pub fn event_of(mut self, id: Uuid, event_type: &str, data: serde_json::Value) -> Self {
        let event = self.recorded(id, event_type, &data);
        self.events += 1;
        let next = match self.record.clone() {
            None if self.definition.is_started_by(&event) => {
                Some(SagaMachine::start(&self.definition, &event, self.now))
            }
            None => None,
            Some(record) => SagaMachine::of(&self.definition, record).apply(SagaInput::Event(&event), self.now),
        };
        self.became(next);
        self.run();
        self
    }

    /// Lets time pass; every timer fires at its time.
    #[must_use]
    #[track_caller]
    pub fn after(mut self, time: Duration) -> Self {
        let until = self.now.plus(time);
        while let Some(due) = self.record.as_ref().and_then(SagaRecord::timer).filter(|due| *due <= until) {
            self.now = self.now.max(due);
            if !self.apply(SagaInput::Time) {
                break;
            }
            self.run();
        }
        self.now = until;
        self
    }

    /// Cancels the saga, as an operator does.
    #[must_use]
    #[track_caller]
    pub fn cancel(self, reason: &str) -> Self {
        self.ask("cancel", reason)
    }

    /// Retries the current step or compensation, as an operator does.
    #[must_use]
    #[track_caller]
    pub fn retry(self, reason: &str) -> Self {
        self.ask("retry", reason)
    }

    #[track_caller]
    fn ask(mut self, act: &str, reason: &str) -> Self {
        let asked = SagaAsked { act: act.to_owned(), reason: reason.to_owned(), by: None };
        let Some(record) = &mut self.record else { panic!("no saga has begun") };
        record.ask(asked, self.now);
        self.apply(SagaInput::Time);
        self.run();
        self
    }

    /// Asserts that exactly these events were committed since the last such assertion.
    ///
    /// # Panics
    /// If other events were committed.
    #[track_caller]
    pub fn published<'a>(mut self, types: impl IntoIterator<Item = &'a str>) -> Self {
        let published: Vec<_> = self.published.drain(..).map(|entry| entry.event_type).collect();
        assert_eq!(published, types.into_iter().collect::<Vec<_>>(), "published (left), expected (right)");
        self
    }

    /// Asserts that the saga is in this state.
    ///
    /// # Panics
    /// If it is in another state.
    #[track_caller]
    pub fn state(self, state: SagaState) -> Self {
        self.check(|saga| assert_eq!(saga.state, state, "{:?}", saga.error_message))
    }

    /// Passes the saga to `look`, for assertions.
    ///
    /// # Panics
    /// If no saga has begun, or `look` panics.
    #[track_caller]
    pub fn check(self, look: impl FnOnce(&SagaRecord)) -> Self {
        let Some(record) = &self.record else { panic!("no saga has begun") };
        look(record);
        self
    }

    #[track_caller]
    fn apply(&mut self, input: SagaInput<'_>) -> bool {
        let Some(record) = self.record.clone() else { return false };
        let next = SagaMachine::of(&self.definition, record).apply(input, self.now);
        let changed = next.is_some();
        self.became(next);
        changed
    }

    /// Does all work that waits for neither an event nor a time.
    #[track_caller]
    fn run(&mut self) {
        while let Some(record) = self.record.clone() {
            if let Some(entry) = record.annals.outbox.first() {
                if let Err(why) = entry.commit(&record).map(|commit| commit.validate()) {
                    panic!("{entry:?} cannot be committed: {why}");
                }
                let input = match self.refused.get_mut(&entry.event_type).filter(|times| **times > 0) {
                    Some(times) => {
                        *times -= 1;
                        SagaInput::Sent { count: 0, refused: Some("a test refuses it".to_owned()) }
                    }
                    None => {
                        self.published.push(entry.clone());
                        SagaInput::Sent { count: 1, refused: None }
                    }
                };
                self.apply(input);
            } else if let Some(work) = record.work(&self.definition) {
                let Some(function) = self.functions.get_mut(&work.name) else {
                    panic!("the test has no function {:?}", work.name)
                };
                let result = function(&record, &work);
                self.apply(SagaInput::Acted { work, result });
            } else {
                return;
            }
        }
    }

    /// Replaces the state by `next`, after a round trip through its stored form.
    #[track_caller]
    fn became(&mut self, next: Option<SagaRecord>) {
        let Some(next) = next else { return };
        let stored = bson::serialize_to_raw_document_buf(&next);
        let stored = stored.unwrap_or_else(|why| panic!("a saga cannot be stored: {why}"));
        let back: SagaRecord = decode(&stored).unwrap_or_else(|why| panic!("a saga cannot be read: {why}"));
        assert_eq!(back, next, "a saga changes when it is stored and read again (left)");
        self.record = Some(back);
    }

    #[track_caller]
    fn recorded(&self, id: Uuid, event_type: &str, data: &serde_json::Value) -> RecordedEvent {
        let commit = CommitInfo {
            commit_id: id,
            request_id: None,
            aggregate: Aggregate::new("test", "t-1"),
            version: self.events + 1,
            time: self.now,
            tenant_id: DEFAULT_TENANT_ID.into(),
            owner_id: "".into(),
            space_id: "".into(),
            command_id: None,
            correlation_id: None,
            causation_id: None,
            header: Vec::new(),
            transaction: None,
            received: None,
        };
        RecordedEvent {
            sequence_number: self.events,
            ordinal: 0,
            id,
            event_type: event_type.into(),
            generation: 1,
            data: Data::from_value(data).unwrap_or_else(|why| panic!("{data} is not event data: {why}")),
            tags: Vec::new(),
            public: false,
            metadata: None,
            time: self.now,
            commit: Arc::new(commit),
        }
    }
}
