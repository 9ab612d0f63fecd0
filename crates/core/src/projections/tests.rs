//! Folding in pages of any length, beside folding one event after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::{Document, doc};
use proptest::prelude::*;
use uuid::Uuid;

use super::{ProjectionDefinition, Projector, Unfolded, Working};
use crate::{Aggregate, CommitInfo, Data, RecordChange, RecordedEvent, Timestamp};

const RULES: &str = r#"{"on": {
    "set": {"set": {"last": "$data.n", "in.number": "$sequence_number"}},
    "add": {"increment": {"sum": "$data.n"}, "push": {"all": "$data.n"}},
    "take": [{"decrement": {"sum": "$data.n"}, "remove": {"all": "$data.n"}}, {"key": "takes", "increment": {"count": 1}}],
    "drop": {"delete": true},
    "break": [{"increment": {"sum": 1}}, {"increment": {"last.deeper": "$data.n"}}]
}}"#;

fn event(number: usize, key: u8, event_type: &str, n: i64) -> RecordedEvent {
    let commit = CommitInfo::first_of(Aggregate::new("order", format!("o-{key}")), Timestamp::from_millis(0));
    RecordedEvent {
        sequence_number: number as u64,
        ordinal: 0,
        id: Uuid::nil(),
        event_type: event_type.into(),
        generation: 1,
        data: Data::from_document(&doc! { "n": n }).expect("a document"),
        tags: Vec::new(),
        public: false,
        metadata: None,
        time: Timestamp::from_millis(0),
        commit: Arc::new(commit),
    }
}

/// A collection, as a store would keep it.
type Stored = BTreeMap<String, Document>;

/// Folds one page, and writes what it changed.
fn fold(
    projector: &Projector,
    page: &[RecordedEvent],
    work: &mut Working,
    stored: &mut Stored,
) -> Result<(), Unfolded> {
    let keys = projector.keys(page);
    for key in work.wanted(&keys) {
        if let Some(record) = stored.get(&key.to_string()) {
            work.insert(record.try_into().expect("a document")).expect("it is read");
        }
    }
    projector.fold(page, keys, work)?;
    let changed = work.changes("orders").expect("documents");
    for change in &changed.changes {
        match change {
            RecordChange::Replace { document, .. } => {
                let record = Document::try_from(&**document).expect("a document");
                stored.insert(record.get("_id").expect("its key").to_string(), record);
            }
            RecordChange::Delete { id, .. } => _ = stored.remove(&id.to_string()),
            other => panic!("{other:?}"),
        }
    }
    work.stored(&changed);
    Ok(())
}

fn projector() -> Projector {
    Projector::new(ProjectionDefinition::read("orders", RULES.as_bytes()).expect("a definition"), None)
}

/// What is stored at the end, and how many events are folded.
fn folded(events: &[RecordedEvent], lengths: &[usize], forgets: bool) -> (Stored, usize) {
    let (projector, mut stored, mut from) = (projector(), Stored::new(), 0);
    let mut work = Working::of_nothing();
    for length in lengths.iter().cycle() {
        let page = &events[from..(from + length).min(events.len())];
        if page.is_empty() {
            break;
        }
        if forgets {
            work = Working::default();
        }
        match fold(&projector, page, &mut work, &mut stored) {
            Ok(()) => from += page.len(),
            Err(Unfolded { at, .. }) => {
                fold(&projector, &page[..at], &mut Working::default(), &mut stored).expect("those before it fit");
                return (stored, from + at);
            }
        }
    }
    (stored, from)
}

proptest! {
    #[test]
    fn pages_of_any_length_fold_as_single_events_do(
        events in proptest::collection::vec((0..4_u8, 0..40_usize, -3..4_i64), 0..60),
        lengths in proptest::collection::vec(1..20_usize, 1..6),
        forgets in any::<bool>(),
    ) {
        let name = |n: usize| ["set", "add", "take", "drop", "add", "set", "take", "other"][n];
        // One of many does not fit.
        let name = |n: usize| if n == 8 { "break" } else { name(n % 8) };
        let events: Vec<_> = events.iter().enumerate().map(|(at, (key, n, value))| event(at, *key, name(*n), *value)).collect();
        prop_assert_eq!(folded(&events, &lengths, forgets), folded(&events, &[1], true));
    }
}

#[test]
fn many_events_of_one_key_are_one_change() {
    let (projector, mut work) = (projector(), Working::of_nothing());
    let events: Vec<_> = (0..500).map(|n| event(n, 1, "add", 2)).collect();
    let keys = projector.keys(&events);
    projector.fold(&events, keys, &mut work).expect("they fit");
    let changed = work.changes("orders").expect("documents");
    assert_eq!(changed.changes.len(), 1);
    let RecordChange::Replace { document, .. } = &changed.changes[0] else { panic!("{:?}", changed.changes) };
    assert_eq!(document.get_i64("sum").ok(), Some(1_000));
}

#[test]
fn an_event_that_does_not_fit_is_named_with_its_operation() {
    let projector = projector();
    for (rules, data, message) in [
        (r#"{"increment": {"n": "$data.n"}}"#, doc! { "n": "x" }, "increment.n: the event has \"x\""),
        (r#"{"increment": {"n": "$data.n"}}"#, doc! { "n": i64::MAX }, "does not fit in 64 bits"),
        (r#"{"increment": {"t": 1}}"#, doc! {}, "increment.t: the record has \"text\""),
        (r#"{"push": {"t": 1}}"#, doc! {}, "push.t: the record has \"text\", which is not an array"),
        (r#"{"remove": {"t": 1}}"#, doc! {}, "remove.t: the record has \"text\", which is not an array"),
        (r#"{"set": {"t.x.y": 1}}"#, doc! {}, "set.t.x.y: the record has \"text\" at \"t\", which is not a document"),
        (r#"{"key": "$data.list", "set": {"x": 1}}"#, doc! { "list": [1] }, "key: an array"),
        (r#"{"key": {"a": "$data.nothing"}, "set": {"x": 1}}"#, doc! {}, "key: the event has no $data.nothing"),
    ] {
        let json = format!(r#"{{"on": {{"first": {{"set": {{"t": "text", "n": 1}}}}, "then": {rules}}}}}"#);
        let definition = ProjectionDefinition::read("p", json.as_bytes()).expect(rules);
        let then = RecordedEvent { data: Data::from_document(&data).expect("a document"), ..event(1, 1, "then", 0) };
        let (projector, mut work) = (Projector::new(definition, None), Working::of_nothing());
        let events = [event(0, 1, "first", 0), then];
        let keys = projector.keys(&events);
        let unfolded = projector.fold(&events, keys, &mut work).expect_err(rules);
        assert_eq!(unfolded.at, 1, "{rules}");
        assert!(unfolded.misfit.to_string().contains(message), "{}", unfolded.misfit);
    }
    assert!(projector.definition().source().filter().is_some_and(|filter| filter.types.len() == 5));
}
