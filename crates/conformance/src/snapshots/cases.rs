//! The cases of snapshots. The statements of Wow's snapshot store kit are among them.

use std::sync::Arc;

use annals_core::bson::{Bson, RawDocumentBuf, doc};
use annals_core::{
    Aggregate, AggregateInfo, Code, DEFAULT_TENANT, Data, Index, RecordChange, Snapshot, Snapshots, Store, Tags,
    Timestamp, Version,
};
use serde_json::json;

use crate::{OTHER_TENANT, Subject, WithOther};

async fn open(subject: &dyn Subject) -> (Arc<dyn Store>, Arc<dyn Snapshots>) {
    let store = subject.open().await;
    let snapshots = store.snapshots(DEFAULT_TENANT).expect("the tenant is declared");
    (store, snapshots)
}

fn order(id: &str) -> Aggregate {
    Aggregate::new("order", id)
}

fn data(value: serde_json::Value) -> Data {
    Data::from_value(&value).expect("an object")
}

fn snapshot(id: &str, version: Version, note: &str) -> Snapshot {
    Snapshot::new(order(id), version, data(json!({ "note": note, "lines": [{ "n": version }] })))
}

/// Returns a snapshot with everything that can be known about an aggregate.
fn full() -> Snapshot {
    let info = AggregateInfo {
        aggregate: order("o-1"),
        version: 3,
        tenant_id: "t".into(),
        owner_id: "eva".into(),
        space_id: "s".into(),
        deleted: true,
        tags: Tags::from([("region".to_owned(), vec!["eu".to_owned(), "uk".to_owned()]), ("none".to_owned(), vec![])]),
        commit_id: "0192f000-0000-7000-8000-000000000001".into(),
        first_operator: "otto".into(),
        operator: "ida".into(),
        first_time: Timestamp::from_millis(1_000),
        time: Timestamp::from_millis(3_000),
    };
    let state =
        data(json!({ "$set": { "a.b": "$literal" }, "total": 12.5, "n": 7, "none": null, "lines": [1, "two"] }));
    Snapshot { info, state, state_revision: 4, time: Some(Timestamp::from_millis(3_500)) }
}

async fn save(snapshots: &Arc<dyn Snapshots>, snapshot: &Snapshot) -> bool {
    snapshots.save(snapshot).await.expect("it is taken")
}

async fn load(snapshots: &Arc<dyn Snapshots>, id: &str) -> Option<Snapshot> {
    snapshots.load(&order(id)).await.expect("it is read")
}

async fn version(snapshots: &Arc<dyn Snapshots>, id: &str) -> Version {
    snapshots.version(&order(id)).await.expect("it is read")
}

/// Every field is read back, and the state unchanged, whatever the names of its fields.
pub async fn a_saved_snapshot_is_loaded_as_it_was(subject: &dyn Subject) {
    let (_store, snapshots) = open(subject).await;
    assert!(save(&snapshots, &full()).await);
    assert_eq!(load(&snapshots, "o-1").await, Some(full()));
    let plain = snapshot("o-2", 1, "a");
    assert!(save(&snapshots, &plain).await);
    let saved = load(&snapshots, "o-2").await.expect("it is there");
    let time = saved.time.expect("it was saved at a time");
    assert_eq!(saved, Snapshot { time: Some(time), ..plain });
}

/// This also holds for names under which nothing was ever saved.
pub async fn an_aggregate_without_a_snapshot_has_none_and_version_0(subject: &dyn Subject) {
    let (_store, snapshots) = open(subject).await;
    assert_eq!((load(&snapshots, "o-1").await, version(&snapshots, "o-1").await), (None, 0));
    assert!(save(&snapshots, &snapshot("o-2", 1, "a")).await);
    assert_eq!((load(&snapshots, "o-1").await, version(&snapshots, "o-1").await), (None, 0));
    assert_eq!(snapshots.load(&Aggregate::new("door", "o-2")).await, Ok(None));
    assert_eq!(snapshots.delete(&order("o-1"), None).await, Ok(false));
    assert_eq!(snapshots.delete(&Aggregate::new("door", "o-2"), None).await, Ok(false));
}

