//! A test kit for aggregates: given past events, when a command is issued, then these events follow. It needs no store and no runtime.
//!
//! Every event is converted to its stored form and back, as in a log. A test therefore also fails if an event cannot be stored or does not
//! survive the round trip. [`AggregateType`] has an example.

pub mod sagas;

use std::fmt::Debug;

use bytestring::ByteString;
use uuid::Uuid;

use crate::{
    Aggregate, AggregateType, CommitInfo, DEFAULT_TENANT_ID, Effect, Known, Loaded, OPERATOR_HEADER, StoredEvent,
    Timestamp, Upcasters, valid_name,
};

/// Creates an aggregate with these events, each in a commit of its own.
///
/// # Panics
/// If an event cannot be stored, or does not survive the round trip.
#[track_caller]
pub fn given<A: AggregateType>(events: impl IntoIterator<Item = A::Event>) -> Given<A> {
    let upcasters = A::upcasters();
    let given =
        Given { aggregate: Loaded::new("a-1"), upcasters, owner_id: ByteString::new(), operator: ByteString::new() };
    events.into_iter().fold(given, Given::event)
}

/// An aggregate in a test. A clone is a fork: both continue from the same state.
#[derive(Clone)]
pub struct Given<A> {
    aggregate: Loaded<A>,
    upcasters: Upcasters,
    owner_id: ByteString,
    operator: ByteString,
}

impl<A: AggregateType> Given<A> {
    /// Sets the id of the aggregate.
    #[must_use]
    pub fn id(mut self, id: impl Into<ByteString>) -> Self {
        self.aggregate.info.aggregate.id = id.into();
        self
    }

    /// Sets the owner of the aggregate and of its further commits.
    #[must_use]
    pub fn owner(mut self, owner_id: impl Into<ByteString>) -> Self {
        self.owner_id = owner_id.into();
        self.aggregate.info.owner_id = self.owner_id.clone();
        self
    }

    /// Sets the operator of further commits.
    #[must_use]
    pub fn operator(mut self, operator: impl Into<ByteString>) -> Self {
        self.operator = operator.into();
        self
    }

    /// Adds an event.
    ///
    /// # Panics
    /// If the event cannot be stored.
    #[must_use]
    #[track_caller]
    pub fn event(self, event: A::Event) -> Self {
        let event = stored::<A>(&event, &self.upcasters);
        self.commit([event])
    }

    /// Adds an event as an earlier version of the program or other software recorded it.
    ///
    /// # Panics
    /// If the data is not an object, or cannot be read after upcasting.
    #[must_use]
    #[track_caller]
    pub fn recorded(self, event_type: &str, generation: u32, data: serde_json::Value) -> Self {
        let event = StoredEvent::new(event_type, &data).unwrap_or_else(|why| panic!("{data} is not event data: {why}"));
        self.commit([StoredEvent { generation, ..event }])
    }

    /// Adds an effect, for example a deletion.
    ///
    /// # Panics
    /// If the effect cannot be stored.
    #[must_use]
    #[track_caller]
    pub fn effect(self, effect: Effect) -> Self {
        let event = effect.event().unwrap_or_else(|why| panic!("{effect:?} cannot be stored: {why}"));
        self.commit([StoredEvent { event_type: event.event_type, generation: event.generation, data: event.data }])
    }

    /// Passes the aggregate to `look`, for assertions on its state.
    pub fn check(self, look: impl FnOnce(&Loaded<A>)) -> Self {
        look(&self.aggregate);
        self
    }

    /// Issues a command.
    pub fn when<I, E>(self, decide: impl FnOnce(&Loaded<A>) -> Result<I, E>) -> Then<A, E>
    where
        I: IntoIterator<Item = A::Event>,
    {
        let decided = decide(&self.aggregate).map(|events| events.into_iter().collect());
        Then { given: self, decided }
    }

