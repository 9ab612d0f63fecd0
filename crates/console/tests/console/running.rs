//! A running server with the console, and how the tests talk to it.

use std::sync::Arc;
use std::time::Duration;

use annals_core::credentials::{Credentials, EVERY, Grant, NewCredential, Role};
use annals_core::{Clock, Store};
use annals_embedded::EmbeddedStore;
use annals_embedded::disk::MemoryDisk;
use annals_runtime::StoredCredentials;
use annals_runtime::types::TypedStore;
use annals_server::{Callers, Options, Security};
use annals_system::SystemClock;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// No wait of a test takes longer; reaching it is a failure.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A server on a port of its own, which ends with the test.
pub struct Running {
    pub address: std::net::SocketAddr,
    pub store: Arc<dyn Store>,
    pub client: Client,
    /// The key of an administrator, at a server with credentials.
    pub admin: String,
}

/// Text that is markup wherever it is not escaped.
pub const HOSTILE: &str = "<script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">'\"";

fn store(tenants: &[&str]) -> Arc<dyn Store> {
    let tenants = tenants.iter().map(|tenant| (*tenant).to_owned()).collect();
    let options = annals_embedded::Options { tenants, ..annals_embedded::Options::default() };
    let store = EmbeddedStore::open(Arc::new(MemoryDisk::default()), options).expect("a new store");
    // As `annals::open` does it.
    Arc::new(TypedStore::new(Arc::new(store), Arc::new(SystemClock)))
}

/// The key of a new credential, created where the store is.
pub async fn key_in(store: &dyn Store, grant: Grant) -> String {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let credentials = StoredCredentials::new(store, "system", clock).expect("the tenant is declared");
    credentials.create(NewCredential::new("of a test", grant)).await.expect("created").key
}

impl Running {
    /// A server that asks for no credentials.
    pub async fn dev() -> Self {
        let mut options = Options::default();
        options.callers = Callers::ThisMachine;
        Self::over(store(&["default"]), options, String::new()).await
    }

    /// A server that asks for credentials, with these tenants.
    pub async fn secured(tenants: &[&str]) -> Self {
        let store = store(&[tenants, &["system"]].concat());
        let admin = key_in(&*store, Grant::new(Role::Admin, [EVERY])).await;
        let mut options = Options::default();
        options.security = Some(Security::default());
        options.callers = Callers::Named;
        Self::over(store, options, admin).await
    }

    async fn over(store: Arc<dyn Store>, mut options: Options, admin: String) -> Self {
        let mut settings = annals_console::Settings::default();
        settings.configuration = vec![("store.url".to_owned(), "\"memory:\"".to_owned(), "of a test".to_owned())];
        options.pages = Some(annals_console::console(settings));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(annals_server::serve(listener, Arc::clone(&store), options, std::future::pending()));
        let client = Client::builder().no_proxy().redirect(Policy::none()).build().expect("a client");
        Self { address, store, client, admin }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sends JSON to the API.
    pub async fn api(&self, key: &str, tenant: &str, method: Method, path: &str, body: Value) -> (u16, Value) {
        let mut request = self.client.request(method, self.url(path)).header("annals-tenant", tenant);
        if !key.is_empty() {
            request = request.bearer_auth(key);
        }
        if !body.is_null() {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&answer.bytes().await.expect("a body")).unwrap_or(Value::Null))
    }

    /// Sends JSON to the API, which takes it.
    pub async fn put(&self, tenant: &str, method: Method, path: &str, body: Value) -> Value {
        let (status, answer) = self.api(&self.admin, tenant, method, path, body).await;
        assert!(status < 300, "{path}: {status} {answer}");
        answer
    }

    /// Signs in, and returns the cookie. The server follows keys that are created beside it, so a new one may take a moment.
    pub async fn sign_in(&self, key: &str) -> String {
        let signed_in = async {
            loop {
                let answer = self.form("", "/console/sign-in", &[("credential", key), ("next", "/")]).await;
                if answer.status() == 303 {
                    return cookie(&answer);
                }
            }
        };
        tokio::time::timeout(DEADLINE, signed_in).await.expect("the key is known in time")
    }

    pub async fn get(&self, cookie: &str, path: &str) -> Response {
        self.client.get(self.url(path)).header("cookie", cookie).send().await.expect("an answer")
    }

    /// The status and the text of a page.
    pub async fn page(&self, cookie: &str, path: &str) -> (u16, String) {
        let answer = self.get(cookie, path).await;
        (answer.status().as_u16(), answer.text().await.expect("text"))
    }

    pub async fn form(&self, cookie: &str, path: &str, fields: &[(&str, &str)]) -> Response {
        let body: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let request = self.client.post(self.url(path)).header("cookie", cookie);
        let request = request.header("content-type", "application/x-www-form-urlencoded").body(body.join("&"));
        request.send().await.expect("an answer")
    }

