//! A running server with the console, and how the tests talk to it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals_core::archive::ArchiveFiles;
use annals_core::credentials::{Credentials, EVERY, Grant, NewCredential, Role};
use annals_core::partners::{Answered, Outgoing, Sending};
use annals_core::{Clock, Store};
use annals_embedded::EmbeddedStore;
use annals_embedded::disk::MemoryDisk;
use annals_runtime::StoredCredentials;
use annals_runtime::types::TypedStore;
use annals_runtime::{ArchiveFolder, PartnerKeys, PartnerOptions};
use annals_server::{Callers, Options, Security};
use annals_system::SystemClock;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::browser::Browser;

/// No wait of a test takes longer; reaching it is a failure.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A server on a port of its own, which ends with the test.
pub struct Running {
    pub address: std::net::SocketAddr,
    pub store: Arc<dyn Store>,
    pub client: Client,
    /// The key of an administrator, at a server with credentials.
    pub admin: String,
    /// What the store named itself, by page: the first of each.
    pub ids: Mutex<BTreeMap<&'static str, String>>,
}

/// Text that is markup wherever it is not escaped.
pub const HOSTILE: &str = "<script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">'\"";

/// A store in memory, whose tenants have these scopes beside the default one.
pub fn store(tenants: &[&str], scopes: &[&str]) -> Arc<dyn Store> {
    let owned = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    let (tenants, scopes) = (owned(tenants), owned(scopes));
    let options = annals_embedded::Options { tenants, scopes, ..annals_embedded::Options::default() };
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

/// A partner that takes nothing, and says so in a hostile way.
struct Unwilling;

#[async_trait::async_trait]
impl Sending for Unwilling {
    async fn send(&self, _: Outgoing) -> Result<Answered, String> {
        Err(HOSTILE.to_owned())
    }

    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}

impl Running {
    /// A server that asks for no credentials.
    pub async fn dev() -> Self {
        Self::dev_over(store(&["default"], &[]), None).await
    }

    /// A server that asks for no credentials, over this store and with this folder of archived events.
    pub async fn dev_over(store: Arc<dyn Store>, archive: Option<PathBuf>) -> Self {
        let mut options = Options::default();
        options.callers = Callers::ThisMachine;
        options.tasks.archive = archive.map(|folder| Arc::new(ArchiveFolder::new(folder)) as Arc<dyn ArchiveFiles>);
        Self::over(store, options, String::new()).await
    }

    /// A server that asks for credentials, with these tenants.
    pub async fn secured(tenants: &[&str]) -> Self {
        Self::secured_over(store(&[tenants, &["system"]].concat(), &[])).await
    }

    /// A server that asks for credentials, over this store, which has the tenant `system`.
    pub async fn secured_over(store: Arc<dyn Store>) -> Self {
        let admin = key_in(&*store, Grant::new(Role::Admin, [EVERY])).await;
        let mut options = Options::default();
        options.security = Some(Security::default());
        options.callers = Callers::Named;
        Self::over(store, options, admin).await
    }

    async fn over(store: Arc<dyn Store>, mut options: Options, admin: String) -> Self {
        options.tasks.partners =
            PartnerOptions { sending: Arc::new(Unwilling), keys: Some(PartnerKeys::for_development()) };
        let mut settings = annals_console::Settings::default();
        settings.configuration = vec![("store.url".to_owned(), "\"memory:\"".to_owned(), "of a test".to_owned())];
        options.pages = Some(annals_console::console(settings));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(annals_server::serve(listener, Arc::clone(&store), options, std::future::pending()));
        let client = Client::builder().no_proxy().redirect(Policy::none()).build().expect("a client");
        Self { address, store, client, admin, ids: Mutex::default() }
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
                "metadata": {HOSTILE: HOSTILE, "user_id": HOSTILE, "service_name": HOSTILE},
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

    /// Fills a tenant as [`fill`](Self::fill) does, and with what works on its log: dead letters, sagas, queues, partners and replays. They
    /// commit events of their own.
    pub async fn fill_all(&self, tenant: &str) {
        self.fill(tenant).await;
        let put = async |method: Method, path: &str, body: Value| self.put(tenant, method, path, body).await;
        let get = async |path: &str| self.api(&self.admin, tenant, Method::GET, path, Value::Null).await.1;
        let browsed = get(&format!("/v1/events?aggregate_id={}", encoded(&format!("o-{HOSTILE}")))).await;
        self.is("events", &browsed["items"][0]["event_id"]);
        let retry = json!({"attempts": 1, "then": "park"});
        put(
            Method::PUT,
            "/v1/handlers/mailing",
            json!({"partition_by": "aggregate", "retry": retry, "types": ["order_placed"]}),
        )
        .await;
        let pulled =
            put(Method::POST, "/v1/handlers/mailing/pull", json!({"worker": HOSTILE, "wait_ms": 20_000})).await;
        let failure = json!({"token": pulled["deliveries"][0]["token"], "failure": {"reason": HOSTILE, "never": true}});
        put(Method::POST, "/v1/handlers/mailing/settle", json!({"results": [failure]})).await;
        self.is("dead-letters", &self.first(tenant, "/v1/dead-letters", "id").await);
        let policy = json!({"strategy": "manual", "reason": HOSTILE});
        put(Method::PUT, "/v1/dead-letters/policies/order_placed", policy).await;
        let saga = json!({
            "start": {"on": ["order_placed"], "from": "beginning"}, "cancel_on": ["order_cancelled"],
            "steps": [
                {"name": "reserve", "publish": {"type": "reserve_stock"}, "compensation": {"name": "release", "publish": {"type": "release_stock"}}},
                {"name": "pay", "await": {"on": ["order_paid"]}, "limit_ms": 3_600_000},
            ],
        });
        put(Method::PUT, "/v1/saga-definitions/order", saga).await;
        self.is("sagas", &self.first(tenant, "/v1/sagas", "id").await);
        put(Method::PUT, "/v1/queues/renders", json!({"cap": 1})).await;
        for id in ["r-1", HOSTILE] {
            let item = json!({"id": id, "user": HOSTILE, "payload": {"secret": format!("of {tenant}")}});
            put(Method::POST, "/v1/queues/renders/enqueue", item).await;
        }
        put(Method::POST, "/v1/queues/renders/take", json!({"worker": HOSTILE, "lease_ms": 3_600_000})).await;
        let partner = json!({
            "name": HOSTILE, "url": "https://partner.example/events", "start": "beginning", "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
            "select": {"field": "type", "operator": "EQ", "value": "order_placed"},
        });
        put(Method::PUT, "/v1/partners/acme", partner).await;
        self.is("partners", &self.first(tenant, "/v1/partners/acme/events", "id").await);
        let replay = json!({"filter": {"user_id": HOSTILE}, "target": {"kind": "test"}, "reason": HOSTILE});
        self.is("replays", &put(Method::POST, "/v1/replays", replay).await["session_id"]);
        self.fill_archive(tenant).await;
    }

    /// A field of the first of a list, once it has one.
    pub async fn first(&self, tenant: &str, path: &str, field: &str) -> Value {
        let found = Mutex::new(Value::Null);
        until(path, || async {
            let list = self.api(&self.admin, tenant, Method::GET, path, Value::Null).await.1;
            let first = list["items"][0][field].clone();
            let is_there = !first.is_null();
            *found.lock().expect("not poisoned") = first;
            is_there
        })
        .await;
        found.into_inner().expect("not poisoned")
    }

    /// Notes what the first thing of a page is called.
    pub fn is(&self, page: &'static str, id: &Value) {
        let id = id.as_str().unwrap_or_else(|| panic!("{page}: {id}")).to_owned();
        self.ids.lock().expect("not poisoned").entry(page).or_insert(id);
    }

    /// What the first thing of a page is called.
    pub fn id(&self, page: &str) -> String {
        self.ids
            .lock()
            .expect("not poisoned")
            .get(page)
            .unwrap_or_else(|| panic!("nothing is filled for {page}"))
            .clone()
    }

    /// The address of the page on which one thing is shown in detail; none where there is only a list.
    pub fn detail(&self, page: &str) -> Option<String> {
        let id = encoded(&format!("o-{HOSTILE}"));
        let page = page.strip_prefix("/console/").unwrap_or("overview");
        Some(match page {
            "event" => "number=0".to_owned(),
            "events" | "archive" => format!("event={}", self.id(page)),
            "preview" => "filter.event_types=order_placed&target.kind=test".to_owned(),
            "replays" | "dead-letters" | "sagas" => format!("id={}", encoded(&self.id(page))),
            "partners" => format!("name=acme&event={}", self.id(page)),
            "queues" => "name=renders".to_owned(),
            "aggregates" | "snapshots" => format!("name=order&id={id}&version=3"),
            "streams" | "filters" => "name=orders".to_owned(),
            "types" | "topics" => "name=order_placed".to_owned(),
            "saga-definitions" => "name=order".to_owned(),
            "handlers" => "name=billing".to_owned(),
            "groups" => "name=mailers".to_owned(),
            "projections" => "name=totals".to_owned(),
            "records" => format!("collection=customers&id={}", encoded(HOSTILE)),
            "keys" => "name=user".to_owned(),
            "log" => "search=order&order=oldest".to_owned(),
            _ => return None,
        })
    }

    /// The parameters of any act of a page.
    pub fn parameters(&self, path: &str) -> String {
        let page = path.strip_prefix("/console/").and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let own = match page {
            "archive" => format!("name=note_taken&event={}", self.id(page)),
            "events" => format!("event={}", self.id(page)),
            "replays" => format!("id={}&hours=1", self.id(page)),
            "dead-letters" => format!("id={}&topic=order_placed", encoded(&self.id(page))),
            "sagas" => format!("id={}", encoded(&self.id(page))),
            "saga-definitions" => "name=order".to_owned(),
            "queues" => format!("name=renders&id={}", encoded(HOSTILE)),
            "partners" => format!("name=acme&event={}", self.id(page)),
            _ => return parameters(),
        };
        format!("{own}&partition={}", encoded(HOSTILE))
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

impl Browser {
    /// Shows a page of a server.
    pub async fn go(&self, server: &Running, path: &str) {
        self.go_to(&server.url(path)).await;
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

/// Waits until something is so, asking again and again.
pub async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let asked = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, asked).await.is_ok(), "{what} was not so within {DEADLINE:?}");
}
