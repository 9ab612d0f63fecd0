//! Request bodies: buffered up to a limit, and drained after the response if the handler did not read them.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use annals_core::{Code, limits};
use axum::http::{HeaderMap, header, request::Parts};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Duration, timeout};

use crate::caller::Principal;
use crate::media;
use crate::options::{Options, Stop};
use crate::problem::Problem;
use crate::reader::{Awaiting, READER, Reader, TRICKLE_BYTES_A_SECOND, millis};
use crate::security::{CHARGED_AHEAD_MAX, unauthenticated};
use crate::state::Server;

/// A request body, from a connection or a router.
pub(crate) trait RequestBody:
    Body<Data = Bytes, Error: std::fmt::Display + Send> + Send + Unpin + 'static
{
}

impl<B: Body<Data = Bytes, Error: std::fmt::Display + Send> + Send + Unpin + 'static> RequestBody for B {}

/// The media types and the maximum size of a body that is accepted. A body without a content type is taken as JSON.
#[derive(Clone, Copy)]
pub(crate) struct Taken<'a> {
    pub media_types: &'a [&'a str],
    pub bytes_max: usize,
}

/// A body in memory. Its bytes count against the server's budget until this is dropped.
pub(crate) struct Held {
    pub bytes: Bytes,
    _budget: OwnedSemaphorePermit,
}

/// Reads a JSON body; see [`read_as`].
pub(crate) async fn read(server: &Server, parts: &Parts, body: impl RequestBody) -> Result<Held, Problem> {
    read_as(server, parts, body, &[media::JSON]).await
}

/// Reads a body of one of these media types. A body without a content type is taken as JSON.
pub(crate) async fn read_as<B: RequestBody>(
    server: &Server,
    parts: &Parts,
    body: B,
    media_types: &[&str],
) -> Result<Held, Problem> {
    read_taken(server, parts, body, Taken { media_types, bytes_max: server.options.body_bytes_max }).await
}

/// Reads a body as [`read_as`] does, with a size limit of its own.
pub(crate) async fn read_taken<B: RequestBody>(
    server: &Server,
    parts: &Parts,
    mut body: B,
    taken: Taken<'_>,
) -> Result<Held, Problem> {
    check(&parts.headers, taken)?;
    let held = collect(server, &mut body, taken.bytes_max).await?;
    // A body with a Content-Length was charged before it was read, except for what exceeds a usual one.
    if let Some(Principal::Known(access)) = parts.extensions.get() {
        let ahead = if parts.headers.contains_key(header::CONTENT_LENGTH) { CHARGED_AHEAD_MAX } else { 0 };
        access.limits.charge((held.bytes.len() as u64).saturating_sub(ahead));
        // A body may take hours to arrive, and the gate admitted its caller before.
        if access.is_ended() {
            return Err(unauthenticated("the credential was revoked or has expired").closing());
        }
    }
    Ok(held)
}

/// The largest body that is parsed on an async worker. Parsing a larger one would delay other requests, so a blocking thread does it.
const PARSED_AT_ONCE_BYTES_MAX: usize = 256 * 1024;

/// Calls `parse`, on a blocking thread if it reads many `bytes`.
pub(crate) async fn parse<T: Send + 'static>(
    bytes: usize,
    parse: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    if bytes <= PARSED_AT_ONCE_BYTES_MAX {
        return Ok(parse());
    }
    let parsed = tokio::task::spawn_blocking(parse).await;
    parsed.map_err(|error| Problem::new(Code::Internal, format!("the body could not be parsed: {error}")))
}

fn check(headers: &HeaderMap, taken: Taken<'_>) -> Result<(), Problem> {
    check_media_type(headers, taken.media_types)?;
    if let Some(value) = headers.get(header::CONTENT_ENCODING)
        && !value.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        let message = format!("content encoding {value:?} is not supported; send the body uncompressed");
        return Err(Problem::new(Code::UnsupportedMediaType, message));
    }
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    match declared {
        Some(bytes) if bytes > taken.bytes_max as u64 => Err(too_large(taken.bytes_max)),
        _ => Ok(()),
    }
}

fn check_media_type(headers: &HeaderMap, media_types: &[&str]) -> Result<(), Problem> {
    let refused = |message: String| Err(Problem::new(Code::UnsupportedMediaType, message));
    match headers.get(header::CONTENT_TYPE) {
        Some(value) => {
            let media_type = media::named(value);
            if media_types.iter().any(|known| media_type.eq_ignore_ascii_case(known)) {
                return Ok(());
            }
            refused(format!("the content type is {value:?}; send {}", media_types.join(" or ")))
        }
        // A browser sends a preflight before it sends JSON to another site, but not before it sends a body without a type. So a page from
        // anywhere could commit to a server on the reader's own machine.
        None if headers.contains_key(header::ORIGIN) => {
            refused("the request of a browser has no content type; send application/json".to_owned())
        }
        None => Ok(()),
    }
}

