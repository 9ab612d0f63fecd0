//! Messages on the wire: each with a prefix of five bytes, a flag for compression and the length.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use annals_core::Code;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use prost::Message;

use super::speaking::MEDIA_TYPES;
use super::status::{self, MEDIA_TYPE};
use super::whole::whole;
use crate::answer::WRITTEN_AT_ONCE_BYTES_MAX;
use crate::body::{self, Budget, Held, Taken};
use crate::caller::Principal;
use crate::problem::Problem;
use crate::state::Server;

const PREFIX_BYTES: usize = 5;

/// The only message of a request.
pub(super) struct Asked<M> {
    pub message: M,
    /// The body, whose bytes count as held until this is dropped.
    pub held: Held,
}

/// Reads the message of a request that has one. Its body keeps the limits of every body.
pub(super) async fn read<M: Message + Default + 'static>(
    server: &Server,
    request: Request,
) -> Result<Asked<M>, Problem> {
    let (parts, body) = request.into_parts();
    let bytes_max = server.options.body_bytes_max;
    let taken = Taken { media_types: &MEDIA_TYPES, bytes_max: bytes_max.saturating_add(PREFIX_BYTES) };
    let held = body::read_taken(server, &parts, body, taken).await?;
    let length = length(&held.bytes, bytes_max)?;
    if length.is_none_or(|length| held.bytes.len() != PREFIX_BYTES + length) {
        return Err(invalid("the request does not hold exactly one whole message"));
    }
    let bytes = held.bytes.slice(PREFIX_BYTES..);
    let message = body::parse(bytes.len(), move || M::decode(bytes)).await?.map_err(|error| undecodable(&error))?;
    Ok(Asked { message, held })
}

/// Returns the length of the message that begins here, or `None` if its prefix has not arrived.
fn length(bytes: &[u8], bytes_max: usize) -> Result<Option<usize>, Problem> {
    let Some(([compressed, length @ ..], _)) = bytes.split_first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
    if *compressed != 0 {
        return Err(Problem::new(Code::UnsupportedMediaType, "the message is compressed; send it uncompressed"));
    }
    match usize::try_from(u32::from_be_bytes(*length)) {
        Ok(length) if length <= bytes_max => Ok(Some(length)),
        _ => Err(Problem::new(Code::BodyTooLarge, format!("the message is larger than {bytes_max} bytes"))),
    }
}

fn undecodable(error: &prost::DecodeError) -> Problem {
    invalid(&format!("the message is not one of this method: {error}"))
}

pub(super) fn invalid(message: &str) -> Problem {
    Problem::new(Code::InvalidBody, message)
}

/// The messages of a caller that sends several.
pub(super) struct Messages {
    server: Arc<Server>,
    principal: Principal,
    body: Body,
    /// What has arrived of the next message.
    bytes: BytesMut,
    bytes_max: usize,
    budget: Budget,
}

impl Messages {
    /// Reads messages of at most `bytes_max` bytes from a request.
    pub fn new(server: &Arc<Server>, request: Request, bytes_max: usize) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        Ok(Self {
            server: Arc::clone(server),
            principal: Principal::of(&parts),
            body,
            bytes: BytesMut::new(),
            bytes_max: bytes_max.min(server.options.body_bytes_max),
            budget: Budget::new(server, 0)?,
        })
    }

    /// Returns the next message, or `None` after the last one. Cancelling loses nothing.
    pub async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, Problem> {
        loop {
            if let Some(length) = length(&self.bytes, self.bytes_max)?
                && self.bytes.len() >= PREFIX_BYTES + length
            {
                let message = self.bytes.split_to(PREFIX_BYTES + length).freeze().slice(PREFIX_BYTES..);
                if self.bytes.is_empty() {
                    self.bytes = BytesMut::new();
                    self.budget = Budget::new(&self.server, 0)?;
                }
                return M::decode(message).map(Some).map_err(|error| undecodable(&error));
            }
            match self.body.frame().await {
                None if self.bytes.is_empty() => return Ok(None),
                None => return Err(invalid("the request ends within a message")),
                Some(Err(error)) => return Err(invalid(&format!("the request could not be read: {error}"))),
                // Trailers are ignored.
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.take(&bytes)?;
                    }
                }
            }
        }
    }

    fn take(&mut self, bytes: &Bytes) -> Result<(), Problem> {
        if let Principal::Known(access) = &self.principal {
            access.limits.charge(bytes.len() as u64);
        }
        self.budget.take(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

/// Appends a message to `out`.
pub(super) fn append(message: &impl Message, out: &mut Vec<u8>) {
    let length = message.encoded_len();
    out.reserve(PREFIX_BYTES + length);
    out.push(0);
    // An event has at most 8 MiB, and a page is written as a message for each of its events.
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    message.encode_raw(out);
}

/// Answers with one message.
pub(super) fn answered(message: &impl Message) -> Response {
    let mut out = Vec::new();
    append(message, &mut out);
    whole(out)
}

/// Answers with the messages that `write` writes, which contain `bytes` of event data. Writing many would delay other requests, so a
/// blocking thread does it.
pub(super) async fn page(
    bytes: usize,
    write: impl FnOnce() -> Result<Vec<u8>, Problem> + Send + 'static,
) -> Result<Response, Problem> {
    let out = if bytes <= WRITTEN_AT_ONCE_BYTES_MAX {
        write()?
    } else {
        let written = tokio::task::spawn_blocking(write).await;
        written
            .map_err(|error| Problem::new(Code::Internal, format!("the response could not be written: {error}")))??
    };
    Ok(whole(out))
}

/// Answers with messages as they become available. The end of `chunks` is the end of a success; a problem is the last it returns.
pub(super) fn streamed(chunks: impl Stream<Item = Result<Bytes, Problem>> + Send + 'static) -> Response {
    let chunks: Pin<Box<dyn Stream<Item = Result<Bytes, Problem>> + Send>> = Box::pin(chunks);
    let frames = stream::unfold(Some(chunks), |chunks| async move {
        let mut chunks = chunks?;
        let (frame, rest) = match chunks.next().await {
            Some(Ok(chunk)) => (Frame::data(chunk), Some(chunks)),
            Some(Err(problem)) => (Frame::trailers(status::trailers(&problem)), None),
            None => (Frame::trailers(status::ok()), None),
        };
        Some((Ok::<_, Infallible>(frame), rest))
    });
    let mut response = Response::new(Body::new(StreamBody::new(frames)));
    response.headers_mut().insert(header::CONTENT_TYPE, MEDIA_TYPE);
    response
}

#[cfg(test)]
mod tests {
    use super::super::generated::{Credit, Seen};
    use super::*;

    #[test]
    fn a_message_has_a_prefix_with_its_length() {
        let mut out = Vec::new();
        append(&Seen { sequence_number: 300, incarnation: 0 }, &mut out);
        assert_eq!(out, [0, 0, 0, 0, 3, 8, 0xac, 2]);
        append(&Credit { more: 0 }, &mut out);
        assert_eq!(out[8..], [0, 0, 0, 0, 0], "a message of default values is empty");
        assert_eq!(length(&out, 3).expect("valid"), Some(3));
        assert_eq!(length(&out[..4], 3).expect("valid"), None);
        assert_eq!(length(&out, 2).expect_err("too large").code(), Code::BodyTooLarge);
        out[0] = 1;
        assert_eq!(length(&out, 3).expect_err("compressed").code(), Code::UnsupportedMediaType);
    }
}
