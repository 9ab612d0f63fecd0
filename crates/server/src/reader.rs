//! The state of one connection: what its client has not read, what the client is expected to send, and how the connection is closed.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use annals_system::{Instant, sleep};
use tokio::sync::{MutexGuard, Notify};

use crate::connections::Connections;
use crate::options::Options;
use crate::unread::{Answer, HeldBytes, Unread, Watched};

/// While a connection holds this many bytes of responses, its further requests wait. A single response may be larger.
const CONNECTION_BYTES_MAX: usize = 32 * 1024 * 1024;
/// A client trickles if, while it is its turn to send, it sends fewer bytes per second than this, averaged over at least
/// [`RATE_OVER_MS`].
pub(crate) const TRICKLE_BYTES_A_SECOND: u64 = 1_024;
/// The period in milliseconds after which the average restarts for a client that is fast enough.
const RATE_OVER_MS: u64 = 2_000;
/// While a connection holds this many bytes, no more is read from its streams.
const CONNECTION_STREAMED_MAX: usize = 4 * 1024 * 1024;

tokio::task_local! {
    /// The connection that the current request came over.
    pub(crate) static READER: Arc<Reader>;
}

/// Returns the milliseconds since the first call.
pub(crate) fn millis() -> u64 {
    static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(EPOCH.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The client of one connection.
pub(crate) struct Reader {
    unread: Unread,
    unread_max: usize,
    connections: Connections,
    write_wait_max: Duration,
    /// The unread bytes that this connection holds.
    bytes: AtomicUsize,
    freed: Notify,
    /// The HTTP/2 responses, whose waiting times are tracked separately.
    watched: Mutex<Watched>,
    begun: Notify,
    turns: tokio::sync::Mutex<()>,
    /// When the client last sent something, or read the end of a response.
    heard_at: AtomicU64,
    /// When the client's turn began: to send the headers of a request, and then its body.
    turn_at: AtomicU64,
    /// The bytes received since then.
    turn_bytes: AtomicU64,
    /// The bytes received in total.
    sent: AtomicU64,
    /// When the client last read something.
    took_at: AtomicU64,
    /// Requests that are not answered yet, or whose responses are unread.
    busy: AtomicUsize,
    /// How many of them wait for the rest of their bodies.
    awaiting: AtomicUsize,
    /// Whether the client follows events over HTTP/1.
    follows: AtomicBool,
    ends: Notify,
    evicted: Notify,
    /// The client's address.
    peer: Option<SocketAddr>,
    /// The subject of the client's certificate, once the handshake has verified it.
    subject: OnceLock<String>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({} bytes)", self.bytes.load(Ordering::Relaxed))
    }
}

impl Reader {
    /// Creates the state of a new connection.
    pub fn new(options: &Options, peer: Option<SocketAddr>) -> Arc<Self> {
        Arc::new(Self {
            unread: options.unread.clone(),
            unread_max: options.answer_bytes_in_flight_max,
            connections: options.connections.clone(),
            write_wait_max: options.write_wait_max,
            bytes: AtomicUsize::new(0),
            freed: Notify::new(),
            watched: Mutex::default(),
            begun: Notify::new(),
            turns: tokio::sync::Mutex::new(()),
            heard_at: AtomicU64::new(millis()),
            turn_at: AtomicU64::new(millis()),
            turn_bytes: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            took_at: AtomicU64::new(millis()),
            busy: AtomicUsize::new(0),
            awaiting: AtomicUsize::new(0),
            follows: AtomicBool::new(false),
            ends: Notify::new(),
            evicted: Notify::new(),
            peer,
            subject: OnceLock::new(),
        })
    }

    /// Returns the client's address.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Returns the subject of the client's certificate.
    pub fn subject(&self) -> Option<&str> {
        self.subject.get().map(String::as_str)
    }

    /// Records the subject of the client's verified certificate.
    pub fn certified(&self, subject: String) {
        let _ = self.subject.set(subject);
    }

    /// Returns how long a write may wait for the client.
    pub fn write_wait_max(&self) -> Duration {
        self.write_wait_max
    }

    /// Returns how many bytes the client has sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Records that the client sent this many bytes.
    pub fn heard(&self, bytes: usize) {
        let now = millis();
        self.heard_at.store(now, Ordering::Relaxed);
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
        let sent = self.turn_bytes.fetch_add(bytes as u64, Ordering::Relaxed).saturating_add(bytes as u64);
        let since = now.saturating_sub(self.turn_at.load(Ordering::Relaxed));
        // A fast start must not make up for a slow rest.
        if since >= RATE_OVER_MS && sent.saturating_mul(1_000) >= since.saturating_mul(TRICKLE_BYTES_A_SECOND) {
            self.turn_at.store(now, Ordering::Relaxed);
            self.turn_bytes.store(0, Ordering::Relaxed);
        }
    }

    /// Records that a new turn of the client begins.
    fn begin_turn(&self) {
        let now = millis();
        self.heard_at.store(now, Ordering::Relaxed);
        self.turn_at.store(now, Ordering::Relaxed);
        self.turn_bytes.store(0, Ordering::Relaxed);
    }

    /// Records that the client read something.
    pub fn took(&self) {
        self.took_at.store(millis(), Ordering::Relaxed);
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.unread.add(bytes);
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.took();
            self.begun.notify_one();
        }
    }

    pub(crate) fn sub(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.freed.notify_waiters();
        self.unread.sub(bytes);
    }

    /// Returns whether a response of this size may be held for the client.
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        let (own, all) = (self.bytes.load(Ordering::Relaxed), self.unread.bytes());
        let fits = |held: usize, max: usize| held == 0 || held.saturating_add(bytes) <= max;
        fits(own, CONNECTION_BYTES_MAX) && fits(all, self.unread_max)
    }

    /// Counts the data of a page until a response has been written from it. Returns `None` if there is no room among all responses.
    pub(crate) fn hold_page(&self, bytes: usize) -> Option<HeldBytes> {
        let held = self.unread.hold_below(self.unread_max, bytes);
        if held.is_none() {
            self.presses();
        }
        held
    }

    /// Returns whether more may be read from a stream of this connection.
    pub(crate) fn has_room_to_stream(&self) -> bool {
        let own = self.bytes.load(Ordering::Relaxed);
        own == 0 || (own < CONNECTION_STREAMED_MAX && self.unread.bytes() < self.unread_max)
    }

    /// Waits until more may be read from a stream of this connection.
    pub(crate) async fn room_to_stream(&self) {
        loop {
            let (freed, own) = (self.freed.notified(), self.bytes.load(Ordering::Relaxed));
            if self.has_room_to_stream() {
                return;
            }
            if own >= CONNECTION_STREAMED_MAX {
                freed.await;
            } else {
                tokio::select! {
                    () = freed => {}
                    () = self.unread.room(self.unread_max) => {}
                }
            }
        }
    }

    /// Waits until the client has read enough of its earlier responses.
    pub async fn room(&self) {
        loop {
            let freed = self.freed.notified();
            if self.bytes.load(Ordering::Relaxed) < CONNECTION_BYTES_MAX {
                return;
            }
            freed.await;
        }
    }

    /// Waits for the turn to build a large response again.
    pub async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turns.lock().await
    }

    /// Waits until the connection holds at most half of its limit, so that there is room for a page.
    pub async fn until_read(&self) {
        loop {
            let freed = self.freed.notified();
            if self.bytes.load(Ordering::Relaxed) <= CONNECTION_BYTES_MAX / 2 {
                break;
            }
            freed.await;
        }
    }

    /// Reports memory pressure, so that clients that do not read are disconnected.
    pub(crate) fn presses(&self) {
        self.connections.press();
    }

    pub(crate) fn watch(&self, answer: &Arc<Answer>) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.len() == watched.capacity() {
            watched.retain(|answer| answer.strong_count() > 0);
        }
        watched.push(Arc::downgrade(answer));
    }

    /// Returns how long the client has read nothing: the longest wait of an HTTP/2 response, or over HTTP/1 the time since its last read.
    pub(crate) fn unread_for(&self) -> Duration {
        if self.bytes.load(Ordering::Relaxed) == 0 {
            return Duration::ZERO;
        }
        let now = millis();
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|answer| answer.strong_count() > 0);
        let longest = watched.iter().filter_map(|answer| Some(answer.upgrade()?.waits_for(now))).max();
        // HTTP/1 has one response at a time, and every write of it is progress.
        longest.unwrap_or_else(|| Duration::from_millis(now.saturating_sub(self.took_at.load(Ordering::Relaxed))))
    }

    /// Waits until the connection must be cut, and returns why: a response was unread for too long, or its place is needed.
    pub async fn gone(&self) -> &'static str {
        tokio::select! {
            () = self.evicted() => "evicted to make room for another connection",
            () = self.stalled() => "the client did not read a response",
        }
    }

    /// Waits until the connection must be cut because its place is needed.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }

    async fn stalled(&self) {
        loop {
            self.begun.notified().await;
            while self.bytes.load(Ordering::Relaxed) > 0 {
                sleep(self.write_wait_max / 4).await;
                // Followers over HTTP/1 first get a last event; `WireGuard` enforces the deadline for it.
                if !self.is_follower() && self.unread_for() > self.write_wait_max {
                    return;
                }
            }
        }
    }

    /// Marks the connection as a follower over HTTP/1. If it does not read, its stream ends with an event that says so.
    pub(crate) fn follows(&self) {
        self.follows.store(true, Ordering::Relaxed);
    }

    /// Returns whether the connection is a follower over HTTP/1.
    pub fn is_follower(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
    }

    /// Lets the connection end after the response in flight.
    pub(crate) fn end_soon(&self) {
        self.ends.notify_one();
    }

    /// Waits until the connection should end after the response in flight.
    pub async fn ends(&self) {
        self.ends.notified().await;
    }

    /// Cuts the connection.
    pub fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Counts a request as in progress until the guard is dropped.
    pub fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        self.begin_turn();
        Busy(Arc::clone(self))
    }

    /// Counts a request as waiting for the rest of its body until the guard is dropped.
    pub fn awaits_body(self: &Arc<Self>) -> Awaiting {
        self.awaiting.fetch_add(1, Ordering::Relaxed);
        Awaiting(Arc::clone(self))
    }

    /// Returns how long nothing has been received although it is the client's turn, or `None` while the server works on a request.
    pub fn idle_for(&self) -> Option<Duration> {
        let since = self.heard_at.load(Ordering::Relaxed);
        (!self.is_at_work()).then(|| Duration::from_millis(millis().saturating_sub(since)))
    }

    /// Returns for how long the client has trickled while it was its turn, far below the rate of any real upload. Without this, a client
    /// could keep its connection from ever being idle with a byte now and then.
    pub fn trickles_for(&self) -> Option<Duration> {
        let millis = millis().saturating_sub(self.turn_at.load(Ordering::Relaxed));
        let bytes = self.turn_bytes.load(Ordering::Relaxed);
        let trickles = bytes.saturating_mul(1_000) < millis.saturating_mul(TRICKLE_BYTES_A_SECOND);
        (trickles && !self.is_at_work()).then(|| Duration::from_millis(millis))
    }

    /// Returns whether a request waits for the server.
    fn is_at_work(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > self.awaiting.load(Ordering::Relaxed)
    }
}

/// A request in progress.
pub(crate) struct Busy(Arc<Reader>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.begin_turn();
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request that waits for the rest of its body.
pub(crate) struct Awaiting(Arc<Reader>);

impl Drop for Awaiting {
    fn drop(&mut self) {
        self.0.awaiting.fetch_sub(1, Ordering::Relaxed);
    }
}
