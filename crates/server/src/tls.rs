//! TLS by rustls: a certificate that is read again when its files change, and client certificates where they are asked for.

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

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long a handshake may take.
pub(crate) const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// The certificate of a server, and what it asks of its clients. Clones share it.
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

/// Certificates of clients.
#[derive(Debug, Clone)]
pub struct ClientCertificates {
    /// The file of the authorities that sign them, in PEM.
    pub authorities: PathBuf,
    /// Whether a client without one is refused.
    pub required: bool,
}

/// What of the files shows that they were changed.
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
    /// A sentence that names the file.
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

    /// Reads the files again if they have changed. New connections get what they hold; a file that cannot be used changes nothing.
    pub(crate) fn look(&self) {
        let Inner { files, current } = &*self.0;
        let stamp = files.stamp();
        if current.read().unwrap_or_else(PoisonError::into_inner).1 == stamp {
            return;
        }
        match files.read() {
            Ok(config) => {
                *current.write().unwrap_or_else(PoisonError::into_inner) = (config, stamp);
                tracing::info!(file = %files.certificate.display(), "the certificate was read again");
            }
            // The two files are not replaced at one moment, so this may be over at the next look.
            Err(error) => tracing::warn!(error, "the changed certificate is not used"),
        }
    }

    /// Looks for changes of the files for as long as it is polled.
    pub(crate) async fn follow(&self) {
        loop {
            sleep(LOOK_EVERY).await;
            let tls = self.clone();
            let _ = tokio::task::spawn_blocking(move || tls.look()).await;
        }
    }

    /// What new connections are accepted with.
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
        // Named here and not installed for the process, which may have another one for its own connections.
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
        let mut config = config.map_err(|error| in_file(&self.certificate, format!("{error}, with its key")))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| in_file(path, error))?;
    if found.is_empty() { Err(in_file(path, "it holds no certificate in PEM")) } else { Ok(found) }
}

fn in_file(path: &Path, what: impl fmt::Display) -> String {
    format!("{}: {what}", path.display())
}