    #[track_caller]
    fn commit(mut self, events: impl IntoIterator<Item = StoredEvent>) -> Self {
        let version = self.aggregate.info.version + 1;
        let operator = (!self.operator.is_empty()).then(|| (OPERATOR_HEADER.into(), self.operator.clone()));
        let commit = CommitInfo {
            commit_id: Uuid::from_u128(version.into()),
            request_id: None,
            aggregate: Aggregate::new(A::NAME, self.aggregate.info.aggregate.id.clone()),
            version,
            time: Timestamp::from_millis(version as i64),
            tenant_id: DEFAULT_TENANT_ID.into(),
            owner_id: self.owner_id.clone(),
            space_id: ByteString::new(),
            command_id: None,
            correlation_id: None,
            causation_id: None,
            header: operator.into_iter().collect(),
            transaction: None,
            received: None,
        };
        match self.aggregate.after_events(&commit, events, &self.upcasters) {
            Ok(aggregate) => self.aggregate = aggregate,
            Err(error) => panic!("{error}"),
        }
        self
    }
}

/// The outcome of a command.
#[must_use = "add an assertion about the outcome"]
pub struct Then<A: AggregateType, E> {
    given: Given<A>,
    decided: Result<Vec<A::Event>, E>,
}

impl<A: AggregateType, E: Debug> Then<A, E>
where
    A::Event: Debug,
{
    /// Asserts that exactly these events follow. Returns the aggregate after them, so that the test can continue.
    ///
    /// # Panics
    /// If other events follow, the command is refused, or an event does not survive storing.
    #[track_caller]
    pub fn then(self, expected: impl IntoIterator<Item = A::Event>) -> Given<A>
    where
        A::Event: PartialEq,
    {
        let expected: Vec<_> = expected.into_iter().collect();
        let events = self.decided.unwrap_or_else(|refusal| panic!("refused with {refusal:?} instead of {expected:?}"));
        assert_eq!(events, expected, "the events (left) differ from those expected (right)");
        if events.is_empty() {
            return self.given;
        }
        let stored: Vec<_> = events.iter().map(|event| stored::<A>(event, &self.given.upcasters)).collect();
        for (event, stored) in events.iter().zip(&stored) {
            match stored.clone().known::<A::Event>() {
                Ok(Known::Event(back)) => {
                    assert_eq!(back, *event, "an event changes when it is stored and read again (left)")
                }
                other => panic!("{event:?} cannot be stored and read again: {other:?}"),
            }
        }
        self.given.commit(stored)
    }

    /// Asserts that no events follow and the command is not refused.
    ///
    /// # Panics
    /// If events follow, or the command is refused.
    #[track_caller]
    pub fn then_nothing(self) -> Given<A> {
        match self.decided {
            Ok(events) if events.is_empty() => self.given,
            other => panic!("{other:?} instead of nothing"),
        }
    }

    /// Asserts that the command is refused with this error.
    ///
    /// # Panics
    /// If events follow, or it is refused with another error.
    #[track_caller]
    pub fn then_refused(self, expected: E) -> Given<A>
    where
        E: PartialEq,
    {
        match self.decided {
            Err(refusal) => assert_eq!(refusal, expected, "the refusal (left) differs from the one expected (right)"),
            Ok(events) => panic!("{events:?} follow, instead of the refusal {expected:?}"),
        }
        self.given
    }

    /// Asserts that the command is refused with an error for which `holds` returns true.
    ///
    /// # Panics
    /// If events follow, or `holds` returns false.
    #[track_caller]
    pub fn then_refused_as(self, holds: impl FnOnce(&E) -> bool) -> Given<A> {
        match self.decided {
            Err(refusal) => assert!(holds(&refusal), "refused with {refusal:?}"),
            Ok(events) => panic!("{events:?} follow, instead of a refusal"),
        }
        self.given
    }
}

