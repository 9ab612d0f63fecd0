//! Measures how long after the start of its insert an event can be read in the log, and how long after that a follower has it. The rate
//! is 1,000 commits per second, beside bare inserts at the same rate.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use annals_core::{EventLog, Filter, Follower, Reached};
use tokio::task::JoinSet;

use super::figures::Figures;
use super::{Arguments, Place, bare, sample, steps, text};
use crate::cell::{Commits, percentile_us};

const CALLERS: usize = 16;
/// The time between two commits of one caller.
const EVERY: Duration = Duration::from_millis(16);
/// The time before measurements count.
const WARM_UP: Duration = Duration::from_millis(400);

pub async fn measure(place: &Place, round: usize, arguments: &Arguments, figures: &mut Figures) -> Result<(), String> {
    for turn in 0..2 {
        if (round + turn).is_multiple_of(2) {
            bare(place, arguments, figures).await?;
        } else {
            ours(place, arguments, figures).await?;
        }
    }
    Ok(())
}

/// Makes calls at the rate from one task per caller. Returns how long each took, with the number that the call returned, in order of
/// time.
async fn paced<F, A>(time: Duration, make: impl Fn(usize) -> F) -> Result<Vec<(u64, Instant, A)>, String>
where
    F: AsyncCaller<A> + Send + 'static,
    A: Send + 'static,
{
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..CALLERS {
        let mut caller = make(number);
        tasks.spawn(async move {
            let mut made = Vec::new();
            let mut due = begin + EVERY * number as u32 / CALLERS as u32;
            while due < begin + WARM_UP + time {
                tokio::time::sleep_until(due.into()).await;
                let started = Instant::now();
                let answer = caller.call().await?;
                if due >= begin + WARM_UP {
                    made.push((started.elapsed().as_nanos() as u64, Instant::now(), answer));
                }
                due += EVERY;
            }
            Ok::<_, String>(made)
        });
    }
    let mut all = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        all.extend(ended.map_err(text)??);
    }
    Ok(all)
}

/// An operation that is called repeatedly.
trait AsyncCaller<A> {
    fn call(&mut self) -> impl Future<Output = Result<A, String>> + Send;
}

impl AsyncCaller<()> for bare::Caller {
    async fn call(&mut self) -> Result<(), String> {
        self.commit().await
    }
}

/// Commits and waits until the commit is logged.
struct Logged {
    log: Arc<dyn EventLog>,
    turns: sample::Turns,
}

impl AsyncCaller<u64> for Logged {
    async fn call(&mut self) -> Result<u64, String> {
        let (aggregate, version) = self.turns.next();
        let commit = sample::commit(&aggregate, version, 0).wait_until(Reached::Logged);
        let outcome = self.log.commit(commit).await.map_err(text)?;
        outcome.first_sequence_number.ok_or_else(|| "a commit got no number in 30 s".to_owned())
    }
}

async fn bare(place: &Place, arguments: &Arguments, figures: &mut Figures) -> Result<(), String> {
    let collection = bare::collection(place).await?;
    let made = paced(arguments.time(), |number| bare::Caller::new(&collection, number)).await?;
    add(figures, "bare insert at 1,000/s", made.iter().map(|(nanos, ..)| *nanos));
    place.client.database(bare::DATABASE).drop().await.map_err(text)
}

async fn ours(place: &Place, arguments: &Arguments, figures: &mut Figures) -> Result<(), String> {
    let opened = place.store("annals_bench_ours").await?;
    let seen: Arc<Mutex<Vec<(u64, Instant)>>> = Arc::default();
    let following = tokio::spawn({
        let (seen, log) = (seen.clone(), opened.log.clone());
        async move {
            let mut follower = Follower::new(log, 0, Filter::default());
            while let Ok(events) = follower.next_page().await {
                let now = Instant::now();
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.extend(events.iter().map(|event| (event.sequence_number, now)));
            }
        }
    });
    steps::forget();
    let made = paced(arguments.time(), |number| Logged { log: opened.log.clone(), turns: sample::Turns::new(number) });
    let made = made.await?;
    let last = made.iter().map(|(_, _, number)| *number).max().unwrap_or(0);
    let arrived = loop {
        let arrived = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if arrived.last().is_some_and(|(number, _)| *number >= last) {
            break arrived;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    following.abort();
    steps::add(figures);
    add(figures, "start of the insert to logged at 1,000/s", made.iter().map(|(nanos, ..)| *nanos));
    // A follower may have an event before its caller gets the response.
    let later = made
        .iter()
        .map(|(_, told, number)| arrived[*number as usize].1.saturating_duration_since(*told).as_nanos() as u64);
    add(figures, "logged to follower at 1,000/s", later);
    place.close(opened).await
}

fn add(figures: &mut Figures, name: &str, nanos: impl Iterator<Item = u64>) {
    let mut all: Vec<u64> = nanos.collect();
    all.sort_unstable();
    figures.add(&format!("{name}, p50 ms"), percentile_us(&all, 0.5) / 1e3);
    figures.add(&format!("{name}, p99 ms"), percentile_us(&all, 0.99) / 1e3);
}
