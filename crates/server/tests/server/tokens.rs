//! JSON Web Tokens of an issuer: which are accepted, and what they allow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use annals_core::Code;
use annals_core::credentials::Role;
use annals_server::{FetchKeys, Issuer, Keys, Options, Security};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, KeyPair, RsaKeyPair};
use serde_json::{Value, json};

use crate::running::{Answer, Running, soon};
use crate::secured::{options, store};

const ISSUER: &str = "https://id.example";
const RSA_KEY: &[u8] = include_bytes!("../fixtures/issuer-rsa.pk8");

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A key pair for ES256.
struct Es256 {
    id: &'static str,
    pair: EcdsaKeyPair,
}

impl Es256 {
    fn new(id: &'static str) -> Self {
        let (random, algorithm) = (SystemRandom::new(), &signature::ECDSA_P256_SHA256_FIXED_SIGNING);
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        Self { id, pair: EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).expect("a key") }
    }

    fn public(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        json!({"kty": "EC", "crv": "P-256", "kid": self.id, "use": "sig", "x": encode(&point[1..33]), "y": encode(&point[33..])})
    }

    fn token(&self, claims: &Value) -> String {
        let signed = unsigned(&json!({"alg": "ES256", "kid": self.id}), claims);
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).expect("signed");
        format!("{signed}.{}", encode(signature))
    }
}

fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", encode(header.to_string()), encode(claims.to_string()))
}

fn claims() -> Value {
    json!({"iss": ISSUER, "aud": "annals", "sub": "eva", "exp": 4_000_000_000_i64, "roles": ["writer"], "tenants": ["default"]})
}

/// The claims with one changed; null leaves it out.
fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

/// Keys that are handed out, and how often they were asked for.
#[derive(Default)]
struct Published {
    keys: std::sync::Mutex<Vec<Value>>,
    fetched: AtomicUsize,
}

impl FetchKeys for Published {
    fn fetch(&self, url: &str) -> BoxFuture<'_, Result<Bytes, String>> {
        let answer = match url {
            "https://id.example/.well-known/openid-configuration" => {
                json!({"issuer": ISSUER, "jwks_uri": "https://id.example/keys"})
            }
            "https://id.example/keys" => {
                self.fetched.fetch_add(1, Ordering::SeqCst);
                json!({ "keys": *self.keys.lock().expect("not poisoned") })
            }
            other => return Box::pin(std::future::ready(Err(format!("{other} is not there")))),
        };
        Box::pin(std::future::ready(Ok(answer.to_string().into())))
    }
}

fn with_issuer(change: impl FnOnce(&mut Issuer)) -> Options {
    let mut issuer = Issuer::new(ISSUER, "annals");
    change(&mut issuer);
    issuer.validate().expect("an issuer");
    let mut options = options();
    let mut security = Security::default();
    security.issuers = vec![issuer];
    options.security = Some(security);
    options
}

async fn ask(server: &Running, token: &str) -> Answer {
    server.send(server.request(reqwest::Method::GET, "/v1").header("authorization", format!("Bearer {token}"))).await
}

async fn discovered(key: &Es256) -> (Running, Arc<Published>) {
    discovered_with(key, |_| {}).await
}

