//! The open connections, and which of them make room when there is none left.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::reader::Reader;

/// A connection whose turn it was for so long makes room for a new one.
pub(crate) const IDLE_MIN: Duration = Duration::from_secs(1);
/// A connection whose client trickles for so long does too, where none is idle.
const TRICKLE_MIN: Duration = Duration::from_secs(2);
/// A client that took nothing of its answers for so long is sent away when the memory for answers is used up.
const UNREAD_MIN: Duration = Duration::from_secs(2);
/// So many make room at once, so that many new ones need not each look for one.
const AT_ONCE: usize = 64;

/// The open connections of a server. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Connections(Arc<All>);

#[derive(Default)]
struct All {
    open: Mutex<HashMap<u64, Arc<Reader>>>,
    next: AtomicU64,
    ended: Notify,
    pressed: Notify,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connections({})", self.open().len())
    }
}

/// A connection that is open until this is dropped.
pub(crate) struct Open {
    all: Connections,
    key: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.all.open().remove(&self.key);
        self.all.0.ended.notify_waiters();
    }
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Reader>>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection.
    pub fn enter(&self, reader: Arc<Reader>) -> Open {
        let key = self.0.next.fetch_add(1, Ordering::Relaxed);
        self.open().insert(key, reader);
        Open { all: self.clone(), key }
    }

    /// Sends the connections away that have been idle longest: those that say nothing, and those that do not finish a request. Where
    /// there are none, those that send a byte now and then.
    pub fn make_room(&self) {
        let mut leave = self.of(|reader| reader.idle_for().filter(|idle| *idle >= IDLE_MIN));
        if leave.is_empty() {
            leave = self.of(trickling);
        }
        leave.sort_unstable_by_key(|(time, _)| std::cmp::Reverse(*time));
        leave.iter().take(AT_ONCE).for_each(|(_, reader)| reader.evict());
    }

    /// The connections of which this is some time.
    fn of(&self, time: impl Fn(&Reader) -> Option<Duration>) -> Vec<(Duration, Arc<Reader>)> {
        let open = self.open();
        open.values().filter_map(|reader| Some((time(reader.as_ref())?, Arc::clone(reader)))).collect()
    }

    /// Sends the connections away that do not read their answers, and those that do not finish their requests.
    pub fn free_memory(&self) {
        let waits = |reader: &&Arc<Reader>| {
            let idle = reader.idle_for().is_some_and(|idle| idle >= IDLE_MIN);
            idle || trickling(reader).is_some() || reader.unread_for() >= UNREAD_MIN
        };
        self.open().values().filter(waits).for_each(|reader| reader.evict());
    }

    /// Asks for memory to be freed.
    pub fn press(&self) {
        self.0.pressed.notify_one();
    }

    /// Waits until memory is asked for.
    pub async fn pressed(&self) {
        self.0.pressed.notified().await;
    }

    /// Waits until a connection ends, from this call on.
    pub fn ended(&self) -> Notified<'_> {
        self.0.ended.notified()
    }

    pub fn is_empty(&self) -> bool {
        self.open().is_empty()
    }
}

/// How long a client has trickled, if that is long enough.
fn trickling(reader: &Reader) -> Option<Duration> {
    reader.trickles_for().filter(|time| *time >= TRICKLE_MIN)
}
