//! The connection to one server: requests with a deadline, complete answers, and the stream of `/v1/log/follow`.
//!
//! HTTP/1.1 with keep-alive connections; docs/decisions/0008-http.md has the measurements.

use std::net::IpAddr;
use std::time::Duration;

use annals_core::SequenceNumber;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::ClientOptions;
use super::tls::{Connector, Secured};

/// Time limit for silence of the server. It exceeds the interval between the comments of an idle event stream (15 s).
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(60);
const POOL_IDLE: Duration = Duration::from_secs(20);
/// A page holds at most 16 MiB of event data, which JSON escaping can make six times as large.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Maximum number of bytes preallocated for an answer before it arrives.
const ROOM_AHEAD_MAX: u64 = 1024 * 1024;
const TENANT_HEADER: &str = "annals-tenant";
/// The media type of BSON documents.
const DOCUMENT: &str = "application/bson";
/// The media type of JSON bodies.
const JSON: &str = "application/json";

/// A server's address with a connection pool.
#[derive(Clone)]
pub(super) struct Http {
    pool: Pool<Connector, Full<Bytes>>,
    base: String,
    /// The host and port of `base`, and the path after them.
    authority: String,
    path: String,
    tenant: HeaderValue,
    /// `Bearer KEY`, marked as sensitive so that it is not logged with the headers.
    credential: Option<HeaderValue>,
    /// TLS settings for connections outside the pool.
    secured: Option<Secured>,
}

/// A complete answer.
#[derive(Clone)]
pub(super) struct Answer {
    pub status: StatusCode,
    pub body: Bytes,
}

impl Http {
    /// Creates the pool for a server at `base`, which is `http://host:port` or `https://host:port` with or without a path. The error is a
    /// sentence that says what is wrong with `base`.
    pub fn new(base: &str, tenant: &str, options: &ClientOptions) -> Result<Self, String> {
        Self::refusing(base, tenant, options, |_| false)
    }

