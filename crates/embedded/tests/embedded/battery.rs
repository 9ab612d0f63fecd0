//! The fault battery of the log: concurrent clients on a failing disk, life after life, and their history checked at the end.
//!
//! In each life something may go wrong (an operation fails, the process ends in the middle of one, a sync hangs, the disk is full) while
//! clients commit, repeat, read and follow.

mod life;

use std::sync::Arc;
use std::time::Duration;

use annals_conformance::ManualClock;
use annals_conformance::history::{Checked, History};
use annals_conformance::model::{EPOCH, Operations, Shape, Variety};
use annals_embedded::Options;

use crate::lives::{self, Lives, run_seeds};
use crate::stores::{PACK_ALWAYS, PACK_NEVER, block_on, repeatable};

/// What goes wrong in the lives of one seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Theme {
    /// Anything.
    Any,
    /// Every other life ends by power loss while a batch of many commits is being synced; those between are short. So what is left of a
    /// torn batch stands behind few new commits, where the next recovery must not take it for their successors.
    TornBatches,
}

/// What the lives of one seed have told, and what they are about.
pub struct Battery {
    /// Moved on by the clients, so that reservations of prepare keys expire.
    clock: Arc<ManualClock>,
    history: Arc<History>,
    clients: Vec<Operations>,
    theme: Theme,
    lives: usize,
    /// Where the follower goes on, across lives.
    followed: u64,
    plot: life::Plot,
}

impl lives::Battery for Battery {
    type Checked = Checked;

    fn begin(random: &mut fastrand::Rng, change: &dyn Fn(&mut Options)) -> (Self, Options) {
        let theme = if random.u8(0..4) == 0 { Theme::TornBatches } else { Theme::Any };
        let clock = Arc::new(ManualClock::at(EPOCH));
        let mut options = Options { clock: clock.clone(), ..repeatable(random.u64(..)) };
        options.segment_bytes_first = [700, 1_500, 20_000][random.usize(0..3)];
        options.segment_bytes_max = [2_000, 6_000, 50_000][random.usize(0..3)];
        // What the packer does takes its part of the operations that fail, so half of the stores have none.
        options.packing = if random.bool() { PACK_ALWAYS } else { PACK_NEVER };
        change(&mut options);
        // Commits of one length find each other's places after a crash; long ones are torn in the middle.
        let shape = match random.u8(0..3) {
            _ if theme == Theme::TornBatches => {
                options.segment_bytes_first = 20_000;
                Shape { events_max: 1, bytes_max: 0, commits_percent: 90, variety: Variety::Uniform }
            }
            0 => Shape { events_max: 1, bytes_max: 0, commits_percent: 80, variety: Variety::Uniform },
            1 => Shape { events_max: 4, bytes_max: 60, ..Shape::default() },
            _ => Shape { events_max: 3, bytes_max: 600, commits_percent: 70, ..Shape::default() },
        };
        let (clients, lives) = match theme {
            Theme::Any => (random.usize(1..5), random.usize(2..6)),
            Theme::TornBatches => (12, 13),
        };
        let clients = (0..clients).map(|_| Operations::new(random.u64(..), shape)).collect();
        let (history, plot) = (History::new(), life::Plot::default());
        (Self { clock, history, clients, theme, lives, followed: 0, plot }, options)
    }

    fn count(&self, _: &mut fastrand::Rng) -> usize {
        self.lives
    }

    async fn live(&mut self, lives: &mut Lives, life: usize) -> Result<(), String> {
        self.live_once(lives, life).await
    }

    /// Checks the history against all that the store holds.
    async fn check(&mut self, lives: &mut Lives) -> Result<Checked, String> {
        let opened = lives.open()?;
        let status = opened.status();
        lives.story.push(format!("opened: head {}, recovery {:?}", status.head, status.recovery));
        if let Some(refusal) = status.refusing {
            return Err(refusal.to_string());
        }
        let log = self.history.watch("checker", opened.log.clone());
        self.history.check(&log).await.map_err(|broken| broken.to_string())
    }

    fn add(sum: &mut Checked, seed: Checked) {
        sum.commits += seed.commits;
        sum.acknowledged += seed.acknowledged;
        sum.duplicates += seed.duplicates;
        sum.refusals += seed.refusals;
        sum.key_refusals += seed.key_refusals;
        sum.unknown += seed.unknown;
        sum.reads += seed.reads;
    }
}

/// The seed to run again.
const FAULT_SEED: &str = "ANNALS_FAULT_SEED";
/// How long the soak runs, in seconds; not at all unless the variable is set.
const SOAK_SECONDS: &str = "ANNALS_SOAK_SECONDS";

#[test]
fn whatever_the_disk_does_the_promises_hold() {
    let done = block_on(run_seeds::<Battery>(0..400, |_| {})).unwrap_or_else(|broken| panic!("{broken}"));
    let checked = done.checked;
    assert!(checked.acknowledged > 5_000 && checked.unknown > 100 && checked.duplicates > 300, "{checked:?}");
    assert!(checked.key_refusals > 1_000, "{checked:?}");
}

/// Runs one seed again: `ANNALS_FAULT_SEED=7 cargo test -p annals-embedded --test embedded one_seed`. Threads run as they please, so it
/// may take some rounds to fail again.
#[test]
fn one_seed_holds_again_and_again() {
    let seed = std::env::var(FAULT_SEED).ok().and_then(|text| text.parse().ok()).unwrap_or(7);
    block_on(run_seeds::<Battery>(std::iter::repeat_n(seed, 50), |_| {})).unwrap_or_else(|broken| panic!("{broken}"));
}

/// New seeds for as long as `cargo xtask soak` asks; otherwise the same fifty, so that what nobody changed does not fail by chance.
#[test]
fn the_promises_hold_for_new_seeds() {
    let seconds = std::env::var(SOAK_SECONDS).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    block_on(async {
        // tidy: allow(pause) the soak lasts as long as it was asked to
        let time_is_up = tokio::spawn(tokio::time::sleep(Duration::from_secs(seconds)));
        loop {
            let first = if seconds == 0 { 1_000_000 } else { fastrand::u64(1_000_000..u64::MAX / 2) };
            run_seeds::<Battery>(first..first + 50, |_| {}).await.unwrap_or_else(|broken| panic!("{broken}"));
            if time_is_up.is_finished() {
                return;
            }
        }
    });
}