async fn collect(server: &Server, body: &mut impl RequestBody, bytes_max: usize) -> Result<Held, Problem> {
    let first = next(server, body).await?.unwrap_or_default();
    let mut budget = Budget::new(server, first.len())?;
    if body.is_end_stream() && first.len() <= bytes_max {
        return Ok(budget.held(first));
    }
    let mut pace = Pace::begin(server.options.body_idle_max, first.len());
    let mut bytes = BytesMut::from(first);
    loop {
        if bytes.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        match next(server, body).await? {
            None => return Ok(budget.held(bytes.freeze())),
            Some(more) => {
                if !pace.holds(more.len()) && !body.is_end_stream() {
                    return Err(too_slow());
                }
                budget.take(more.len())?;
                bytes.extend_from_slice(&more);
            }
        }
    }
}

/// Returns the next bytes of a body, or `None` at its end.
async fn next(server: &Server, body: &mut impl RequestBody) -> Result<Option<Bytes>, Problem> {
    let stalled = |_| {
        let message = format!("no bytes of the body arrived for {:?}", server.options.body_idle_max);
        Problem::new(Code::RequestTimeout, message).closing()
    };
    loop {
        let frame = match at_once(body).await {
            Some(frame) => frame,
            None => timeout(server.options.body_idle_max, body.frame()).await.map_err(stalled)?,
        };
        match frame {
            None => return Ok(None),
            Some(Err(error)) => {
                return Err(Problem::new(Code::NotJson, format!("the body could not be read: {error}")).closing());
            }
            // Trailers are ignored.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(_) => continue,
            },
        }
    }
}

