//! How the registry affects commits.

use annals_core::types::{SchemaPolicy, TypeDefinition, UnknownTypes};
use annals_core::{
    Code, CommitError, DEFAULT_SCOPE, DEFAULT_TENANT, Data, NewCommit, NewEvent, NewTransaction, TransactionError,
};
use serde_json::{Value, json};

use super::{Typed, order};
use crate::{OTHER_TENANT, Subject, WithOther};

fn path_of(error: CommitError) -> (Code, String) {
    match error {
        CommitError::Invalid(invalid) => (invalid.code, invalid.path),
        other => panic!("{other}"),
    }
}

/// The path leads to the value, also through arrays.
pub async fn an_event_that_does_not_match_is_refused_with_its_path_and_nothing_is_stored(subject: &dyn Subject) {
    let it = Typed::of(subject).await;
    let mut schema = order();
    schema["properties"]["items"] = json!({"type": "array", "items": {"properties": {"price": {"type": "integer"}}}});
    it.types.put(TypeDefinition::new("placed", schema)).await.expect("registered");
    let refused = async |data: Value| path_of(it.commit("placed", data).await.expect_err("refused"));
    let violation = Code::SchemaViolation;
    assert_eq!(refused(json!({"total": -1})).await, (violation, "events[0].data.total".to_owned()));
    assert_eq!(refused(json!({"note": "x"})).await, (violation, "events[0].data.total".to_owned()), "it is missing");
    let items = json!({"total": 1, "items": [{"price": 1}, {"price": "x"}]});
    assert_eq!(refused(items).await, (violation, "events[0].data.items[1].price".to_owned()));
    let log = it.store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
    let event = |total: i64| NewEvent::new("placed", Data::from_value(&json!({"total": total})).expect("a document"));
    let mixed = NewCommit::new("order", "o-1").event(event(1)).event(event(-1));
    let (code, path) = path_of(log.commit(mixed).await.expect_err("its second event"));
    assert_eq!((code, &*path), (violation, "events[1].data.total"));
    assert_eq!(log.aggregate_version(&annals_core::Aggregate::new("order", "o-1")).await.expect("read"), 0);
    it.commit("placed", json!({"total": 1.5, "more": true})).await.expect("further fields are allowed");
    it.commit("never_registered", json!({"total": -1})).await.expect("it has no schema");
}

/// This holds whatever the store's own answer to transactions.
pub async fn a_transaction_with_an_event_that_does_not_match_is_refused_as_a_whole(subject: &dyn Subject) {
    let it = Typed::of(subject).await;
    it.register("placed").await;
    let log = it.store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
    let commit = |id: &str, total: i64| {
        let data = Data::from_value(&json!({"total": total})).expect("a document");
        NewCommit::new("order", id).event(NewEvent::new("placed", data))
    };
    let refused = log.transact(NewTransaction::new([commit("a", 1), commit("b", -1)])).await.expect_err("refused");
    let TransactionError { error, .. } = refused;
    assert_eq!(path_of(error), (Code::SchemaViolation, "commits[1].events[0].data.total".to_owned()));
    assert_eq!(log.aggregate_version(&annals_core::Aggregate::new("order", "a")).await.expect("read"), 0);
}

/// `warn` and `off` accept them. A changed policy takes effect at once.
pub async fn the_policy_of_a_type_decides_about_events_that_do_not_match(subject: &dyn Subject) {
    let it = Typed::of(subject).await;
    for policy in [SchemaPolicy::Off, SchemaPolicy::Warn] {
        it.types.put(TypeDefinition { policy, ..TypeDefinition::new("placed", order()) }).await.expect("registered");
        it.commit("placed", json!({"total": "many"})).await.unwrap_or_else(|error| panic!("{policy:?}: {error}"));
    }
    it.register("placed").await;
    it.commit("placed", json!({"total": "many"})).await.expect_err("the policy is to enforce");
}

/// Neither a schema whose references double at each step, nor one with an endless chain of references, nor alternatives that refer to
/// themselves.
pub async fn no_schema_makes_endless_work_of_an_event(subject: &dyn Subject) {
    let it = Typed::of(subject).await;
    let linked = |count: usize, times: usize| {
        let mut all = serde_json::Map::from_iter([("d0".to_owned(), json!({"type": "integer"}))]);
        for n in 1..count {
            let before = json!({ "$ref": format!("#/$defs/d{}", n - 1) });
            all.insert(format!("d{n}"), json!({ "allOf": vec![before; times] }));
        }
        json!({ "$defs": all, "properties": { "a": { "$ref": format!("#/$defs/d{}", count - 1) } } })
    };
    for schema in [linked(40, 2), linked(2_000, 1)] {
        let refused = it.types.put(TypeDefinition::new("placed", schema)).await.expect_err("too much");
        assert_eq!(refused.code(), Code::InvalidType, "{refused}");
    }
    let again = json!({ "$ref": "#" });
    let schema = json!({ "anyOf": [{ "properties": { "of": again } }, { "properties": { "of": again } }, { "required": ["n"] }] });
    it.types.put(TypeDefinition::new("placed", schema.clone())).await.expect("expressions are like that");
    it.types.put(TypeDefinition::new("placed", schema).generation(2)).await.expect("compared to an end");
    let nested = |depth: usize| (0..depth).fold(json!({ "n": 1 }), |inner, _| json!({ "of": inner }));
    it.commit("placed", nested(6)).await.expect("it is checked");
    let (code, path) = path_of(it.commit("placed", nested(90)).await.expect_err("2^90 schemas"));
    assert_eq!((code, &*path), (Code::SchemaViolation, "events[0].data"));
}

/// Its schema is not known.
pub async fn a_generation_that_is_not_registered_is_refused(subject: &dyn Subject) {
    let it = Typed::of(subject).await;
    it.register("placed").await;
    let refused = it.commit_generation("placed", 2, json!({"total": 1})).await.expect_err("only 1 is registered");
    assert_eq!(path_of(refused), (Code::TypeNotRegistered, "events[0].generation".to_owned()));
}

/// The setting survives a restart. By default, unknown types are accepted.
pub async fn unknown_types_are_refused_if_the_tenant_says_so(subject: &dyn Subject) {
    let it = Typed::of(subject).await;
    assert_eq!(it.types.unknown().await.expect("read"), UnknownTypes::Accept);
    it.commit("anything", json!({})).await.expect("accepted");
    it.types.set_unknown(UnknownTypes::Refuse).await.expect("set");
    let refused = it.commit("anything", json!({})).await.expect_err("not registered");
    assert_eq!(path_of(refused), (Code::TypeNotRegistered, "events[0].type".to_owned()));
    it.register("placed").await;
    it.commit("placed", json!({"total": 1})).await.expect("registered");
    it.store.close().await;
    let it = Typed::of(subject).await;
    it.commit("anything", json!({})).await.expect_err("after a restart too");
    it.types.set_unknown(UnknownTypes::Accept).await.expect("set");
    it.commit("anything", json!({})).await.expect("accepted again");
}

/// Tenants also have everything else of their own.
pub async fn a_tenant_has_types_of_its_own(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let it = Typed::of(subject).await;
    it.register("placed").await;
    let log = it.store.log(OTHER_TENANT, DEFAULT_SCOPE).expect("declared");
    let event = NewEvent::new("placed", Data::from_value(&json!({"total": "many"})).expect("a document"));
    log.commit(NewCommit::new("order", "o-1").event(event)).await.expect("not registered there");
}
