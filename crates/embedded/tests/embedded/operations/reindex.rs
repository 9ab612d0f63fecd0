//! Indexes that a defect left wrong are found by a check and made again from the records.

use std::sync::Arc;

use annals_core::{Code, DEFAULT_TENANT};
use annals_embedded::disk::Disk;
use annals_embedded::operations::{Reindexed, check, reindex};
use annals_embedded::{EmbeddedStore, Options, SeededBug};

use super::map_samples::{all_records, fill_maps};
use super::samples::{disk_with, open_store, options};
use crate::faulty_disk::{Fault, FaultyDisk};
use crate::stores::block_on;

/// A closed store whose indexes hold entries of records as they were before.
fn wrong() -> Arc<FaultyDisk> {
    block_on(async {
        let disk = FaultyDisk::new(1);
        let defect = Options { seeded_bug: Some(SeededBug::KeepOldIndexEntries), ..options(1) };
        let store = EmbeddedStore::open(disk.clone(), defect).expect("it opens");
        fill_maps(&store, 0..30).await;
        let records = annals_core::Store::records(&store, DEFAULT_TENANT).expect("it is declared");
        for n in 0..10 {
            let mut changed = super::map_samples::thing(n);
            changed.insert("rank", 100 + n);
            changed.insert("name", format!("other-{n}"));
            let change = annals_core::RecordChange::put("things", super::map_samples::raw(&changed));
            records.write(vec![change]).await.expect("it is accepted");
        }
        annals_core::Store::close(&store).await;
        disk
    })
}

fn kinds(disk: &FaultyDisk) -> Vec<&'static str> {
    let report = check(disk, &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"));
    report.damage.iter().map(|finding| finding.kind).collect()
}

fn reindexed(disk: &Arc<FaultyDisk>, confirmed: bool) -> Reindexed {
    let disk: Arc<dyn Disk> = disk.clone();
    reindex(&disk, DEFAULT_TENANT, confirmed, &options(2)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn what_a_defect_left_in_indexes_is_found_and_made_right() {
    let disk = wrong();
    let found = kinds(&disk);
    assert!(found.len() > 10 && found.iter().all(|kind| *kind == "index_entry"), "{found:?}");
    let before = disk.files();
    let plan = reindexed(&disk, false);
    assert!(!plan.done && plan.indexes == 6 && plan.wrong.len() == found.len(), "{plan:?}");
    assert_eq!(disk.files(), before, "nothing was done");
    let records = block_on(async { all_records(&open_store(&disk_with(&before), 3)).await });
    let made = reindexed(&disk, true);
    assert!(made.done && made.wrong == plan.wrong, "{made:?}");
    assert_eq!(kinds(&disk), Vec::<&str>::new());
    assert!(reindexed(&disk, true).wrong.is_empty());
    assert_eq!(block_on(async { all_records(&open_store(&disk, 3)).await }), records);
}

#[test]
fn it_may_end_at_any_operation_and_be_run_again() {
    let whole = wrong();
    for operation in 0..400 {
        let disk = whole.after_power_loss();
        disk.plan(operation, Fault::End);
        let target: Arc<dyn Disk> = disk.clone();
        let done = reindex(&target, DEFAULT_TENANT, true, &options(2)).is_ok();
        let next = if operation % 2 == 0 { disk.after_kill() } else { disk.after_power_loss() };
        assert!(kinds(&next).iter().all(|kind| *kind == "index_entry"), "ended at operation {operation}");
        reindexed(&next, true);
        assert_eq!(kinds(&next), Vec::<&str>::new(), "ended at operation {operation}");
        if done {
            assert!(operation > 20, "it has more than {operation} operations");
            return;
        }
    }
    panic!("it has more than 400 operations");
}

#[test]
fn a_tenant_without_records_and_one_that_is_not_there() {
    let disk = FaultyDisk::new(1);
    drop(open_store(&disk, 1));
    assert_eq!(reindexed(&disk, true).indexes, 0);
    let disk: Arc<dyn Disk> = disk;
    let error = reindex(&disk, "nobody", true, &options(2)).map(|_| ()).expect_err("it is not there");
    assert_eq!(error.code, Code::UnknownTenant);
}
