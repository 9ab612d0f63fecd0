//! A cut keeps what is before it, puts the rest aside, and may end at any operation.

use std::sync::Arc;

use annals_conformance::history::read_all;
use annals_core::{Code, DEFAULT_SCOPE, DEFAULT_TENANT, RecordedEvent, Store};
use annals_embedded::Options;
use annals_embedded::operations::{Cut, OperationError, Repair, check, repair};

use super::samples::{LOGS, borders, commit, disk_with, filled, frames, open_store};
use crate::faulty_disk::{Fault, FaultyDisk};
use crate::stores::block_on;

const COMMITS: usize = 60;
const DIR: &str = "tenants/default/default";

pub fn cut_at(disk: &FaultyDisk, at: u64, options: &Options) -> Result<Repair, OperationError> {
    let (tenant, scope) = (DEFAULT_TENANT.to_owned(), DEFAULT_SCOPE.to_owned());
    repair(disk, &Cut { tenant, scope, at, confirmed: true }, options, &mut |_, _| {})
}

pub async fn events(disk: &Arc<FaultyDisk>, tenant: &str, scope: &str) -> Vec<RecordedEvent> {
    let store = open_store(disk, 9);
    let events = read_all(&store.log(tenant, scope).expect("it is declared")).await.expect("the log is read");
    store.close().await;
    events
}

