//! Prepare keys as a service, wherever the process dies: a change is there whole or not at all, and what was answered stays.

use std::sync::Arc;

use annals_core::{
    DEFAULT_TENANT, Data, FoundKey, KeyChange, KeyValue, NewCommit, NewEvent, PrepareKeys, Release, Reserve, Store,
};
use annals_embedded::Options;

use crate::faulty_disk::{Fault, FaultyDisk};
use crate::stores::{Opened, PACK_ALWAYS, PACK_NEVER, block_on, open, repeatable};

fn value(n: u64) -> KeyValue {
    KeyValue::new(n).expect("a value")
}

pub fn user(key: &str, n: u64) -> Reserve {
    Reserve::new("user", key, value(n))
}

pub fn held(key: &str) -> Release {
    Release::new("user", key)
}

pub fn keys_of(opened: &Opened) -> Arc<dyn PrepareKeys> {
    opened.store.prepare_keys(DEFAULT_TENANT).expect("it is declared")
}

pub fn order(n: u64) -> NewCommit {
    let data = Data::from_value(&serde_json::json!({ "n": n })).expect("an object");
    NewCommit::new("order", format!("{}", n % 3)).event(NewEvent::new("placed", data))
}

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

async fn all(keys: &Arc<dyn PrepareKeys>) -> Vec<Option<FoundKey>> {
    let mut found = Vec::new();
    for key in KEYS {
        found.push(keys.look("user", key).await.expect("it is read"));
    }
    found
}

enum Step {
    Change(KeyChange),
    Commit(Box<NewCommit>),
}

/// Changes of few keys by the service and by commits, all of which happen.
fn script() -> Vec<Step> {
    let change = |change| Step::Change(change);
    let mut steps = Vec::new();
    for n in 0..6 {
        steps.extend([
            change(KeyChange::Prepare(user("a", n))),
            Step::Commit(Box::new(order(n).reserve(user("b", n)))),
            change(KeyChange::Reprepare { old: Some(value(n)), new: user("b", n + 100) }),
            change(KeyChange::Move { old: held("a").of_value(value(n)), new: user("c", n) }),
            Step::Commit(Box::new(order(n).release(held("c")).reserve(user("d", n)))),
            change(KeyChange::Rollback(held("d"))),
            change(KeyChange::Rollback(held("b").of_value(value(n + 100)))),
        ]);
    }
    steps
}

/// Takes the steps until one fails; how many succeeded.
async fn take(opened: &Opened, steps: &[Step]) -> usize {
    let keys = keys_of(opened);
    for (n, step) in steps.iter().enumerate() {
        let done = match step {
            Step::Change(change) => keys.change(change.clone()).await.map_err(|error| error.to_string()),
            Step::Commit(commit) => {
                opened.log.commit((**commit).clone()).await.map(|_| true).map_err(|error| error.to_string())
            }
        };
        match done {
            Ok(true) => {}
            Ok(false) => panic!("step {n} is refused"),
            Err(_) => return n,
        }
    }
    steps.len()
}

/// What the keys are before the first step and after each.
async fn states(steps: &[Step]) -> Vec<Vec<Option<FoundKey>>> {
    let opened = open(FaultyDisk::new(0), repeatable(0)).expect("an empty disk opens");
    let mut states = vec![all(&keys_of(&opened)).await];
    for step in steps {
        assert_eq!(take(&opened, std::slice::from_ref(step)).await, 1);
        states.push(all(&keys_of(&opened)).await);
    }
    states
}

/// At every number: the keys that differ from what copies of the commits before it make of them.
#[test]
fn what_copies_of_commits_do_not_say_of_keys_is_known_at_every_number() {
    block_on(async {
        let options = Options { packing: PACK_ALWAYS, ..repeatable(0) };
        let opened = open(FaultyDisk::new(0), options).expect("an empty disk opens");
        let keys = keys_of(&opened);
        assert_eq!(keys.beside_commits(u64::MAX).await, Ok(Vec::new()));
        let mut then = Vec::new();
        for step in script() {
            if matches!(step, Step::Commit(_)) {
                then.push(all(&keys).await);
            }
            assert_eq!(take(&opened, &[step]).await, 1);
        }
        then.push(all(&keys).await);
        let copies = opened.log.read_copies(0).await.expect("they are read");
        assert_eq!(copies.len() + 1, then.len());
        let mut differing = 0;
        for (to, then) in then.iter().enumerate() {
            let copy = open(FaultyDisk::new(1), repeatable(1)).expect("an empty disk opens");
            copy.log.store_copies(copies[..to].to_vec()).await.expect("they are in order");
            let by_commits = all(&keys_of(&copy)).await;
            let differs = |n: &usize| then[*n] != by_commits[*n];
            let due: Vec<_> = (0..KEYS.len()).filter(differs).map(|n| (KEYS[n], then[n].clone())).collect();
            let found = keys.beside_commits(to as u64).await.expect("it is read");
            let found: Vec<_> = found.iter().map(|it| (&*it.key, it.holder.clone())).collect();
            differing += due.len();
            let due: Vec<_> = due.into_iter().map(|(key, found)| (key, found.map(|found| found.holder))).collect();
            assert_eq!(found, due, "before event {to}");
        }
        assert!(differing > 10, "{differing} differed");
    });
}

