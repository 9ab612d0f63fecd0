//! Queries of commits.

use annals_core::bson::raw::{RawDocumentBuf, cstr};
use annals_core::bson::{Bson, Document, doc};
use annals_core::{
    Code, Condition, DEFAULT_TENANT, Deletion, DocumentKind, DocumentQuery, EventStreamQueryService, Matcher,
    NewCommit, NewEvent, Now, Pagination, Projection, Timestamp,
};
use serde_json::json;

use super::{Asked, commits, fields, texts};
use crate::Subject;
use crate::sample::{data, event, log_of, order};

/// Returns a commit with everything that a commit can have.
fn full() -> NewCommit {
    let paid = NewEvent { public: true, time: Some(Timestamp::from_millis(5_000)), ..event("paid", 2) };
    let placed = NewEvent { generation: 3, time: Some(Timestamp::from_millis(4_000)), ..event("placed", 1) };
    NewCommit {
        request_id: Some("r-1".into()),
        command_id: Some("r-1".into()),
        tenant_id: Some("t".into()),
        owner_id: Some("eva".into()),
        space_id: Some("s".into()),
        correlation_id: Some("co".into()),
        causation_id: Some("ca".into()),
        header: vec![("b".into(), "1".into()), ("a.b".into(), "$2".into())],
        ..NewCommit::new("order", "o-1").event(placed.tag("x").tag("y")).event(paid)
    }
}

/// The forms are: alone, in a list, on a page and as a number; typed and as a document.
pub async fn the_one_commit_is_answered_in_every_form(subject: &dyn Subject) {
    let asked = Asked::open(subject).await;
    asked.commit(full()).await;
    asked.commit(order("o-2", 1)).await;
    let service = EventStreamQueryService::new(asked.queries.clone(), "order").expect("a name");
    let one = || Condition::tenant_id("t");
    let page = Pagination::default();
    let found = service.single(one()).await.expect("found").expect("it is there");
    assert_eq!((&*found.aggregate.name, &*found.aggregate.id, found.version), ("order", "o-1", 1));
    assert_eq!((&*found.tenant_id, &*found.owner_id, &*found.space_id), ("t", "eva", "s"));
    assert_eq!((&*found.request_id, &*found.command_id), ("r-1", "r-1"));
    assert_eq!((found.correlation_id.as_deref(), found.causation_id.as_deref()), (Some("co"), Some("ca")));
    assert_eq!(found.header, full().header);
    assert_eq!(found.time, Timestamp::from_millis(4_000));
    let [placed, paid] = &found.events[..] else { panic!("two events, not {:?}", found.events) };
    assert_eq!((&*placed.event_type, &*placed.revision, placed.public), ("placed", "3.0.0", false));
    assert_eq!(
        (placed.tags.len(), &placed.data, placed.time),
        (2, &data(json!({ "n": 1 })), Timestamp::from_millis(4_000))
    );
    assert_eq!((&*paid.event_type, paid.public, paid.time), ("paid", true, Timestamp::from_millis(5_000)));
    assert_eq!(service.list(one(), 10).await.expect("found"), std::slice::from_ref(&found));
    let paged = service.paged(one(), page).await.expect("found");
    assert_eq!((paged.total, paged.list), (1, vec![found.clone()]));
    let document = service.dynamic_single(one()).await.expect("found").expect("it is there");
    assert_eq!(document.get_str("id").ok(), Some(&*found.id));
    assert_eq!(service.dynamic_list(one(), 10).await.expect("found"), std::slice::from_ref(&document));
    let dynamic = service.dynamic_paged(one(), page).await.expect("found");
    assert_eq!((dynamic.total, dynamic.list), (1, vec![document]));
    assert_eq!(service.count(&one()).await, Ok(1));
    assert_eq!(service.single(Condition::id(&*found.id)).await.expect("found"), Some(found));
    assert_eq!(service.single(Condition::id("none")).await, Ok(None));
    asked.store.close().await;
}

