//! What is this backend's own: how many changes are kept, what damage does, and what it costs a tenant without records.

use std::sync::Arc;

use annals_core::bson::{RawDocumentBuf, doc};
use annals_core::{
    ChangesError, Code, Collection, Condition, DEFAULT_TENANT, Expected, Index, RecordChange, RecordQuery, Store,
    StoreError, TextLanguage,
};
use annals_embedded::Options;
use annals_embedded::disk::{Disk, MemoryDisk, Open};

use crate::faulty_disk::FaultyDisk;
use crate::stores::{block_on, open, repeatable, tiny_segments};

fn thing(id: i32) -> RecordChange {
    RecordChange::put(
        "things",
        RawDocumentBuf::try_from(&doc! { "_id": id, "text": "some text to find" }).expect("a document"),
    )
}

#[test]
fn old_changes_are_removed_and_who_comes_too_late_is_told_so() {
    block_on(async {
        let options = Options { record_changes_kept: 10, ..tiny_segments() };
        let opened = open(Arc::new(MemoryDisk::default()), options).expect("it opens");
        let records = opened.store.records(DEFAULT_TENANT).expect("there");
        records.declare(Collection::new("things").with_feed()).await.expect("declared");
        for n in 0..25 {
            records.write(vec![thing(n)]).await.expect("written");
        }
        let gone = records.changes("things", 0, 100).await.expect_err("they are gone");
        assert_eq!((gone.code(), gone), (Code::ChangesGone, ChangesError::Gone { after: 0, oldest: 16 }));
        assert_eq!(records.changes("things", 14, 100).await.expect_err("gone").code(), Code::ChangesGone);
        let numbers: Vec<_> =
            records.changes("things", 15, 100).await.expect("kept").into_iter().map(|change| change.number).collect();
        assert_eq!(numbers, (16..=25).collect::<Vec<_>>());
        // A batch larger than what is kept leaves its newest.
        records.write((0..30).map(thing).collect()).await.expect("written");
        assert_eq!(records.changes("things", 45, 100).await.expect("kept").len(), 10);
    });
}

#[test]
fn a_text_index_with_a_language_is_refused_with_what_to_do() {
    block_on(async {
        let opened = open(Arc::new(MemoryDisk::default()), tiny_segments()).expect("it opens");
        let records = opened.store.records(DEFAULT_TENANT).expect("there");
        let words = |language| Collection::new("things").index(Index::text(["text"]).language(language));
        let refused = records.declare(words(TextLanguage::English)).await.expect_err("there are no stems");
        assert_eq!(refused.code(), Code::NotSupportedByStore);
        assert!(refused.to_string().contains("leave the language out"), "{refused}");
        assert_eq!(records.collections().await, Ok(Vec::new()));
        records.declare(words(TextLanguage::None)).await.expect("declared");
    });
}

#[test]
fn an_index_whose_condition_has_a_long_is_the_same_when_it_is_declared_again() {
    block_on(async {
        let opened = open(Arc::new(MemoryDisk::default()), tiny_segments()).expect("it opens");
        let records = opened.store.records(DEFAULT_TENANT).expect("there");
        let some = || Collection::new("things").index(Index::on("n").partial(Condition::gt("n", 1_i64)));
        for _ in 0..2 {
            records.declare(some()).await.expect("declared");
        }
        let other = Collection::new("things").index(Index::on("n").partial(Condition::gt("n", 2_i64)));
        assert_eq!(records.declare(other).await.expect_err("another").code(), Code::IndexConflict);
    });
}