/// At every operation of the disk, by kill -9 and by power loss: the keys are as before the step that had no answer, or as after it;
/// what is served then survives another loss of power.
#[test]
fn a_change_is_whole_or_absent_wherever_the_process_dies() {
    block_on(async {
        let steps = script();
        let states = states(&steps).await;
        let mut died = 0;
        for operation in 0..400 {
            let packing = if operation % 2 == 0 { PACK_NEVER } else { PACK_ALWAYS };
            let options = |seed| Options { packing, ..repeatable(seed) };
            let disk = FaultyDisk::new(operation);
            let opened = open(disk.clone(), options(operation)).expect("an empty disk opens");
            disk.plan(operation, if operation % 3 == 0 { Fault::Error } else { Fault::End });
            let taken = take(&opened, &steps).await;
            died += usize::from(taken < steps.len());
            let disk = if operation % 4 < 2 { disk.after_kill() } else { disk.after_power_loss() };
            drop(opened);
            let opened = open(disk.clone(), options(operation)).unwrap_or_else(|error| panic!("{operation}: {error}"));
            let found = all(&keys_of(&opened)).await;
            let place = (taken..=steps.len().min(taken + 1)).find(|n| states[*n] == found);
            let place = place.unwrap_or_else(|| panic!("died at {operation} after {taken} steps: {found:?}"));
            let disk = disk.after_power_loss();
            drop(opened);
            let opened = open(disk, options(operation)).unwrap_or_else(|error| panic!("{operation}: {error}"));
            assert_eq!(all(&keys_of(&opened)).await, found, "died at {operation}");
            assert_eq!(take(&opened, &steps[place..]).await, steps.len() - place, "died at {operation}");
            assert_eq!(all(&keys_of(&opened)).await, states[steps.len()]);
        }
        assert!(died > 100, "the process died {died} times");
    });
}

/// What a caller was told of its key, and what it had begun.
#[derive(Clone, Copy, Default)]
struct Told {
    reached: u64,
    begun: u64,
}

/// Counts its key up, by turns by the service and by commits, until the store fails.
async fn count_up(key: String, keys: Arc<dyn PrepareKeys>, log: Arc<dyn annals_core::EventLog>, from: u64) -> Told {
    let mut told = Told { reached: from, begun: from };
    for n in from..from + 30 {
        told.begun = n + 1;
        let done = match n {
            0 => keys.prepare(user(&key, 1)).await.map_err(drop),
            n if n % 3 == 2 => {
                let commit = order(n).release(held(&key).of_value(value(n))).reserve(user(&key, n + 1));
                log.commit(commit).await.map(|_| true).map_err(drop)
            }
            n => keys.reprepare(Some(value(n)), user(&key, n + 1)).await.map_err(drop),
        };
        match done {
            Ok(done) => assert!(done, "nobody else changes {key}, which is at {n}"),
            Err(()) => return told,
        }
        told.reached = n + 1;
    }
    told
}

/// Eight callers at once, life after life: batches hold changes of several keys, and each key is where its caller was told, or one
/// further.
#[test]
fn what_many_callers_were_told_of_their_keys_holds_in_every_life() {
    block_on(async {
        for seed in 0..60 {
            let mut disk = FaultyDisk::new(seed);
            let mut told = [Told::default(); 8];
            for life in 0..4 {
                let options = Options { packing: PACK_ALWAYS, ..repeatable(seed * 10 + life) };
                let opened = open(disk.clone(), options).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                let keys = keys_of(&opened);
                for (n, told) in told.iter_mut().enumerate() {
                    let found = keys.get("user", &format!("k-{n}")).await.expect("it is read");
                    let at: u64 = found.map_or(0, |holder| holder.value.decode().expect("a number"));
                    assert!((told.reached..=told.begun).contains(&at), "seed {seed}, life {life}: k-{n} is at {at}");
                    told.reached = at;
                }
                disk.plan(seed * 7 % 50 + life * 11, Fault::End);
                let callers: Vec<_> = (0..8)
                    .map(|n| {
                        let key = format!("k-{n}");
                        tokio::spawn(count_up(key, keys.clone(), opened.log.clone(), told[n].reached))
                    })
                    .collect();
                for (told, caller) in told.iter_mut().zip(callers) {
                    *told = caller.await.expect("the task ends well");
                }
                disk = if life % 2 == 0 { disk.after_power_loss() } else { disk.after_kill() };
                drop((keys, opened));
            }
        }
    });
}
