//! Requests to the server's router over a store in memory: whatever is sent, the answer is not the server's fault, and every error
//! is a problem document with a code of the table.
//!
//! An input is the text of an HTTP/1.1 request: a line `METHOD target`, lines of headers, an empty line, and the body.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use annals_core::{Code, Store};
use annals_embedded::disk::MemoryDisk;
use annals_embedded::{EmbeddedStore, Options};
use axum::body::{Body, Bytes};
use axum::http::{Method, Request, Response, header};
use axum::{Router, body};
use serde_json::Value;
use tokio::runtime::Runtime;
use tower::ServiceExt;

/// How long an answer may take. The whole of it is there at once, or something hangs.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// A store serves so many inputs, then the next gets a new one, so that memory stays bounded.
const INPUTS_OF_A_STORE: u32 = 20_000;

struct Server {
    runtime: Runtime,
    store: Arc<EmbeddedStore>,
    router: Router,
    inputs: u32,
}

thread_local! {
    static SERVER: RefCell<Option<Server>> = const { RefCell::new(None) };
}

/// Sends the request and checks the answer.
pub fn check(bytes: &[u8]) {
    let Some(request) = request(bytes) else { return };
    SERVER.with_borrow_mut(|server| {
        server.take_if(|server| server.inputs == INPUTS_OF_A_STORE).inspect(Server::close);
        server.get_or_insert_with(Server::new).send(request);
    });
}

/// The request that an input spells; none when a real connection would not have let it pass.
fn request(bytes: &[u8]) -> Option<Request<Body>> {
    let split = bytes.windows(2).position(|window| window == b"\n\n");
    let (head, body) = split.map_or((bytes, &[][..]), |at| (&bytes[..at], &bytes[at + 2..]));
    let mut lines = head.split(|&byte| byte == b'\n');
    let mut first = lines.next()?.splitn(2, |&byte| byte == b' ');
    let method = Method::from_bytes(first.next()?).ok()?;
    let target = std::str::from_utf8(first.next()?).ok().filter(|target| target.starts_with('/'))?;
    let mut request = Request::builder().method(method).uri(target);
    for line in lines {
        let at = line.iter().position(|&byte| byte == b':')?;
        request = request.header(&line[..at], line[at + 1..].trim_ascii());
    }
    request.body(Body::from(Bytes::copy_from_slice(body))).ok()
}

impl Server {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let store =
            EmbeddedStore::open(Arc::new(MemoryDisk::default()), Options::default()).expect("a store in memory");
        let store = Arc::new(store);
        let router = annals_server::router(store.clone(), annals_server::Options::default());
        Self { runtime, store, router, inputs: 0 }
    }

    fn close(&self) {
        self.runtime.block_on(self.store.close());
    }

    fn send(&mut self, request: Request<Body>) {
        self.inputs += 1;
        let shown = format!("{} {}", request.method(), request.uri());
        let is_head = request.method() == Method::HEAD;
        let router = self.router.clone();
        let answer = async {
            let response = router.oneshot(request).await.expect("a router does not fail");
            let follows = text_of(&response, header::CONTENT_TYPE).starts_with("text/event-stream");
            let (parts, body) = response.into_parts();
            // A stream of events does not end by itself.
            let body =
                if follows { Bytes::new() } else { body::to_bytes(body, usize::MAX).await.expect("a whole answer") };
            Response::from_parts(parts, body)
        };
        let answered = self.runtime.block_on(async { tokio::time::timeout(ANSWER_MAX, answer).await });
        let answer = answered.unwrap_or_else(|_| panic!("{shown}: no answer in {ANSWER_MAX:?}"));
        judge(&shown, is_head, &answer);
    }
}

fn judge(shown: &str, is_head: bool, answer: &Response<Bytes>) {
    let status = answer.status().as_u16();
    let kind = text_of(answer, header::CONTENT_TYPE);
    let body = String::from_utf8_lossy(answer.body());
    assert!(status < 500, "{shown}: {status} {body}");
    if is_head {
        return;
    }
    if status >= 400 {
        assert_eq!(kind, "application/problem+json", "{shown}: {status} {body}");
        let problem: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{shown}: {error} in {body}"));
        let code = Code::ALL.iter().find(|code| problem["code"] == code.as_str());
        assert_eq!(code.map(|code| code.status()), Some(status), "{shown}: {body}");
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{shown}: {body}");
    } else if kind.starts_with("application/json") {
        assert!(serde_json::from_str::<Value>(&body).is_ok(), "{shown}: not JSON: {body}");
    } else if kind.starts_with("application/x-ndjson") {
        assert!(
            body.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()),
            "{shown}: not JSON lines: {body}"
        );
    }
}

fn text_of<T>(answer: &Response<T>, name: header::HeaderName) -> &str {
    answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