async fn borders_of(disk: &Arc<FaultyDisk>) -> Vec<u64> {
    let store = open_store(disk, 9);
    let borders = borders(&store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared")).await;
    store.close().await;
    borders
}

#[test]
fn a_log_is_cut_at_any_border_and_goes_on_from_there_as_a_new_incarnation() {
    block_on(async {
        let original = filled(COMMITS, true).await;
        let all = events(&disk_with(&original.files()), LOGS[0].0, LOGS[0].1).await;
        let other = events(&disk_with(&original.files()), LOGS[1].0, LOGS[1].1).await;
        for at in borders_of(&disk_with(&original.files())).await {
            let disk = disk_with(&original.files());
            let done = cut_at(&disk, at, &Options::default()).unwrap_or_else(|error| panic!("{at}: {error}"));
            assert!(done.done && done.next_incarnation == 1);
            let report = check(&*disk, &mut |_, _| {}).expect("it can be checked");
            assert!(report.is_sound(), "{at}: {report:#?}");
            let store = open_store(&disk, 3);
            let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is there");
            assert_eq!(read_all(&log).await.expect("it is read"), all[..at as usize]);
            let identity = store.identity(DEFAULT_TENANT).expect("it is declared");
            assert_eq!((identity.incarnation, identity.incarnation_start), (1, at));
            let partner = store.identity_since(DEFAULT_TENANT, "partner", 0).expect("it is declared");
            assert_eq!(partner.incarnation_start, other.len() as u64, "nothing was cut there");
            assert_eq!(store.identity("other").expect("it is declared").incarnation, 0);
            let outcome = log.commit(commit(1)).await.expect("it takes commits");
            assert_eq!(outcome.first_sequence_number, Some(at));
            store.close().await;
        }
    });
}

#[test]
fn only_what_is_confirmed_is_done() {
    block_on(async {
        let disk = filled(COMMITS, true).await;
        let before = disk.files();
        let (tenant, scope) = (DEFAULT_TENANT.to_owned(), DEFAULT_SCOPE.to_owned());
        let at = borders_of(&disk_with(&before)).await[COMMITS / 2];
        let cut = Cut { tenant, scope, at, confirmed: false };
        let plan = repair(&*disk, &cut, &Options::default(), &mut |_, _| {}).expect("it can be planned");
        assert!(!plan.done && !plan.files.is_empty() && plan.kept_in.starts_with("cut/"), "{plan:?}");
        assert!(plan.cut_segment.is_some() || plan.cut_offset.is_none());
        assert_eq!(disk.files(), before);
    });
}

#[test]
fn a_number_that_is_no_border_is_refused_with_the_nearest() {
    block_on(async {
        let disk = filled(COMMITS, true).await;
        let all = events(&disk_with(&disk.files()), LOGS[0].0, LOGS[0].1).await;
        let inside = all.iter().find(|event| event.ordinal == 1).expect("there are such commits").sequence_number;
        let error = cut_at(&disk, inside, &Options::default()).expect_err("it is inside a commit");
        assert_eq!(error.code, Code::InvalidRange);
        assert!(error.message.contains(&format!("at {},", inside - 1)), "{error}");
        assert!(error.message.contains(&format!("at {}", inside + 1)), "{error}");
        let place = |place: u32| {
            all.iter().position(|event| {
                event.commit.aggregate.id == ["a", "b", "c"][place as usize] && event.commit.aggregate.name == "account"
            })
        };
        let [begin, second, third] = [0, 1, 2].map(|n| place(n).expect("there is a transaction") as u64);
        for at in [begin + 1, second, third] {
            let error = cut_at(&disk, at, &Options::default()).expect_err("it is inside a transaction");
            assert!(error.message.contains(&format!("at {begin},")), "{error}");
        }
        let head = all.len() as u64;
        let error = cut_at(&disk, head + 1, &Options::default()).expect_err("it is past the end");
        assert!(error.message.contains(&format!("ends at {head}")), "{error}");
        let unknown = Cut { tenant: "nobody".into(), scope: DEFAULT_SCOPE.into(), at: 0, confirmed: true };
        let error = repair(&*disk, &unknown, &Options::default(), &mut |_, _| {}).expect_err("there is none");
        assert_eq!(error.code, Code::UnknownTenant);
        let unknown = Cut { tenant: DEFAULT_TENANT.into(), scope: "nothing".into(), at: 0, confirmed: true };
        let error = repair(&*disk, &unknown, &Options::default(), &mut |_, _| {}).expect_err("there is none");
        assert_eq!(error.code, Code::UnknownScope);
    });
}

#[test]
fn a_damaged_log_takes_commits_again_once_it_is_cut_before_the_damage() {
    block_on(async {
        let disk = filled(COMMITS, true).await;
        let path = format!("{DIR}/0000000003.segment");
        disk.damage(&path, |bytes| {
            let start = frames(bytes)[1];
            bytes[start + 50] ^= 1;
        });
        disk.damage(&format!("{DIR}/0000000003.index"), |bytes| bytes[9] ^= 1);
        let report = check(&*disk, &mut |_, _| {}).expect("it can be checked");
        let border = report.damage[0].sequence_number.expect("it says from where on");
        let error = cut_at(&disk, border + 5, &Options::default()).expect_err("it is behind the damage");
        assert!(error.message.contains(&format!("is {border}")), "{error} does not name {border}");
        cut_at(&disk, border, &Options::default()).expect("it is cut");
        assert!(check(&*disk, &mut |_, _| {}).expect("it can be checked").is_sound());
        let store = open_store(&disk, 3);
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is there");
        assert_eq!(log.head().await.expect("a head"), border);
        log.commit(commit(1)).await.expect("it takes commits");
    });
}

/// Whether every commit of these segments stands in a segment of the same number, somewhere.
fn is_kept(original: &[(String, Vec<u8>)], now: &[(String, Vec<u8>)]) -> bool {
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let ours = |path: &str| path.starts_with(DIR) || path.starts_with("cut/");
    original.iter().filter(|(path, _)| path.starts_with(DIR) && path.ends_with(".segment")).all(|(path, bytes)| {
        let mut starts = frames(bytes);
        starts.push(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        starts.windows(2).all(|frame| {
            let same = |(other, content): &(String, Vec<u8>)| {
                ours(other)
                    && name(other) == name(path)
                    && content.get(frame[0]..frame[1]) == Some(&bytes[frame[0]..frame[1]])
            };
            now.iter().any(same)
        })
    })
}

#[test]
fn a_cut_may_end_at_any_operation_and_is_finished_by_the_next() {
    block_on(async {
        let original = filled(COMMITS, true).await.files();
        let all = events(&disk_with(&original), LOGS[0].0, LOGS[0].1).await;
        let at = borders_of(&disk_with(&original)).await[COMMITS / 2 + 1];
        let mut ended = 0;
        for (operation, power) in (0..200).flat_map(|operation| [(operation, false), (operation, true)]) {
            let what = format!("ended at operation {operation}, power {power}");
            let disk = disk_synced(&original);
            disk.plan(operation, Fault::End);
            let finished = cut_at(&disk, at, &Options::default()).is_ok();
            ended += usize::from(!finished);
            let disk = if power { disk.after_power_loss() } else { disk.after_kill() };
            assert!(is_kept(&original, &disk.files()), "{what}: a commit is lost");
            // Whoever opens it now finds all of it, the cut one, or damage; never a part that looks whole.
            let copy = disk_with(&disk.files());
            let store = open_store(&copy, 5);
            let status = store.status().into_iter().find(|log| log.tenant == LOGS[0].0 && log.scope == LOGS[0].1);
            let status = status.expect("it is open");
            let whole = [at, all.len() as u64].contains(&status.head) && status.recovery.is_empty();
            assert!(whole || status.refusing.is_some(), "{what}: {status:?}");
            drop(store);
            cut_at(&disk, at, &Options::default()).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(is_kept(&original, &disk.files()), "{what}: a commit is lost by the second try");
            assert!(check(&*disk, &mut |_, _| {}).expect("it can be checked").is_sound(), "{what}");
            assert_eq!(events(&disk, LOGS[0].0, LOGS[0].1).await, all[..at as usize], "{what}");
            let store = open_store(&disk, 5);
            assert!(store.identity(DEFAULT_TENANT).expect("it is declared").incarnation >= 1);
            if finished && power {
                assert!(ended > 20, "it ended {ended} times");
                return;
            }
        }
        panic!("a cut has more than 200 operations");
    });
}

/// A disk with these files, all of them synced.
fn disk_synced(files: &[(String, Vec<u8>)]) -> Arc<FaultyDisk> {
    use annals_embedded::disk::{Disk, Open};
    let disk = disk_with(files);
    for (path, _) in files {
        disk.open(path, Open::Read).expect("it is there").sync().expect("it is synced");
        disk.sync_dir(path.rsplit_once('/').map_or("", |(dir, _)| dir)).expect("it is synced");
    }
    disk
}
