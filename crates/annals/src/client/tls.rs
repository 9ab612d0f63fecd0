//! The client's connections: plain text, or TLS with rustls.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tower_service::Service;

use super::ClientOptions;

/// Time limit for connecting, and again for the handshake.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);

/// The files in which common systems keep the authorities that they trust.
const BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
];
/// The environment variable that names another file, as for other programs.
const BUNDLE_VARIABLE: &str = "SSL_CERT_FILE";

/// The TLS settings for connections to one server.
#[derive(Clone)]
pub(super) struct Secured {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Secured {
    /// Creates the settings for a server with this name or address.
    pub fn new(host: &str, options: &ClientOptions) -> Result<Self, String> {
        Self::with(connector(options.authorities.as_deref())?, host)
    }

    /// Creates the settings for a server with this name or address, with an existing connector.
    pub fn with(connector: TlsConnector, host: &str) -> Result<Self, String> {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host.clone()).map_err(|_| format!("{host:?} is not a name or an address"))?;
        Ok(Self { connector, name })
    }

    /// Performs the TLS handshake on a connection.
    pub async fn connect(&self, stream: TcpStream) -> io::Result<Stream> {
        let secured = self.connector.connect(self.name.clone(), stream).await?;
        Ok(Stream::Tls(Box::new(secured)))
    }
}

/// Returns a connector that trusts these authorities, or the system's if absent.
pub(super) fn connector(trusted: Option<&Path>) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    match trusted {
        Some(file) => {
            for authority in authorities(file)? {
                roots.add(authority).map_err(|error| format!("{}: {error}", file.display()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(of_the_system()?);
        }
    }
    // The provider is passed here instead of being installed for the process, which may use another one.
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| format!("{}: {error}", file.display()))?;
    if found.is_empty() { Err(format!("{}: it contains no PEM certificate", file.display())) } else { Ok(found) }
}

/// Reads the authorities that the system trusts.
fn of_the_system() -> Result<Vec<CertificateDer<'static>>, String> {
    if let Some(file) = std::env::var_os(BUNDLE_VARIABLE) {
        return authorities(Path::new(&file));
    }
    match BUNDLES.iter().map(Path::new).find(|file| file.is_file()) {
        Some(file) => authorities(file),
        None => Err(format!(
            "no file of trusted certificate authorities was found in a known place; name one with --ca, or in {BUNDLE_VARIABLE}"
        )),
    }
}

/// Opens the connections of the pool.
#[derive(Clone)]
pub(super) struct Connector {
    tcp: HttpConnector,
    secured: Option<Secured>,
    /// Addresses at which nothing is sent, whatever name leads there.
    refuses: fn(IpAddr) -> bool,
}

impl Connector {
    pub fn new(secured: Option<Secured>, refuses: fn(IpAddr) -> bool) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(CONNECT_MAX));
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        Self { tcp, secured, refuses }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, secured, refuses) = (self.tcp.call(uri), self.secured.clone(), self.refuses);
        Box::pin(async move {
            let stream = connecting.await?.into_inner();
            let address = stream.peer_addr()?.ip();
            if refuses(address) {
                return Err(format!("{address} is not the address of a server of Annals").into());
            }
            let stream = match secured {
                None => Stream::Plain(stream),
                Some(secured) => tokio::time::timeout(CONNECT_MAX, secured.connect(stream))
                    .await
                    .map_err(|_| "the handshake took too long")??,
            };
            Ok(TokioIo::new(stream))
        })
    }
}

/// A connection to a server.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
