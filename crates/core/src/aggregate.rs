//! Aggregates as types: what the events of an aggregate make of its state, and what a command makes of that.
//!
//! ```text
//!   AggregateType   state.evolve(event)                    loaded.rs     an aggregate as it is: its state and what is known about it
//!   stored.rs       events as a log has them, and back     upcasters.rs  what older events become
//!   effect.rs       deleted, recovered, given to another owner …
//! ```
//!
//! Nothing here reads or writes a log: that is what `Aggregates` of annals-runtime does, and [`testing`](crate::testing) needs neither.

mod effect;
mod loaded;
mod stored;
mod upcasters;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use effect::{Effect, Tags};
pub use loaded::{AggregateInfo, EvolveError, Loaded, OPERATOR_HEADER, known_event};
pub use stored::{Known, StoredEvent};
pub use upcasters::Upcasters;

use crate::{Index, NewEvent};

/// What an aggregate of one name is: the type is its state, [`Event`](Self::Event) what can happen to it.
///
/// The state of an aggregate without events is the type's default. A command is a function of the state that says which events follow
/// from it, or why it is refused; it changes nothing itself, so it can be asked again after a conflict.
///
/// ```
/// # use annals_core::{AggregateType, testing::given};
/// # use serde::{Deserialize, Serialize};
/// #[derive(Default, Serialize, Deserialize)]
/// struct Door { open: bool }
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// #[serde(rename_all = "snake_case")]
/// enum DoorEvent {
///     DoorOpened,
///     DoorClosed { by: String },
/// }
///
/// impl AggregateType for Door {
///     const NAME: &'static str = "door";
///     type Event = DoorEvent;
///
///     fn evolve(&mut self, event: DoorEvent) {
///         self.open = matches!(event, DoorEvent::DoorOpened);
///     }
/// }
///
/// impl Door {
///     fn close(&self, by: &str) -> Result<Option<DoorEvent>, &'static str> {
///         if self.open { Ok(Some(DoorEvent::DoorClosed { by: by.to_owned() })) } else { Err("it is not open") }
///     }
/// }
///
/// given::<Door>([DoorEvent::DoorOpened])
///     .when(|door| door.close("eva"))
///     .then([DoorEvent::DoorClosed { by: "eva".to_owned() }])
///     .when(|door| door.close("eva"))
///     .then_refused("it is not open");
/// ```
pub trait AggregateType: Default + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The name of the aggregates, for example `order`; see [`valid_name`](crate::valid_name).
    const NAME: &'static str;

    /// Which state this is. Counts on whenever [`evolve`](Self::evolve) makes something else of the same events than before, or the fields
    /// mean something else: snapshots of another revision are made anew.
    const STATE_REVISION: u32 = 1;

    /// What can happen: an enum whose variants, as serde names them, are the event types, and whose fields are the data. A variant has
    /// named fields, one value that serialises to an object, or nothing. It is not tagged or untagged.
    type Event: Serialize + DeserializeOwned + Send + 'static;

    /// The state after an event. What is recorded has happened, so nothing is refused here, and nothing is looked up: the same events make
    /// the same state, always.
    fn evolve(&mut self, event: Self::Event);

    /// The state after an event whose type is none of [`Event`](Self::Event): it was recorded by a later version of the program or by other
    /// software. By default it changes nothing.
    fn evolve_unknown(&mut self, event: &StoredEvent) {
        let _ = event;
    }

    /// What an event does to the aggregate besides its state, for example that it is deleted. By default nothing.
    fn effect(event: &Self::Event) -> Option<Effect> {
        let _ = event;
        None
    }

    /// The last touch to an event before it is committed: tags, or whether partners may see it. Its type, data and generation stay.
    fn annotate(event: &Self::Event, new: NewEvent) -> NewEvent {
        let _ = event;
        new
    }

    /// The indexes of its snapshots beside the layout's, for queries of the state: `Index::on("state.status")`. By default none.
    fn indexes() -> Vec<Index> {
        Vec::new()
    }

    /// What becomes of events that were recorded by earlier versions of the program. It also says which generation new events have.
    fn upcasters() -> Upcasters {
        Upcasters::default()
    }
}
