//! Messages on the wire: each with a prefix of five bytes, a flag for compression and the length.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use annals_core::Code;
use annals_system::sleep;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body as _, Frame};
use prost::{Message, decode_length_delimiter};
use tokio::time::Sleep;

use super::speaking::MEDIA_TYPES;
use super::status::{self, MEDIA_TYPE};
use super::whole::whole;
use crate::answer::{self, WRITTEN_AT_ONCE_BYTES_MAX};
use crate::body::{self, Budget, Held, Taken};
use crate::caller::Principal;
use crate::problem::Problem;
use crate::reader::TRICKLE_BYTES_A_SECOND;
use crate::state::Server;

const PREFIX_BYTES: usize = 5;
/// Most fields of a message and of the messages in it. A field of two bytes may need a hundred bytes of memory once it is decoded, which
/// no budget counts. An append of as many verdicts as are allowed has 30,000.
const FIELDS_MAX: usize = 50_000;

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
    let message = body::parse(bytes.len(), move || decoded(bytes)).await??;
    Ok(Asked { message, held })
}

/// Decodes a message, unless it has too many fields.
fn decoded<M: Message + Default>(bytes: Bytes) -> Result<M, Problem> {
    if fields(&bytes, 2) > FIELDS_MAX {
        let message = format!("the message has more than {FIELDS_MAX} fields; send fewer at once");
        return Err(Problem::new(Code::BodyTooLarge, message));
    }
    M::decode(bytes).map_err(|error| invalid(&format!("the message is not one of this method: {error}")))
}

/// Counts the fields of a message and of the messages in it, down to this depth, as far as they can be read. Texts are read as messages
/// too, because only the decoder tells them apart.
fn fields(mut bytes: &[u8], depth: usize) -> usize {
    let mut count = 0;
    while let Ok(key) = decode_length_delimiter(&mut bytes) {
        count += 1;
        let has_length = key & 7 == 2;
        let length = match key & 7 {
            // A number, which is written as a length is.
            0 => decode_length_delimiter(&mut bytes).map(|_| 0),
            1 => Ok(8),
            2 => decode_length_delimiter(&mut bytes),
            5 => Ok(4),
            // The fields of a group follow.
            _ => Ok(0),
        };
        let Some((within, rest)) = length.ok().and_then(|length| bytes.split_at_checked(length)) else { break };
        if has_length && depth > 1 {
            count += fields(within, depth - 1);
        }
        bytes = rest;
    }
    count
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
    /// What is expected of a message that has begun.
    begun: Option<Begun>,
    /// Whether the limits of the caller allow the next message. The call itself was admitted with its first one.
    is_admitted: bool,
}

