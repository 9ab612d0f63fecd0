//! Aggregates as Rust types: how events evolve an aggregate's state, and how commands decide on new events.
//!
//! ```text
//!   AggregateType   state.evolve(event)                    loaded.rs     an aggregate as it is: its state and what is known about it
//!   stored.rs       events as a log has them, and back     upcasters.rs  what older events become
//!   effect.rs       deleted, recovered, given to another owner …
//! ```
//!
//! This module does no I/O: `Aggregates` of annals-runtime loads and commits, and [`testing`](crate::testing) needs no log.

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

/// An aggregate type: the implementing type is the state, and [`Event`](Self::Event) lists what can happen to it.
///
/// The state of an aggregate without events is the type's default. A command is a function of the state that returns the events that
/// follow from it, or why it is refused. It changes nothing itself, so it can be run again after a conflict.
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

    /// The revision of the state. Increment it whenever [`evolve`](Self::evolve) derives a different state from the same events, or a
    /// field changes its meaning. Snapshots of another revision are rebuilt.
    const STATE_REVISION: u32 = 1;

    /// The events of the aggregate: an enum whose variants, as serde names them, are the event types, and whose fields are the data. A
    /// variant has named fields, one value that serialises to an object, or nothing. The enum must be neither tagged nor untagged.
    type Event: Serialize + DeserializeOwned + Send + 'static;

    /// Applies an event to the state. A recorded event has happened, so it cannot be refused. The function must not look anything up: the
    /// same events always lead to the same state.
    fn evolve(&mut self, event: Self::Event);

    /// Applies an event whose type is not in [`Event`](Self::Event), because a later version of the program or other software recorded it.
    /// By default it changes nothing.
    fn evolve_unknown(&mut self, event: &StoredEvent) {
        let _ = event;
    }

    /// Returns what an event does to the aggregate apart from its state, for example that it deletes it. The default is `None`.
    fn effect(event: &Self::Event) -> Option<Effect> {
        let _ = event;
        None
    }

    /// Completes an event before it is committed: adds tags, or hides it from partners. It must not change type, data or generation.
    fn annotate(event: &Self::Event, new: NewEvent) -> NewEvent {
        let _ = event;
        new
    }

    /// Returns the indexes of its snapshots beyond the built-in ones, for queries of the state: `Index::on("state.status")`. Empty by
    /// default.
    fn indexes() -> Vec<Index> {
        Vec::new()
    }

    /// Returns how events that earlier versions of the program recorded are upcast. The upcasters also determine the generation of new
    /// events.
    fn upcasters() -> Upcasters {
        Upcasters::default()
    }
}
