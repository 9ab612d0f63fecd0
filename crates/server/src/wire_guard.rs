//! A connection with deadlines for the first bytes of a silent client and for a client that does not read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use annals_system::sleep;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use crate::options::Stop;
use crate::reader::Reader;

/// How long a write may wait for the client once the server stops.
const STOPPED_WRITE_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long the last event of a follower may take to be written.
const LAST_EVENT_WAIT_MAX: Duration = Duration::from_secs(2);

/// How many bytes are needed to tell HTTP/1 from HTTP/2. After that the HTTP library has a deadline of its own.
const OPENING_BYTES: usize = 24;

/// The size of the send buffer that is set for a follower. The system doubles it for its own needs.
const FOLLOWER_SEND_BYTES: usize = 104 * 1024;
/// The size once a follower has not read for too long; the additional room is for the event that says so. Linux allows no more by
/// default.
const LAST_SEND_BYTES: usize = 208 * 1024;

pub(crate) struct WireGuard {
    stream: TcpStream,
    /// The bytes received so far, and the deadline for the first ones; `None` once enough have arrived.
    opening: Option<(usize, Pin<Box<Sleep>>)>,
    /// The deadline of a pending write.
    stalled: Option<Pin<Box<Sleep>>>,
    reader: Arc<Reader>,
    sends: Sends,
    stop: Stop,
    stopping: bool,
}

/// The size of the system's send buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sends {
    AsTheSystemLikes,
    LessForAFollower,
    MoreForTheLastEvent,
}

impl WireGuard {
    pub fn new(stream: TcpStream, opening_max: Duration, stop: Stop, reader: Arc<Reader>) -> Self {
        let opening = Some((0, Box::pin(sleep(opening_max))));
        Self { stream, opening, stalled: None, reader, sends: Sends::AsTheSystemLikes, stop, stopping: false }
    }

    /// Waits for the first bytes again, because those so far belonged to a handshake.
    pub fn open_again(&mut self, opening_max: Duration) {
        self.opening = Some((0, Box::pin(sleep(opening_max))));
    }

    /// Sets the size of the send buffer. If the system refuses, a follower is cut without a last event.
    fn keep(&mut self, sends: Sends, bytes: usize) {
        self.sends = sends;
        if let Err(error) = sockopt::set_socket_send_buffer_size(&self.stream, bytes) {
            tracing::debug!(%error, "could not change the send buffer of a follower");
        }
    }

    fn before_writing(&mut self) {
        if self.sends == Sends::AsTheSystemLikes && self.reader.is_follower() {
            self.keep(Sends::LessForAFollower, FOLLOWER_SEND_BYTES);
        }
    }

    /// Waits for a client that does not read, up to a deadline. A follower gets a second deadline for its last event.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        // When the server stops, the task that drives the connection polls it again.
        if self.stop.is_stopped() && !std::mem::replace(&mut self.stopping, true) {
            self.stalled = Some(Box::pin(sleep(STOPPED_WRITE_WAIT_MAX)));
        }
        let wait_max = self.reader.write_wait_max();
        loop {
            let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(wait_max)));
            ready!(stalled.as_mut().poll(cx));
            if self.stopping || self.sends != Sends::LessForAFollower {
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the client does not read"));
            }
            self.keep(Sends::MoreForTheLastEvent, LAST_SEND_BYTES);
            self.stalled = Some(Box::pin(sleep(LAST_EVENT_WAIT_MAX)));
        }
    }

    /// Returns `written`, or an error if the write has been pending for too long.
    fn bounded<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            self.reader.took();
            return written;
        }
        self.wait(cx).map(Err)
    }
}

impl AsyncRead for WireGuard {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if let Some((seen, deadline)) = &mut this.opening {
            if read.is_pending() {
                ready!(deadline.as_mut().poll(cx));
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client sends nothing")));
            }
            *seen += buffer.filled().len() - before;
            if *seen >= OPENING_BYTES {
                this.opening = None;
            }
        }
        if read.is_ready() {
            this.reader.heard(buffer.filled().len() - before);
        }
        read
    }
}

impl AsyncWrite for WireGuard {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.before_writing();
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bounded(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.before_writing();
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.bounded(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