/// A message that has arrived in part. Its bytes count against the budget until the rest arrives. Without a deadline, callers that stop in
/// the middle of a message could use up the whole budget for as long as they like.
struct Begun {
    deadline: Pin<Box<Sleep>>,
    /// How many more bytes must arrive until then.
    due: usize,
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
            begun: None,
            is_admitted: true,
        })
    }

    /// Returns the next message, or `None` after the last one. Cancelling loses nothing.
    pub async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, Problem> {
        loop {
            self.admit().await;
            if let Some(length) = length(&self.bytes, self.bytes_max)?
                && self.bytes.len() >= PREFIX_BYTES + length
            {
                self.is_admitted = false;
                return decoded(self.split(PREFIX_BYTES + length).slice(PREFIX_BYTES..)).map(Some);
            }
            match self.frame().await? {
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

    /// Waits until the limits of the caller allow the next message. Until then nothing is read of it, because it would hold bytes of other
    /// bodies while it waits.
    async fn admit(&mut self) {
        // The end of the call is no message.
        let has_ended = self.bytes.is_empty() && self.body.is_end_stream();
        if self.is_admitted || has_ended {
            return;
        }
        if let Principal::Known(access) = &self.principal {
            access.limits.admitted().await;
        }
        self.is_admitted = true;
    }

    /// Returns the next frame, for which a message that has begun does not wait long.
    async fn frame(&mut self) -> Result<Option<Result<Frame<Bytes>, axum::Error>>, Problem> {
        if self.bytes.is_empty() {
            return Ok(self.body.frame().await);
        }
        let time = self.server.options.body_idle_max;
        let begun = self.begun.get_or_insert_with(|| {
            let due = u128::from(TRICKLE_BYTES_A_SECOND) * time.as_millis() / 1_000;
            Begun { deadline: Box::pin(sleep(time)), due: usize::try_from(due).unwrap_or(usize::MAX) }
        });
        tokio::select! {
            biased;
            frame = self.body.frame() => Ok(frame),
            () = begun.deadline.as_mut() => {
                Err(Problem::new(Code::RequestTimeout, "a message stops in the middle, or arrives too slowly"))
            }
        }
    }

    /// Takes the first bytes, which are a message, and gives back their share of the budget.
    fn split(&mut self, length: usize) -> Bytes {
        let message = self.bytes.split_to(length).freeze();
        if self.bytes.len() < length {
            // What is left must not keep the memory of a large message.
            self.bytes = BytesMut::from(&self.bytes[..]);
        }
        self.budget.give_back(length);
        self.begun = None;
        message
    }

    fn take(&mut self, bytes: &Bytes) -> Result<(), Problem> {
        if let Some(begun) = &mut self.begun {
            begun.due = begun.due.saturating_sub(bytes.len());
        }
        if self.begun.as_ref().is_some_and(|begun| begun.due == 0) {
            self.begun = None;
        }
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
        let held = answer::page(bytes)?;
        let write = move || {
            let out = write();
            drop(held);
            out
        };
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
    use annals_core::credentials::{Grant, Rate, Role};
    use annals_embedded::EmbeddedStore;
    use annals_embedded::disk::MemoryDisk;
    use futures_util::FutureExt;

    use super::super::generated::process_request::Request as Sent;
    use super::super::generated::{AppendRequest, Credit, Included, ProcessRequest, Seen};
    use super::*;
    use crate::options::Options;
    use crate::security::{Access, Limits};

    /// What a caller sends as these frames.
    fn sent(server: &Arc<Server>, frames: Vec<Bytes>) -> Messages {
        let frames = stream::iter(frames.into_iter().map(Ok::<_, Infallible>));
        // The body stays open after them but sends nothing more.
        let body = Body::from_stream(frames.chain(stream::pending()));
        Messages::new(server, Request::new(body), 1_000).expect("a budget")
    }

    fn serving(options: Options) -> Arc<Server> {
        let disk = Arc::new(MemoryDisk::default());
        let store = EmbeddedStore::open(disk, annals_embedded::Options::default()).expect("a new store");
        Arc::new(Server::new(Arc::new(store), options, []))
    }

    fn credit(more: u32) -> Vec<u8> {
        let mut out = Vec::new();
        append(&ProcessRequest { request: Some(Sent::Credit(Credit { more })) }, &mut out);
        out
    }

    #[tokio::test]
    async fn a_message_gives_back_its_bytes_even_if_the_next_one_has_begun() {
        let server = serving(Options::default());
        let all = server.bodies.available_permits();
        // Each frame ends one message and begins another.
        let bytes = Bytes::from((0..50).flat_map(credit).collect::<Vec<_>>());
        let frames = std::iter::once(bytes.slice(..1))
            .chain((1..bytes.len()).step_by(9).map(|at| bytes.slice(at..bytes.len().min(at + 9))));
        let mut messages = sent(&server, frames.collect());
        for more in 0..50 {
            let message: ProcessRequest = messages.next().await.expect("no error").expect("a message");
            assert_eq!(message.request, Some(Sent::Credit(Credit { more })));
            assert_eq!(all - server.bodies.available_permits(), messages.bytes.len());
        }
        assert_eq!(server.bodies.available_permits(), all);
    }

    #[tokio::test]
    async fn a_message_that_stops_in_the_middle_ends_its_call_and_a_pause_between_two_does_not() {
        let time = std::time::Duration::from_millis(20);
        let server = serving(Options { body_idle_max: time, ..Options::default() });
        let mut pausing = sent(&server, vec![credit(1).into()]);
        assert!(pausing.next::<ProcessRequest>().await.expect("no error").is_some());
        let mut stopping = sent(&server, vec![credit(1)[..8].to_vec().into()]);
        tokio::select! {
            message = stopping.next::<ProcessRequest>() => {
                assert_eq!(message.expect_err("it is not whole").code(), Code::RequestTimeout);
            }
            message = pausing.next::<ProcessRequest>() => panic!("{message:?}"),
        }
    }

    #[tokio::test]
    async fn a_caller_that_has_used_up_its_limits_is_heard_later() {
        let server = serving(Options::default());
        let every = || vec!["*".to_owned()];
        let (roles, tenants, scopes) = (vec![Role::Writer], every(), every());
        let grant = Grant { roles, tenants, scopes, event_types: every(), streams: every() };
        let one_byte_a_second = Arc::new(Limits::new((Rate(0), Rate(1))));
        let mut messages = sent(&server, vec![credit(1).into(), credit(2).into()]);
        messages.principal = Principal::Known(Arc::new(Access::new("key:a".into(), None, grant, one_byte_a_second)));
        assert!(messages.next::<ProcessRequest>().await.expect("no error").is_some());
        let all = server.bodies.available_permits();
        assert!(messages.next::<ProcessRequest>().now_or_never().is_none());
        assert_eq!(server.bodies.available_permits(), all, "nothing is held for it");
    }

    #[test]
    fn a_message_of_many_tiny_fields_is_refused_before_it_is_decoded() {
        let append = |count: u64| AppendRequest {
            stream: "orders".to_owned(),
            included: (0..count)
                .map(|n| Included { sequence_number: n, partition: Some(format!("order/{n}")) })
                .collect(),
            ..AppendRequest::default()
        };
        let most = append(annals_core::limits::VERDICTS_MAX as u64);
        assert_eq!(decoded::<AppendRequest>(most.encode_to_vec().into()).expect("allowed"), most);
        // Two bytes each: the fields of a filter in a request, which are texts without a letter.
        let types = [0x0a, 0x00].repeat(FIELDS_MAX);
        let mut request = vec![0x22];
        prost::encode_length_delimiter(types.len(), &mut request).expect("written");
        request.extend(types);
        let refused = decoded::<super::super::generated::ReadRequest>(request.into()).expect_err("too many");
        assert_eq!(refused.code(), Code::BodyTooLarge);
    }

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