#[track_caller]
fn stored<A: AggregateType>(event: &A::Event, upcasters: &Upcasters) -> StoredEvent {
    let taken = StoredEvent::of(event, |event_type| upcasters.generation_of(event_type));
    let stored = taken.unwrap_or_else(|why| panic!("an event cannot be stored: {why}"));
    if let Err(why) = valid_name("type", &stored.event_type) {
        panic!("an event has a type that cannot be stored: {why}");
    }
    stored
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;

    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    struct Lamp {
        on: bool,
        odd: Vec<String>,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum LampEvent {
        Switched {
            on: bool,
        },
        Scrapped,
        Forgetful {
            #[serde(skip)]
            what: String,
        },
    }

    impl AggregateType for Lamp {
        const NAME: &'static str = "lamp";
        type Event = LampEvent;

        fn evolve(&mut self, event: LampEvent) {
            if let LampEvent::Switched { on } = event {
                self.on = on;
            }
        }

        fn evolve_unknown(&mut self, event: &StoredEvent) {
            self.odd.push(event.event_type.to_string());
        }

        fn effect(event: &LampEvent) -> Option<Effect> {
            (*event == LampEvent::Scrapped).then_some(Effect::Deleted)
        }

        fn upcasters() -> Upcasters {
            Upcasters::new().upcast("switched", 1, |data| {
                let state = data.remove("state");
                data.insert("on", state.is_some_and(|state| state.as_str() == Some("on")));
            })
        }
    }

    impl Lamp {
        fn switch(&self, on: bool) -> Result<Option<LampEvent>, &'static str> {
            if self.on == on { Err("it is so already") } else { Ok(Some(LampEvent::Switched { on })) }
        }
    }

    fn fails(test: impl FnOnce()) -> String {
        let panic = catch_unwind(AssertUnwindSafe(test)).expect_err("the test must fail");
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    }

    #[test]
    fn a_scenario_goes_on_and_forks() {
        let on = given::<Lamp>([]).when(|lamp| lamp.switch(true)).then([LampEvent::Switched { on: true }]);
        on.clone().when(|lamp| lamp.switch(true)).then_refused("it is so already");
        on.check(|lamp| assert_eq!((lamp.on, lamp.version()), (true, 1)))
            .when(|lamp| lamp.switch(false))
            .then([LampEvent::Switched { on: false }])
            .check(|lamp| assert!(!lamp.on))
            .when(|_| Ok::<_, String>([]))
            .then_nothing();
    }

    #[test]
    fn what_is_known_besides_the_state_follows_from_commits_and_effects() {
        given::<Lamp>([])
            .id("l-7")
            .owner("eva")
            .operator("otto")
            .event(LampEvent::Switched { on: true })
            .effect(Effect::OwnerTransferred("ida".to_owned()))
            .event(LampEvent::Scrapped)
            .check(|lamp| {
                let info = &lamp.info;
                assert_eq!((&*info.aggregate.id, info.version, info.deleted), ("l-7", 3, true));
                // The commit that follows the transfer sets the owner again.
                assert_eq!((&*info.owner_id, &*info.first_operator), ("eva", "otto"));
            })
            .effect(Effect::Recovered)
            .check(|lamp| assert!(!lamp.info.deleted));
    }

    #[test]
    fn older_events_are_upcast_and_unknown_ones_are_kept() {
        given::<Lamp>([])
            .recorded("switched", 1, json!({"state": "on"}))
            .recorded("dusted", 4, json!({"by": "eva"}))
            .check(|lamp| assert_eq!(lamp.state, Lamp { on: true, odd: vec!["dusted".to_owned()] }));
        let error = fails(|| drop(given::<Lamp>([]).recorded("switched", 2, json!({"on": "yes"}))));
        assert!(error.contains("lamp/a-1 version 1, event 0: switched of generation 2"), "{error}");
    }

    #[test]
    fn a_test_fails_where_it_must() {
        let switch = || given::<Lamp>([]).when(|lamp| lamp.switch(true));
        assert!(fails(|| drop(switch().then([LampEvent::Scrapped]))).contains("the events (left) differ"));
        assert!(fails(|| drop(switch().then_nothing())).contains("instead of nothing"));
        assert!(fails(|| drop(switch().then_refused("no"))).contains("instead of the refusal"));
        assert!(fails(|| drop(switch().then_refused_as(|_| true))).contains("instead of a refusal"));
        let refused = || given::<Lamp>([]).when(|lamp| lamp.switch(false));
        assert!(fails(|| drop(refused().then([]))).contains("refused with"));
        assert!(fails(|| drop(refused().then_refused("other"))).contains("the refusal (left) differs"));
        let forgetful = || LampEvent::Forgetful { what: "it".to_owned() };
        let lost = fails(|| drop(given::<Lamp>([]).when(|_| Ok::<_, String>([forgetful()])).then([forgetful()])));
        assert!(lost.contains("changes when it is stored and read again"), "{lost}");
    }
}
