//! The connection to a bucket: HTTP/1.1 over the client's TLS, with one connection per request.

use std::fmt::{self, Display};
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_LENGTH, HOST, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::http::with_causes;
use super::sending::Ended;
use super::tls::{Secured, Stream, connector};

/// Time limit for connecting.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);
/// Time limit for a request, including its response.
const WITHIN: Duration = Duration::from_secs(120);
/// The values that mean yes in a variable.
const YES: [&str; 5] = ["1", "true", "on", "yes", "y"];

/// Connects bucket clients. The library's own client would add a second HTTP client, whose TLS provider is set for the whole process.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let said = options.get_config_value(&ClientConfigKey::AllowHttp).unwrap_or_default();
        let allows_plain = YES.iter().any(|yes| said.eq_ignore_ascii_case(yes));
        Ok(HttpClient::new(Line { allows_plain, connector: OnceLock::new() }))
    }
}

/// Sends the requests of a bucket, and those that obtain its credentials.
struct Line {
    /// Whether plain HTTP is allowed.
    allows_plain: bool,
    connector: OnceLock<TlsConnector>,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("allows_plain", &self.allows_plain).finish_non_exhaustive()
    }
}

fn failed(kind: HttpErrorKind, reason: impl Display) -> HttpError {
    HttpError::new(kind, io::Error::other(reason.to_string()))
}

impl Line {
    /// Returns the TLS connector, built once. A failure is not cached, because the certificate files may appear later.
    fn connector(&self) -> Result<TlsConnector, String> {
        if let Some(made) = self.connector.get() {
            return Ok(made.clone());
        }
        let made = connector(None)?;
        Ok(self.connector.get_or_init(|| made).clone())
    }

    async fn connected(&self, host: &str, port: u16, secured: bool) -> Result<Stream, String> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let stream = match tokio::time::timeout(CONNECTED_WITHIN, TcpStream::connect((host, port))).await {
            Ok(connected) => connected.map_err(|error| format!("{host}:{port}: {error}"))?,
            Err(_) => return Err(format!("{host}:{port}: no connection within {} s", CONNECTED_WITHIN.as_secs())),
        };
        // Nagle's algorithm would only delay small packets.
        let _ = stream.set_nodelay(true);
        if !secured {
            return Ok(Stream::Plain(stream));
        }
        let secured = Secured::with(self.connector()?, host)?;
        secured.connect(stream).await.map_err(|error| format!("{host}: TLS: {error}"))
    }

    async fn answered(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (mut head, body) = request.into_parts();
        let secured = head.uri.scheme_str() == Some("https");
        let authority = head.uri.authority().cloned();
        let authority = authority.ok_or_else(|| failed(HttpErrorKind::Unknown, "the URL has no host"))?;
        if !secured && !self.allows_plain {
            let reason = format!("{authority}: plain HTTP is not allowed; set AWS_ALLOW_HTTP=true to allow it");
            return Err(failed(HttpErrorKind::Unknown, reason));
        }
        let usual = if secured { 443 } else { 80 };
        let port = authority.port_u16().unwrap_or(usual);
        let stream = self.connected(authority.host(), port, secured).await;
        let stream = stream.map_err(|reason| failed(HttpErrorKind::Connect, reason))?;
        // The request is signed for a host without the default port.
        let host = if port == usual { authority.host().to_owned() } else { format!("{}:{port}", authority.host()) };
        let host = HeaderValue::from_str(&host).map_err(|error| failed(HttpErrorKind::Unknown, error))?;
        head.headers.insert(HOST, host);
        if body.content_length() == 0 && (head.method == Method::PUT || head.method == Method::POST) {
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).parse::<Uri>();
        head.uri = path.map_err(|error| failed(HttpErrorKind::Unknown, error))?;
        let begun = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = begun.map_err(|error| failed(HttpErrorKind::Connect, error))?;
        let connection = Ended(tokio::spawn(async move {
            // A failure of the connection is reported by the request.
            let _ = connection.await;
        }));
        let sent = sender.send_request(Request::from_parts(head, body)).await;
        let response = sent.map_err(|error| failed(HttpErrorKind::Request, with_causes(&error)))?;
        let (head, body) = response.into_parts();
        let content = body.collect().await;
        let content = content.map_err(|error| failed(HttpErrorKind::Interrupted, with_causes(&error)))?.to_bytes();
        drop(connection);
        Ok(Response::from_parts(head, content.into()))
    }
}

#[async_trait]
impl HttpService for Line {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        match tokio::time::timeout(WITHIN, self.answered(request)).await {
            Ok(answered) => answered,
            Err(_) => Err(failed(HttpErrorKind::Timeout, format!("no answer within {} s", WITHIN.as_secs()))),
        }
    }
}
