//! The names assigned to UUIDs: from the file, from earlier adoptions, and those that are missing.

use annals_core::{Aggregate, Code, OpenError};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

use super::report::{AdoptNames, AdoptReport};
use crate::layout::mapping::{Kind, Mapping};

/// Maximum number of UUIDs that are listed individually; the rest is counted.
const TOLD_MAX: usize = 5;

/// Adds the names of the file to the stored ones.
///
/// # Errors
/// `invalid_names` for an invalid UUID or name, for two UUIDs with one name, and for a UUID whose stored name differs.
pub(super) fn read(stored: &Mapping, given: &AdoptNames) -> Result<Mapping, OpenError> {
    let mut mapping = stored.clone();
    for (kind, list, names) in
        [(Kind::Event, "event_types", &given.event_types), (Kind::Aggregate, "aggregates", &given.aggregates)]
    {
        let mut seen = BTreeSet::new();
        for (key, name) in names {
            let refuse = |why: String| Err(OpenError::new(Code::InvalidNames, format!("names: {list}: {why}")));
            let Ok(uuid) = Uuid::try_parse(key) else {
                return refuse(format!("{key:?} is no UUID; write one as 00000000-0000-0000-0000-000000000000"));
            };
            if !seen.insert(uuid) {
                return refuse(format!("{uuid} is there twice, written in different ways"));
            }
            let Some(name) = name.as_deref().filter(|name| !name.is_empty()) else { continue };
            if let Err(invalid) = Aggregate::new(name, "x").validate() {
                return refuse(format!("{uuid}: {name:?} {}", invalid.message));
            }
            if Uuid::try_parse(name).is_ok_and(|other| other != uuid) {
                return refuse(format!("{uuid}: {name:?} is another UUID; a UUID can only be its own name"));
            }
            match stored.given(kind, uuid) {
                Some(before) if **before != *name => {
                    return refuse(format!(
                        "{uuid} was adopted as {before:?} and keeps that name, because events were read under it"
                    ));
                }
                _ => {}
            }
            if let Some(other) = mapping.given_uuid(kind, name).filter(|other| *other != uuid) {
                return refuse(format!("{name:?} is the name of {other} and of {uuid}; give each its own"));
            }
            mapping.add(kind, uuid, name.into());
        }
    }
    Ok(mapping)
}

/// Returns what the log needs, in the form of the file: the names, and null where one is missing.
pub(super) fn needed(mapping: &Mapping, seen: &BTreeMap<(Kind, Uuid), u64>) -> AdoptNames {
    let mut needed = AdoptNames::default();
    for (kind, uuid) in seen.keys() {
        let list = match kind {
            Kind::Event => &mut needed.event_types,
            Kind::Aggregate => &mut needed.aggregates,
        };
        let name = mapping.given(*kind, *uuid).map(|name| name.to_string());
        list.insert(uuid.hyphenated().to_string(), name);
    }
    needed
}

/// Adds the UUIDs that occur only in the logs of scopes. Those come from other microservices and need not be known in advance, so a
/// missing name is no obstacle, but is reported.
pub(super) fn add_of_scopes(mapping: &Mapping, seen: &BTreeMap<(Kind, Uuid), u64>, report: &mut AdoptReport) {
    let AdoptNames { event_types, aggregates } = needed(mapping, seen);
    report.names.event_types.extend(event_types);
    report.names.aggregates.extend(aggregates);
    for ((kind, uuid), events) in seen.iter().filter(|((kind, uuid), _)| mapping.given(*kind, *uuid).is_none()) {
        let word = if *kind == Kind::Event { "event type" } else { "aggregate" };
        report.find(
            "name_of_scope",
            format!("{word} {uuid} has no name and occurs in scopes only ({events} events): it is called by its UUID until it has one"),
        );
    }
}

/// Returns a message about the UUIDs without a name.
pub(super) fn missing(mapping: &Mapping, seen: &BTreeMap<(Kind, Uuid), u64>) -> Option<String> {
    let missing: Vec<_> = seen.iter().filter(|((kind, uuid), _)| mapping.given(*kind, *uuid).is_none()).collect();
    if missing.is_empty() {
        return None;
    }
    let mut told: Vec<String> = Vec::new();
    for ((kind, uuid), events) in missing.iter().take(TOLD_MAX) {
        let word = if *kind == Kind::Event { "event type" } else { "aggregate" };
        told.push(format!("{word} {uuid} ({events} events)"));
    }
    if missing.len() > TOLD_MAX {
        told.push(format!("{} more", missing.len() - TOLD_MAX));
    }
    let how = "write them into a JSON file {\"event_types\": {\"UUID\": \"name\"}, \"aggregates\": {…}} and give it with --names; \
               a UUID may be its own name, and `annals adopt --output json` prints `names` in the form of the file";
    Some(format!("UUIDs of the log have no name: {}; {how}", told.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "00000000-0000-0000-0000-00000000000a";
    const B: &str = "00000000-0000-0000-0000-00000000000b";

    fn names(events: &[(&str, &str)]) -> AdoptNames {
        let event_types = events.iter().map(|(key, name)| ((*key).to_owned(), Some((*name).to_owned()))).collect();
        AdoptNames { event_types, ..AdoptNames::default() }
    }

    #[test]
    fn names_that_cannot_be_are_refused_with_what_to_write() {
        for (given, says) in [
            (names(&[("order", "order")]), "is no UUID"),
            (names(&[(A, "a b")]), "a b"),
            (names(&[(A, B)]), "another UUID"),
            (names(&[(A, "placed"), (B, "placed")]), "give each its own"),
            (names(&[(A, "x"), ("0000000000000000000000000000000a", "y")]), "twice"),
        ] {
            let error = read(&Mapping::default(), &given).expect_err(says);
            assert_eq!(error.code, Code::InvalidNames);
            assert!(error.message.contains(says), "{}", error.message);
        }
        let mut stored = Mapping::default();
        stored.add(Kind::Event, A.parse().expect("a UUID"), "placed".into());
        assert!(read(&stored, &names(&[(A, "other")])).expect_err("changed").message.contains("keeps that name"));
        let read = read(&stored, &names(&[(A, "placed"), (B, B)])).expect("the same again, and itself");
        assert_eq!(&*read.name(Kind::Event, B.parse().expect("a UUID")), B);
    }

    #[test]
    fn what_is_missing_is_told_with_how_to_give_it() {
        let seen: BTreeMap<_, _> = (1..=7).map(|n| ((Kind::Event, Uuid::from_u128(n)), 10)).collect();
        let sentence = missing(&Mapping::default(), &seen).expect("all are missing");
        assert!(sentence.contains("2 more") && sentence.contains("--names"), "{sentence}");
        assert!(needed(&Mapping::default(), &seen).event_types.values().all(Option::is_none));
    }
}
