//! TLS with rustls. The certificate is reloaded when its files change; client certificates are optional.

mod subject;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use annals_system::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

pub(crate) use subject::subject;

/// How often the files are checked for changes.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long a handshake may take.
pub(crate) const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// The certificate of a server, and which certificates it requires of clients. Clones share it.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    files: Files,
    current: RwLock<(Arc<ServerConfig>, Stamp)>,
}

struct Files {
    certificate: PathBuf,
    key: PathBuf,
    clients: Option<ClientCertificates>,
}

/// The settings for client certificates.
#[derive(Debug, Clone)]
pub struct ClientCertificates {
    /// The PEM file of the certificate authorities that sign them.
    pub authorities: PathBuf,
    /// Whether clients without a certificate are refused.
    pub required: bool,
}

/// The modification times and sizes of the files, by which changes are detected.
type Stamp = Vec<Option<(SystemTime, u64)>>;

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("certificate", &self.0.files.certificate).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads a certificate chain and its key, both in PEM.
    ///
    /// # Errors
    /// Returns a sentence that names the file.
    pub fn read(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        clients: Option<ClientCertificates>,
    ) -> Result<Self, String> {
        let files = Files { certificate: certificate.into(), key: key.into(), clients };
        let stamp = files.stamp();
        let config = files.read()?;
        Ok(Self(Arc::new(Inner { files, current: RwLock::new((config, stamp)) })))
    }

    /// Reloads the files if they have changed. New connections then use the new certificate. If a file is unusable, the old certificate
    /// stays.
    pub(crate) fn look(&self) {
        let Inner { files, current } = &*self.0;
        let stamp = files.stamp();
        if current.read().unwrap_or_else(PoisonError::into_inner).1 == stamp {
            return;
        }
        match files.read() {
            Ok(config) => {
                *current.write().unwrap_or_else(PoisonError::into_inner) = (config, stamp);
                tracing::info!(file = %files.certificate.display(), "reloaded the certificate");
            }
            // The two files are not replaced atomically, so the error may be gone at the next check.
            Err(error) => {
                tracing::warn!(error, "could not load the changed certificate; continuing with the previous one")
            }
        }
    }

    /// Checks the files for changes as long as it is polled.
    pub(crate) async fn follow(&self) {
        loop {
            sleep(LOOK_EVERY).await;
            let tls = self.clone();
            let _ = tokio::task::spawn_blocking(move || tls.look()).await;
        }
    }

    /// Returns the acceptor for new connections.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0.current.read().unwrap_or_else(PoisonError::into_inner).0))
    }
}

impl Files {
    fn stamp(&self) -> Stamp {
        let clients = self.clients.as_ref().map(|clients| &clients.authorities);
        let files = [Some(&self.certificate), Some(&self.key), clients];
        let stamp = |file: &PathBuf| {
            let metadata = std::fs::metadata(file).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        files.into_iter().flatten().map(stamp).collect()
    }

    fn read(&self) -> Result<Arc<ServerConfig>, String> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| in_file(&self.key, error))?;
        // Passed explicitly rather than installed for the process, which may use another provider for its own connections.
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let builder = match &self.clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(&clients.authorities)? {
                    roots.add(authority).map_err(|error| in_file(&clients.authorities, error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if clients.required { verifier } else { verifier.allow_unauthenticated() };
                let verifier = verifier.build().map_err(|error| in_file(&clients.authorities, error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| {
            in_file(&self.certificate, format!("{error}; the certificate and its key do not work together"))
        })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| in_file(path, error))?;
    if found.is_empty() { Err(in_file(path, "it contains no PEM certificate")) } else { Ok(found) }
}

fn in_file(path: &Path, what: impl fmt::Display) -> String {
    format!("{}: {what}", path.display())
}
