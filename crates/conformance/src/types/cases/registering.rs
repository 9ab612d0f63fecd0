//! Registration of types and their generations.

use annals_core::types::{Compatibility, PutType, SchemaPolicy, TypeDefinition, TypeError};
use annals_core::{ByteString, Code, names};
use serde_json::json;

use super::{Typed, order};
use crate::Subject;

/// It has its UUID, category and generations.
pub async fn a_type_is_registered_and_known_after_a_restart(subject: &dyn Subject) {
    let it = Typed::of(subject).await;
    assert_eq!(it.types.get("placed").await.expect_err("unknown").code(), Code::UnknownType);
    let definition = TypeDefinition::new("placed", order()).category("order");
    assert_eq!(it.types.put(definition.clone()).await.expect("registered"), PutType::Created);
    assert_eq!(it.types.put(definition.clone()).await.expect("known"), PutType::Unchanged);
    let warned = TypeDefinition { policy: SchemaPolicy::Warn, ..definition.clone() };
    assert_eq!(it.types.put(warned).await.expect("changed"), PutType::Changed);
    let mut wider = order();
    wider["properties"]["customer"] = json!({"type": "string"});
    let second = TypeDefinition { schema: wider.clone(), ..definition.generation(2) };
    assert_eq!(it.types.put(second).await.expect("compatible"), PutType::Changed);
    it.store.close().await;
    let it = Typed::of(subject).await;
    let known = it.types.get("placed").await.expect("registered");
    assert_eq!((known.generation, &*known.category, known.policy), (2, "order", SchemaPolicy::Enforce));
    assert_eq!(known.id, names::uuid_of("event", "placed"));
    assert_eq!(known.schema, wider);
    let generations: Vec<_> = known.generations.iter().map(|it| (it.generation, it.schema.clone())).collect();
    assert_eq!(generations, [(1, order()), (2, wider)]);
    // The stored schema is the one that commits are checked against.
    let refused = it.commit("placed", json!({"total": "many"})).await.expect_err("no number");
    assert_eq!(refused.code(), Code::SchemaViolation);
}

/// Types are listed by name.
pub async fn types_are_listed_page_by_page(subject: &dyn Subject) {
    let it = Typed::of(subject).await;
    assert!(it.types.list(None, 10).await.expect("listed").items.is_empty());
    for name in ["c", "a", "e", "b", "d"] {
        it.register(name).await;
    }
    let (mut after, mut names) = (None::<ByteString>, Vec::new());
    loop {
        let page = it.types.list(after.as_deref(), 2).await.expect("listed");
        names.extend(page.items.into_iter().map(|it| it.name.to_string()));
        after = page.cursor;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
}

/// The definition may say that compatibility does not matter.
pub async fn a_generation_that_refuses_earlier_events_is_refused_and_names_what_breaks(subject: &dyn Subject) {
    let it = Typed::of(subject).await;
    it.register("placed").await;
    let mut narrower = order();
    narrower["required"] = json!(["total", "note"]);
    let second = TypeDefinition::new("placed", narrower).generation(2);
    match it.types.put(second.clone()).await.expect_err("earlier events may lack it") {
        TypeError::Incompatible { path, reason, generation, .. } => {
            assert_eq!((&*path, generation), ("data.note", 2));
            assert!(reason.contains("required"), "{reason}");
        }
        other => panic!("{other}"),
    }
    assert_eq!(it.types.get("placed").await.expect("registered").generation, 1, "nothing was stored");
    let second = TypeDefinition { compatibility: Compatibility::None, ..second };
    assert_eq!(it.types.put(second).await.expect("readers have an upcaster"), PutType::Changed);
    // Events of both generations are committed, each by its own schema.
    it.commit_generation("placed", 1, json!({"total": 1})).await.expect("valid");
    let refused = it.commit_generation("placed", 2, json!({"total": 1})).await.expect_err("without a note");
    assert_eq!(refused.code(), Code::SchemaViolation);
}

/// Neither its schema nor the UUID of its type changes.
pub async fn a_generation_never_changes(subject: &dyn Subject) {
    let it = Typed::of(subject).await;
    it.register("placed").await;
    let definition = TypeDefinition::new("placed", json!({"type": "object"}));
    let refused = it.types.put(definition).await.expect_err("it would accept more");
    assert_eq!(refused.code(), Code::TypeIncompatible);
    assert!(refused.to_string().contains("register it as generation 2"), "{refused}");
    let other = TypeDefinition { id: Some(names::uuid_of("event", "other")), ..TypeDefinition::new("placed", order()) };
    assert_eq!(it.types.put(other).await.expect_err("another UUID").code(), Code::TypeIncompatible);
    it.types.put(TypeDefinition::new("placed", order()).generation(3)).await.expect("generations may be left out");
    let late = TypeDefinition::new("placed", order()).generation(2);
    assert_eq!(it.types.put(late).await.expect_err("older than the newest").code(), Code::TypeIncompatible);
}

/// A schema that refers to something outside itself is refused, too: nothing is ever fetched.
pub async fn what_is_no_schema_is_refused(subject: &dyn Subject) {
    let it = Typed::of(subject).await;
    for schema in [
        json!(7),
        json!({"type": "thing"}),
        json!({"properties": {"a": {"pattern": "("}}}),
        json!({"$ref": "http://127.0.0.1:1/schema.json"}),
        json!({"$ref": "#/$defs/nothing"}),
    ] {
        let refused = it.types.put(TypeDefinition::new("placed", schema.clone())).await.expect_err("no schema");
        assert_eq!(refused.code(), Code::InvalidType, "{schema}");
    }
    assert_eq!(it.types.get("placed").await.expect_err("unknown").code(), Code::UnknownType);
}