/// A request of a few bytes for each change must not hold up all other writes of the tenant, or its memory.
#[test]
fn a_batch_goes_through_a_large_record_so_often_and_no_further() {
    block_on(async {
        let opened = open(Arc::new(MemoryDisk::default()), tiny_segments()).expect("it opens");
        let records = opened.store.records(DEFAULT_TENANT).expect("there");
        records.declare(Collection::new("things")).await.expect("declared");
        let large = doc! { "_id": 1, "n": 0, "text": "x".repeat(8 * 1024 * 1024) };
        records.insert("things", RawDocumentBuf::try_from(&large).expect("a document")).await.expect("written");
        let set = |n: i32| RecordChange::set_if("things", 1, [("n", n.into())], Expected::Present);
        let check = |_: i32| RecordChange::check("things", 1, Expected::Present);
        let any = Condition::or((0..999).map(|n| Condition::contains("text", format!("y{n}"))));
        // Each of these values is looked for as well, although they are one test of a field.
        let all = Condition::all_in("text", (0..999).map(|n| format!("y{n}")));
        let compared = |with: Condition| vec![RecordChange::check("things", 1, Expected::Matching(with))];
        let batches: [Vec<RecordChange>; 4] =
            [(0..100).map(set).collect(), (0..100).map(check).collect(), compared(any), compared(all)];
        for batch in batches {
            let refused = records.write(batch).await.expect_err("it is too much");
            assert_eq!(refused.code(), Code::InvalidRecord);
            assert!(refused.to_string().contains("split the batch"), "{refused}");
        }
        let stored = records.get("things", &1_i32.into()).await.expect("it is read").expect("it is there");
        assert_eq!(stored.document.get_i32("n").ok(), Some(0), "nothing of a refused batch stays");
        records.write((0..3).map(set).collect()).await.expect("a few are taken");
        // Small records are changed as often as a batch has changes.
        records.write(vec![thing(2)]).await.expect("written");
        let small = |n: i32| RecordChange::set_if("things", 2, [("n", n.into())], Expected::Present);
        records.write((0..10_000).map(small).collect()).await.expect("they are taken");
    });
}

#[test]
fn a_tenant_without_records_has_no_file_for_them() {
    block_on(async {
        let disk = Arc::new(MemoryDisk::default());
        let opened = open(disk.clone(), tiny_segments()).expect("it opens");
        let records = opened.store.records(DEFAULT_TENANT).expect("there");
        assert_eq!(records.collections().await, Ok(Vec::new()));
        opened.store.close().await;
        assert!(disk.list("tenants/default/_engine").expect("listed").is_empty());
    });
}

#[test]
fn a_scope_cannot_be_called_as_the_engines_folder() {
    let options = Options { scopes: vec!["_engine".to_owned()], ..tiny_segments() };
    let refused = open(Arc::new(MemoryDisk::default()), options).err().expect("it is refused");
    assert_eq!(refused.code, Code::InvalidConfig);
}

#[test]
fn changed_bytes_are_damage_and_never_an_answer() {
    const FILE: &str = "tenants/default/_engine/map.redb";
    let mut damaged = 0;
    for seed in 0..90u64 {
        block_on(async {
            let disk = FaultyDisk::new(seed);
            let mut random = fastrand::Rng::with_seed(seed);
            let opened = open(disk.clone(), repeatable(seed)).expect("it opens");
            let records = opened.store.records(DEFAULT_TENANT).expect("there");
            records.declare(Collection::new("things").with_feed()).await.expect("declared");
            for n in 0..20 {
                records.write(vec![thing(n)]).await.expect("written");
            }
            let expected = records.find(RecordQuery::new("things")).await.expect("found");
            if random.bool() {
                opened.store.close().await;
            }
            let disk = disk.after_kill();
            disk.damage(FILE, |bytes| {
                // The file grows ahead of need, so most of it is zeros that nobody reads.
                let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
                match random.u8(0..6) {
                    0 => bytes.truncate(random.usize(0..bytes.len())),
                    1 => bytes.truncate(random.usize(0..=bytes.len() / 4096) * 4096),
                    _ => (0..random.usize(1..20)).for_each(|_| bytes[random.usize(64..=used)] ^= 1 << random.u8(0..8)),
                }
            });
            let records = match open(disk, repeatable(seed)) {
                Ok(opened) => {
                    let records = opened.store.records(DEFAULT_TENANT).expect("there");
                    let found = records.find(RecordQuery::new("things")).await;
                    opened.store.close().await;
                    found
                }
                Err(error) => {
                    assert_eq!(error.code, Code::StoreDamaged, "seed {seed}: {error}");
                    damaged += 1;
                    return;
                }
            };
            match records {
                Ok(found) => assert_eq!(found, expected, "seed {seed}"),
                Err(error) => {
                    assert_eq!(error.code(), Code::StoreDamaged, "seed {seed}: {error}");
                    damaged += 1;
                }
            }
        });
    }
    assert!(damaged > 15, "only {damaged} damages were noticed");
}

