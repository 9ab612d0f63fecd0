//! Operations with a deliberate defect, each of which these tests must catch.

use std::sync::Arc;

use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, Store};
use annals_embedded::disk::Disk;
use annals_embedded::operations::{Restore, Source, restore};
use annals_embedded::{EmbeddedStore, Options, SeededBug};

use super::backup::{back_up, held_back, into_folder};
use super::floor::passes_the_floor;
use super::generations::holds_at_every_operation;
use super::maps::{of_one_moment, restores_all_records};
use super::packing::survives_every_operation;
use super::repair::cut_at;
use super::samples::{filled, open_store, options};
use crate::faulty_disk::{Fault, FaultyDisk};
use crate::stores::{PACK_ALWAYS, block_on, tiny_segments};

fn with(bug: Option<SeededBug>, options: Options) -> Options {
    Options { seeded_bug: bug, ..options }
}

/// A defect shows only if threads meet in a certain way, which on a busy machine may take more than one round.
const ROUNDS: usize = 5;

/// Asserts that the check passes without the defect and fails with it.
#[track_caller]
fn is_caught(bug: SeededBug, check: impl Fn(Option<SeededBug>) -> Result<(), String>) {
    check(None).unwrap_or_else(|wrong| panic!("without a defect: {wrong}"));
    assert!((0..ROUNDS).any(|_| check(Some(bug)).is_err()), "{bug:?} was not caught in {ROUNDS} rounds");
}

#[test]
fn a_backup_past_the_durable_head_is_caught() {
    is_caught(SeededBug::BackUpPastHead, |bug| block_on(held_back(with(bug, options(1)))));
}

#[test]
fn a_map_that_is_held_after_the_heads_is_caught() {
    is_caught(SeededBug::HoldMapAfterHeads, |bug| block_on(of_one_moment(with(bug, options(1)))));
}

/// By the restore itself, which reads back what it has made.
#[test]
fn a_restore_that_forgets_the_last_entries_of_a_map_is_caught() {
    is_caught(SeededBug::ForgetLastEntriesOfRestore, |bug| restores_all_records(&with(bug, options(1))));
}

#[test]
fn a_restore_that_does_not_verify_is_caught() {
    is_caught(SeededBug::SkipBackupVerification, |bug| {
        let kept = FaultyDisk::new(3);
        let store = block_on(async { open_store(&filled(60, true).await, 1) });
        back_up(&store, into_folder(&kept)).expect("it is taken");
        let index = kept.files().into_iter().find(|(path, _)| path.ends_with(".index")).expect("there is one").0;
        kept.damage(&index, |bytes| bytes[100] ^= 1);
        let target: Arc<dyn Disk> = FaultyDisk::new(4);
        let source = Source::Folder(kept);
        match restore(&source, &target, &Restore::default(), &with(bug, options(1)), &mut |_, _| {}) {
            Ok(_) => Err("an altered backup was restored".to_owned()),
            Err(_) => Ok(()),
        }
    });
}

#[test]
fn a_restore_that_keeps_the_incarnation_is_caught() {
    is_caught(SeededBug::KeepIncarnation, |bug| {
        let kept = FaultyDisk::new(3);
        let store = block_on(async { open_store(&filled(20, true).await, 1) });
        back_up(&store, into_folder(&kept)).expect("it is taken");
        let target: Arc<dyn Disk> = FaultyDisk::new(4);
        let with_bug = with(bug, options(1));
        restore(&Source::Folder(kept), &target, &Restore::default(), &with_bug, &mut |_, _| {})
            .expect("it is restored");
        let restored = EmbeddedStore::open(target, options(2)).expect("it opens");
        let identity = |store: &EmbeddedStore| store.identity(DEFAULT_TENANT).map(|identity| identity.incarnation);
        if identity(&restored) == identity(&store) { Err("it is the same incarnation".to_owned()) } else { Ok(()) }
    });
}

#[test]
fn a_cut_that_keeps_the_incarnation_is_caught() {
    is_caught(SeededBug::KeepIncarnation, |bug| {
        let disk = block_on(filled(20, true));
        cut_at(&disk, 0, &with(bug, options(1))).expect("it is cut");
        let store = open_store(&disk, 2);
        let identity = store.identity_since(DEFAULT_TENANT, DEFAULT_SCOPE, 0).expect("it is declared");
        if identity.incarnation == 1 { Ok(()) } else { Err("it is the same incarnation".to_owned()) }
    });
}

/// Packs, ends the process at each operation by a power loss, and looks at what is left.
#[track_caller]
fn is_caught_packing(bug: SeededBug) {
    let packing = Options { packing: PACK_ALWAYS, ..options(7) };
    is_caught(bug, |bug| survives_every_operation(Fault::End, false, &with(bug, packing.clone())).map(drop));
}

#[test]
fn renaming_a_packed_segment_before_it_is_synced_is_caught() {
    is_caught_packing(SeededBug::RenamePackedBeforeSync);
}

#[test]
fn removing_a_segment_before_its_packed_form_has_the_name_is_caught() {
    is_caught_packing(SeededBug::RemoveBeforeRenaming);
}

#[test]
fn keeping_the_salt_of_a_segment_for_its_packed_form_is_caught() {
    is_caught_packing(SeededBug::KeepSaltOfPacked);
}

#[test]
fn forgetting_the_last_commit_of_a_packed_segment_is_caught() {
    is_caught_packing(SeededBug::ForgetLastPackedRecord);
}

#[test]
fn a_floor_that_is_not_looked_at_is_caught() {
    // Roomy segments, so that it is the floor and no new segment that refuses.
    let roomy = Options { segment_bytes_first: 64 * 1024 * 1024, ..tiny_segments() };
    let roomy = Options { segment_bytes_max: roomy.segment_bytes_first, ..roomy };
    is_caught(SeededBug::IgnoreFreeDiskFloor, |bug| {
        let passes = passes_the_floor(with(bug, roomy.clone()));
        block_on(async { tokio::time::timeout(std::time::Duration::from_secs(3), passes).await })
            .unwrap_or_else(|_| Err("no commit was refused".to_owned()))
    });
}

#[test]
fn a_generation_that_is_noted_before_the_map_holds_it_is_caught() {
    is_caught(SeededBug::NoteGenerationTooEarly, |bug| holds_at_every_operation(|options| options.seeded_bug = bug));
}

#[test]
fn a_generation_that_is_noted_after_an_answer_is_caught() {
    is_caught(SeededBug::NoteGenerationTooLate, |bug| holds_at_every_operation(|options| options.seeded_bug = bug));
}
