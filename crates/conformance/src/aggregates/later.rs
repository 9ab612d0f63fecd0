//! The aggregate of the cases in later versions of its program.

use annals_core::{AggregateType, Upcasters};
use serde::{Deserialize, Serialize};

use super::counter::{Counter, CounterEvent};

/// The state with another field.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Later {
    pub tally: i64,
}

impl AggregateType for Later {
    const NAME: &'static str = Counter::NAME;
    type Event = CounterEvent;

    fn evolve(&mut self, event: CounterEvent) {
        if let CounterEvent::Added { n } = event {
            self.tally += n;
        }
    }

    fn upcasters() -> Upcasters {
        Counter::upcasters()
    }
}

/// The state with the field of [`Later`], which is computed differently.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Twice {
    pub tally: i64,
}

impl AggregateType for Twice {
    const NAME: &'static str = Counter::NAME;
    const STATE_REVISION: u32 = 2;
    type Event = CounterEvent;

    fn evolve(&mut self, event: CounterEvent) {
        if let CounterEvent::Added { n } = event {
            self.tally += 2 * n;
        }
    }

    fn upcasters() -> Upcasters {
        Counter::upcasters()
    }
}
