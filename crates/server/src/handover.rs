//! The handover of a follower's connection from the HTTP library to [`Streaming`].
//!
//! The library keeps two buffers of 8 KiB for a connection, and its state, for as long as the connection is open. A follower needs them
//! for its request and the headers of its response only. So the library is given a body that never yields anything. Once the library has
//! written everything that comes before that body, the connection is taken back, and the library's part of it is dropped.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, Version, header};
use bytes::Bytes;
use hyper::body::Frame;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::streaming::Streaming;
use crate::unread::streams_events;
use crate::wire::Wire;

/// A connection that is lent to the HTTP library, and the stream for which it is taken back.
pub(crate) struct Handover {
    wire: Mutex<Option<Wire>>,
    stream: Mutex<Option<Stream>>,
    /// Whether the library has begun the body of the stream.
    begun: AtomicBool,
    /// Notified once the library has written the headers of the stream.
    written: Notify,
}

/// A stream whose headers the library writes.
struct Stream {
    body: Body,
    chunked: bool,
}

impl Handover {
    /// Prepares the handover of a connection.
    pub fn of(wire: Wire) -> Arc<Self> {
        let (begun, written) = (AtomicBool::new(false), Notify::new());
        Arc::new(Self { wire: Mutex::new(Some(wire)), stream: Mutex::new(None), begun, written })
    }

    /// Lends the connection to the HTTP library.
    pub fn lend(self: &Arc<Self>) -> Lent {
        Lent(Arc::clone(self))
    }

    /// Takes the body out of the response to a GET request, if it is a stream of events over HTTP/1. Nothing can follow the stream on the
    /// connection then.
    pub fn part(self: &Arc<Self>, version: Version, response: Response<Body>) -> Response<Body> {
        let is_http1 = matches!(version, Version::HTTP_10 | Version::HTTP_11);
        let is_framed = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
        let is_framed = is_framed.iter().any(|name| response.headers().contains_key(name));
        if !is_http1 || is_framed || response.status() != StatusCode::OK || !streams_events(&response) {
            return response;
        }
        // The library does the same: it sends chunks to all clients that know them.
        let chunked = version == Version::HTTP_11;
        let (mut parts, body) = response.into_parts();
        // The library would go by the version of the response, which a route may have taken over from elsewhere.
        parts.version = version;
        if chunked {
            parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        *self.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(Stream { body, chunked });
        Response::from_parts(parts, Body::new(Parting(Arc::clone(self))))
    }

    /// Waits until the library has written the headers of a stream.
    pub async fn written(&self) {
        self.written.notified().await;
    }

    /// Takes the connection back, with the stream for which it was parted from the library.
    pub fn take(&self) -> Option<Streaming> {
        let Stream { body, chunked } = self.stream.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let wire = self.wire().take()?;
        Some(Streaming::new(wire, body, chunked))
    }

    fn wire(&self) -> MutexGuard<'_, Option<Wire>> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body that the HTTP library is given for a stream: it never yields anything.
struct Parting(Arc<Handover>);

impl hyper::body::Body for Parting {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // Nothing wakes the library for this body. The headers are in its buffer now, and it flushes next.
        self.0.begun.store(true, Ordering::Release);
        Poll::Pending
    }
}

/// A connection as the HTTP library has it, until it is taken back.
pub(crate) struct Lent(Arc<Handover>);

impl Lent {
    fn with<T>(&self, work: impl FnOnce(Pin<&mut Wire>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &mut *self.0.wire() {
            Some(wire) => work(Pin::new(wire)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncRead for Lent {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.with(|wire| wire.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Lent {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.with(|wire| wire.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(|wire| wire.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.0.wire().as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(self.with(|wire| wire.poll_flush(cx)));
        // The library flushes the connection once it has written all of its buffer.
        if flushed.is_ok() && self.0.begun.load(Ordering::Acquire) {
            self.0.written.notify_one();
        }
        Poll::Ready(flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|wire| wire.poll_shutdown(cx))
    }
}
