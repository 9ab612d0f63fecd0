//! Inserts that another transaction blocks: they are sent again in smaller batches, so that only those wait that must.
//!
//! ```text
//! batch ─▶ limit expired ─▶ not stored: the first alone, the rest in halves ─▶ …
//! ```
//!
//! MongoDB inserts the documents of a command in order and stops at the one that it cannot decide, so the first document that is not
//! stored is usually the blocked one. Others may be blocked too, so the rest is halved each time. A blocked document is resent alone until
//! the other transaction ends or the commit's time is up.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use annals_system::{Instant, sleep};
use tokio::task::JoinSet;

use super::batch::Outcome;
use super::bulk::{Insert, Lane, fly};

/// Maximum number of batches of several documents in flight, and of documents sent alone. The limits are separate, so that blocked
/// documents never delay the others. Together they leave room for reads in a small connection pool.
const FLIGHTS: usize = 4;
/// Pause before a blocked document is sent again, so that a server whose limit expires at once is not called in a tight loop.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(super) struct Blocked {
    pieces: Line,
    alone: Line,
}

/// Batches of one kind: pending and in flight.
#[derive(Default)]
struct Line {
    due: VecDeque<Vec<Insert>>,
    flights: JoinSet<Vec<Insert>>,
}

impl Line {
    fn is_empty(&self) -> bool {
        self.due.is_empty() && self.flights.is_empty()
    }

    fn send(&mut self, lane: &Arc<Lane>, pause: Duration) {
        while self.flights.len() < FLIGHTS
            && let Some(batch) = self.due.pop_front()
        {
            let lane = lane.clone();
            self.flights.spawn(async move {
                sleep(pause).await;
                fly(&lane, batch).await
            });
        }
    }
}

impl Blocked {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.alone.is_empty()
    }

    /// Adds inserts that were not stored when the limit expired.
    pub(super) fn add(&mut self, left: Vec<Insert>) {
        // If the caller is gone, as when the store is closed, the commit is no longer needed, and it is not stored.
        let mut left: Vec<Insert> = left.into_iter().filter(|insert| !insert.answer.is_closed()).collect();
        if left.is_empty() {
            return;
        }
        let mut rest = left.split_off(1);
        self.alone.due.push_back(left);
        let second = rest.split_off(rest.len() / 2);
        self.pieces.due.extend([rest, second].into_iter().filter(|piece| !piece.is_empty()));
    }

    /// Waits until a batch has landed; forever if none is in flight.
    pub(super) async fn landed(&mut self) {
        let left = tokio::select! {
            Some(left) = self.pieces.flights.join_next() => left,
            Some(left) = self.alone.flights.join_next() => left,
            else => std::future::pending().await,
        };
        self.add(left.unwrap_or_default());
    }

    /// Sends pending batches. Inserts that have waited too long are answered: all that is known is that they were not stored.
    pub(super) fn send(&mut self, lane: &Arc<Lane>) {
        let is_late = |batch: &Vec<Insert>| batch.iter().any(|insert| insert.sent_by <= Instant::now());
        for line in [&mut self.pieces, &mut self.alone] {
            while line.due.front().is_some_and(is_late) {
                for insert in line.due.pop_front().into_iter().flatten() {
                    let _ = insert.answer.send(Outcome::Unknown(WAITED.to_owned()));
                }
            }
        }
        self.pieces.send(lane, Duration::ZERO);
        self.alone.send(lane, PAUSE);
    }
}

const WAITED: &str =
    "another transaction holds the next version of the aggregate, or its request id, and has not ended in time";
