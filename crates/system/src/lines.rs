//! Lines in which tasks wait until the head of a named thing, such as a stream, moves. A task is only woken when its own head moves.
//! Nothing is kept for a name without waiting tasks.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use annals_core::ByteString;
use tokio::sync::watch;

/// The lines of all names for which tasks wait.
#[derive(Debug, Default)]
pub struct Lines(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    of: HashMap<ByteString, watch::Sender<Seen>>,
    closed: bool,
}

/// The state that the tasks of a line watch.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// The highest head since the line was created.
    head: u64,
    closed: bool,
}

/// A task's place in a line. The line is removed with its last place.
#[derive(Debug)]
pub struct InLine<'l> {
    lines: &'l Lines,
    name: &'l str,
    seen: watch::Receiver<Seen>,
}

impl Lines {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the tasks that wait for this name past a lower head.
    pub fn moved(&self, name: &str, head: u64) {
        if let Some(line) = self.state().of.get(name) {
            line.send_modify(|seen| seen.head = head.max(seen.head));
        }
    }

    /// Wakes every task. Later tasks do not wait.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.of.values().for_each(|line| line.send_modify(|seen| seen.closed = true));
    }

    /// Joins a line. The caller reads the head afterwards, so that it misses no move between the read and the wait.
    pub fn join<'l>(&'l self, name: &'l str) -> InLine<'l> {
        let mut state = self.state();
        let seen = Seen { head: 0, closed: state.closed };
        let line = state.of.entry(name.into()).or_insert_with(|| watch::Sender::new(seen));
        InLine { lines: self, name, seen: line.subscribe() }
    }
}

impl InLine<'_> {
    /// Waits until the head is greater than `head` and returns it, or returns `None` once the lines are closed.
    pub async fn past(&mut self, head: u64) -> Option<u64> {
        let seen = self.seen.wait_for(|seen| seen.closed || seen.head > head).await;
        seen.ok().map(|seen| seen.head).filter(|seen| *seen > head)
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let mut state = self.lines.state();
        // This place is still counted.
        if state.of.get(self.name).is_some_and(|line| line.receiver_count() <= 1) {
            state.of.remove(self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_is_woken_by_its_own_head_and_nothing_is_kept_once_nobody_waits() {
        let lines = Lines::default();
        lines.moved("s", 3);
        assert!(lines.state().of.is_empty(), "nobody waits");
        let (mut first, mut second) = (lines.join("s"), lines.join("s"));
        let moving = async {
            tokio::task::yield_now().await;
            assert_eq!(lines.state().of.len(), 1);
            lines.moved("other", 9);
            lines.moved("s", 4);
            lines.moved("s", 5);
        };
        assert_eq!(tokio::join!(first.past(3), second.past(4), moving), (Some(5), Some(5), ()));
        drop((first, second));
        assert!(lines.state().of.is_empty());
    }

    #[tokio::test]
    async fn closing_wakes_those_that_wait_and_those_that_come_later() {
        let lines = Lines::default();
        let mut before = lines.join("s");
        let closing = async {
            tokio::task::yield_now().await;
            lines.close();
        };
        assert_eq!(tokio::join!(before.past(0), closing), (None, ()));
        assert_eq!(lines.join("s").past(0).await, None);
    }
}
