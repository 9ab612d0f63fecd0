//! The keys of an issuer that is a real HTTP server: discovered, kept, and used while it fails.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals::server::{FetchKeys, Issuer, Keys, Options, Security, serve};
use annals::{ClientOptions, KeyFetcher};
use annals_embedded::EmbeddedStore;
use annals_embedded::disk::MemoryDisk;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::partner_faults::read_request;

/// No wait of a test takes longer; reaching it is a failure.
const DEADLINE: Duration = Duration::from_secs(30);

/// The key pair of an issuer.
struct Es256 {
    id: &'static str,
    pair: EcdsaKeyPair,
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Es256 {
    fn new(id: &'static str) -> Self {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        Self { id, pair: EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).expect("a key") }
    }

    fn public(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        json!({"kty": "EC", "crv": "P-256", "kid": self.id, "x": encode(&point[1..33]), "y": encode(&point[33..])})
    }

    /// A token of this issuer for a reader.
    fn token(&self, issuer: &str, subject: &str) -> String {
        let header = json!({"alg": "ES256", "kid": self.id}).to_string();
        let claims = json!({
            "iss": issuer, "aud": "annals", "sub": subject, "exp": 4_000_000_000_i64, "roles": ["reader"], "tenants": ["default"],
        });
        let signed = format!("{}.{}", encode(header), encode(claims.to_string()));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).expect("signed");
        format!("{signed}.{}", encode(signature))
    }
}

/// An issuer of tokens on this machine.
struct Issuing {
    url: String,
    shown: Arc<Shown>,
}

/// What an issuer answers, and what it was asked.
#[derive(Default)]
struct Shown {
    keys: Mutex<Vec<Value>>,
    /// The status of every answer, where it is not well.
    fault: Mutex<Option<&'static str>>,
    requests: Mutex<Vec<String>>,
}

impl Shown {
    fn answer(&self, base: &str, request: &str) -> String {
        if let Some(fault) = *self.fault.lock().expect("unpoisoned") {
            return format!(
                "HTTP/1.1 {fault}\r\nlocation: {base}/keys\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
        }
        let body = match request.split(' ').nth(1) {
            Some("/.well-known/openid-configuration") => {
                json!({"issuer": base, "jwks_uri": format!("{base}/keys?v=1")})
            }
            Some("/keys?v=1") => json!({"keys": *self.keys.lock().expect("unpoisoned")}),
            other => panic!("{other:?} was asked for"),
        };
        let body = body.to_string();
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
    }
}

impl Issuing {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let shown = Arc::new(Shown::default());
        let (shows, base) = (Arc::clone(&shown), url.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (shows, base) = (Arc::clone(&shows), base.clone());
                tokio::spawn(async move {
                    let Some(request) = read_request(&mut stream).await else { return };
                    let answer = shows.answer(&base, &request);
                    shows.requests.lock().expect("unpoisoned").push(request);
                    let _ = stream.write_all(answer.as_bytes()).await;
                });
            }
        });
        Self { url, shown }
    }

    fn show(&self, key: &Es256) {
        self.shown.keys.lock().expect("unpoisoned").push(key.public());
    }

    /// Answers everything with this status from now on; none ends it.
    fn fail(&self, with: Option<&'static str>) {
        *self.shown.fault.lock().expect("unpoisoned") = with;
    }

    fn requests(&self) -> Vec<String> {
        self.shown.requests.lock().expect("unpoisoned").clone()
    }

    /// What was asked for.
    fn paths(&self) -> Vec<String> {
        self.requests().iter().map(|request| request.split(' ').nth(1).expect("a path").to_owned()).collect()
    }
}

/// A server that accepts tokens of this issuer, and looks for the keys of unknown ones as often as it is asked.
async fn server(issuing: &Issuing) -> SocketAddr {
    let mut issuer = Issuer::new(&issuing.url, "annals");
    issuer.keys = Some(Keys::Discovered(Arc::new(KeyFetcher::default())));
    issuer.fetch_pace = Some(Duration::ZERO);
    let mut security = Security::default();
    security.issuers = vec![issuer];
    let mut options = Options::default();
    options.security = Some(security);
    let tenants = ["default", "system"].map(str::to_owned).to_vec();
    let of_store = annals_embedded::Options { tenants, ..annals_embedded::Options::default() };
    let store = EmbeddedStore::open(Arc::new(MemoryDisk::default()), of_store).expect("a new store");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(serve(listener, Arc::new(store), options, std::future::pending()));
    address
}

/// The status of a request with this token, and the whole answer.
async fn ask(server: SocketAddr, token: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(server).await.expect("a connection");
    let request =
        format!("GET /v1 HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut answer = String::new();
    let read = tokio::time::timeout(DEADLINE, stream.read_to_string(&mut answer)).await;
    read.expect("an answer in time").expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_an_issuer_are_discovered_over_http_kept_and_used_while_it_fails() {
    let (issuing, key, next) = (Issuing::start().await, Es256::new("one"), Es256::new("two"));
    let (server, url) = (server(&issuing).await, issuing.url.as_str());
    let (discovery, keys) = ("/.well-known/openid-configuration", "/keys?v=1");
    issuing.show(&key);

    issuing.fail(Some("503 Service Unavailable"));
    let (status, refused) = ask(server, &key.token(url, "eva")).await;
    assert_eq!(status, 503, "{refused}");
    assert!(refused.contains("not_ready") && refused.contains(&format!("{url}{discovery} answered 503")), "{refused}");
    assert_eq!(issuing.paths(), [discovery]);

    issuing.fail(None);
    for subject in ["eva", "ada", "ben"] {
        let (status, answer) = ask(server, &key.token(url, subject)).await;
        assert_eq!(status, 200, "{answer}");
    }
    assert_eq!(issuing.paths(), [discovery, discovery, keys], "its keys are fetched once");

    issuing.fail(Some("503 Service Unavailable"));
    let (status, refused) = ask(server, &next.token(url, "eva")).await;
    assert_eq!(status, 401, "its key is not among those that are known: {refused}");
    assert_eq!(issuing.paths(), [discovery, discovery, keys, discovery], "it was looked for");
    let (status, answer) = ask(server, &key.token(url, "zoe")).await;
    assert_eq!(status, 200, "{answer}");

    issuing.fail(None);
    issuing.show(&next);
    let (status, answer) = ask(server, &next.token(url, "eva")).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(issuing.paths()[4..], [discovery, keys]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetcher_sends_no_credential_follows_no_redirect_and_fetches_over_https_from_other_machines() {
    let issuing = Issuing::start().await;
    let mut options = ClientOptions::default();
    options.credential = Some("ann_0123".to_owned());
    let fetcher = KeyFetcher::new(options);
    let url = format!("{}/keys?v=1", issuing.url);
    assert_eq!(&fetcher.fetch(&url).await.expect("fetched")[..], br#"{"keys":[]}"#);
    issuing.fail(Some("302 Found"));
    let refused = fetcher.fetch(&url).await.expect_err("a redirect");
    assert!(refused.contains("answered 302"), "{refused}");
    let requests = issuing.requests();
    assert_eq!(requests.len(), 2, "the place that the redirect names is not asked");
    for request in requests {
        assert!(!request.to_ascii_lowercase().contains("authorization") && !request.contains("ann_"), "{request}");
    }
    let refused = fetcher.fetch("http://id.example/keys").await.expect_err("plain HTTP of another machine");
    assert!(refused.contains("over https"), "{refused}");
}
