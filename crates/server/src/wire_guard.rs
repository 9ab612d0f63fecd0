//! A connection that does not wait for ever: for the first bytes of a client that says nothing, and, once the server stops, for a
//! reader that does not read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::options::Stop;

/// How long a write may wait for the reader once the server stops.
const STOPPED_WRITE_WAIT_MAX: Duration = Duration::from_secs(1);

/// How many bytes it takes to tell HTTP/1 from HTTP/2; from then on the HTTP side has a deadline of its own.
const OPENING_BYTES: usize = 24;

pub(crate) struct WireGuard {
    stream: TcpStream,
    /// Runs until the first bytes are there.
    opening: Option<(usize, Pin<Box<Sleep>>)>,
    /// Runs while a write waits after the stop.
    stalled: Option<Pin<Box<Sleep>>>,
    stop: Stop,
}

impl WireGuard {
    pub fn new(stream: TcpStream, opening_max: Duration, stop: Stop) -> Self {
        Self { stream, opening: Some((0, Box::pin(sleep(opening_max)))), stalled: None, stop }
    }

    /// Passes `written` on, or an error when it has waited too long.
    fn bounded<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        if !self.stop.is_stopped() {
            // The task that drives the connection polls it again when the server stops.
            return Poll::Pending;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(STOPPED_WRITE_WAIT_MAX)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the reader does not read and the server stops")))
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
        read
    }
}

impl AsyncWrite for WireGuard {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bounded(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
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
