//! Accounts for the memory of responses that clients have not read yet.
//!
//! The bytes of a response count from its creation until the system has accepted them, both per connection and for all connections
//! together. A stream of events or lines is read further only once its client has taken what was handed out. A connection that holds much
//! gets no further requests served until it has been read. A response that does not fit is refused if its request changed nothing.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use annals_core::Code;
use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use futures_util::task::AtomicWaker;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::sync::Notify;

use crate::media;
use crate::problem::Problem;
use crate::reader::{Busy, Reader, millis};

/// Responses up to this size are not counted on HTTP/1, where a connection has one at a time.
const SMALL: usize = 16 * 1024;
/// An HTTP/2 connection gets its responses in pieces of this size, so that a slow client can be told apart from a stalled one.
const PIECE: usize = 16 * 1024;
/// No more is read from a stream while it has this many unread bytes.
const STREAMED_MAX: usize = 256 * 1024;

/// The bytes of all unread responses. Clones share the count.
#[derive(Clone, Default)]
pub(crate) struct Unread(Arc<Total>);

#[derive(Default)]
struct Total {
    bytes: AtomicUsize,
    freed: Notify,
}

impl fmt::Debug for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unread({})", self.bytes())
    }
}

impl Unread {
    /// Returns the number of unread bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Counts bytes that are kept for a response, until the guard is dropped.
    pub fn hold(&self, bytes: usize) -> HeldBytes {
        self.add(bytes);
        HeldBytes { unread: self.clone(), bytes }
    }

    /// Counts bytes as [`hold`](Self::hold) does, if they fit below `max`, or if there are no others.
    pub fn hold_below(&self, max: usize, bytes: usize) -> Option<HeldBytes> {
        let more = |held: usize| {
            let all = held.saturating_add(bytes);
            (bytes == 0 || held == 0 || all <= max).then_some(all)
        };
        self.0.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(HeldBytes { unread: self.clone(), bytes })
    }

    /// Waits until there are fewer than `max` unread bytes, and counts these as well, even if they exceed `max` together. So what is large
    /// gets its room too.
    pub async fn hold_in_room(&self, max: usize, bytes: usize) -> HeldBytes {
        let more = |held: usize| (held < max).then_some(held.saturating_add(bytes));
        loop {
            let freed = self.0.freed.notified();
            if self.0.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
                return HeldBytes { unread: self.clone(), bytes };
            }
            freed.await;
        }
    }

    /// Waits until there are fewer than `max` unread bytes.
    pub async fn room(&self, max: usize) {
        loop {
            let freed = self.0.freed.notified();
            if self.bytes() < max {
                return;
            }
            freed.await;
        }
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, bytes: usize) {
        self.0.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.0.freed.notify_waiters();
    }
}

/// Bytes that are counted as unread until this is dropped.
pub(crate) struct HeldBytes {
    unread: Unread,
    bytes: usize,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.unread.sub(self.bytes);
    }
}

/// A marker of responses to requests that changed nothing and can be repeated.
#[derive(Clone, Copy)]
pub(crate) struct ChangedNothing;

/// A marker of refusals for lack of room for the response, which can be built again once the client has read others.
#[derive(Clone, Copy)]
pub(crate) struct NoRoom;

/// A response on its way to its client.
pub(crate) struct Answer {
    reader: Arc<Reader>,
    /// Its unread bytes.
    bytes: AtomicUsize,
    /// When a piece was last taken, or handed out while none was pending.
    moved_at: AtomicU64,
    /// Whether a piece waited longer than allowed.
    slow: AtomicBool,
    taken: AtomicWaker,
}

impl Answer {
    fn new(reader: &Arc<Reader>, bytes: usize) -> Arc<Self> {
        reader.add(bytes);
        Arc::new(Self {
            reader: Arc::clone(reader),
            bytes: AtomicUsize::new(bytes),
            moved_at: AtomicU64::new(millis()),
            slow: AtomicBool::new(false),
            taken: AtomicWaker::new(),
        })
    }

    /// Returns how long the response has been waiting for its client.
    pub fn waits_for(&self, now: u64) -> Duration {
        match self.bytes.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            _ => Duration::from_millis(now.saturating_sub(self.moved_at.load(Ordering::Relaxed))),
        }
    }

    fn handed_out(&self, more: usize) {
        if self.bytes.fetch_add(more, Ordering::Relaxed) == 0 {
            self.moved_at.store(millis(), Ordering::Relaxed);
        }
        self.reader.add(more);
    }

    fn taken(&self, bytes: usize) {
        let now = millis();
        let waited = self.waits_for(now);
        if waited >= self.reader.write_wait_max() {
            self.slow.store(true, Ordering::Relaxed);
        }
        self.moved_at.store(now, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.reader.sub(bytes);
        self.taken.wake();
    }
}

