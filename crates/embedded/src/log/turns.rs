//! The turns of long work on its caller's task. Work that outlasts its first turns waits for one of a few permits, so that much of it at
//! once cannot occupy the runtime's threads.

use tokio::sync::{Semaphore, SemaphorePermit};

use super::core::Core;
use super::stats::give_way;
use crate::turn::Turn;

/// The turns of a read before it needs a permit, and with one permit: a page takes fewer, unless little of what is examined matches.
const READ_TURNS: u32 = 20;

/// The turns of one search or read.
pub(super) struct Turns<'c> {
    permits: &'c Semaphore,
    permit: Option<SemaphorePermit<'c>>,
    turn: Turn,
    /// Further turns before the next permit is needed.
    left: u32,
    /// The turns that one permit lasts.
    lasts: u32,
}

impl<'c> Turns<'c> {
    /// Begins the first turn of a search of append conditions, which keeps its permit to the end: the log changes meanwhile, and what
    /// was added has to be searched too.
    pub(super) fn of_search(core: &'c Core) -> Self {
        Self { permits: &core.searches, permit: None, turn: Turn::begin(), left: 0, lasts: u32::MAX }
    }

    /// Begins the first turn of a read. Reads that take long have their permits in turn.
    pub(super) fn of_read(core: &'c Core) -> Self {
        Self { permits: &core.reads, permit: None, turn: Turn::begin(), left: READ_TURNS, lasts: READ_TURNS }
    }

    /// Yields to other tasks if the turn is over.
    pub(super) async fn give_way(&mut self) {
        if self.turn.is_over() {
            self.end().await;
        }
    }

    /// Yields to other tasks and begins the next turn.
    pub(super) async fn end(&mut self) {
        if self.left == 0 {
            // Released first: the semaphore is fair, so those that wait for a permit get theirs before this one.
            drop(self.permit.take());
            self.permit = self.permits.acquire().await.ok();
            self.left = self.lasts;
        }
        self.left -= 1;
        give_way().await;
        self.turn = Turn::begin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Log;

    #[tokio::test]
    async fn long_reads_have_a_permit_in_turn_and_short_ones_need_none() {
        let log = Log::in_memory();
        let reads = &log.core.reads;
        let all = reads.available_permits();
        let held = reads.acquire_many(all as u32).await.expect("it is open");
        let mut turns = Turns::of_read(&log.core);
        for _ in 0..READ_TURNS {
            turns.end().await;
        }
        tokio::select! {
            biased;
            () = turns.end() => panic!("there is no permit"),
            () = std::future::ready(()) => {}
        }
        drop(held);
        // What was cancelled has left the queue.
        let all_but_one = reads.acquire_many(all as u32 - 1).await.expect("it is open");
        turns.end().await;
        assert_eq!(reads.available_permits(), 0);
        let mut other = Turns::of_read(&log.core);
        other.left = 0;
        let others = async move {
            other.end().await;
        };
        let own = async {
            for _ in 0..=READ_TURNS {
                turns.end().await;
            }
        };
        tokio::join!(own, others);
        drop((turns, all_but_one));
        assert_eq!(reads.available_permits(), all);
    }
}
