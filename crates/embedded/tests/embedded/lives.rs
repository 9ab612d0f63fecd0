//! The frame of the fault batteries: a store on a failing disk that lives several times.
//!
//! One seed is one store. In each life something may go wrong while clients use the store. Then the process ends, in an orderly way, by
//! kill -9 or by power loss, and the next life opens what is left. Whatever anybody was told in any life must hold in all later ones. A
//! battery says what happens in a life and what must hold after it; see [`Battery`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annals_core::Store;
use annals_embedded::{EmbeddedStore, Options};
use tokio::task::JoinSet;

use crate::faulty_disk::{Fault, FaultyDisk};
use crate::stores::{Opened, open};

/// How long a life may take before something is stuck.
pub const LIFE_MAX: Duration = Duration::from_secs(30);
/// How long to wait between two looks at what clients do.
pub const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long a sync hangs, so that everybody may run into it, before the process ends.
pub const WHILE_HELD: Duration = Duration::from_millis(5);

/// The store of one seed, across its lives.
pub struct Lives {
    pub random: fastrand::Rng,
    pub disk: Arc<FaultyDisk>,
    pub options: Options,
    /// What happened, for the message of a failure.
    pub story: Vec<String>,
    /// Lives in which something went wrong.
    faults: usize,
}

/// What happens in the lives of a store, and what must hold after each.
pub trait Battery: Sized {
    /// What a check counts, so that a test can see that it tested something.
    type Checked: Default;

    /// Begins a seed, with the options of its store; `change` is applied to them.
    fn begin(random: &mut fastrand::Rng, change: &dyn Fn(&mut Options)) -> (Self, Options);

    /// Returns how many lives the store has before the last checks.
    fn count(&self, random: &mut fastrand::Rng) -> usize {
        random.usize(2..6)
    }

    /// Lives once, and ends the process by [`Lives::end`].
    async fn live(&mut self, lives: &mut Lives, life: usize) -> Result<(), String>;

    /// Opens the store without faults and compares it with what was told.
    async fn check(&mut self, lives: &mut Lives) -> Result<Self::Checked, String>;

    /// Adds what another seed counted.
    fn add(sum: &mut Self::Checked, seed: Self::Checked);
}

/// What the seeds did.
#[derive(Debug, Default)]
pub struct Done<C> {
    pub checked: C,
    /// Lives in which something went wrong.
    pub faults: usize,
}

/// Runs seeds until one fails.
///
/// # Errors
/// The seed, what was broken, and the story of how.
pub async fn run_seeds<B: Battery>(
    seeds: impl Iterator<Item = u64>,
    change: impl Fn(&mut Options),
) -> Result<Done<B::Checked>, String> {
    let mut sum = Done::default();
    for seed in seeds {
        let mut random = fastrand::Rng::with_seed(seed);
        let (battery, options) = B::begin(&mut random, &change);
        let disk = FaultyDisk::new(random.u64(..));
        let mut lives = Lives { random, disk, options, story: Vec::new(), faults: 0 };
        let checked = lives.run(battery).await;
        let broken = |broken| format!("seed {seed}: {broken}\nstory:\n  {}", lives.story.join("\n  "));
        B::add(&mut sum.checked, checked.map_err(broken)?);
        sum.faults += lives.faults;
    }
    Ok(sum)
}

impl Lives {
    async fn run<B: Battery>(&mut self, mut battery: B) -> Result<B::Checked, String> {
        for life in 0..battery.count(&mut self.random) {
            battery.live(self, life).await?;
        }
        // What is served now was told, so it must survive losing power at once.
        battery.check(self).await.map_err(|broken| format!("at last: {broken}"))?;
        self.end(false);
        battery.check(self).await.map_err(|broken| format!("after a last power loss: {broken}"))
    }

    /// Opens the store.
    ///
    /// # Errors
    /// The refusal, as a sentence.
    pub fn open(&self) -> Result<Opened, String> {
        open(self.disk.clone(), self.options.clone()).map_err(|error| error.to_string())
    }

    /// Ends the process, by kill -9 or by power loss, and takes the disk that the next one finds.
    pub fn end(&mut self, power_stays: bool) {
        let fired = self.disk.fired();
        self.faults += usize::from(!fired.is_empty());
        self.story.extend(fired);
        self.disk = if power_stays { self.disk.after_kill() } else { self.disk.after_power_loss() };
        self.story.push(if power_stays { "kill -9".into() } else { "power loss".into() });
    }

    /// Plans a fault at an operation from now on.
    pub fn plan(&mut self, operation: u64, fault: Fault) {
        self.story.push(format!("{fault:?} planned at operation {operation}"));
        self.disk.plan(operation, fault);
    }