    /// Fills a tenant with one of everything, whose names, data, tags and reasons are hostile where they may be.
    pub async fn fill(&self, tenant: &str) {
        let put = async |method: Method, path: &str, body: Value| self.put(tenant, method, path, body).await;
        let id = format!("o-{HOSTILE}");
        for n in 0..3 {
            let event = json!({
                "type": "order_placed", "data": {"total": n, "secret": format!("of {tenant}"), "text": HOSTILE}, "tags": [HOSTILE],
                "metadata": {HOSTILE: HOSTILE},
            });
            let commit = json!({"aggregate": {"name": "order", "id": id}, "events": [event], "correlation_id": HOSTILE, "causation_id": HOSTILE});
            put(Method::POST, "/v1/commits", commit).await;
        }
        let retry = json!({"attempts": 1, "then": "block"});
        put(Method::PUT, "/v1/handlers/billing", json!({"partition_by": "aggregate", "retry": retry})).await;
        put(
            Method::PUT,
            "/v1/types/order_placed",
            json!({"generation": 1, "schema": {"type": "object", "description": HOSTILE}}),
        )
        .await;
        put(Method::PUT, "/v1/groups/mailers", json!({"topics": ["order_placed"]})).await;
        put(Method::PUT, "/v1/filters/orders", json!({"types": ["order_placed"]})).await;
        put(Method::PUT, "/v1/projections/totals", json!({"on": {"order_placed": {"set": {"text": "$data.text"}}}}))
            .await;
        put(Method::PUT, "/v1/consents/c-1", json!({"stream": "public-orders"})).await;
        put(Method::PUT, "/v1/records/collections/customers", json!({"indexes": []})).await;
        let customer = json!({"insert": {"collection": "customers", "document": {"_id": HOSTILE, "name": HOSTILE}}});
        put(Method::POST, "/v1/records/changes", json!({"changes": [customer]})).await;
        put(Method::PUT, "/v1/keys/user/eva", json!({"value": HOSTILE})).await;
        let snapshot = format!("/v1/snapshots/order/{}", encoded(&id));
        put(Method::PUT, &snapshot, json!({"version": 2, "state": {"text": HOSTILE}})).await;
        // The filter makes its stream, and the projection its records, in their own time.
        for (path, field) in [("/v1/streams/orders/state", "progress"), ("/v1/projections/totals", "position")] {
            until(path, || async { self.api(&self.admin, tenant, Method::GET, path, Value::Null).await.1[field] == 3 })
                .await;
        }
    }

    /// Lets the next event of the handler `billing` fail until an operator acts.
    pub async fn fail(&self, tenant: &str) {
        let pulled = json!({"worker": HOSTILE, "wait_ms": 20_000});
        let answer = self.put(tenant, Method::POST, "/v1/handlers/billing/pull", pulled).await;
        let token = answer["deliveries"][0]["token"].as_str().expect("a delivery").to_owned();
        let failure = json!({"results": [{"token": token, "failure": {"reason": HOSTILE, "never": true}}]});
        let settled = self.put(tenant, Method::POST, "/v1/handlers/billing/settle", failure).await;
        assert_eq!(settled["results"][0]["settled"], true, "{settled}");
    }
}

/// The cookie that an answer sets, as the browser sends it back.
pub fn cookie(answer: &Response) -> String {
    let set = answer.headers().get("set-cookie").expect("a cookie").to_str().expect("text");
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");
    set.split(';').next().expect("a pair").to_owned()
}

/// The token of a form in a page.
pub fn token(page: &str) -> String {
    let rest = page.split("name=\"token\" value=\"").nth(1).expect("a token");
    rest.split('"').next().expect("it ends").to_owned()
}

/// Text as part of an address or a form.
pub fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// The parameters of any act.
pub fn parameters() -> String {
    let partition = encoded(&format!("order/o-{HOSTILE}"));
    format!("name=billing&partition={partition}&sequence_number=0&position=0&consent=c-1&id=none")
}

/// The address of the page on which one thing is shown in detail; none where there is only a list.
pub fn detail(page: &str) -> Option<String> {
    let id = encoded(&format!("o-{HOSTILE}"));
    Some(match page.strip_prefix("/console/").unwrap_or("overview") {
        "event" => "number=0".to_owned(),
        "aggregates" | "snapshots" => format!("name=order&id={id}&version=3"),
        "streams" | "filters" => "name=orders".to_owned(),
        "types" | "topics" => "name=order_placed".to_owned(),
        "handlers" => "name=billing".to_owned(),
        "groups" => "name=mailers".to_owned(),
        "projections" => "name=totals".to_owned(),
        "records" => format!("collection=customers&id={}", encoded(HOSTILE)),
        "keys" => "name=user".to_owned(),
        "log" => "search=order&order=oldest".to_owned(),
        _ => return None,
    })
}

/// Waits until something is so, asking again and again.
pub async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let asked = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, asked).await.is_ok(), "{what} was not so within {DEADLINE:?}");
}
