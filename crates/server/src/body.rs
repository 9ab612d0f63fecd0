//! Request bodies: read whole up to a limit, and read away when nobody wants them.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use annals_core::{Code, limits};
use axum::http::{HeaderMap, HeaderValue, header, request::Parts};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::options::Options;
use crate::problem::Problem;
use crate::router::Server;

/// The body of a request, as the connection or a router hands it over.
pub(crate) trait RequestBody:
    Body<Data = Bytes, Error: std::fmt::Display + Send> + Send + Unpin + 'static
{
}

impl<B: Body<Data = Bytes, Error: std::fmt::Display + Send> + Send + Unpin + 'static> RequestBody for B {}

/// What is taken of a body: of these media types, JSON without a name, and so many bytes.
#[derive(Clone, Copy)]
pub(crate) struct Taken<'a> {
    pub media_types: &'a [&'a str],
    pub bytes_max: usize,
}

/// A body in memory. Its bytes count against the server's budget as long as this lives.
pub(crate) struct Held {
    pub bytes: Bytes,
    _budget: OwnedSemaphorePermit,
}

/// Reads a JSON body; see [`read_as`].
pub(crate) async fn read(server: &Server, parts: &Parts, body: impl RequestBody) -> Result<Held, Problem> {
    read_as(server, parts, body, &[JSON]).await
}

/// Reads a body of one of these media types, which without a name is JSON.
///
/// A body that is refused is read away behind the answer, so that a client which sends everything before it reads an answer gets one.
pub(crate) async fn read_as<B: RequestBody>(
    server: &Server,
    parts: &Parts,
    body: B,
    media_types: &[&str],
) -> Result<Held, Problem> {
    read_taken(server, parts, body, Taken { media_types, bytes_max: server.options.body_bytes_max }).await
}

/// Reads a body as [`read_as`] does, up to a limit of its own.
pub(crate) async fn read_taken<B: RequestBody>(
    server: &Server,
    parts: &Parts,
    mut body: B,
    taken: Taken<'_>,
) -> Result<Held, Problem> {
    let read = match check(&parts.headers, taken) {
        Ok(()) => collect(server, &mut body, taken.bytes_max).await,
        Err(problem) => Err(problem),
    };
    match read {
        Ok(held) => Ok(held),
        Err(problem) => {
            // A client that waits for "100 Continue" has not sent its body and need not.
            if !parts.headers.contains_key(header::EXPECT) {
                discard(&server.options, body);
            }
            Err(problem)
        }
    }
}

/// The media type of JSON.
pub(crate) const JSON: &str = "application/json";

/// The media type that a header names, without its parameters.
pub(crate) fn media_type(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim()
}

fn check(headers: &HeaderMap, taken: Taken<'_>) -> Result<(), Problem> {
    check_media_type(headers, taken.media_types)?;
    if let Some(value) = headers.get(header::CONTENT_ENCODING)
        && !value.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        let message = format!("content encoding {value:?} is not taken; send the body as it is");
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
            let media_type = media_type(value);
            if media_types.iter().any(|known| media_type.eq_ignore_ascii_case(known)) {
                return Ok(());
            }
            refused(format!("{value:?} is not {}", media_types.join(" or ")))
        }
        // A browser asks before it sends JSON to another site, but not before it sends a body without a type: a page from anywhere
        // could commit to a server on the reader's own machine.
        None if headers.contains_key(header::ORIGIN) => refused("a browser must say application/json".to_owned()),
        None => Ok(()),
    }
}

async fn collect(server: &Server, body: &mut impl RequestBody, bytes_max: usize) -> Result<Held, Problem> {
    let first = next(server, body).await?.unwrap_or_default();
    let mut budget = Budget::new(server, first.len())?;
    if body.is_end_stream() && first.len() <= bytes_max {
        return Ok(budget.held(first));
    }
    let mut bytes = BytesMut::from(first);
    loop {
        if bytes.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        match next(server, body).await? {
            None => return Ok(budget.held(bytes.freeze())),
            Some(more) => {
                budget.take(more.len())?;
                bytes.extend_from_slice(&more);
            }
        }
    }
}

/// The next bytes of a body; none at its end.
async fn next(server: &Server, body: &mut impl RequestBody) -> Result<Option<Bytes>, Problem> {
    let stalled = |_| {
        let message = format!("no more bytes of the body for {:?}", server.options.body_idle_max);
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
            // Trailers are not used.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(_) => continue,
            },
        }
    }
}

/// The next frame if it is there or comes within one turn of the connection, as a body does that was sent with its headers; for such
/// a body a timer would cost more than reading it.
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

fn too_large(bytes_max: usize) -> Problem {
    let message = format!("the body is larger than {bytes_max} bytes");
    Problem::new(Code::BodyTooLarge, message).closing()
}

/// What one body holds of the bytes that all bodies together may hold.
struct Budget {
    bodies: Arc<Semaphore>,
    taken: OwnedSemaphorePermit,
}

impl Budget {
    fn new(server: &Server, bytes: usize) -> Result<Self, Problem> {
        Ok(Self { taken: permits(&server.bodies, bytes)?, bodies: Arc::clone(&server.bodies) })
    }

    fn take(&mut self, bytes: usize) -> Result<(), Problem> {
        self.taken.merge(permits(&self.bodies, bytes)?);
        Ok(())
    }

    fn held(self, bytes: Bytes) -> Held {
        Held { bytes, _budget: self.taken }
    }
}

fn permits(bodies: &Arc<Semaphore>, bytes: usize) -> Result<OwnedSemaphorePermit, Problem> {
    let bytes = u32::try_from(bytes).map_err(|_| overloaded())?;
    Arc::clone(bodies).try_acquire_many_owned(bytes).map_err(|_| overloaded())
}

fn overloaded() -> Problem {
    Problem::new(Code::Overloaded, "too many bytes of request bodies are held already; try again in a moment")
}

/// Reads what is left of a body and forgets it, up to [`limits::BODY_DRAIN_BYTES_MAX`]; dropping the rest closes the connection.
pub(crate) fn discard(options: &Options, mut body: impl RequestBody) {
    if body.is_end_stream() {
        return;
    }
    let (stop, idle_max) = (options.stop.clone(), options.body_idle_max);
    tokio::spawn(async move {
        let read_away = async {
            let mut left = limits::BODY_DRAIN_BYTES_MAX;
            while let Ok(Some(Ok(frame))) = timeout(idle_max, body.frame()).await {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                match left.checked_sub(bytes) {
                    Some(rest) => left = rest,
                    None => return,
                }
            }
        };
        tokio::select! {
            () = read_away => {}
            () = stop.stopped() => {}
        }
    });
}
