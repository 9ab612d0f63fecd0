//! The few words of which random commits and filters consist. They are few, so that they coincide; some are prefixes of others, so that a
//! prefix is not mistaken for the whole.

use annals_core::{AggregateFilter, Filter};

pub(crate) const NAMES: &[&str] = &["order", "door", "orde"];
pub(crate) const IDS: &[&str] = &["1", "2", "a/b", "12"];
pub(crate) const TYPES: &[&str] = &["placed", "paid", "shipped", "place"];
pub(crate) const TAGS: &[&str] = &["red", "blue", "re", "customer:7", "日本"];

/// Names of prepare keys, and keys. Two of the pairs would be equal if joined.
pub(crate) const KEYS: &[(&str, &str)] = &[("user", "eva"), ("user", "eve"), ("usere", "va"), ("mail", "eva")];

pub(crate) fn pick<T: Copy>(random: &mut fastrand::Rng, from: &[T]) -> T {
    from[random.usize(0..from.len())]
}

/// Returns each of the words with odds of 1 to `odds`.
pub(crate) fn some_of<T: for<'a> From<&'a str>>(random: &mut fastrand::Rng, from: &[&str], odds: u8) -> Vec<T> {
    from.iter().filter(|_| random.u8(0..odds) == 0).map(|word| T::from(word)).collect()
}

pub(crate) fn any_filter(random: &mut fastrand::Rng) -> Filter {
    Filter {
        types: some_of(random, TYPES, 4),
        tags: some_of(random, TAGS, 6),
        aggregate: (random.u8(0..3) == 0).then(|| AggregateFilter {
            name: pick(random, NAMES).into(),
            id: random.bool().then(|| pick(random, IDS).into()),
        }),
    }
}