#[test]
fn after_a_failed_sync_writes_are_refused_until_the_store_is_opened_again() {
    block_on(async {
        let disk = FaultyDisk::new(3);
        let opened = open(disk.clone(), repeatable(3)).expect("it opens");
        let records = opened.store.records(DEFAULT_TENANT).expect("there");
        records.declare(Collection::new("things").with_feed()).await.expect("declared");
        let mut n = 0;
        loop {
            disk.plan(n, crate::faulty_disk::Fault::Error);
            n += 1;
            if records.write(vec![thing(1)]).await.is_err() {
                break;
            }
        }
        for _ in 0..3 {
            let refused = records.write(vec![thing(2)]).await.expect_err("it is refused");
            assert_eq!(refused.code(), Code::StoreFailed);
        }
        assert!(matches!(opened.log.head().await, Ok(0)), "the log goes on");
        let opened = open(disk.after_kill(), repeatable(3)).expect("it opens again");
        let records = opened.store.records(DEFAULT_TENANT).expect("there");
        records.write(vec![thing(2)]).await.expect("it is taken");
        opened.store.close().await;
        assert_eq!(records.get("things", &2.into()).await, Err(StoreError::Closed.into()));
    });
}

#[test]
fn a_file_that_is_no_map_is_damage() {
    block_on(async {
        let disk = Arc::new(MemoryDisk::default());
        open(disk.clone(), tiny_segments()).expect("it opens").store.close().await;
        let file = disk.open("tenants/default/_engine/map.redb", Open::Create).expect("it is made");
        file.write_at(&[7; 10_000], 0).expect("it is written");
        match open(disk, tiny_segments()) {
            Ok(opened) => {
                let records = opened.store.records(DEFAULT_TENANT).expect("there");
                let refused = records.declare(Collection::new("things").with_feed()).await.expect_err("it is damaged");
                assert_eq!(refused.code(), Code::StoreDamaged);
            }
            Err(error) => assert_eq!(error.code, Code::StoreDamaged, "{error}"),
        }
    });
}

#[test]
fn whenever_a_write_that_makes_the_file_grow_fails_the_store_opens_again() {
    let mut failed = 0;
    for operation in 0..70 {
        block_on(async {
            let disk = FaultyDisk::new(operation);
            let opened = open(disk.clone(), repeatable(operation)).expect("it opens");
            let records = opened.store.records(DEFAULT_TENANT).expect("there");
            records.declare(Collection::new("things").with_feed()).await.expect("declared");
            disk.plan(operation, crate::faulty_disk::Fault::Error);
            let mut acknowledged = Vec::new();
            for n in 0..6 {
                let large = doc! { "_id": n, "text": "x".repeat(400_000) };
                let large = RawDocumentBuf::try_from(&large).expect("a document");
                match records.insert("things", large).await {
                    Ok(_) => acknowledged.push(n),
                    Err(_) => break,
                }
            }
            failed += usize::from(acknowledged.len() < 6);
            let disk = if operation % 2 == 0 { disk.after_kill() } else { disk.after_power_loss() };
            let opened = open(disk, repeatable(operation)).expect("it opens again");
            let records = opened.store.records(DEFAULT_TENANT).expect("there");
            for n in acknowledged {
                let there = records.get("things", &n.into()).await.expect("it is read");
                assert!(there.is_some(), "operation {operation}: {n}");
            }
            records.write(vec![thing(9)]).await.expect("it is taken");
        });
    }
    assert!(failed > 30, "only {failed} runs met their fault");
}