/// An aggregate without commits has a state, too.
pub async fn a_snapshot_of_version_0_is_saved(subject: &dyn Subject) {
    let (_store, snapshots) = open(subject).await;
    assert!(save(&snapshots, &snapshot("o-1", 0, "new")).await);
    assert!(load(&snapshots, "o-1").await.is_some());
}

/// Saving an earlier version returns false, and changes nothing.
pub async fn a_later_version_takes_the_place_and_an_earlier_one_does_not(subject: &dyn Subject) {
    let (_store, snapshots) = open(subject).await;
    for (at, saved, kept) in [(5, true, 5), (4, false, 5), (0, false, 5), (6, true, 6), (5, false, 6), (900, true, 900)]
    {
        assert_eq!(save(&snapshots, &snapshot("o-1", at, "a")).await, saved, "version {at}");
        assert_eq!(version(&snapshots, "o-1").await, kept, "after version {at}");
    }
}

/// So a snapshot can be rebuilt: state and time are those of the last save.
pub async fn an_equal_version_takes_the_place_whole(subject: &dyn Subject) {
    let (_store, snapshots) = open(subject).await;
    assert!(save(&snapshots, &full()).await);
    let again = Snapshot { time: Some(Timestamp::from_millis(9)), ..snapshot("o-1", 3, "again") };
    assert!(save(&snapshots, &again).await);
    assert_eq!(load(&snapshots, "o-1").await, Some(again));
}

/// This holds in any order, and the remaining snapshot is one of those saved, complete.
pub async fn of_many_saved_at_once_the_highest_stays(subject: &dyn Subject) {
    let (_store, snapshots) = open(subject).await;
    for round in 0..8 {
        let id = format!("o-{round}");
        let mut versions: Vec<Version> = (1..=8).collect();
        fastrand::Rng::with_seed(round).shuffle(&mut versions);
        let saving: Vec<_> = versions
            .into_iter()
            .map(|at| {
                let (snapshots, id) = (snapshots.clone(), id.clone());
                tokio::spawn(async move { (at, save(&snapshots, &snapshot(&id, at, &format!("v{at}"))).await) })
            })
            .collect();
        for task in saving {
            let (at, saved) = task.await.expect("it is answered");
            assert!(saved || at < 8, "the highest is always saved");
        }
        let kept = load(&snapshots, &id).await.expect("it is there");
        assert_eq!((kept.info.version, kept.state), (8, snapshot(&id, 8, "v8").state));
    }
}

/// Random saves, deletions and loads of a few aggregates agree with the simplest program.
pub async fn whatever_is_saved_in_whatever_order_the_highest_stays(subject: &dyn Subject) {
    let (_store, snapshots) = open(subject).await;
    let mut random = fastrand::Rng::with_seed(4);
    let mut kept: [Option<Snapshot>; 3] = [None, None, None];
    for step in 0..200 {
        let which = random.usize(0..kept.len());
        let (id, there) = (format!("o-{which}"), &mut kept[which]);
        let has = there.as_ref().map(|kept| kept.info.version);
        match random.u8(0..10) {
            0 => {
                let version = random.bool().then(|| random.u64(0..12));
                let deleted = snapshots.delete(&order(&id), version).await.expect("it is answered");
                assert_eq!(deleted, has.is_some_and(|has| version.is_none_or(|version| version == has)), "{step}");
                *there = there.take().filter(|_| !deleted);
            }
            1..4 => assert_eq!(load(&snapshots, &id).await, *there, "{step}"),
            _ => {
                let time = Some(Timestamp::from_millis(step));
                let next = Snapshot { time, ..snapshot(&id, random.u64(0..12), &format!("{step}")) };
                let saved = save(&snapshots, &next).await;
                assert_eq!(saved, has.is_none_or(|has| next.info.version >= has), "{step}");
                if saved {
                    *there = Some(next);
                }
            }
        }
    }
}