    /// Chooses a fault of which half end the process.
    pub fn any_fault(&mut self) -> Fault {
        [Fault::Error, Fault::End, Fault::End, Fault::Hold][self.random.usize(0..4)]
    }

    /// Closes the store in one of four lives.
    ///
    /// # Errors
    /// Closing does not end.
    pub async fn close_now_and_then(&mut self, store: &EmbeddedStore) -> Result<(), String> {
        if self.random.u8(0..4) == 0 {
            self.story.push("closed".into());
            self.disk.release();
            tokio::time::timeout(LIFE_MAX, store.close()).await.map_err(|_| "closing is stuck")?;
        }
        Ok(())
    }

    /// Lets clients run until they are done or can do no more, or a sync hangs; then ends them and the readers.
    ///
    /// # Errors
    /// The clients are stuck.
    pub async fn watch(&self, mut clients: JoinSet<()>, mut readers: JoinSet<()>) -> Result<(), String> {
        let holds = async {
            while !self.disk.holds() {
                // tidy: allow(pause) between two looks, or the processor would be taken from those who are watched
                tokio::time::sleep(LOOK_EVERY).await;
            }
            // tidy: allow(pause) so that readers see what a hanging sync lets them see
            tokio::time::sleep(WHILE_HELD).await;
        };
        let done = async {
            tokio::select! {
                () = async { while clients.join_next().await.is_some() {} } => {}
                () = holds => {}
            }
        };
        let in_time = tokio::time::timeout(LIFE_MAX, done).await;
        // Nobody may be told anything by a process that has ended.
        clients.shutdown().await;
        readers.shutdown().await;
        in_time.map_err(|_| "the clients are stuck".to_owned())
    }
}

/// The first sentence that a client or reader found wrong.
#[derive(Default)]
pub struct Broken(Mutex<Option<String>>);

impl Broken {
    pub fn breaks(&self, what: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
    }

    /// # Errors
    /// The sentence.
    pub fn unbroken(&self) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }
}

/// One client beside a model, on a store that is closed, killed or loses power every now and then. With nothing in flight at these
/// moments, every answer must be exactly the model's.
pub trait Modelled {
    /// Begins a seed.
    fn begin(seed: u64) -> Self;

    /// The dice of the seed.
    fn random(&mut self) -> &mut fastrand::Rng;

    /// Returns the options of the next life.
    fn options(&mut self) -> Options;

    /// Performs some operations and compares each answer with the model's.
    async fn work(&mut self, opened: &Opened) -> Result<(), String>;

    /// Compares all that the store holds with the model, and returns how much that is.
    async fn compare(&self, opened: &Opened) -> Result<u64, String>;
}

/// Runs one seed on a disk that forgets what was not synced, in at most this many lives.
///
/// # Errors
/// The answer that is not the model's.
pub async fn beside_its_model<M: Modelled>(
    seed: u64,
    lives_max: usize,
    change: impl Fn(&mut Options),
) -> Result<u64, String> {
    let mut run = M::begin(seed);
    let mut disk = FaultyDisk::new(seed);
    let opened = |run: &mut M, disk: &Arc<FaultyDisk>| {
        let mut options = run.options();
        change(&mut options);
        open(disk.clone(), options).map_err(|error| error.to_string())
    };
    for _ in 0..run.random().usize(2..lives_max) {
        let opened = opened(&mut run, &disk)?;
        run.compare(&opened).await?;
        run.work(&opened).await?;
        if run.random().u8(0..3) == 0 {
            opened.store.close().await;
        }
        disk = if run.random().bool() { disk.after_kill() } else { disk.after_power_loss() };
    }
    let opened = opened(&mut run, &disk)?;
    run.compare(&opened).await
}

#[cfg(feature = "seeded-bugs")]
pub mod seeded {
    //! A deliberate defect must be caught by what a sound store passes.

    use annals_embedded::{Options, SeededBug};

    use super::{Battery, Modelled, beside_its_model, run_seeds};
    use crate::stores::block_on;

    /// Seeds within which every defect of records and streams is caught.
    const SEEDS: u64 = 120;

    pub fn with(bug: SeededBug) -> impl Fn(&mut Options) {
        move |options| options.seeded_bug = Some(bug)
    }

    #[track_caller]
    pub fn battery_catches<B: Battery>(bug: SeededBug) {
        let caught = block_on(run_seeds::<B>(0..SEEDS, with(bug)));
        assert!(caught.is_err(), "{SEEDS} seeds did not catch {bug:?}");
    }

    #[track_caller]
    pub fn model_catches<M: Modelled>(bug: SeededBug, lives_max: usize) {
        let caught = (0..SEEDS).any(|seed| block_on(beside_its_model::<M>(seed, lives_max, with(bug))).is_err());
        assert!(caught, "{SEEDS} seeds did not catch {bug:?}");
    }
}
