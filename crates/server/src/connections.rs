//! The open connections, and the choice of those to close when there is no room for new ones.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::reader::Reader;

/// A connection that has been idle for this long, while it is the client's turn to send, may be closed to make room.
pub(crate) const IDLE_MIN: Duration = Duration::from_secs(1);
/// If no connection is idle, one whose client has trickled for this long is closed.
const TRICKLE_MIN: Duration = Duration::from_secs(2);
/// When the memory for responses is used up, a client that has read nothing of its responses for this long is disconnected.
const UNREAD_MIN: Duration = Duration::from_secs(2);
/// How many connections are closed at once, so that a burst of new ones does not start a search for each.
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

    /// Registers a connection.
    pub fn enter(&self, reader: Arc<Reader>) -> Open {
        let key = self.0.next.fetch_add(1, Ordering::Relaxed);
        self.open().insert(key, reader);
        Open { all: self.clone(), key }
    }

    /// Closes the connections that have been idle longest: those that send nothing, and those that do not complete a request. If there
    /// are none, closes those that trickle.
    pub fn make_room(&self) {
        let mut leave = self.of(|reader| reader.idle_for().filter(|idle| *idle >= IDLE_MIN));
        if leave.is_empty() {
            leave = self.of(trickling);
        }
        leave.sort_unstable_by_key(|(time, _)| std::cmp::Reverse(*time));
        leave.iter().take(AT_ONCE).for_each(|(_, reader)| reader.evict());
    }

    /// Returns the connections for which `time` returns a duration, with that duration.
    fn of(&self, time: impl Fn(&Reader) -> Option<Duration>) -> Vec<(Duration, Arc<Reader>)> {
        let open = self.open();
        open.values().filter_map(|reader| Some((time(reader.as_ref())?, Arc::clone(reader)))).collect()
    }

    /// Closes the connections whose clients do not read their responses, and those that do not complete their requests.
    pub fn free_memory(&self) {
        let waits = |reader: &&Arc<Reader>| {
            let idle = reader.idle_for().is_some_and(|idle| idle >= IDLE_MIN);
            idle || trickling(reader).is_some() || reader.unread_for() >= UNREAD_MIN
        };
        self.open().values().filter(waits).for_each(|reader| reader.evict());
    }

    /// Requests that memory be freed.
    pub fn press(&self) {
        self.0.pressed.notify_one();
    }

    /// Waits until memory is requested.
    pub async fn pressed(&self) {
        self.0.pressed.notified().await;
    }

    /// Returns a future that resolves at the next end of a connection after this call.
    pub fn ended(&self) -> Notified<'_> {
        self.0.ended.notified()
    }

    pub fn is_empty(&self) -> bool {
        self.open().is_empty()
    }
}

/// Returns how long a client has trickled, if that is long enough to close its connection.
fn trickling(reader: &Reader) -> Option<Duration> {
    reader.trickles_for().filter(|time| *time >= TRICKLE_MIN)
}
