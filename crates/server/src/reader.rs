//! One connection and its client: what the client has not read, what it is waited for, and how it is sent away.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use annals_system::{Instant, sleep};
use tokio::sync::{MutexGuard, Notify};

use crate::connections::Connections;
use crate::options::Options;
use crate::unread::{Answer, Unread, Watched};

/// A connection is served no further request while it holds so many bytes of answers; one answer may be larger.
const CONNECTION_BYTES_MAX: usize = 32 * 1024 * 1024;
/// A client whose turn it is trickles if it sends fewer bytes in a second than this, on average over at least [`RATE_OVER_MS`].
pub(crate) const TRICKLE_BYTES_A_SECOND: u64 = 1_024;
/// Over how many milliseconds the rate of a client is averaged that is fast enough.
const RATE_OVER_MS: u64 = 2_000;
/// Streams of a connection are asked for nothing while it holds so many.
const CONNECTION_STREAMED_MAX: usize = 4 * 1024 * 1024;

tokio::task_local! {
    /// The connection that the request came over.
    pub(crate) static READER: Arc<Reader>;
}

/// Milliseconds since the first call.
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
    /// What this connection holds of the unread bytes.
    bytes: AtomicUsize,
    freed: Notify,
    /// Answers of HTTP/2 that may wait for their reader, whatever the other answers of the connection do.
    watched: Mutex<Watched>,
    begun: Notify,
    turns: tokio::sync::Mutex<()>,
    /// When the client last sent something, or got the last of an answer.
    heard_at: AtomicU64,
    /// Since when it has been the client's turn: to send the headers of a request, and then its body.
    turn_at: AtomicU64,
    /// The bytes that it has sent since.
    turn_bytes: AtomicU64,
    /// The bytes that it has sent in all.
    sent: AtomicU64,
    /// When the client last took something.
    took_at: AtomicU64,
    /// Requests that were not answered yet, or whose answer is not read.
    busy: AtomicUsize,
    /// How many of them wait for the rest of their bodies.
    awaiting: AtomicUsize,
    /// It follows events, on HTTP/1.
    follows: AtomicBool,
    ends: Notify,
    evicted: Notify,
    /// Where the client is.
    peer: Option<SocketAddr>,
    /// The subject of its certificate, once the handshake has checked one.
    subject: OnceLock<String>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({} bytes)", self.bytes.load(Ordering::Relaxed))
    }
}

impl Reader {
    /// A new connection of a server with these options.
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

    /// The address of the client.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// The subject of the client's certificate.
    pub fn subject(&self) -> Option<&str> {
        self.subject.get().map(String::as_str)
    }

    /// Notes the subject of the client's certificate, which was checked.
    pub fn certified(&self, subject: String) {
        let _ = self.subject.set(subject);
    }

    /// How long a write may wait for it.
    pub fn write_wait_max(&self) -> Duration {
        self.write_wait_max
    }

    /// How many bytes the client has sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Notes that the client sent so many bytes.
    pub fn heard(&self, bytes: usize) {
        let now = millis();
        self.heard_at.store(now, Ordering::Relaxed);
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
        let sent = self.turn_bytes.fetch_add(bytes as u64, Ordering::Relaxed).saturating_add(bytes as u64);
        let since = now.saturating_sub(self.turn_at.load(Ordering::Relaxed));
        // What was sent fast long ago does not make up for what is sent slowly now.
        if since >= RATE_OVER_MS && sent.saturating_mul(1_000) >= since.saturating_mul(TRICKLE_BYTES_A_SECOND) {
            self.turn_at.store(now, Ordering::Relaxed);
            self.turn_bytes.store(0, Ordering::Relaxed);
        }
    }

    /// Notes that the client is to send something else from now on.
    fn begin_turn(&self) {
        let now = millis();
        self.heard_at.store(now, Ordering::Relaxed);
        self.turn_at.store(now, Ordering::Relaxed);
        self.turn_bytes.store(0, Ordering::Relaxed);
    }

    /// Notes that the client took something.
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

