//! Pages that are read before they are asked for: whoever went on from one page to the next mostly asks for the one behind it, and would
//! wait for the server again.
//!
//! ```text
//! page 0 asked ─▶ page 1 asked: that is a sequence ─▶ pages 2 and 3 are begun ─▶ page 2 asked: it is there, page 4 is begun ─▶ …
//! ```
//!
//! Invariants: a page says what is in the log, and that does not change; one that may have met the end of the log is never kept, because
//! the end moves. What nobody asks for is forgotten two seconds after it was read.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use annals_core::{LogPage, LogQuery, SequenceNumber};
use annals_system::Instant;
use tokio::sync::oneshot;

use super::{Log, read};

/// Pages begun ahead of one reader, and of all readers of a log.
const PAGES: u64 = 2;
const PAGES_MAX: usize = 8;
/// Smaller pages are not worth it, and of larger ones too few fit into memory.
const EVENTS_MIN: usize = 100;
const BYTES_MAX: usize = 2 * 1024 * 1024;
/// Positions that readers were told to go on from, by which it is known that they do.
const POSITIONS: usize = 64;
/// How long a page is kept once it is read.
const KEPT: Duration = Duration::from_secs(2);
/// Who takes longer for a page gets none ahead: the second one would not be kept until it is asked for, and reading one takes little beside
/// what is done with it.
const SOON: Duration = Duration::from_millis(500);
/// How often pages that are begun ahead ask how far the log has come; the others tell what is known.
const ASK_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Ahead(Mutex<State>);

#[derive(Default)]
struct State {
    /// Where readers of whole pages stand, and since when.
    positions: VecDeque<(SequenceNumber, Instant)>,
    /// Who reads a page, by its first number and its limit.
    pages: HashMap<(SequenceNumber, usize), oneshot::Sender<Answer>>,
    /// When a page ahead last asked how far the log has come.
    asked: Option<Instant>,
}

type Answer = oneshot::Sender<LogPage>;

impl Ahead {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The page from this number on, if it was begun and is full.
    pub(super) async fn take(&self, from: SequenceNumber, limit: usize) -> Option<LogPage> {
        let reader = self.state().pages.remove(&(from, limit))?;
        let (answer, page) = oneshot::channel();
        reader.send(answer).ok()?;
        page.await.ok()
    }

    /// Begins what comes behind the page from this number on, if the log has it and the page was asked for in a sequence.
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

    /// Takes note of where the reader of this page, which begins at `from`, goes on.
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

/// Whether a page is full, and small enough to be kept.
fn is_kept(page: &LogPage, limit: usize) -> bool {
    let bytes: usize = page.events.iter().map(|event| event.data.as_bytes().len()).sum();
    page.events.len() == limit && bytes <= BYTES_MAX
}

/// Reads a page and keeps it until it is asked for. Where it cannot be read or is not kept, and where nobody asks in time, whoever asks
/// reads it.
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
            // Who asked may have gone away.
            let _ = answer.send(page);
        }
    });
    reader
}
