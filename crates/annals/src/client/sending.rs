//! Posts events to partners over HTTP. The address is checked, and the connection goes to exactly the address that was checked.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use annals_core::Clock;
use annals_core::partners::{Answered, Outgoing, Sending};
use annals_system::SystemClock;
use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::address::{Network, is_public};
use super::retry_after::retry_after;
use super::tls::{Secured, Stream, connector};

/// Maximum number of bytes read from the body of an answer.
const SAID_BYTES_MAX: usize = 2_048;
/// Time limit for reading the body of a refusal.
const SAID_WITHIN: Duration = Duration::from_secs(1);
/// Maximum number of addresses of a name that are used.
const ADDRESSES_MAX: usize = 16;

/// The result of resolving a name: its addresses, or the reason why there are none.
pub type Resolved<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Resolves host names to addresses.
pub trait Resolve: Send + Sync + 'static {
    /// Returns the addresses of a host, each with this port.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolved<'a>;
}

/// The resolver of the system.
struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolved<'a> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// Posts events to partners. Pass it to a task host as `PartnerOptions::sending`, as `annals serve` does.
///
/// It does not follow redirects. It refuses addresses that are not on the public internet unless they are allowed, including those that a
/// name resolves to. It uses plain text only for allowed addresses.
#[derive(Clone)]
pub struct HttpSending {
    allowed: Vec<Network>,
    authorities: Option<PathBuf>,
    resolver: Arc<dyn Resolve>,
    connector: Arc<OnceLock<Result<TlsConnector, String>>>,
}

impl std::fmt::Debug for HttpSending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpSending").field("allowed", &self.allowed).finish_non_exhaustive()
    }
}

impl Default for HttpSending {
    fn default() -> Self {
        Self { allowed: Vec::new(), authorities: None, resolver: Arc::new(SystemResolver), connector: Arc::default() }
    }
}

impl HttpSending {
    /// Allows addresses that are not public: networks such as `10.1.0.0/16`, or single addresses.
    ///
    /// # Errors
    /// A sentence that names the text that is not a network.
    pub fn allowing<'a>(self, networks: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let allowed = networks.into_iter().map(Network::parse).collect::<Result<_, _>>()?;
        Ok(Self { allowed, ..self })
    }

    /// Trusts the authorities in this PEM file instead of the system's.
    #[must_use]
    pub fn trusting(self, authorities: Option<PathBuf>) -> Self {
        Self { authorities, connector: Arc::default(), ..self }
    }

    /// Resolves names with `resolver` instead of the system's resolver.
    #[must_use]
    pub fn resolving(self, resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, ..self }
    }

    fn allows(&self, address: IpAddr) -> bool {
        self.allowed.iter().any(|network| network.contains(address))
    }

    fn check_address(&self, address: IpAddr, url: &Target) -> Result<(), String> {
        if self.allows(address) {
            return Ok(());
        }
        if !is_public(address) {
            return Err(format!(
                "{}: {address} is not a public address; add it to partners.allow to permit it",
                url.host
            ));
        }
        match url.secured {
            true => Ok(()),
            false => Err(format!("{}: events are not sent in plain text; use https", url.host)),
        }
    }

    /// Returns the addresses of a target, each of them checked.
    async fn addresses(&self, target: &Target) -> Result<Vec<SocketAddr>, String> {
        if let Some(address) = target.literal() {
            self.check_address(address, target)?;
            return Ok(vec![SocketAddr::new(address, target.port)]);
        }
        let found = self.resolver.resolve(&target.host, target.port).await;
        let mut found = found.map_err(|error| format!("{}: {error}", target.host))?;
        if found.is_empty() {
            return Err(format!("{}: the host name has no address", target.host));
        }
        found.truncate(ADDRESSES_MAX);
        for address in &found {
            self.check_address(address.ip(), target)?;
        }
        Ok(found)
    }

    async fn connect(&self, target: &Target) -> Result<Stream, String> {
        let mut last = String::new();
        for address in self.addresses(target).await? {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    // Nagle's algorithm would only delay small packets.
                    let _ = stream.set_nodelay(true);
                    return self.secure(stream, target).await;
                }
                Err(error) => last = format!("{address}: {error}"),
            }
        }
        Err(last)
    }

    async fn secure(&self, stream: TcpStream, target: &Target) -> Result<Stream, String> {
        if !target.secured {
            return Ok(Stream::Plain(stream));
        }
        let made = self.connector.get_or_init(|| connector(self.authorities.as_deref()));
        let secured = Secured::with(made.clone()?, &target.host)?;
        secured.connect(stream).await.map_err(|error| format!("{}: TLS: {error}", target.host))
    }

    async fn post(&self, request: Outgoing) -> Result<Answered, String> {
        let target = Target::of(&request.url)?;
        let stream = self.connect(&target).await?;
        let begun = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = begun.map_err(|error| format!("{}: {error}", target.host))?;
        let connection = Ended(tokio::spawn(async move {
            // A failure of the connection is reported by the request.
            let _ = connection.await;
        }));
        let sent = sender.send_request(target.request(request)?).await;
        let response = sent.map_err(|error| format!("{}: {}", target.host, super::http::with_causes(&error)))?;
        let answered = answer(response).await;
        drop(connection);
        Ok(answered)
    }
}

/// Aborts a task when dropped.
pub(super) struct Ended(pub(super) tokio::task::JoinHandle<()>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[async_trait]
impl Sending for HttpSending {
    async fn send(&self, request: Outgoing) -> Result<Answered, String> {
        let within = request.timeout;
        match tokio::time::timeout(within, self.post(request)).await {
            Ok(answered) => answered,
            Err(_) => Err(format!("no answer within {} ms", within.as_millis())),
        }
    }

    fn check(&self, url: &str) -> Result<(), String> {
        let target = Target::of(url)?;
        match target.literal() {
            Some(address) => self.check_address(address, &target),
            None => Ok(()),
        }
    }
}

/// The destination of a request.
struct Target {
    secured: bool,
    host: String,
    port: u16,
    authority: String,
    path: String,
}

impl Target {
    fn of(url: &str) -> Result<Self, String> {
        let wrong = || format!("{url:?} is not a URL such as https://partner.example/events");
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let secured = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        let authority =
            uri.authority().filter(|it| !it.host().is_empty() && !it.as_str().contains('@')).ok_or_else(wrong)?;
        Ok(Self {
            secured,
            host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: authority.port_u16().unwrap_or(if secured { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }

    fn literal(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    fn request(&self, request: Outgoing) -> Result<Request<Full<Bytes>>, String> {
        let mut builder = Request::post(&self.path).header(HOST, &self.authority).header(CONNECTION, "close");
        builder = builder.header(USER_AGENT, concat!("annals/", env!("CARGO_PKG_VERSION")));
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        builder.body(Full::new(request.body)).map_err(|error| format!("{}: {error}", self.host))
    }
}

async fn answer(response: Response<Incoming>) -> Answered {
    let status = response.status().as_u16();
    let retry_after = retry_after(response.headers(), SystemClock.now());
    let said = if response.status().is_success() { String::new() } else { said(response.into_body()).await };
    Answered { status, retry_after, said }
}

/// Returns the beginning of a body, as much as arrives within the time limit.
async fn said(mut body: Incoming) -> String {
    let mut said = Vec::new();
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            said.extend_from_slice(&frame.into_data().unwrap_or_default());
            if said.len() >= SAID_BYTES_MAX {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(SAID_WITHIN, reading).await;
    said.truncate(SAID_BYTES_MAX);
    let text = String::from_utf8_lossy(&said);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect::<String>().trim().to_owned()
}