/// A piece that the client has not taken yet.
struct Piece {
    bytes: Bytes,
    answer: Arc<Answer>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.answer.taken(self.bytes.len());
    }
}

/// Returns whether a response is a stream of events.
pub(crate) fn streams_events(response: &Response<Body>) -> bool {
    let events = HeaderValue::from_static(media::EVENTS);
    response.body().size_hint().exact().is_none() && response.headers().get(header::CONTENT_TYPE) == Some(&events)
}

impl Reader {
    /// Counts a response of this connection, or refuses it if there is no room. `busy` is held until the response has been read.
    pub(crate) fn counted(self: &Arc<Self>, response: Response<Body>, http2: bool, busy: Busy) -> Response<Body> {
        let bytes = response.body().size_hint().exact().map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let streamed = response.body().size_hint().exact().is_none();
        if !streamed && bytes <= SMALL && !http2 {
            return response;
        }
        if self.refuses(&response) {
            return self.no_room();
        }
        let events = streams_events(&response);
        if events && !http2 {
            self.follows();
        }
        let answer = Answer::new(self, bytes);
        if http2 {
            self.watch(&answer);
        }
        response.map(|body| {
            Body::new(Counted {
                body,
                answer,
                ahead: bytes,
                rest: Bytes::new(),
                pieces: http2,
                events,
                ended: false,
                room: None,
                _busy: busy,
            })
        })
    }

    /// Returns whether there is no room for a response whose request changed nothing.
    pub(crate) fn refuses(&self, response: &Response<Body>) -> bool {
        let bytes = response.body().size_hint().exact().map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        bytes > SMALL && response.extensions().get::<ChangedNothing>().is_some() && !self.has_room_for(bytes)
    }

    fn no_room(&self) -> Response<Body> {
        self.presses();
        no_room().into_response()
    }
}

/// Returns the refusal of a read for whose response there is no room.
pub(crate) fn no_room() -> Problem {
    let message = "unread responses already use too much memory; nothing was changed, retry in a moment";
    Problem::new(Code::Overloaded, message)
}

/// A body whose bytes are counted.
struct Counted {
    body: Body,
    answer: Arc<Answer>,
    /// Bytes that are counted already and not handed out yet.
    ahead: usize,
    /// The remainder of a frame that is handed out in pieces.
    rest: Bytes,
    pieces: bool,
    /// Whether it is a stream of events, which can end with one that gives the reason.
    events: bool,
    ended: bool,
    room: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    _busy: Busy,
}

impl Counted {
    /// Waits until the client has taken enough of what was handed out.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.ahead > 0 {
            return Poll::Ready(());
        }
        let most = if self.events { 1 } else { STREAMED_MAX };
        self.answer.taken.register(cx.waker());
        if self.answer.bytes.load(Ordering::Acquire) >= most {
            return Poll::Pending;
        }
        if self.room.is_none() && !self.answer.reader.has_room_to_stream() {
            let reader = Arc::clone(&self.answer.reader);
            self.room = Some(Box::pin(async move { reader.room_to_stream().await }));
        }
        if let Some(room) = &mut self.room {
            ready!(room.as_mut().poll(cx));
            self.room = None;
        }
        Poll::Ready(())
    }

    fn hand_out(&mut self, bytes: Bytes) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        let counted = self.ahead.min(bytes.len());
        self.ahead -= counted;
        self.answer.handed_out(bytes.len() - counted);
        Bytes::from_owner(Piece { bytes, answer: Arc::clone(&self.answer) })
    }

    /// Returns the event that ends a stream whose client was too slow.
    fn last_word(&mut self) -> Bytes {
        self.ended = true;
        self.answer.reader.end_soon();
        let waited = self.answer.reader.write_wait_max();
        let message = format!("the client did not read the stream for {waited:?}, so it ends here");
        let problem = Problem::new(Code::ReaderTooSlow, message);
        tracing::warn!(code = problem.code().as_str(), "disconnecting a follower that does not read");
        Bytes::from(format!("event: problem\ndata: {}\n\n", problem.to_json()))
    }
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        if this.rest.is_empty() {
            ready!(this.poll_room(cx));
            if this.events && this.answer.slow.load(Ordering::Relaxed) {
                let last = this.last_word();
                return Poll::Ready(Some(Ok(Frame::data(this.hand_out(last)))));
            }
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => this.rest = bytes,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        let length = if this.pieces { this.rest.len().min(PIECE) } else { this.rest.len() };
        let piece = this.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(this.hand_out(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended || (self.rest.is_empty() && self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let (body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(body.lower() + rest);
        hint
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.ahead > 0 {
            self.answer.taken(self.ahead);
        }
    }
}

/// The HTTP/2 responses of a connection that are watched for stalls.
pub(crate) type Watched = Vec<Weak<Answer>>;
