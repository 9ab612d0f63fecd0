//! A connection that does not wait for ever: for the first bytes of a client that says nothing, and for a reader that does not read.

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

/// How long a write may wait for the reader once the server stops.
const STOPPED_WRITE_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long the last event of a follower may take to be written.
const LAST_EVENT_WAIT_MAX: Duration = Duration::from_secs(2);

/// How many bytes it takes to tell HTTP/1 from HTTP/2; from then on the HTTP side has a deadline of its own.
const OPENING_BYTES: usize = 24;

/// What the system keeps for a follower that it cannot send yet; it takes twice as much for its own needs.
const FOLLOWER_SEND_BYTES: usize = 104 * 1024;
/// The same once the follower did not read for too long: the rest is for the event that says so. Linux gives no more by default.
const LAST_SEND_BYTES: usize = 208 * 1024;

pub(crate) struct WireGuard {
    stream: TcpStream,
    /// Runs until the first bytes are there.
    opening: Option<(usize, Pin<Box<Sleep>>)>,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
    reader: Arc<Reader>,
    sends: Sends,
    stop: Stop,
    stopping: bool,
}

/// How much the system keeps that it cannot send yet.
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

    /// Waits for the first bytes once more: those so far were of a handshake.
    pub fn open_again(&mut self, opening_max: Duration) {
        self.opening = Some((0, Box::pin(sleep(opening_max))));
    }

    /// Sets how much the system keeps. Should it refuse, a follower is cut without a last event.
    fn keep(&mut self, sends: Sends, bytes: usize) {
        self.sends = sends;
        if let Err(error) = sockopt::set_socket_send_buffer_size(&self.stream, bytes) {
            tracing::debug!(%error, "the send buffer of a follower stays as it is");
        }
    }

    fn before_writing(&mut self) {
        if self.sends == Sends::AsTheSystemLikes && self.reader.is_follower() {
            self.keep(Sends::LessForAFollower, FOLLOWER_SEND_BYTES);
        }
    }

    /// Waits for a reader that does not read: not for ever, and again for a follower that is to get a last event.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        // The task that drives the connection polls it again when the server stops.
        if self.stop.is_stopped() && !std::mem::replace(&mut self.stopping, true) {
            self.stalled = Some(Box::pin(sleep(STOPPED_WRITE_WAIT_MAX)));
        }
        let wait_max = self.reader.write_wait_max();
        loop {
            let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(wait_max)));
            ready!(stalled.as_mut().poll(cx));
            if self.stopping || self.sends != Sends::LessForAFollower {
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the reader does not read"));
            }
            self.keep(Sends::MoreForTheLastEvent, LAST_SEND_BYTES);
            self.stalled = Some(Box::pin(sleep(LAST_EVENT_WAIT_MAX)));
        }
    }

    /// Passes `written` on, or an error when it has waited too long.
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
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client says nothing")));
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
