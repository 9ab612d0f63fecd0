//! Conversion of events that earlier versions of a program recorded.

use std::fmt;
use std::sync::Arc;

use bson::Document;
use bytestring::ByteString;

use super::StoredEvent;
use crate::Data;

/// Converts older events to their current form before they are read, by event type and generation.
///
/// Steps are tried in the order in which they were added, and from the first again after each step that applied. Each step applies at most
/// once to an event, so a chain from generation 1 through 2 to 3 is two steps, added in any order. The log is not changed.
///
/// ```
/// # use annals_core::{StoredEvent, Upcasters};
/// let upcasters = Upcasters::new()
///     .rename("order_created", "order_placed")
///     .upcast("order_placed", 1, |data| {
///         let euros = data.get_i64("euros").unwrap_or_default();
///         data.insert("cents", euros * 100);
///     })
///     .discard("order_viewed");
/// let old = StoredEvent::new("order_created", &serde_json::json!({"euros": 3}))?;
/// let event = upcasters.apply(old)?.expect("not discarded");
/// assert_eq!((&*event.event_type, event.generation), ("order_placed", 2));
/// assert_eq!(upcasters.generation_of("order_placed"), 2);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Default)]
pub struct Upcasters {
    steps: Vec<Step>,
}

#[derive(Clone)]
struct Step {
    event_type: ByteString,
    what: What,
}

#[derive(Clone)]
enum What {
    Upcast { from: u32, change: Arc<dyn Fn(&mut Document) + Send + Sync> },
    Rename(ByteString),
    Discard,
}

impl Upcasters {
    /// Creates an empty set, which leaves every event as it is.
    pub fn new() -> Self {
        Self::default()
    }

    /// Converts the data of events of this type and generation to the next generation. New events of the type get the generation after the
    /// highest one that is converted.
    #[must_use]
    pub fn upcast(
        self,
        event_type: impl Into<ByteString>,
        from: u32,
        change: impl Fn(&mut Document) + Send + Sync + 'static,
    ) -> Self {
        self.step(event_type.into(), What::Upcast { from, change: Arc::new(change) })
    }

    /// Treats events of this type, of any generation, as events of another type; the generation stays.
    #[must_use]
    pub fn rename(self, event_type: impl Into<ByteString>, to: impl Into<ByteString>) -> Self {
        self.step(event_type.into(), What::Rename(to.into()))
    }

    /// Ignores events of this type, of any generation. Their commits still count towards the version.
    #[must_use]
    pub fn discard(self, event_type: impl Into<ByteString>) -> Self {
        self.step(event_type.into(), What::Discard)
    }

    fn step(mut self, event_type: ByteString, what: What) -> Self {
        self.steps.push(Step { event_type, what });
        self
    }

    /// Returns the generation of new events of this type: 1 if the type has no upcaster.
    pub fn generation_of(&self, event_type: &str) -> u32 {
        let next = |step: &Step| match step.what {
            What::Upcast { from, .. } if *step.event_type == *event_type => Some(from.saturating_add(1)),
            _ => None,
        };
        self.steps.iter().filter_map(next).max().unwrap_or(1)
    }

    /// Returns an event in its current form, or `None` if it is discarded.
    ///
    /// # Errors
    /// A sentence, if the data that a step produced cannot be event data.
    pub fn apply(&self, mut event: StoredEvent) -> Result<Option<StoredEvent>, String> {
        let mut taken = vec![false; self.steps.len()];
        while let Some(at) = self.next(&event, &taken) {
            taken[at] = true;
            match &self.steps[at].what {
                What::Discard => return Ok(None),
                What::Rename(to) => event.event_type = to.clone(),
                What::Upcast { change, .. } => {
                    let mut data = Document::try_from(event.data.as_raw()).map_err(|error| error.to_string())?;
                    change(&mut data);
                    event.data = Data::from_document(&data)?;
                    event.generation += 1;
                }
            }
        }
        Ok(Some(event))
    }

    fn next(&self, event: &StoredEvent, taken: &[bool]) -> Option<usize> {
        self.steps.iter().zip(taken).position(|(step, taken)| {
            let of_generation = match step.what {
                What::Upcast { from, .. } => from == event.generation,
                What::Rename(_) | What::Discard => true,
            };
            !taken && of_generation && step.event_type == event.event_type
        })
    }
}

impl fmt::Debug for Upcasters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.steps.iter().map(|step| match &step.what {
            What::Upcast { from, .. } => format!("{} {from}", step.event_type),
            What::Rename(to) => format!("{} is {to}", step.event_type),
            What::Discard => format!("no {}", step.event_type),
        });
        f.debug_list().entries(steps).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(event_type: &str, generation: u32) -> StoredEvent {
        StoredEvent { generation, ..StoredEvent::new(event_type, &json!({"n": 1})).expect("an object") }
    }

    fn doubling(data: &mut Document) {
        let n = data.get_i64("n").unwrap_or_default();
        data.insert("n", n * 2);
    }

    #[test]
    fn a_chain_is_taken_to_its_end_from_wherever_an_event_stands() {
        let upcasters = Upcasters::new().upcast("a", 2, doubling).upcast("a", 1, doubling);
        for (generation, n) in [(1, 4), (2, 2), (3, 1), (9, 1)] {
            let read = upcasters.apply(event("a", generation)).expect("valid").expect("there");
            assert_eq!(read.data.as_raw().get_i64("n").ok(), Some(n), "generation {generation}");
            assert_eq!(read.generation, generation.max(3));
        }
        assert_eq!(upcasters.apply(event("b", 1)), Ok(Some(event("b", 1))));
        assert_eq!((upcasters.generation_of("a"), upcasters.generation_of("b")), (3, 1));
    }

    #[test]
    fn names_that_lead_round_in_a_circle_end() {
        let upcasters = Upcasters::new().rename("a", "b").rename("b", "a");
        assert_eq!(upcasters.apply(event("a", 1)), Ok(Some(event("a", 1))));
    }

    #[test]
    fn a_discarded_event_is_gone_whatever_it_was_called_before() {
        let upcasters = Upcasters::new().rename("old", "gone").discard("gone");
        assert_eq!(upcasters.apply(event("old", 1)), Ok(None));
    }
}
