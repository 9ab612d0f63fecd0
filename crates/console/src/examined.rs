//! Caches the last diagnosis of the doctor. An examination queries the store itself, and a live page would request one every two seconds.

use std::sync::{Mutex, PoisonError};

use annals_core::Timestamp;
use serde_json::Value;

/// Diagnoses are reused for this long.
const AGE_MS: i64 = 30_000;

/// The last diagnosis of the whole store. Only administrators see it.
#[derive(Default)]
pub(crate) struct Examined(Mutex<Option<(i64, Value)>>);

impl Examined {
    /// Returns the diagnosis, if it is recent.
    pub fn recent(&self, now: Timestamp) -> Option<Value> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(at, _)| (0..AGE_MS).contains(&(now.as_millis() - at))).map(|(_, said)| said.clone())
    }

    pub fn keep(&self, now: Timestamp, said: &Value) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((now.as_millis(), said.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_examination_is_repeated_after_a_while_and_when_the_clock_goes_back() {
        let (examined, at) = (Examined::default(), Timestamp::from_millis);
        assert_eq!(examined.recent(at(0)), None);
        examined.keep(at(1_000), &"well".into());
        assert_eq!(examined.recent(at(1_000 + AGE_MS - 1)), Some("well".into()));
        assert_eq!((examined.recent(at(1_000 + AGE_MS)), examined.recent(at(0))), (None, None));
    }
}
