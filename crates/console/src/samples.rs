//! The heads of logs over the last minutes, from which rates are computed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use annals_core::Timestamp;

/// The number of samples that are kept per tenant, and the number of tenants.
const SAMPLES_MAX: usize = 120;
const TENANTS_MAX: usize = 1_000;
/// The minimum time between two samples, in milliseconds.
const APART_MS: i64 = 900;
/// The age at which samples are dropped, in milliseconds.
const AGE_MS: i64 = 10 * 60 * 1000;
/// The time over which the current rate is measured, in milliseconds.
const NOW_MS: i64 = 10_000;

/// The samples of every tenant whose overview is open.
#[derive(Default)]
pub(crate) struct Samples(Mutex<HashMap<String, VecDeque<(i64, u64)>>>);

/// Events per second.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// The rate over the last ten seconds; `None` until there are two samples.
    pub now: Option<f64>,
    /// The rate between each pair of consecutive samples.
    pub course: Vec<f64>,
}

impl Samples {
    /// Adds the current head of a log, and returns the rates.
    pub fn take(&self, tenant: &str, head: u64, now: Timestamp) -> Rates {
        let now = now.as_millis();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= TENANTS_MAX && !all.contains_key(tenant) {
            all.clear();
        }
        let samples = all.entry(tenant.to_owned()).or_default();
        // A head that has decreased belongs to another store.
        if samples.back().is_some_and(|(at, last)| head < *last || now < *at) {
            samples.clear();
        }
        samples.retain(|(at, _)| now - at <= AGE_MS);
        if samples.back().is_none_or(|(at, _)| now - at >= APART_MS) {
            samples.push_back((now, head));
        }
        while samples.len() > SAMPLES_MAX {
            samples.pop_front();
        }
        let rate = |from: &(i64, u64), to: &(i64, u64)| (to.1 - from.1) as f64 * 1000.0 / (to.0 - from.0).max(1) as f64;
        let last = samples.back().copied().unwrap_or((now, head));
        let first = samples.iter().find(|(at, _)| last.0 - at <= NOW_MS).copied().filter(|(at, _)| *at < last.0);
        let course = samples.iter().zip(samples.iter().skip(1)).map(|(from, to)| rate(from, to)).collect();
        Rates { now: first.map(|first| rate(&first, &last)), course }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_known_from_the_second_sample_and_forgotten_with_the_store() {
        let samples = Samples::default();
        let at = |ms| Timestamp::from_millis(ms);
        assert_eq!(samples.take("a", 100, at(0)), Rates::default());
        assert_eq!(samples.take("a", 150, at(500)), Rates::default());
        assert_eq!(samples.take("a", 300, at(2_000)), Rates { now: Some(100.0), course: vec![100.0] });
        assert_eq!(samples.take("b", 7, at(2_000)).now, None);
        assert_eq!(samples.take("a", 0, at(4_000)), Rates::default());
    }
}