/// Names, order and types are those of Wow's Mongo extension. Annals' own fields are present only if they have a value.
pub async fn commits_are_documents_in_the_layout(subject: &dyn Subject) {
    let asked = Asked::open(subject).await;
    asked.commit(full()).await;
    let plain = NewCommit { request_id: Some("r-2".into()), ..order("o-2", 7) };
    asked.commit(plain).await;
    let found = asked.list(&commits(), DocumentQuery::default().ascending("aggregateId"), 0).await;
    let mut read: Vec<Document> = found.iter().map(|found| Document::try_from(&**found).expect("readable")).collect();
    let mut ids = Vec::new();
    for document in &mut read {
        ids.push(document.insert("id", "id"));
        document.insert("contextName", "context");
        for event in document.get_array_mut("body").expect("events") {
            ids.push(event.as_document_mut().expect("an event").insert("id", "id"));
        }
    }
    assert!(ids.iter().all(|id| id.as_ref().and_then(Bson::as_str).is_some_and(|id| id.len() == 36)), "{ids:?}");
    let body = |n: i64| doc! { "n": n };
    let bytes = |document: &Document| document.to_vec().expect("it encodes");
    let expected = doc! {
        "id": "id", "contextName": "context", "aggregateName": "order", "header": { "b": "1", "a.b": "$2" },
        "aggregateId": "o-1", "tenantId": "t", "ownerId": "eva", "spaceId": "s", "commandId": "r-1", "requestId": "r-1",
        "version": 1, "body": [
            { "id": "id", "name": "placed", "revision": "3.0.0", "bodyType": "placed", "body": body(1), "tags": ["x", "y"] },
            { "id": "id", "name": "paid", "revision": "1.0.0", "bodyType": "paid", "body": body(2), "public": true },
        ],
        "createTime": 4_000_i64,
        "annals": { "commandId": "r-1", "correlationId": "co", "causationId": "ca", "times": [4_000_i64, 5_000_i64] },
        "size": 2,
    };
    assert_eq!(bytes(&read[0]), bytes(&expected), "{}", read[0]);
    let time = read[1].get_i64("createTime").expect("a time");
    let expected = doc! {
        "id": "id", "contextName": "context", "aggregateName": "order", "header": {}, "aggregateId": "o-2",
        "tenantId": "(0)", "ownerId": "", "spaceId": "", "commandId": "r-2", "requestId": "r-2", "version": 1,
        "body": [{ "id": "id", "name": "order_changed", "revision": "1.0.0", "bodyType": "order_changed", "body": body(7) }],
        "createTime": time, "size": 1,
    };
    assert_eq!(bytes(&read[1]), bytes(&expected), "{}", read[1]);
    asked.store.close().await;
}

/// The conditions are on fields with and without an index of the log, alone and combined.
pub async fn commits_are_found_by_all_that_they_say(subject: &dyn Subject) {
    let asked = Asked::open(subject).await;
    for n in 0..12_u64 {
        let kind = ["placed", "paid", "sent"][n as usize % 3];
        let tagged = event(kind, n).tag(format!("t{}", n % 4)).tag("all");
        let mut commit = NewCommit::new("order", format!("o-{}", n % 4)).event(tagged);
        if n % 2 == 0 {
            commit = commit.event(event("noted", n).tag("noted"));
        }
        commit.owner_id = Some(["eva", "otto"][n as usize % 2].into());
        commit.header = vec![("n".into(), format!("{n}").into())];
        asked.commit(commit).await;
        asked.commit(NewCommit::new("door", "o-1").event(event("placed", n).tag("all"))).await;
    }
    let and = |children: [Condition; 2]| Condition::And(children.to_vec());
    let of = |id: &str| Condition::aggregate_id(id);
    for (condition, found) in [
        (of("o-1"), 3),
        (Condition::aggregate_ids(["o-1", "o-3", "none"]), 6),
        (and([of("o-1"), Condition::gt("version", 1)]), 2),
        (and([of("o-1"), Condition::between("version", 2, 2)]), 1),
        (and([of("o-1"), Condition::eq("body.name", "placed")]), 1),
        (Condition::eq("body.name", "paid"), 4),
        (Condition::is_in("body.bodyType", ["paid", "sent"]), 8),
        (and([Condition::eq("body.name", "paid"), Condition::eq("body.name", "noted")]), 2),
        (Condition::eq("body.tags", "t1"), 3),
        (Condition::all_in("body.tags", ["t2", "noted"]), 3),
        (Condition::eq("body.tags", "all"), 12),
        (and([Condition::eq("body.tags", "noted"), Condition::eq("body.name", "sent")]), 2),
        (Condition::elem_match("body", and([Condition::eq("name", "noted"), Condition::gte("body.n", 6)])), 3),
        (Condition::elem_match("body", and([Condition::eq("name", "noted"), Condition::eq("tags", "all")])), 0),
        (Condition::eq("body.body.n", 5), 1),
        (Condition::owner_id("eva"), 6),
        (Condition::tenant_id("(0)"), 12),
        (Condition::eq("header.n", "7"), 1),
        (Condition::eq("size", 2), 6),
        (Condition::Or(vec![of("o-0"), Condition::eq("body.name", "sent")]), 6),
        (Condition::Nor(vec![of("o-0"), of("o-1")]), 6),
        (Condition::raw(doc! { "aggregateId": "o-1", "version": { "$lt": 3 } }), 2),
        (Condition::All, 12),
    ] {
        assert_eq!(asked.found(&commits(), condition.clone()).await.len(), found, "{condition:?}");
    }
    asked.store.close().await;
}

