//! Filling a stream by the definition alone, or by a function in this process.

use std::sync::Arc;
use std::time::Duration;

use annals_core::handlers::DeliveryFailure;
use annals_core::{ReadError, SequenceNumber, StoreError, Timestamp};

use super::change::Evaluation;
use super::owner::{Stop, Work, superseded};
use super::source::Run;
use crate::host::{is_set, reached};

/// Evaluates events until something stops the owner.
pub(super) async fn run(work: &mut Work<'_>) -> Stop {
    // Everything below it has been evaluated; the part that is not stored yet has no entries.
    let mut evaluated = work.progress;
    loop {
        match turn(work, &mut evaluated).await {
            Ok(()) => {}
            Err(stop @ (Stop::Done | Stop::Given(_))) => {
                let _ = store(work, evaluated).await;
                return stop;
            }
            Err(stop) => return stop,
        }
    }
}

async fn turn(work: &mut Work<'_>, evaluated: &mut SequenceNumber) -> Result<(), Stop> {
    let clock = Arc::clone(&work.clock);
    let now = clock.now();
    work.keep_lease().await?;
    work.notice(now);
    if now >= work.store_at() {
        store(work, *evaluated).await?;
    }
    let reads = work.may_attempt(now);
    let next_look = next_look(work, *evaluated, now);
    let mut stop = work.owner.filters.shared.stop.subscribe();
    let mut changed = work.owner.slot.changed.subscribe();
    let found = tokio::select! {
        biased;
        () = is_set(&mut stop) => return Err(Stop::Done),
        () = superseded(&mut changed, work.change()) => return Err(Stop::Again),
        () = work.until_called_off() => return Ok(()),
        found = work.source.step(*evaluated, &*clock), if reads => found,
        () = reached(&*clock, now, next_look) => return Ok(()),
    };
    match found {
        Ok(run) => evaluate(work, evaluated, run).await,
        Err(ReadError::Store(StoreError::Closed)) => Err(Stop::Closed),
        Err(error) => Err(Stop::Failed(error.to_string())),
    }
}

/// Stores a progress without entries.
async fn store(work: &mut Work<'_>, evaluated: SequenceNumber) -> Result<(), Stop> {
    if evaluated > work.progress { work.append(evaluated, Vec::new()).await } else { Ok(()) }
}

/// Evaluates a page, and appends the included events.
async fn evaluate(work: &mut Work<'_>, evaluated: &mut SequenceNumber, run: Run) -> Result<(), Stop> {
    let function = work.function.clone();
    let evaluation = Evaluation::new(&work.definition, function.as_deref());
    let (mut included, mut failed) = (Vec::new(), None);
    for (_, event) in &run.events {
        match evaluation.entry(event) {
            Ok(entry) => included.extend(entry),
            Err(reason) => {
                failed = Some((event.sequence_number, DeliveryFailure { reason, retry_after_ms: None, never: false }));
                break;
            }
        }
    }
    let to = failed.as_ref().map_or(run.next, |(at, _)| *at);
    if !included.is_empty() {
        work.append(to, included).await?;
    }
    *evaluated = to;
    match failed {
        Some((at, failure)) => work.failed(at, &failure).await,
        None => work.succeeded().await,
    }
}

fn next_look(work: &Work<'_>, evaluated: SequenceNumber, now: Timestamp) -> Timestamp {
    let stores = (evaluated > work.progress).then(|| work.store_at());
    let retry = work.failure.as_ref().and_then(annals_core::filters::FilterFailureRecord::retry_at);
    let looks = [stores, retry];
    let first = looks.into_iter().flatten().filter(|at| *at > now).min();
    first.unwrap_or(now.plus(Duration::from_secs(3600)))
}
