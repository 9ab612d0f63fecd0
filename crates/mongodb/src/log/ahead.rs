//! Prefetches pages: a reader that went from one page to the next usually requests the following one, and would wait for the server again.
//!
//! ```text
//! page 0 asked ─▶ page 1 asked: that is a sequence ─▶ pages 2 and 3 are begun ─▶ page 2 asked: it is there, page 4 is begun ─▶ …
//! ```
//!
//! INVARIANT: a page only contains what is in the log, which never changes. A page that may have met the end of the log is never kept,
//! because the end moves. A page that is not requested is dropped after two seconds.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use annals_core::{LogPage, LogQuery, SequenceNumber};
use annals_system::Instant;
use tokio::sync::oneshot;

use super::{Log, read};

/// Pages prefetched for one reader, and for all readers of a log.
const PAGES: u64 = 2;
const PAGES_MAX: usize = 8;
/// Smaller pages are not worth prefetching, and too few larger ones fit into memory.
const EVENTS_MIN: usize = 100;
const BYTES_MAX: usize = 2 * 1024 * 1024;
/// Positions at which readers are expected to resume, by which sequential readers are recognised.
const POSITIONS: usize = 64;
/// How long a page is kept after it was read.
const KEPT: Duration = Duration::from_secs(2);
/// A reader that takes longer for a page gets none prefetched: the second one would expire before it is requested, and reading is fast
/// compared with the reader's own work.
const SOON: Duration = Duration::from_millis(500);
/// How often a prefetched page reads the head of the log; the others use the head that is known.
const ASK_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Ahead(Mutex<State>);

#[derive(Default)]
struct State {
    /// Where readers of whole pages will resume, and since when.
    positions: VecDeque<(SequenceNumber, Instant)>,
    /// Tasks that prefetch a page, by its first number and its limit.
    pages: HashMap<(SequenceNumber, usize), oneshot::Sender<Answer>>,
    /// When a prefetched page last read the head of the log.
    asked: Option<Instant>,
}

type Answer = oneshot::Sender<LogPage>;

impl Ahead {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the page from this number on, if it was prefetched and is full.
    pub(super) async fn take(&self, from: SequenceNumber, limit: usize) -> Option<LogPage> {
        let reader = self.state().pages.remove(&(from, limit))?;
        let (answer, page) = oneshot::channel();
        reader.send(answer).ok()?;
        page.await.ok()
    }

    /// Prefetches the pages that follow the one at `from`, if the log has them and the reader is sequential.
    pub(super) fn begin(&self, log: &Weak<Log>, from: SequenceNumber, limit: usize, head: SequenceNumber) {
        let mut state = self.state();
        let now = Instant::now();
        let goes_on = |(position, since): &(SequenceNumber, Instant)| *position == from && now - *since <= SOON;
        if limit < EVENTS_MIN || !state.positions.iter().any(goes_on) {
            return;
        }
        state.pages.retain(|_, reader| !reader.is_closed());
        for first in (1..=PAGES).map(|page| from + page * limit as u64) {
            if first + limit as u64 > head || state.pages.len() >= PAGES_MAX {
                return;
            }
            if state.pages.contains_key(&(first, limit)) {
                continue;
            }
            let ask = state.asked.is_none_or(|asked| now - asked >= ASK_EVERY);
            if ask {
                state.asked = Some(now);
            }
            state.pages.insert((first, limit), spawn(log.clone(), first, limit, ask));
        }
    }

    /// Records where the reader of the page at `from` will resume.
    pub(super) fn note(&self, from: SequenceNumber, page: &LogPage, limit: usize) {
        let mut state = self.state();
        state.positions.retain(|(position, _)| *position != from);
        if is_kept(page, limit) {
            if state.positions.len() == POSITIONS {
                state.positions.pop_front();
            }
            state.positions.push_back((page.next, Instant::now()));
        }
    }
}

/// Returns whether a page is full, and small enough to be kept.
fn is_kept(page: &LogPage, limit: usize) -> bool {
    let bytes: usize = page.events.iter().map(|event| event.data.as_bytes().len()).sum();
    page.events.len() == limit && bytes <= BYTES_MAX
}

/// Reads a page and keeps it until it is requested. If it cannot be read, is not kept or expires, the requester reads it.
fn spawn(log: Weak<Log>, from: SequenceNumber, limit: usize, ask: bool) -> oneshot::Sender<Answer> {
    let (reader, asked) = oneshot::channel::<Answer>();
    tokio::spawn(async move {
        let query = LogQuery { from: Some(from), limit, ..LogQuery::default() };
        let page = match log.upgrade() {
            Some(log) if !log.is_closed() => log.means.answers.of(read::whole(&log, &query, ask)).await,
            _ => return,
        };
        let kept = page.ok().filter(|page| is_kept(page, limit));
        if let (Some(page), Ok(Ok(answer))) = (kept, tokio::time::timeout(KEPT, asked).await) {
            // The requester may be gone.
            let _ = answer.send(page);
        }
    });
    reader
}