/// This holds in conditions, projections and sorts; `body.id` is an event's own.
pub async fn ids_of_commits_have_their_names_and_those_of_events_stay(subject: &dyn Subject) {
    let asked = Asked::open(subject).await;
    for n in 0..3 {
        asked.commit(order("o-1", n)).await;
    }
    let found = asked.list(&commits(), DocumentQuery::default().descending("id"), 0).await;
    let ids = texts(&found, "id");
    assert!(ids.is_sorted_by(|a, b| a > b), "{ids:?}");
    for (condition, is) in [
        (Condition::id(ids[0].as_str()), vec![&ids[0]]),
        (Condition::Or(vec![Condition::eq("id", ids[1].as_str()), Condition::id("none")]), vec![&ids[1]]),
        (Condition::Nor(vec![Condition::ids([ids[1].as_str(), ids[2].as_str()])]), vec![&ids[0]]),
    ] {
        assert_eq!(texts(&asked.list(&commits(), condition, 0).await, "id").iter().collect::<Vec<_>>(), is);
    }
    let body = found[0].get_array("body").expect("events").into_iter().next().expect("one").expect("readable");
    let event = body.as_document().and_then(|event| event.get_str("id").ok()).expect("an id").to_owned();
    assert_ne!(event, ids[0]);
    let by_event = asked.list(&commits(), Condition::eq("body.id", event.as_str()), 0).await;
    assert_eq!(texts(&by_event, "id"), [ids[0].as_str()]);
    let by_element =
        asked.list(&commits(), Condition::elem_match("body", Condition::eq("id", event.as_str())), 0).await;
    assert_eq!(by_element, by_event);
    let only = DocumentQuery::new(Condition::id(ids[0].as_str())).projection(Projection::only(["id", "version"]));
    assert_eq!(fields(&asked.list(&commits(), only, 0).await[0]), ["id", "version"]);
    asked.store.close().await;
}

/// They are history, and none says whether its aggregate is deleted.
pub async fn commits_of_deleted_aggregates_are_found(subject: &dyn Subject) {
    let asked = Asked::open(subject).await;
    asked.commit(order("o-1", 1)).await;
    asked.commit(NewCommit::new("order", "o-1").event(event("aggregate_deleted", 1))).await;
    assert_eq!(asked.count(&commits(), &Condition::All).await, 2);
    assert_eq!(asked.count(&commits(), &Condition::Deleted(Deletion::All)).await, 2);
    assert_eq!(asked.count(&commits(), &Condition::Deleted(Deletion::Active)).await, 0);
    asked.store.close().await;
}

/// The other fields that Annals adds to the layout can be queried.
pub async fn what_a_backend_keeps_for_itself_in_a_commit_cannot_be_asked_for(subject: &dyn Subject) {
    let asked = Asked::open(subject).await;
    asked.commit(full()).await;
    for path in ["annals", "annals.any", "annals.release.name"] {
        let refused = asked.queries.count(&commits(), &Condition::exists(path)).await.expect_err(path);
        assert_eq!(refused.code(), Code::InvalidCondition);
        let sorted = DocumentQuery::default().ascending(path);
        let refused = asked.queries.list(&commits(), sorted, 0).await.expect_err(path);
        assert_eq!(refused.code(), Code::InvalidQuery);
    }
    assert_eq!(asked.count(&commits(), &Condition::eq("annals.correlationId", "co")).await, 1);
    assert_eq!(asked.count(&commits(), &Condition::eq("annals.causationId", "other")).await, 0);
    asked.store.close().await;
}

/// This holds for every way to look it up.
pub async fn a_commit_is_found_as_soon_as_it_was_acknowledged(subject: &dyn Subject) {
    let asked = Asked::open(subject).await;
    for n in 0..20_u64 {
        let id = format!("o-{}", n % 3);
        asked.commit(NewCommit::new("order", id.as_str()).event(event("placed", n).tag(format!("t{n}")))).await;
        for condition in [
            Condition::And(vec![Condition::aggregate_id(id.as_str()), Condition::eq("body.body.n", n as i64)]),
            Condition::eq("body.tags", format!("t{n}")),
            Condition::eq("body.body.n", n as i64),
        ] {
            assert_eq!(asked.count(&commits(), &condition).await, 1, "{condition:?}");
        }
        assert_eq!(asked.count(&commits(), &Condition::eq("body.name", "placed")).await, n + 1);
    }
    asked.store.close().await;
}

