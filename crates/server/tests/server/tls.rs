//! TLS: certificates, client certificates, and handshakes that do not end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use annals_core::credentials::{Grant, Role};
use annals_server::{ClientCertificates, Options, Security, Tls};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::raw::Raw;
use crate::running::{Running, soon};
use crate::secured::{options, store};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn certificate(name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(fixture(name)).expect("a certificate")
}

/// A client that trusts the test's authority, with a certificate of its own or without.
fn client(own: Option<&str>, protocols: &[&str]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca.pem")).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("versions").with_root_certificates(roots);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let key = PrivateKeyDer::from_pem_file(fixture(&format!("{own}.key"))).expect("a key");
            config.with_client_auth_cert(vec![certificate(&format!("{own}.pem"))], key).expect("a certificate")
        }
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

async fn connect(server: &Running, client: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(server.address).await.expect("a connection");
    soon("a handshake", client.connect(ServerName::try_from("localhost").expect("a name"), stream)).await
}

/// The status of one request, and its body.
async fn get(server: &Running, client: &TlsConnector, path: &str) -> std::io::Result<String> {
    let mut stream = connect(server, client).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    soon("an answer", stream.read_to_end(&mut answer)).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn with_tls(mut options: Options, clients: Option<ClientCertificates>) -> Options {
    options.tls = Some(Tls::read(fixture("server.pem"), fixture("server.key"), clients).expect("a certificate"));
    options
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_certificate_speaks_both_versions_of_http_by_alpn() {
    let server = Running::over(store(&["default"]), with_tls(Options::default(), None)).await;
    let answer = get(&server, &client(None, &["http/1.1"]), "/health/live").await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for (offered, chosen) in [(&["h2", "http/1.1"][..], "h2"), (&["http/1.1"], "http/1.1")] {
        let stream = connect(&server, &client(None, offered)).await.expect("a connection");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(chosen.as_bytes()));
    }
    // Plain text is not served at the same address.
    let mut plain = Raw::open(&server).await;
    plain.write("GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("written");
    plain.closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_answered_over_http2_and_tls() {
    let server = Running::over(store(&["default"]), with_tls(Options::default(), None)).await;
    let stream = connect(&server, &client(None, &["h2"])).await.expect("a connection");
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("a connection of HTTP/2");
    tokio::spawn(connection);
    // The second takes the same connection.
    for _ in 0..2 {
        let request = hyper::Request::get("https://localhost/health/live").body(Empty::<Bytes>::new());
        let answer = soon("an answer", sender.send_request(request.expect("a request"))).await.expect("an answer");
        assert_eq!((answer.status(), answer.version()), (hyper::StatusCode::OK, hyper::Version::HTTP_2));
        let body = soon("a body", answer.into_body().collect()).await.expect("a body").to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(body, serde_json::json!({"status": "live"}));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_gets_its_stream_over_tls() {
    let mut options = with_tls(Options::default(), None);
    options.comment_interval = Duration::from_millis(20);
    let server = Running::over(store(&["default"]), options).await;
    let mut stream = connect(&server, &client(None, &["http/1.1"])).await.expect("a connection");
    stream.write_all(b"GET /v1/log/follow HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("written");
    let mut read = Vec::new();
    while read.windows(7).filter(|part| part == b": quiet").count() < 2 {
        let more = soon("more of the stream", stream.read_buf(&mut read)).await.expect("an unbroken stream");
        assert!(more > 0, "{}", String::from_utf8_lossy(&read));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_replaced_is_served_without_a_restart() {
    let folder = std::env::temp_dir().join(format!("annals-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (pem, key) = (folder.join("server.pem"), folder.join("server.key"));
    let put = |name: &str| {
        std::fs::copy(fixture(&format!("{name}.key")), &key).expect("copied");
        std::fs::copy(fixture(&format!("{name}.pem")), &pem).expect("copied");
    };
    put("server");
    let mut options = Options::default();
    options.tls = Some(Tls::read(&pem, &key, None).expect("a certificate"));
    let server = Running::over(store(&["default"]), options).await;
    let client = client(None, &[]);
    let served = async || {
        let stream = connect(&server, &client).await.expect("a connection");
        stream.get_ref().1.peer_certificates().expect("a certificate")[0].clone().into_owned()
    };
    assert_eq!(served().await, certificate("server.pem"));
    // A file that is no certificate changes nothing.
    std::fs::write(&pem, "nothing").expect("written");
    put("renewed");
    soon("the new certificate", async { while served().await != certificate("renewed.pem") {} }).await;
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_of_a_client_certificate_is_let_in_only_if_its_subject_is_configured() {
    let mut options = options();
    let mut security = Security::default();
    security.certificates.insert("CN=worker-1,O=acme".to_owned(), Grant::new(Role::Reader, ["acme"]));
    options.security = Some(security);
    let clients = ClientCertificates { authorities: fixture("ca.pem"), required: false };
    let server = Running::over(store(&["default", "acme"]), with_tls(options, Some(clients))).await;
    let of = async |own: Option<&str>| get(&server, &client(own, &[]), "/v1").await.expect("an answer");
    let known = of(Some("client")).await;
    assert!(known.starts_with("HTTP/1.1 200") && known.contains(r#""tenant":"acme""#), "{known}");
    for own in [Some("other-client"), None] {
        let refused = of(own).await;
        assert!(refused.starts_with("HTTP/1.1 401"), "{own:?}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_certificate_of_the_authority_is_refused_where_one_is_required() {
    let clients = ClientCertificates { authorities: fixture("ca.pem"), required: true };
    let server = Running::over(store(&["default"]), with_tls(Options::default(), Some(clients))).await;
    let answer = get(&server, &client(Some("client"), &[]), "/health/live").await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(!get(&server, &client(None, &[]), "/health/live").await.is_ok_and(|answer| answer.contains("200")));
    let foreign = ClientCertificates { authorities: fixture("foreign-ca.pem"), required: true };
    let server = Running::over(store(&["default"]), with_tls(Options::default(), Some(foreign))).await;
    assert!(
        !get(&server, &client(Some("client"), &[]), "/health/live").await.is_ok_and(|answer| answer.contains("200"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn authorities_of_clients_that_are_replaced_decide_without_a_restart() {
    let folder = std::env::temp_dir().join(format!("annals-tls-clients-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let authorities = folder.join("clients.pem");
    std::fs::copy(fixture("ca.pem"), &authorities).expect("copied");
    let clients = ClientCertificates { authorities: authorities.clone(), required: true };
    let server = Running::over(store(&["default"]), with_tls(Options::default(), Some(clients))).await;
    let client = client(Some("client"), &[]);
    let is_let_in = async || {
        let answer = get(&server, &client, "/health/live").await;
        answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    };
    assert!(is_let_in().await);
    std::fs::copy(fixture("foreign-ca.pem"), &authorities).expect("copied");
    soon("the new authorities", async { while is_let_in().await {} }).await;
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_does_not_end_is_cut_off() {
    let mut options = Options::default();
    options.header_wait_max = std::time::Duration::from_millis(200);
    let server = Running::over(store(&["default"]), with_tls(options, None)).await;
    let silent = Raw::open(&server).await;
    let mut slow = Raw::open(&server).await;
    // The beginning of a handshake record.
    slow.write(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).await.expect("written");
    assert!(!silent.closed().await);
    slow.closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_says_nothing_after_its_handshake_is_cut_off() {
    let mut options = Options::default();
    options.header_wait_max = std::time::Duration::from_secs(2);
    let server = Running::over(store(&["default"]), with_tls(options, None)).await;
    for protocol in ["http/1.1", "h2"] {
        let Ok(mut stream) = connect(&server, &client(None, &[protocol])).await else { continue };
        let mut read = Vec::new();
        // However it ends, it does.
        let _ = soon("the end of the connection", stream.read_to_end(&mut read)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_no_certificate_or_no_key_of_it_are_refused_by_name() {
    for (pem, key, named) in [
        ("server.pem", "client.key", "server.pem"),
        ("absent.pem", "server.key", "absent.pem"),
        ("server.pem", "ca.pem", "ca.pem"),
        ("server.key", "server.key", "server.key"),
    ] {
        let refused = Tls::read(fixture(pem), fixture(key), None).expect_err(pem);
        assert!(refused.contains(named), "{refused}");
    }
}