async fn discovered_with(key: &Es256, change: impl FnOnce(&mut Issuer)) -> (Running, Arc<Published>) {
    let published = Arc::new(Published::default());
    published.keys.lock().expect("not poisoned").push(key.public());
    let keys = Keys::Discovered(published.clone());
    let options = with_issuer(|issuer| {
        issuer.keys = Some(keys);
        change(issuer);
    });
    (Running::over(store(&["default", "north"]), options).await, published)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_the_issuer_is_accepted_for_what_its_claims_say() {
    let key = Es256::new("one");
    let (server, _) = discovered(&key).await;
    assert_eq!(ask(&server, &key.token(&claims())).await.json()["tenant"], "default");
    let commit = server.request(reqwest::Method::POST, "/v1/commits").body(crate::running::opened().to_string());
    let commit = commit.header("authorization", format!("Bearer {}", key.token(&claims())));
    assert_eq!(server.send(commit).await.status, 201);
    let reader = key.token(&with("roles", json!(["reader"])));
    let commit =
        server.request(reqwest::Method::POST, "/v1/commits").header("authorization", format!("Bearer {reader}"));
    server.send(commit.body("{}")).await.problem(Code::Forbidden);
    let elsewhere = server.request(reqwest::Method::GET, "/v1").header("annals-tenant", "north");
    server.send(elsewhere.header("authorization", format!("Bearer {reader}"))).await.problem(Code::UnknownTenant);
    ask(&server, &key.token(&with("roles", json!(["cook"])))).await.problem(Code::Forbidden);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_commits_events_of_the_types_in_its_claim_and_no_others() {
    let key = Es256::new("one");
    let claim = |issuer: &mut Issuer| issuer.event_types_claim = Some("event_types".to_owned());
    let (server, _) = discovered_with(&key, claim).await;
    let token = key.token(&with("event_types", json!(["paid"])));
    let commit = async |event_type: &str| {
        let events = json!([{"type": event_type, "data": {}}]);
        let body = json!({"aggregate": {"name": "order", "id": "o-1"}, "events": events});
        let request = server.request(reqwest::Method::POST, "/v1/commits");
        let request = request.header("authorization", format!("Bearer {token}"));
        server.send(request.body(body.to_string())).await
    };
    assert_eq!(commit("paid").await.status, 201);
    let refused = commit("shipped").await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    // A token without the claim is not one without limits.
    let refused = ask(&server, &key.token(&claims())).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("event_types"), "{}", refused.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_expired_or_foreign_token_is_refused_and_quoted_nowhere() {
    let key = Es256::new("one");
    let (server, _) = discovered(&key).await;
    let good = key.token(&claims());
    let (signed, _) = good.rsplit_once('.').expect("three parts");
    let changed = unsigned(&json!({"alg": "ES256", "kid": "one"}), &with("roles", json!(["admin"])));
    let signature = good.rsplit('.').next().expect("a signature");
    let point = key.pair.public_key().as_ref();
    let hmac = unsigned(&json!({"alg": "HS256", "kid": "one"}), &claims());
    let mac = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, point), hmac.as_bytes());
    let none = unsigned(&json!({"alg": "none"}), &claims());
    let critical = unsigned(&json!({"alg": "ES256", "kid": "one", "crit": ["b64"]}), &claims());
    for (what, token) in [
        ("another key's signature", Es256::new("one").token(&claims())),
        ("changed claims", format!("{changed}.{signature}")),
        ("no signature", format!("{signed}.")),
        ("none", format!("{none}.")),
        ("none with a signature", format!("{none}.{signature}")),
        ("the public key as a secret", format!("{hmac}.{}", encode(mac))),
        ("critical extensions", format!("{critical}.{signature}")),
        ("another audience", key.token(&with("aud", json!("other")))),
        ("no audience", key.token(&with("aud", Value::Null))),
        ("another issuer", key.token(&with("iss", json!("https://evil.example")))),
        ("expired", key.token(&with("exp", json!(1_500_000_000)))),
        ("without an end", key.token(&with("exp", Value::Null))),
        ("not valid yet", key.token(&with("nbf", json!(3_900_000_000_i64)))),
        ("not a token", "eyJhbGciOi.x".to_owned()),
        ("a key of nobody", "ann_00".to_owned()),
    ] {
        let answer = ask(&server, &token).await;
        assert_eq!(answer.status, 401, "{what}: {}", answer.text());
        answer.problem(Code::Unauthenticated);
        assert!(answer.header("www-authenticate").starts_with("Bearer"), "{what}");
        assert!(!answer.text().contains(signature) && !answer.text().contains(&token), "{what}: {}", answer.text());
    }
    assert_eq!(ask(&server, &good).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_an_unknown_key_has_the_keys_fetched_again_at_a_limited_rate() {
    let (key, next) = (Es256::new("one"), Es256::new("two"));
    let (server, published) = discovered(&key).await;
    assert_eq!(ask(&server, &key.token(&claims())).await.status, 200);
    assert_eq!(published.fetched.load(Ordering::SeqCst), 1);
    published.keys.lock().expect("not poisoned").push(next.public());
    for n in 0..5 {
        // It was fetched a moment ago, so an unknown key is refused without another look.
        let token = next.token(&with("sub", json!(format!("s-{n}"))));
        ask(&server, &token).await.problem(Code::Unauthenticated);
    }
    assert_eq!(published.fetched.load(Ordering::SeqCst), 1);
    assert_eq!(ask(&server, &key.token(&with("sub", json!("other")))).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn once_the_pace_allows_it_a_token_of_a_new_key_is_accepted_after_a_single_fetch() {
    let (key, next) = (Es256::new("one"), Es256::new("two"));
    let pace = Duration::from_millis(200);
    let (server, published) = discovered_with(&key, |issuer| issuer.fetch_pace = Some(pace)).await;
    assert_eq!(ask(&server, &key.token(&claims())).await.status, 200);
    published.keys.lock().expect("not poisoned").push(next.public());
    let token = next.token(&claims());
    let accepted = async {
        loop {
            match ask(&server, &token).await {
                answer if answer.status == 200 => break,
                // Within the pace it is refused without another look.
                answer => drop(answer.problem(Code::Unauthenticated)),
            }
        }
    };
    soon("the new key is fetched", accepted).await;
    assert_eq!(published.fetched.load(Ordering::SeqCst), 2);
    // The key from before is among those that were fetched.
    assert_eq!(ask(&server, &key.token(&with("sub", json!("other")))).await.status, 200);
    assert_eq!(published.fetched.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_also_read_from_a_file_and_the_allow_list_and_the_mapping_decide() {
    let pair = RsaKeyPair::from_pkcs8(RSA_KEY).expect("a key");
    let public = signature::RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
    let set = json!({"keys": [{"kty": "RSA", "kid": "r", "n": encode(public.n), "e": encode(public.e)}, {"kty": "oct", "k": "AA"}]});
    let file = std::env::temp_dir().join(format!("annals-keys-{}.json", std::process::id()));
    std::fs::write(&file, set.to_string()).expect("written");
    let options = with_issuer(|issuer| {
        issuer.keys = Some(Keys::File(file.clone()));
        issuer.algorithms = vec!["RS256".to_owned()];
        issuer.roles_claim = "realm_access.roles".to_owned();
        issuer.roles.insert("annals-ops".to_owned(), Role::Operator);
        issuer.tenants = vec!["north".to_owned()];
    });
    let server = Running::over(store(&["default", "north"]), options).await;
    let token = |algorithm: &str, padding: &'static dyn signature::RsaEncoding| {
        let claims = with("realm_access", json!({"roles": ["annals-ops"]}));
        let signed = unsigned(&json!({"alg": algorithm, "kid": "r"}), &claims);
        let mut signature = vec![0; pair.public().modulus_len()];
        pair.sign(padding, &SystemRandom::new(), signed.as_bytes(), &mut signature).expect("signed");
        format!("{signed}.{}", encode(signature))
    };
    assert_eq!(ask(&server, &token("RS256", &signature::RSA_PKCS1_SHA256)).await.json()["tenant"], "north");
    ask(&server, &token("PS256", &signature::RSA_PSS_SHA256)).await.problem(Code::Unauthenticated);
    ask(&server, &token("RS512", &signature::RSA_PKCS1_SHA512)).await.problem(Code::Unauthenticated);
    std::fs::remove_file(&file).expect("removed");
}