    /// Creates the pool for a server at `base`, unless it is at one of the addresses that `refuses` names.
    pub fn refusing(
        base: &str,
        tenant: &str,
        options: &ClientOptions,
        refuses: fn(IpAddr) -> bool,
    ) -> Result<Self, String> {
        let wrong = |why: &str| format!("{base:?} is not the address of a server: {why}; write http://127.0.0.1:4000");
        let uri: Uri = base.parse().map_err(|error| wrong(&format!("{error}")))?;
        let is_secured = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("it does not begin with http:// or https://")),
        };
        let Some(authority) = uri.authority().filter(|_| uri.query().is_none()) else {
            return Err(wrong("it has no host, or a query"));
        };
        let literal = authority.host().trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        if literal.is_ok_and(refuses) {
            return Err(wrong("nothing is sent to this address"));
        }
        let secured = is_secured.then(|| Secured::new(authority.host(), options)).transpose()?;
        let port = authority.port_u16().unwrap_or(if is_secured { 443 } else { 80 });
        let authority = format!("{}:{port}", authority.host());
        let path = uri.path().trim_end_matches('/').to_owned();
        let mut builder = Pool::builder(TokioExecutor::new());
        builder.pool_idle_timeout(POOL_IDLE).pool_timer(TokioTimer::new());
        let pool = builder.build(Connector::new(secured.clone(), refuses));
        let tenant = HeaderValue::from_str(tenant).map_err(|_| format!("{tenant:?} is not the name of a tenant"))?;
        let credential = options.credential.as_ref().map(|credential| bearer(credential)).transpose()?;
        Ok(Self { pool, base: base.trim_end_matches('/').to_owned(), authority, path, tenant, credential, secured })
    }

    /// Returns the TLS settings for connections outside the pool.
    pub fn secured(&self) -> Option<&Secured> {
        self.secured.as_ref()
    }

    /// Starts a request with the headers that every request has.
    fn begin(&self) -> hyper::http::request::Builder {
        let request = Request::builder().header(TENANT_HEADER, self.tenant.clone());
        match &self.credential {
            Some(credential) => request.header(AUTHORIZATION, credential.clone()),
            None => request,
        }
    }

    pub async fn get(&self, path: &str, accept: &'static str) -> Result<Answer, String> {
        let request = self.get_request(path, accept)?;
        collect(self.send(request).await?).await
    }

    /// Sends a GET request with a deadline and a size for the whole answer, which another process waits for.
    pub async fn get_within(
        &self,
        path: &str,
        accept: &'static str,
        (at_most, bytes_max): (Duration, usize),
    ) -> Result<Answer, String> {
        let request = self.get_request(path, accept)?;
        let answered = async { collect_up_to(self.send(request).await?, bytes_max).await };
        match tokio::time::timeout(at_most, answered).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("{} did not answer within {} s", self.base, at_most.as_secs())),
        }
    }

    /// Sends a POST request with a JSON body.
    pub async fn post(&self, path: &str, json: Bytes) -> Result<Answer, String> {
        self.ask(Method::POST, path, json, JSON, JSON).await
    }

    /// Sends a request and receives its answer as BSON documents. Includes the body if the method takes one.
    pub async fn document(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, String> {
        self.ask(method, path, body, DOCUMENT, DOCUMENT).await
    }

    /// Sends a body, if there is one, of one media type, and accepts an answer of another.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        media_type: &'static str,
        accept: &'static str,
    ) -> Result<Answer, String> {
        let mut request = self.get_request(path, accept)?;
        *request.method_mut() = method;
        if !body.is_empty() {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        }
        *request.body_mut() = Full::new(body);
        collect(self.send(request).await?).await
    }

    /// Posts a body with custom headers and without the credential.
    pub async fn post_with(
        &self,
        path: &str,
        body: Bytes,
        media_type: &'static str,
        headers: &[(&'static str, String)],
    ) -> Result<Answer, String> {
        let mut request = self.get_request(path, JSON)?;
        request.headers_mut().remove(AUTHORIZATION);
        *request.method_mut() = Method::POST;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).map_err(|_| format!("{name} cannot be sent in a header"))?;
            request.headers_mut().insert(*name, value);
        }
        *request.body_mut() = Full::new(body);
        collect(self.send(request).await?).await
    }

    /// Returns the host and port to connect to.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns a request that posts `body` over a connection outside the pool.
    pub fn request_to_post(
        &self,
        path: &str,
        body: Bytes,
        media_type: &'static str,
    ) -> Result<Request<Full<Bytes>>, String> {
        self.begin()
            .method(Method::POST)
            .uri(format!("{}{path}", self.path))
            .header(HOST, &self.authority)
            .header(CONTENT_TYPE, media_type)
            .body(Full::new(body))
            .map_err(|error| format!("{}{path}: {error}", self.base))
    }

    /// Opens a stream of server-sent events. Any other answer is returned whole.
    pub async fn stream(&self, path: &str) -> Result<Result<EventStream, Answer>, String> {
        let request = self.get_request(path, "text/event-stream")?;
        let response = self.send(request).await?;
        if response.status() == StatusCode::OK {
            return Ok(Ok(EventStream {
                body: response.into_body(),
                unread: Bytes::new(),
                line: Vec::new(),
                is_problem: false,
            }));
        }
        collect(response).await.map(Err)
    }

    /// Opens a stream of bytes. A refusal is returned whole.
    pub async fn bytes(&self, method: Method, path: &str, body: Bytes) -> Result<Result<ByteStream, Answer>, String> {
        let request = self
            .begin()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| format!("{}{path}: {error}", self.base))?;
        let response = self.send(request).await?;
        match response.status() {
            StatusCode::OK => Ok(Ok(ByteStream(response.into_body()))),
            _ => collect(response).await.map(Err),
        }
    }

    fn get_request(&self, path: &str, accept: &'static str) -> Result<Request<Full<Bytes>>, String> {
        self.begin()
            .uri(format!("{}{path}", self.base))
            .header(ACCEPT, accept)
            .body(Full::default())
            .map_err(|error| format!("{}{path}: {error}", self.base))
    }

    /// Sends a request. The future is boxed, so that crates that call the client do not compile the HTTP library again.
    fn send(&self, request: Request<Full<Bytes>>) -> BoxFuture<'_, Result<Response<Incoming>, String>> {
        let answered = async move {
            match tokio::time::timeout(SILENCE_MAX, self.pool.request(request)).await {
                Ok(Ok(response)) => Ok(response),
                Ok(Err(error)) => Err(format!("{}: {}", self.base, with_causes(&error))),
                Err(_) => Err(format!("{} did not answer within {} s", self.base, SILENCE_MAX.as_secs())),
            }
        };
        answered.boxed()
    }
}