/// Returns the next frame if it is ready or arrives within one turn of the connection, as when a body was sent together with its headers.
/// For such a body, setting a timer would cost more than reading it.
async fn at_once<B: RequestBody>(body: &mut B) -> Option<Option<Result<Frame<Bytes>, B::Error>>> {
    let mut looked = false;
    poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
        Poll::Ready(frame) => Poll::Ready(Some(frame)),
        Poll::Pending if looked => Poll::Ready(None),
        Poll::Pending => {
            looked = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

/// The rate at which a body arrives. With a byte now and then, a client could keep its body from ever being idle. If it also follows
/// events over the same connection, nothing else would end it. All bytes that the client sends over the connection count, because many
/// bodies may share a slow line.
struct Pace {
    /// The interval in milliseconds over which the rate is averaged.
    over: u64,
    since: u64,
    bytes: u64,
    /// The connection, and how many bytes it had received when the interval began.
    reader: Option<(Arc<Reader>, u64)>,
}

impl Pace {
    /// Starts measuring, with `bytes` already received.
    fn begin(over: Duration, bytes: usize) -> Self {
        let over = u64::try_from(over.as_millis()).unwrap_or(u64::MAX);
        let reader = READER.try_with(|reader| (Arc::clone(reader), reader.sent())).ok();
        Self { over, since: millis(), bytes: bytes as u64, reader }
    }

    /// Counts received bytes. Returns false if the body arrives too slowly.
    fn holds(&mut self, bytes: usize) -> bool {
        self.holds_at(millis(), bytes)
    }

    fn holds_at(&mut self, now: u64, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        let passed = now.saturating_sub(self.since);
        if passed < self.over {
            return true;
        }
        let mut bytes = self.bytes;
        if let Some((reader, before)) = &mut self.reader {
            let sent = reader.sent();
            bytes = bytes.max(sent.saturating_sub(*before));
            *before = sent;
        }
        let is_fast = bytes.saturating_mul(1_000) >= passed.saturating_mul(TRICKLE_BYTES_A_SECOND);
        // A fast start must not make up for a slow rest.
        (self.since, self.bytes) = (now, 0);
        is_fast
    }
}

fn too_slow() -> Problem {
    let message = format!("the body arrives at less than {TRICKLE_BYTES_A_SECOND} bytes a second");
    Problem::new(Code::RequestTimeout, message).closing()
}

fn too_large(bytes_max: usize) -> Problem {
    let message = format!("the body is larger than {bytes_max} bytes");
    Problem::new(Code::BodyTooLarge, message).closing()
}

/// The share of one body in the byte budget of all bodies.
pub(crate) struct Budget {
    bodies: Arc<Semaphore>,
    taken: OwnedSemaphorePermit,
}

impl Budget {
    /// Takes this many bytes for a body, or refuses with `overloaded`.
    pub fn new(server: &Server, bytes: usize) -> Result<Self, Problem> {
        Ok(Self { taken: permits(&server.bodies, bytes)?, bodies: Arc::clone(&server.bodies) })
    }

    /// Takes more bytes.
    pub fn take(&mut self, bytes: usize) -> Result<(), Problem> {
        self.taken.merge(permits(&self.bodies, bytes)?);
        Ok(())
    }

    /// Gives back bytes that are held no longer.
    pub fn give_back(&mut self, bytes: usize) {
        drop(self.taken.split(bytes));
    }

    fn held(self, bytes: Bytes) -> Held {
        Held { bytes, _budget: self.taken }
    }
}

fn permits(bodies: &Arc<Semaphore>, bytes: usize) -> Result<OwnedSemaphorePermit, Problem> {
    let bytes = u32::try_from(bytes).map_err(|_| overloaded())?;
    Arc::clone(bodies).try_acquire_many_owned(bytes).map_err(|_| {
        // Other clients may hold the bytes and send nothing more; eviction makes room for the retry.
        let _ = READER.try_with(|reader| reader.presses());
        overloaded()
    })
}

fn overloaded() -> Problem {
    Problem::new(Code::Overloaded, "request bodies already use too much memory; retry in a moment")
}

/// The settings for draining bodies.
#[derive(Debug, Clone)]
pub(crate) struct Drain {
    stop: Stop,
    idle_max: Duration,
}

impl Drain {
    /// Creates the settings from the options of a server.
    pub fn new(options: &Options) -> Self {
        Self { stop: options.stop.clone(), idle_max: options.body_idle_max }
    }
}

/// A body that drains itself if it is dropped before its end. So a client that sends everything before it reads gets its response, and
/// the connection stays usable for the next request.
pub(crate) struct Drained<B: RequestBody> {
    body: Option<B>,
    /// `None` once nothing is left to drain.
    drain: Option<Arc<Drain>>,
    /// Present while more of the body is expected.
    awaiting: Option<Awaiting>,
}

impl<B: RequestBody> Drained<B> {
    /// Wraps the body of a request with these headers.
    pub fn new(body: B, headers: &HeaderMap, drain: &Arc<Drain>) -> Self {
        // A client that waits for "100 Continue" has not sent its body and does not have to.
        let wanted = !body.is_end_stream() && !headers.contains_key(header::EXPECT);
        Self { body: Some(body), drain: wanted.then(|| Arc::clone(drain)), awaiting: None }
    }
}

impl<B: RequestBody> Body for Drained<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        match &frame {
            Poll::Ready(_) => self.awaiting = None,
            Poll::Pending if self.awaiting.is_none() => {
                self.awaiting = READER.try_with(Reader::awaits_body).ok();
            }
            Poll::Pending => {}
        }
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.drain = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

impl<B: RequestBody> Drop for Drained<B> {
    fn drop(&mut self) {
        self.awaiting = None;
        let (Some(body), Some(drain)) = (self.body.take(), self.drain.take()) else { return };
        // A body that is dropped together with its runtime has no connection any more.
        if !body.is_end_stream()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let pace = Pace::begin(drain.idle_max, 0);
            runtime.spawn(discard(body, drain, pace));
        }
    }
}

/// Reads the rest of a body, up to [`limits::BODY_DRAIN_BYTES_MAX`]. If more remains, dropping it closes the connection.
async fn discard(mut body: impl RequestBody, drain: Arc<Drain>, mut pace: Pace) {
    let drained = async {
        let mut left = limits::BODY_DRAIN_BYTES_MAX;
        while let Ok(Some(Ok(frame))) = timeout(drain.idle_max, body.frame()).await {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(bytes) {
                Some(rest) if pace.holds(bytes) => left = rest,
                _ => return,
            }
        }
    };
    tokio::select! {
        () = drained => {}
        () = drain.stop.stopped() => {}
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_body_that_trickles_is_too_slow_and_one_that_pauses_is_not() {
        let pace = |bytes| Pace { over: 30_000, since: 5, bytes, reader: None };
        let mut trickles = pace(1);
        let seconds = (1..=30_u64).map(|second| trickles.holds_at(5 + second * 1_000, 100)).collect::<Vec<_>>();
        assert_eq!(seconds, (1..=30).map(|second| second < 30).collect::<Vec<_>>());
        let mut pauses = pace(30 * 1_024);
        assert!(pauses.holds_at(30_005, 0), "as fast as it must be");
        let mut pauses_longer = pace(30 * 1_024);
        assert!(!pauses_longer.holds_at(30_006, 0));
        assert!(pauses.holds_at(60_004, 1), "it is looked at as often as that");
        assert!(!pauses.holds_at(60_005, 1), "what came before does not count");
    }

    /// This runtime has one thread, which parses a small body itself.
    #[tokio::test]
    async fn a_large_body_is_parsed_where_it_delays_no_other_request() {
        let here = thread::current().id();
        for (bytes, on_worker) in [(PARSED_AT_ONCE_BYTES_MAX, true), (PARSED_AT_ONCE_BYTES_MAX + 1, false)] {
            let parsed = parse(bytes, || thread::current().id()).await.expect("parsed");
            assert_eq!(parsed == here, on_worker, "{bytes} bytes");
        }
    }
}