/// For random commits and conditions, every way of looking them up returns the same documents in the same order as evaluating every
/// commit.
pub async fn whatever_is_asked_of_commits_is_what_judging_all_of_them_finds(subject: &dyn Subject) {
    let asked = Asked::open(subject).await;
    let mut random = fastrand::Rng::with_seed(25);
    let log = log_of(&asked.store, DEFAULT_TENANT);
    for n in 0..30 {
        log.commit(any_commit(&mut random, n)).await.expect("it is taken");
    }
    let all = asked.list(&commits(), Condition::All, 0).await;
    assert_eq!(all.len(), 30);
    let stored: Vec<(String, RawDocumentBuf)> = all.iter().map(as_stored).collect();
    let now = Now::utc(Timestamp::from_millis(0));
    for _ in 0..60 {
        let condition = any_condition(&mut random, 0);
        let resolved = condition.resolved(DocumentKind::Commit, &now).expect("no window in it");
        let matcher = Matcher::new(&resolved);
        let mut expected: Vec<&(String, RawDocumentBuf)> =
            stored.iter().filter(|(_, stored)| matcher.matches(stored)).collect();
        let total = expected.len() as u64;
        assert_eq!(asked.count(&commits(), &condition).await, total, "{condition:?}");
        // Descending by size, then by their ids in the same direction.
        let size = |stored: &RawDocumentBuf| stored.get_i32("size").expect("a size");
        expected.sort_by(|(a_id, a), (b_id, b)| size(b).cmp(&size(a)).then(b_id.cmp(a_id)));
        let (index, limit) = (random.u64(1..4), random.u64(1..9));
        let page = Pagination { index, size: limit };
        let query = DocumentQuery::new(condition.clone()).descending("size");
        let paged = asked.queries.paged(&commits(), query, page).await.expect("it is answered");
        let skip = ((index - 1) * limit) as usize;
        let due: Vec<_> = expected.iter().skip(skip).take(limit as usize).map(|(id, _)| id.as_str()).collect();
        assert_eq!(
            (paged.total, texts(&paged.list, "id")),
            (total, due.iter().map(ToString::to_string).collect()),
            "{condition:?}"
        );
    }
    asked.store.close().await;
}

fn any_commit(random: &mut fastrand::Rng, n: u64) -> NewCommit {
    let id = format!("o-{}", random.u8(0..6));
    let mut commit = NewCommit::new("order", id);
    for _ in 0..random.usize(1..4) {
        let mut one = event(["a", "b", "c"][random.usize(0..3)], random.u64(0..6));
        for tag in ["x", "y"] {
            if random.bool() {
                one = one.tag(tag);
            }
        }
        commit = commit.event(one);
    }
    commit.owner_id = random.bool().then(|| "eva".into());
    commit.header = vec![("n".into(), format!("{}", n % 5).into())];
    commit
}

fn any_condition(random: &mut fastrand::Rng, depth: usize) -> Condition {
    let choices = if depth < 3 { 13 } else { 10 };
    let children = |random: &mut fastrand::Rng| {
        let count = random.usize(1..4);
        (0..count).map(|_| any_condition(random, depth + 1)).collect::<Vec<_>>()
    };
    let id = |random: &mut fastrand::Rng| format!("o-{}", random.u8(0..8));
    match random.u8(0..choices) {
        0 => Condition::aggregate_id(id(random)),
        1 => Condition::aggregate_ids([id(random), id(random)]),
        2 => Condition::eq("body.name", ["a", "b", "c", "d"][random.usize(0..4)]),
        3 => Condition::is_in("body.bodyType", ["a", ["b", "c"][random.usize(0..2)]]),
        4 => Condition::eq("body.tags", ["x", "y", "z"][random.usize(0..3)]),
        5 => Condition::all_in("body.tags", ["x", "y"]),
        6 => Condition::gte("version", random.i32(-1..9)),
        7 => Condition::lt("version", random.i32(0..9)),
        8 => Condition::eq("body.body.n", random.i32(0..7)),
        9 => Condition::eq("ownerId", if random.bool() { Bson::from("eva") } else { Bson::Null }),
        10 => Condition::And(children(random)),
        11 => Condition::Or(children(random)),
        _ if random.bool() => Condition::Nor(children(random)),
        _ => Condition::elem_match(
            "body",
            Condition::And(vec![Condition::eq("name", "a"), Condition::eq("tags", "x"), Condition::gt("body.n", 2)]),
        ),
    }
}

/// Returns the document with the id under its stored name, by which conditions are evaluated.
fn as_stored(answered: &RawDocumentBuf) -> (String, RawDocumentBuf) {
    let mut stored = RawDocumentBuf::new();
    for (name, value) in answered.iter().flatten() {
        match name.as_str() {
            "id" => stored.append(cstr!("_id"), value),
            _ => stored.append(name, value),
        }
    }
    let id = answered.get_str("id").expect("an id").to_owned();
    (id, stored)
}
