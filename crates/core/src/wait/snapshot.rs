//! Waiting for the snapshot of a commit's aggregate.

use std::pin::pin;
use std::task::Poll;

use crate::{Aggregate, CommitOutcome, Snapshots};

/// Waits until the snapshot of this aggregate has reached the commit of this outcome, or the time is up, and notes in the outcome which it
/// was. It is no condition: where snapshots cannot be read, the snapshot was not reached.
pub async fn until_snapshot(
    outcome: &mut CommitOutcome,
    aggregate: &Aggregate,
    snapshots: &dyn Snapshots,
    time_is_up: impl Future<Output = ()>,
) {
    let (mut reached, mut time_is_up) = (pin!(snapshots.until(aggregate, outcome.version)), pin!(time_is_up));
    let came = std::future::poll_fn(|context| match reached.as_mut().poll(context) {
        Poll::Ready(reached) => Poll::Ready(reached.is_ok()),
        Poll::Pending => time_is_up.as_mut().poll(context).map(|()| false),
    });
    outcome.snapshot = came.await;
}
