//! How long other clients' commits take beside the widest append conditions that the limits allow, and without them, in one run.
//!
//! Every event of the log may match every pattern of every condition, and none does: the index says that a commit has both tags of a
//! pattern, and only its events tell that no event has both. So each condition decodes all that the index names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use annals_core::{
    AppendCondition, ByteString, Data, EventLog, EventPattern, NewCommit, NewEvent, NewTransaction, Store, limits,
};
use tokio::task::JoinSet;

use crate::library;

/// The first word of the command line.
pub const OPTION: &str = "conditions";

/// Commits of the log before anything is measured.
const COMMITS: u64 = 20_000;
/// Clients with small commits, whose time is measured.
const OTHERS: u64 = 8;
/// Clients with wide conditions.
const WIDE: u64 = 8;
const SECONDS: Duration = Duration::from_secs(4);
const ROUNDS: usize = 3;

/// What the clients with wide conditions send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nobody,
    /// Conditions on the whole log.
    WholeLog,
    /// Conditions on what came since the last commit, which is what the log writer looks at.
    SinceTheLast,
    /// The same with as many types and tags in each pattern as there may be.
    ManyTerms,
}

/// Measures and prints.
pub async fn run() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let store = library::open(folder.path())?;
    let log = library::log(&store)?;
    let mut filling = JoinSet::new();
    for client in 0..64 {
        let log = Arc::clone(&log);
        filling.spawn(async move {
            for n in (client..COMMITS).step_by(64) {
                log.commit(spread("filled", n)).await.map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(())
        });
    }
    while let Some(filled) = filling.join_next().await {
        filled.map_err(|error| error.to_string())??;
    }
    println!(
        "| beside | commits/s of others | p50 ms | p99 ms | longest ms | wide transactions/s |\n|---|---|---|---|---|---|"
    );
    for _ in 0..ROUNDS {
        for beside in [Beside::Nobody, Beside::WholeLog, Beside::SinceTheLast, Beside::ManyTerms] {
            measure(&log, beside).await?;
        }
    }
    store.close().await;
    Ok(())
}

async fn measure(log: &Arc<dyn EventLog>, beside: Beside) -> Result<(), String> {
    let (ended, wide) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut greedy = JoinSet::new();
    for client in 0..if beside == Beside::Nobody { 0 } else { WIDE } {
        let (log, ended, wide) = (Arc::clone(log), Arc::clone(&ended), Arc::clone(&wide));
        greedy.spawn(async move {
            while !ended.load(Ordering::Relaxed) {
                let head = log.head().await.unwrap_or_default();
                // Refused as overloaded counts as little as accepted: it is what the client does that matters.
                let _ = log.transact(transaction(beside, client, head)).await;
                wide.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let mut others = JoinSet::new();
    for client in 0..OTHERS {
        let (log, ended) = (Arc::clone(log), Arc::clone(&ended));
        others.spawn(async move {
            let mut took = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                let begun = Instant::now();
                log.commit(spread("other", client)).await.map_err(|error| error.to_string())?;
                took.push(begun.elapsed());
                // Not as fast as it goes, as clients that have something else to do.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok::<_, String>(took)
        });
    }
    tokio::time::sleep(SECONDS).await;
    ended.store(true, Ordering::Relaxed);
    let mut took = Vec::new();
    while let Some(done) = others.join_next().await {
        took.extend(done.map_err(|error| error.to_string())??);
    }
    greedy.shutdown().await;
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1_000.0;
    let per_second = |count: f64| count / SECONDS.as_secs_f64();
    println!(
        "| {beside:?} | {:.0} | {:.2} | {:.2} | {:.2} | {:.1} |",
        per_second(took.len() as f64),
        at(0.5),
        at(0.99),
        at(1.0),
        per_second(wide.load(Ordering::Relaxed) as f64)
    );
    Ok(())
}

/// A commit with two tags, on different events.
fn spread(name: &str, n: u64) -> NewCommit {
    let event = |kind: &'static str, tag: &'static str| NewEvent::new(kind, Data::empty()).tag(tag);
    NewCommit::new("order", format!("{name}-{n}")).event(event("placed", "x")).event(event("paid", "y"))
}

fn transaction(beside: Beside, client: u64, head: u64) -> NewTransaction {
    let many = |word: &'static str, first: [&'static str; 2]| -> Vec<ByteString> {
        let more = if beside == Beside::ManyTerms { limits::TAGS_MAX - 2 } else { 0 };
        first.into_iter().map(ByteString::from).chain((0..more).map(|n| format!("{word}{n}").into())).collect()
    };
    let tags = if beside == Beside::ManyTerms { many("x", ["x", "x"]) } else { many("t", ["x", "y"]) };
    let pattern = EventPattern { types: many("type", ["placed", "paid"]), tags };
    let after = (beside != Beside::WholeLog).then(|| head.saturating_sub(1));
    let condition = AppendCondition { fail_if: vec![pattern; limits::PATTERNS_MAX], after };
    let part = |part: usize| spread(&format!("wide-{client}-{part}"), 0).fail_if(condition.clone());
    NewTransaction::new((0..limits::TRANSACTION_COMMITS_MAX).map(part))
}
