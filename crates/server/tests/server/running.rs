//! A running server, and how the tests talk to it.

use std::sync::Arc;
use std::time::Duration;

use annals_core::{Code, Store};
use annals_embedded::EmbeddedStore;
use annals_embedded::disk::{Disk, MemoryDisk};
use annals_server::Options;
use axum::Router;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, header::HeaderMap};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// No wait of a test takes longer, whatever the machine is busy with; reaching it is a failure.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Waits for something that must happen.
pub async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, happens).await {
        Ok(result) => result,
        Err(_) => panic!("{what} did not happen within {DEADLINE:?}"),
    }
}

/// A server on a port of its own.
pub struct Running {
    pub address: std::net::SocketAddr,
    pub store: Arc<dyn Store>,
    pub client: Client,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<std::io::Result<()>>,
}

fn client() -> Client {
    Client::builder().no_proxy().build().expect("a client")
}

fn until_stopped() -> (oneshot::Sender<()>, impl Future<Output = ()>) {
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async move {
        // A dropped sender is a test that ended.
        let _ = stopped.await;
    };
    (stop, stopped)
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub async fn of(response: Response) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = soon("the end of an answer", response.bytes()).await.expect("a whole body").to_vec();
        Self { status, headers, body }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}")).to_str().expect("text")
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }

    /// The body of a success.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert!(self.status.is_success(), "{} {}", self.status, String::from_utf8_lossy(&self.body));
        assert_eq!(self.header("content-type"), "application/json");
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// The body of an error, checked to be a proper problem document.
    #[track_caller]
    pub fn problem(&self, code: Code) -> Value {
        let problem: Value = serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("{} {}", self.status, String::from_utf8_lossy(&self.body)));
        assert_eq!(problem["code"], code.as_str(), "{problem}");
        assert_eq!(self.status.as_u16(), code.status(), "{problem}");
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(problem["status"], code.status());
        assert_eq!(problem["type"], format!("/errors/{}", code.as_str()));
        assert_eq!(problem["title"], code.meaning());
        assert_eq!(problem["advice"], code.advice());
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
        assert!(code.status() != 422 || problem["path"].is_string(), "{problem}");
        problem
    }
}

impl Running {
    /// A server with the default tenant.
    pub async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    pub async fn start_with(options: Options) -> Self {
        Self::over(store_on(Arc::new(MemoryDisk::default()), annals_embedded::Options::default()), options).await
    }

    pub async fn over(store: Arc<dyn Store>, options: Options) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = until_stopped();
        let served = tokio::spawn(annals_server::serve(listener, Arc::clone(&store), options, stopped));
        Self { address, store, client: client(), stop: Some(stop), served }
    }

    /// A server whose router is changed before it serves.
    pub async fn with_router(store: Arc<dyn Store>, options: Options, change: impl FnOnce(Router) -> Router) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = until_stopped();
        let router = change(annals_server::router(Arc::clone(&store), options.clone()));
        let served = tokio::spawn(annals_server::serve_router(listener, router, Arc::clone(&store), options, stopped));
        Self { address, store, client: client(), stop: Some(stop), served }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.url(path))
    }

    pub async fn send(&self, request: RequestBuilder) -> Answer {
        Answer::of(soon("an answer", request.send()).await.expect("an answer")).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    pub async fn post(&self, body: impl Into<Vec<u8>>) -> Answer {
        self.send(self.request(Method::POST, "/v1/commits").body(body.into())).await
    }

    pub async fn commit(&self, body: &Value) -> Value {
        self.post(body.to_string()).await.json()
    }

    /// Commits `count` events of `order/{id}` in one commit.
    pub async fn commit_orders(&self, id: &str, count: usize) -> Value {
        let events: Vec<_> = (0..count).map(|n| json!({"type": "order_placed", "data": {"n": n}})).collect();
        self.commit(&json!({"aggregate": {"name": "order", "id": id}, "events": events})).await
    }

    /// Makes `count` commits of 1,000 events with 5 MB of data each.
    pub async fn commit_batches(&self, count: usize) {
        let event = json!({"type": "t", "data": {"text": "x".repeat(5_000)}});
        let batch = json!({"aggregate": {"name": "batch", "id": "1"}, "events": vec![event; 1_000]}).to_string();
        for _ in 0..count {
            assert_eq!(self.post(batch.clone()).await.status, 201);
        }
    }

    /// The number of events in the default log.
    pub async fn head(&self) -> u64 {
        self.get("/v1/log?from=18446744073709551615").await.json()["head"].as_u64().expect("a number")
    }

    /// Tells the server to stop.
    pub fn begin_stop(&mut self) {
        let stop = self.stop.take().expect("stopped once");
        stop.send(()).expect("the server runs");
    }

    /// Waits until it has stopped.
    pub async fn stopped(self) {
        soon("the end of the server", self.served).await.expect("no panic").expect("a clean end");
    }
}

/// An embedded store.
pub fn store_on(disk: Arc<dyn Disk>, options: annals_embedded::Options) -> Arc<dyn Store> {
    Arc::new(EmbeddedStore::open(disk, options).expect("a new store"))
}

/// One event of `door/7`.
pub fn door(event: Value) -> Value {
    json!({"aggregate": {"name": "door", "id": "7"}, "events": [event]})
}

/// An ordinary body.
pub fn opened() -> Value {
    door(json!({"type": "opened", "data": {"by": "Eva"}}))
}