/// It is deleted if it has the given version.
pub async fn a_deleted_snapshot_is_gone(subject: &dyn Subject) {
    let (_store, snapshots) = open(subject).await;
    assert!(save(&snapshots, &snapshot("o-1", 3, "a")).await);
    assert_eq!(snapshots.delete(&order("o-1"), Some(2)).await, Ok(false));
    assert_eq!(snapshots.delete(&order("o-1"), Some(3)).await, Ok(true));
    assert_eq!(load(&snapshots, "o-1").await, None);
    assert!(save(&snapshots, &snapshot("o-1", 1, "a")).await);
    assert_eq!(snapshots.delete(&order("o-1"), None).await, Ok(true));
    assert_eq!(version(&snapshots, "o-1").await, 0);
}

/// It counts as missing, and saving repairs it.
pub async fn what_has_no_version_that_can_be_read_is_replaced(subject: &dyn Subject) {
    let (store, snapshots) = open(subject).await;
    assert!(save(&snapshots, &snapshot("o-0", 1, "a")).await);
    let records = store.records(DEFAULT_TENANT).expect("the tenant is declared");
    for (n, broken) in [
        doc! { "version": "7", "tenantId": "(0)", "deleted": false, "state": {} },
        doc! { "version": Bson::Null, "tenantId": "(0)", "deleted": false, "state": {} },
        doc! { "tenantId": "(0)", "deleted": false, "state": {} },
        doc! { "version": 1, "state": {} },
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("o-{n}");
        let mut document = doc! { "_id": &id };
        document.extend(broken);
        let document = RawDocumentBuf::try_from(&document).expect("a document");
        match records.write(vec![RecordChange::put("order_snapshot", document)]).await {
            // From outside, nobody can damage one.
            Err(error) if error.code() == Code::SystemCollection => return,
            written => assert!(written.is_ok(), "{written:?}"),
        }
        assert_eq!((load(&snapshots, &id).await, version(&snapshots, &id).await), (None, 0), "{n}");
        assert!(save(&snapshots, &snapshot(&id, 1, "mended")).await, "{n}");
        assert_eq!(version(&snapshots, &id).await, 1, "{n}");
    }
}

/// Names, order and types are those of Wow's Mongo extension, and so are the names of the indexes.
pub async fn snapshots_are_documents_in_the_layout_with_its_indexes(subject: &dyn Subject) {
    let (store, snapshots) = open(subject).await;
    assert!(save(&snapshots, &full()).await);
    assert!(save(&snapshots, &snapshot("o-2", 1, "a")).await);
    let records = store.records(DEFAULT_TENANT).expect("the tenant is declared");
    let found = records.get("order_snapshot", &"o-1".into()).await.expect("it is read").expect("it is there");
    let state = doc! {
        "$set": { "a.b": "$literal" }, "total": 12.5, "n": 7_i64, "none": Bson::Null, "lines": [1_i64, "two"],
    };
    let expected = doc! {
        "_id": "o-1", "contextName": "annals", "aggregateName": "order", "tenantId": "t", "ownerId": "eva",
        "spaceId": "s", "version": 3_i32, "eventId": "0192f000-0000-7000-8000-000000000001",
        "firstOperator": "otto", "operator": "ida", "firstEventTime": 1_000_i64, "eventTime": 3_000_i64,
        // Here, the state of a JSON object is in the order of its names.
        "state": sorted(state), "snapshotTime": 3_500_i64, "tags": { "none": [], "region": ["eu", "uk"] },
        "deleted": true, "annals": { "stateRevision": 4_i64 },
    };
    assert_eq!(found.document, RawDocumentBuf::try_from(&expected).expect("a document"));
    let found = records.get("order_snapshot", &"o-2".into()).await.expect("it is read").expect("it is there");
    assert!(found.document.get("annals").expect("a document").is_none(), "nothing of our own where Wow would do");
    let collections = records.collections().await.expect("they are listed");
    let indexes = &collections.iter().find(|known| known.name == "order_snapshot").expect("declared").indexes;
    let names: Vec<_> = indexes.iter().map(|index| (index.name(), matches!(index, Index::Hashed(_)))).collect();
    let due = ["tenantId_hashed", "ownerId_hashed", "_id_hashed", "deleted_hashed"].map(|name| (name, true));
    assert_eq!(names, due);
}

fn sorted(document: annals_core::bson::Document) -> annals_core::bson::Document {
    let mut fields: Vec<_> = document.into_iter().collect();
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    fields.into_iter().collect()
}

