//! Measures the commit latency of other clients, with and without concurrent append conditions of the greatest width that the limits
//! allow.
//!
//! No event matches a pattern, but the index cannot show it: some commits have all tags of the pattern, but none of their events does. So
//! each condition decodes all commits that the index names, which is half of the log for a condition on the whole log.

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

/// Commits of each kind in the log before the measurement: with few tags, and with as many as the limits allow.
const COMMITS: u64 = 20_000;
/// The tags of a pattern of few tags, which a commit has on different events.
const FEW: [&str; 2] = ["x", "y"];
/// The last tags of a pattern of many tags, which a commit has on different events. Both events have the tags before them.
const MANY: [&str; 2] = ["many-x", "many-y"];
/// Clients with small commits, whose latency is measured.
const OTHERS: u64 = 8;
/// Clients with wide conditions.
const WIDE: u64 = 8;
const SECONDS: Duration = Duration::from_secs(4);
const ROUNDS: usize = 3;

/// What the clients with wide conditions send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nobody,
    /// Conditions on the whole log.
    WholeLog,
    /// Conditions on what follows the last commit, which the log's writer has to check.
    SinceTheLast,
    /// Conditions on the whole log with as many types and tags in each pattern as the limits allow. The tag that rules an event out is
    /// the last in each.
    ManyTerms,
    /// The same with types and tags as long as the limits allow, most of which no event has: the largest request, of some 23 MB.
    LongTerms,
}

impl Beside {
    const ALL: [Self; 5] = [Self::Nobody, Self::WholeLog, Self::SinceTheLast, Self::ManyTerms, Self::LongTerms];
}

/// Runs the measurement and prints it.
pub async fn run() -> Result<(), String> {
    let folder = tempfile::tempdir_in(".").map_err(|error| error.to_string())?;
    let store = library::open(folder.path())?;
    let log = library::log(&store)?;
    fill(&log).await?;
    println!(
        "| beside | commits/s of others | p50 ms | p99 ms | longest ms | wide transactions/s |\n|---|---|---|---|---|---|"
    );
    for _ in 0..ROUNDS {
        for beside in Beside::ALL {
            measure(&log, beside).await?;
        }
    }
    store.close().await;
    Ok(())
}

/// Commits what the conditions are about.
pub async fn fill(log: &Arc<dyn EventLog>) -> Result<(), String> {
    let mut filling = JoinSet::new();
    for client in 0..64 {
        let log = Arc::clone(log);
        filling.spawn(async move {
            for n in (client..COMMITS).step_by(64) {
                log.commit(of_few_tags("filled", n)).await.map_err(|error| error.to_string())?;
                log.commit(of_many_tags("crowded", n)).await.map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(())
        });
    }
    while let Some(filled) = filling.join_next().await {
        filled.map_err(|error| error.to_string())??;
    }
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
                // A refusal as overloaded counts the same as success: only the load of the client matters.
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
                log.commit(of_few_tags("other", client)).await.map_err(|error| error.to_string())?;
                took.push(begun.elapsed());
                // A pause, as in clients that also do other work.
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

/// Returns a commit with the tags of a pattern of few tags.
fn of_few_tags(name: &str, n: u64) -> NewCommit {
    spread(name, n, &[], FEW)
}

/// Returns a commit with the tags of a pattern of many tags.
fn of_many_tags(name: &str, n: u64) -> NewCommit {
    spread(name, n, &numbered("many", 0), MANY)
}

/// Returns a commit of two events, each of which has the tags `common` and one of `last`.
fn spread(name: &str, n: u64, common: &[ByteString], last: [&'static str; 2]) -> NewCommit {
    let event = |kind: &'static str, tag: &'static str| {
        let event = NewEvent::new(kind, Data::empty());
        common.iter().fold(event, |event, tag| event.tag(tag.clone())).tag(tag)
    };
    NewCommit::new("order", format!("{name}-{n}")).event(event("placed", last[0])).event(event("paid", last[1]))
}

/// Returns two fewer types or tags than a pattern may have, each of at least this many bytes.
fn numbered(word: &str, bytes: usize) -> Vec<ByteString> {
    let width = bytes.saturating_sub(word.len());
    (0..limits::TAGS_MAX - 2).map(|n| format!("{word}{n:0>width$}").into()).collect()
}

/// Returns a transaction with as many conditions and patterns as the limits allow, on a log with this head. Each pattern has a type of its
/// own, so no two are equal, and each has to be compared.
pub fn transaction(beside: Beside, client: u64, head: u64) -> NewTransaction {
    let many = beside == Beside::ManyTerms;
    let terms = |word: &str, longest: usize, last: [&'static str; 2]| -> Vec<ByteString> {
        let first = match beside {
            Beside::ManyTerms => numbered(word, 0),
            Beside::LongTerms => numbered(word, longest),
            Beside::Nobody | Beside::WholeLog | Beside::SinceTheLast => Vec::new(),
        };
        first.into_iter().chain(last.map(ByteString::from)).collect()
    };
    let tags = terms("many", limits::TAG_BYTES_MAX, if many { MANY } else { FEW });
    let types = terms("type", limits::NAME_BYTES_MAX, ["placed", "paid"]);
    let width = if beside == Beside::LongTerms { limits::NAME_BYTES_MAX - "own".len() } else { 0 };
    let pattern = |n: usize| {
        let own = ByteString::from(format!("own{n:0>width$}"));
        // One of the numbered ones makes room for it.
        let others = types.iter().skip(usize::from(types.len() == limits::TAGS_MAX)).cloned();
        EventPattern { types: others.chain([own]).collect(), tags: tags.clone() }
    };
    let after = (beside == Beside::SinceTheLast).then(|| head.saturating_sub(1));
    let commit: fn(&str, u64) -> NewCommit = if many { of_many_tags } else { of_few_tags };
    let part = |part: usize| {
        let first = part * limits::PATTERNS_MAX;
        let fail_if = (first..first + limits::PATTERNS_MAX).map(pattern).collect();
        commit(&format!("wide-{client}-{part}"), 0).fail_if(AppendCondition { fail_if, after })
    };
    NewTransaction::new((0..limits::TRANSACTION_COMMITS_MAX).map(part))
}