/// Returns the header value that carries a credential.
fn bearer(credential: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", credential.trim()))
        .map_err(|_| "the credential is not a text that can be sent in a header".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the error with its causes; the outermost error only says that a request failed.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        message.push_str(&format!(": {error}"));
        cause = error.source();
    }
    message
}

/// The bytes of a long answer.
pub(super) struct ByteStream(Incoming);

impl ByteStream {
    /// Returns the next bytes, or `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, String> {
        next_frame(&mut self.0).await
    }
}

async fn collect(response: Response<Incoming>) -> Result<Answer, String> {
    collect_up_to(response, ANSWER_BYTES_MAX).await
}

async fn collect_up_to(response: Response<Incoming>, bytes_max: usize) -> Result<Answer, String> {
    let status = response.status();
    let mut body = Limited::new(response.into_body(), bytes_max);
    // The server's announced length is trusted only up to a limit.
    let expected = hyper::body::Body::size_hint(&body).lower().min(ROOM_AHEAD_MAX);
    let mut chunks = Vec::with_capacity(expected as usize);
    while let Some(frame) = next_frame(&mut body).await? {
        chunks.extend_from_slice(&frame);
    }
    Ok(Answer { status, body: chunks.into() })
}

/// Returns the next bytes of a body, or `None` at its end. Frames of other kinds count as empty.
pub(super) async fn next_frame<B>(body: &mut B) -> Result<Option<Bytes>, String>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    match tokio::time::timeout(SILENCE_MAX, body.frame()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(frame))) => Ok(Some(frame.into_data().unwrap_or_default())),
        Ok(Some(Err(error))) => Err(format!("the response was interrupted: {error}")),
        Err(_) => Err(format!("the response stalled for {} s", SILENCE_MAX.as_secs())),
    }
}

/// An item of an event stream.
pub(super) enum Happening {
    /// The stream has begun; this was the head then.
    Head(SequenceNumber),
    /// An event with this sequence number is in the log.
    Event(SequenceNumber),
    /// The server ends the stream for this reason.
    Problem(Answer),
}

/// A stream of server-sent events.
pub(super) struct EventStream {
    body: Incoming,
    /// Bytes that were received and not parsed yet, and the beginning of an incomplete line.
    unread: Bytes,
    line: Vec<u8>,
    is_problem: bool,
}

impl EventStream {
    /// Waits for the next item, or `None` when the server ends the stream because it is shutting down.
    pub async fn next(&mut self) -> Result<Option<Happening>, String> {
        loop {
            if let Some(happening) = self.received() {
                return Ok(Some(happening));
            }
            match next_frame(&mut self.body).await? {
                Some(bytes) => self.unread = bytes,
                None => return Ok(None),
            }
        }
    }

    /// Returns the next item of the bytes received so far.
    pub fn received(&mut self) -> Option<Happening> {
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let rest = self.unread.split_to(end + 1);
            let mut line = std::mem::take(&mut self.line);
            line.extend_from_slice(&rest[..end]);
            if let Some(happening) = self.line(&line) {
                return Some(happening);
            }
        }
        self.line.extend_from_slice(&self.unread);
        self.unread.clear();
        None
    }

    fn line(&mut self, line: &[u8]) -> Option<Happening> {
        if let Some(comment) = line.strip_prefix(b":") {
            let comment = std::str::from_utf8(comment).ok()?;
            return comment.rsplit_once("head ")?.1.trim().parse().ok().map(Happening::Head);
        }
        if let Some(id) = line.strip_prefix(b"id:") {
            let number = id.split(|byte| *byte == b'@').next().unwrap_or_default();
            let number = std::str::from_utf8(number).ok().and_then(|text| text.trim().parse().ok());
            return number.map(Happening::Event);
        }
        if let Some(kind) = line.strip_prefix(b"event:") {
            self.is_problem = kind.trim_ascii() == b"problem";
        }
        let data = line.strip_prefix(b"data:").filter(|_| self.is_problem)?;
        let body = Bytes::copy_from_slice(data);
        Some(Happening::Problem(Answer { status: StatusCode::SERVICE_UNAVAILABLE, body }))
    }
}