    /// Whether an answer of this size is kept for it.
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        let (own, all) = (self.bytes.load(Ordering::Relaxed), self.unread.bytes());
        let fits = |held: usize, max: usize| held == 0 || held.saturating_add(bytes) <= max;
        fits(own, CONNECTION_BYTES_MAX) && fits(all, self.unread_max)
    }

    /// Whether a stream of it may be asked for more.
    pub(crate) fn has_room_to_stream(&self) -> bool {
        let own = self.bytes.load(Ordering::Relaxed);
        own == 0 || (own < CONNECTION_STREAMED_MAX && self.unread.bytes() < self.unread_max)
    }

    /// Waits until a stream of it may be asked for more.
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

    /// Waits until the client has read enough of its earlier answers.
    pub async fn room(&self) {
        loop {
            let freed = self.freed.notified();
            if self.bytes.load(Ordering::Relaxed) < CONNECTION_BYTES_MAX {
                return;
            }
            freed.await;
        }
    }

    /// Waits for the turn to make a large answer again.
    pub async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turns.lock().await
    }

    /// Waits until the client has read half of what a connection holds, so that there is room for a page.
    pub async fn until_read(&self) {
        loop {
            let freed = self.freed.notified();
            if self.bytes.load(Ordering::Relaxed) <= CONNECTION_BYTES_MAX / 2 {
                break;
            }
            freed.await;
        }
    }

    /// Notes that too much is held, so that room is made at the cost of clients that do not read.
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

    /// How long an answer of HTTP/2, or all that was written, has been waiting for the client.
    pub(crate) fn unread_for(&self) -> Duration {
        if self.bytes.load(Ordering::Relaxed) == 0 {
            return Duration::ZERO;
        }
        let now = millis();
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|answer| answer.strong_count() > 0);
        let longest = watched.iter().filter_map(|answer| Some(answer.upgrade()?.waits_for(now))).max();
        // HTTP/1 has one answer, and what is written of it is progress.
        longest.unwrap_or_else(|| Duration::from_millis(now.saturating_sub(self.took_at.load(Ordering::Relaxed))))
    }

    /// Waits until the connection is to be cut: an answer waited too long for the client, or others need the place.
    pub async fn gone(&self) -> &'static str {
        tokio::select! {
            () = self.evicted.notified() => "its place is needed",
            () = self.stalled() => "an answer was not read",
        }
    }

    async fn stalled(&self) {
        loop {
            self.begun.notified().await;
            while self.bytes.load(Ordering::Relaxed) > 0 {
                sleep(self.write_wait_max / 4).await;
                // Followers of HTTP/1 get a last event first, which the connection sees to.
                if !self.is_follower() && self.unread_for() > self.write_wait_max {
                    return;
                }
            }
        }
    }

    /// Makes it a follower of events on HTTP/1, whose stream ends with an event when it does not read.
    pub(crate) fn follows(&self) {
        self.follows.store(true, Ordering::Relaxed);
    }

    /// Whether it is one.
    pub fn is_follower(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
    }

    /// Lets the connection end behind the answer under way.
    pub(crate) fn end_soon(&self) {
        self.ends.notify_one();
    }

    /// Waits until the connection is to end behind the answer under way.
    pub async fn ends(&self) {
        self.ends.notified().await;
    }

    /// Cuts the connection.
    pub fn evict(&self) {
        self.evicted.notify_one();
    }

    /// A request that is at work until the guard is dropped.
    pub fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        self.begin_turn();
        Busy(Arc::clone(self))
    }

    /// A request of it that waits for the rest of its body until the guard is dropped.
    pub fn awaits_body(self: &Arc<Self>) -> Awaiting {
        self.awaiting.fetch_add(1, Ordering::Relaxed);
        Awaiting(Arc::clone(self))
    }

    /// How long nothing was heard of the client although it is its turn; none while the server is at work for it.
    pub fn idle_for(&self) -> Option<Duration> {
        let since = self.heard_at.load(Ordering::Relaxed);
        (!self.is_at_work()).then(|| Duration::from_millis(millis().saturating_sub(since)))
    }

    /// For how long the client, whose turn it is, has sent so little that nobody who uploads something would: a byte now and then keeps
    /// a connection from being idle for as long as the client likes.
    pub fn trickles_for(&self) -> Option<Duration> {
        let millis = millis().saturating_sub(self.turn_at.load(Ordering::Relaxed));
        let bytes = self.turn_bytes.load(Ordering::Relaxed);
        let trickles = bytes.saturating_mul(1_000) < millis.saturating_mul(TRICKLE_BYTES_A_SECOND);
        (trickles && !self.is_at_work()).then(|| Duration::from_millis(millis))
    }

    /// Whether a request of it waits for the server.
    fn is_at_work(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > self.awaiting.load(Ordering::Relaxed)
    }
}

/// A request at work.
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