/// An index of the state does not change what is saved.
pub async fn indexes_of_one_s_own_are_declared_beside_the_layout_s(subject: &dyn Subject) {
    let (store, snapshots) = open(subject).await;
    for _ in 0..2 {
        snapshots.declare("order", vec![Index::on("state.note").named("note").into()]).await.expect("it is declared");
    }
    assert!(save(&snapshots, &snapshot("o-1", 1, "a")).await);
    let records = store.records(DEFAULT_TENANT).expect("the tenant is declared");
    let collections = records.collections().await.expect("they are listed");
    let indexes = &collections.iter().find(|known| known.name == "order_snapshot").expect("declared").indexes;
    assert_eq!(indexes.last().map(Index::name), Some("note"));
    assert_eq!(indexes.len(), 5);
}

/// The wait ends at once if the version is there. If not, it ends when that version or a later one is saved, and not before.
pub async fn whoever_waits_for_a_version_is_told_when_it_is_reached(subject: &dyn Subject) {
    let (store, snapshots) = open(subject).await;
    assert!(save(&snapshots, &snapshot("o-1", 1, "a")).await);
    assert_eq!(snapshots.until(&order("o-1"), 1).await, Ok(()));
    let waiting: Vec<_> = [("o-1", 2), ("o-1", 3), ("o-2", 1)]
        .map(|(id, version)| {
            let snapshots = snapshots.clone();
            tokio::spawn(async move { snapshots.until(&order(id), version).await })
        })
        .into();
    for note in ["a", "b", "c"] {
        assert!(save(&snapshots, &snapshot("o-1", 1, note)).await);
        assert!(save(&snapshots, &snapshot("o-3", 9, note)).await);
    }
    assert!(waiting.iter().all(|waits| !waits.is_finished()), "neither an equal version nor another aggregate's");
    assert!(save(&snapshots, &snapshot("o-1", 5, "a later one")).await);
    assert!(save(&snapshots, &snapshot("o-2", 1, "the first")).await);
    for waits in waiting {
        assert_eq!(waits.await.expect("the task ends well"), Ok(()));
    }
    let (others, id) = (snapshots.clone(), order("o-4"));
    let waits = tokio::spawn(async move { others.until(&id, 1).await });
    store.close().await;
    assert!(waits.await.expect("the task ends well").is_err(), "nothing comes any more");
}

/// Names, ids and versions that cannot be stored are refused before anything is stored.
pub async fn a_name_that_leaves_no_room_is_refused(subject: &dyn Subject) {
    let (_store, snapshots) = open(subject).await;
    let of = |name: &str, id: &str| Snapshot::new(Aggregate::new(name, id), 1, Data::empty());
    let long = "n".repeat(92);
    for (snapshot, code) in [
        (of(&long, "o"), Code::InvalidName),
        (of("a b", "o"), Code::InvalidName),
        (of("order", ""), Code::InvalidId),
        (Snapshot::new(order("o"), i32::MAX as u64 + 1, Data::empty()), Code::InvalidBody),
    ] {
        assert_eq!(snapshots.save(&snapshot).await.expect_err("refused").code(), code);
    }
    let roomy = of(&"n".repeat(91), "o");
    assert!(save(&snapshots, &roomy).await);
    assert_eq!(snapshots.version(&roomy.info.aggregate).await, Ok(1));
}

/// A tenant has snapshots of its own, even of an aggregate of the same name and id.
pub async fn snapshots_are_there_after_reopening_and_tenants_do_not_see_each_other(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let (store, snapshots) = open(subject).await;
    assert!(save(&snapshots, &full()).await);
    let others = store.snapshots(OTHER_TENANT).expect("the tenant is declared");
    assert_eq!(others.load(&order("o-1")).await, Ok(None));
    assert!(save(&others, &snapshot("o-1", 1, "other")).await);
    assert!(store.snapshots("nobody").is_err());
    drop((snapshots, others));
    store.close().await;
    drop(store);
    let (store, snapshots) = open(subject).await;
    assert_eq!(load(&snapshots, "o-1").await, Some(full()));
    let others = store.snapshots(OTHER_TENANT).expect("the tenant is declared");
    assert_eq!(version(&others, "o-1").await, 1);
}
