//! Traces of `annals serve`, as a collector receives them: one that refuses the first request, and takes the others.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::{Server, annals};
use crate::run::folder;

/// No span takes longer to arrive.
const PATIENCE: Duration = Duration::from_secs(30);
const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// What the collector was sent.
#[derive(Default)]
struct Received {
    /// Requests, each with what it says of the service.
    spans: Mutex<Vec<(Value, Value)>>,
    arrived: Condvar,
}

impl Received {
    /// Starts a collector, and returns its endpoint.
    fn collect() -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let received = Arc::new(Self::default());
        let to = Arc::clone(&received);
        std::thread::spawn(move || {
            let mut requests = 0;
            for connection in listener.incoming() {
                to.answer(connection.expect("a connection"), &mut requests);
            }
        });
        (received, endpoint)
    }

    /// Answers the requests of a connection, one after the other.
    fn answer(&self, connection: TcpStream, requests: &mut usize) {
        let mut reader = BufReader::new(connection.try_clone().expect("a second handle"));
        let mut writer = connection;
        while let Some(body) = request(&mut reader) {
            *requests += 1;
            let status = if *requests == 1 { "503 Service Unavailable" } else { "200 OK" };
            let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}");
            if *requests > 1 {
                self.take(&body);
            }
            if writer.write_all(head.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn take(&self, body: &Value) {
        for of_resource in body["resourceSpans"].as_array().expect("an ExportTraceServiceRequest") {
            for of_scope in of_resource["scopeSpans"].as_array().expect("spans of a scope") {
                let spans = of_scope["spans"].as_array().expect("spans");
                let with = spans.iter().map(|span| (of_resource["resource"].clone(), span.clone()));
                self.spans.lock().expect("sound").extend(with);
            }
        }
        self.arrived.notify_all();
    }

    /// Waits for a span, and returns it with its resource.
    fn span(&self, is: impl Fn(&Value) -> bool) -> (Value, Value) {
        let spans = self.spans.lock().expect("sound");
        let there = |spans: &mut Vec<(Value, Value)>| !spans.iter().any(|(_, span)| is(span));
        let (spans, waited) = self.arrived.wait_timeout_while(spans, PATIENCE, there).expect("sound");
        assert!(!waited.timed_out(), "the span did not arrive: {spans:?}");
        spans.iter().find(|(_, span)| is(span)).cloned().expect("it is there")
    }
}

/// The body of the next request; none at the end of the connection.
fn request(reader: &mut impl BufRead) -> Option<Value> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    assert!(lines[0].starts_with("post /v1/traces "), "{lines:?}");
    assert!(lines.contains(&"content-type: application/json".to_owned()), "{lines:?}");
    let length = lines.iter().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    let mut body = vec![0; length.parse().expect("a number")];
    reader.read_exact(&mut body).ok()?;
    Some(serde_json::from_slice(&body).expect("JSON"))
}

/// Sends a request to the server, as part of a span if there is one.
fn ask(server: &Server, method: &str, path: &str, body: &Value, traceparent: Option<&str>) -> Value {
    let address = server.url.strip_prefix("http://").expect("a URL");
    let mut stream = TcpStream::connect(address).expect("it is alive");
    let trace = traceparent.map_or_else(String::new, |trace| format!("traceparent: {trace}\r\n"));
    let body = if method == "GET" { String::new() } else { body.to_string() };
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{trace}");
    let about = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
    write!(stream, "{head}{about}\r\n{body}").expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(head.starts_with("HTTP/1.1 20"), "{answer}");
    serde_json::from_str(body).expect("JSON")
}

fn commit(server: &Server, aggregate: &str, traceparent: Option<&str>) {
    let events = [json!({"type": format!("{aggregate}_changed"), "data": {}})];
    let body = json!({"aggregate": {"name": aggregate, "id": "1"}, "events": events});
    ask(server, "POST", "/v1/commits", &body, traceparent);
}

fn pull(server: &Server) -> Value {
    let pulled = ask(server, "POST", "/v1/handlers/billing/pull", &json!({"max": 1, "wait_ms": 20_000}), None);
    pulled["deliveries"][0].clone()
}

fn settle(server: &Server, delivery: &Value, failure: Option<Value>) {
    let mut result = json!({"token": delivery["token"]});
    if let Some(failure) = failure {
        result["failure"] = failure;
    }
    let settled = ask(server, "POST", "/v1/handlers/billing/settle", &json!({"results": [result]}), None);
    assert_eq!(settled["results"][0]["settled"], true, "{settled}");
}

fn attribute<'a>(of: &'a Value, key: &str) -> &'a Value {
    let attributes = of["attributes"].as_array().expect("attributes");
    &attributes.iter().find(|attribute| attribute["key"] == key).unwrap_or_else(|| panic!("no {key} in {of}"))["value"]
}

/// The caller's span, the request that commits, the delivery of the event, and the request of the worker that commits what follows.
#[test]
fn one_trace_shows_a_commit_its_handler_and_the_commit_of_the_handler() {
    let (received, endpoint) = Received::collect();
    let folder = folder();
    let mut command = annals(folder.path());
    command.args(["serve", "--store", "memory:", "--dev", "--listen", "127.0.0.1:0"]);
    command.env("ANNALS__TELEMETRY__OTLP_ENDPOINT", &endpoint).env("ANNALS__TELEMETRY__SERVICE_NAME", "orders");
    let server = Server::of(command);
    let definition = json!({"types": ["order_changed"], "partition_by": "aggregate"});
    ask(&server, "PUT", "/v1/handlers/billing", &definition, None);

    commit(&server, "order", Some(CALLER));
    let delivery = pull(&server);
    let of_delivery = delivery["traceparent"].as_str().expect("the worker learns its span").to_owned();
    commit(&server, "invoice", Some(&of_delivery));
    settle(&server, &delivery, None);

    let [_, trace, caller, _] = CALLER.split('-').collect::<Vec<_>>()[..] else { panic!("four parts") };
    let part_of = |parent: &str, name: &'static str| {
        let parent = parent.to_owned();
        move |span: &Value| span["name"] == name && span["parentSpanId"] == *parent && span["traceId"] == *trace
    };
    let (resource, first) = received.span(part_of(caller, "POST /v1/commits"));
    let (_, handled) = received.span(part_of(first["spanId"].as_str().expect("an id"), "handle billing"));
    let (_, second) = received.span(part_of(handled["spanId"].as_str().expect("an id"), "POST /v1/commits"));
    assert_eq!(attribute(&resource, "service.name"), &json!({"stringValue": "orders"}));
    assert_eq!((&first["kind"], &handled["kind"], &handled["status"]), (&json!(2), &json!(5), &json!({})));
    assert_eq!(attribute(&first, "http.response.status_code"), &json!({"intValue": "201"}));
    assert_eq!(attribute(&handled, "annals.sequence_number"), &json!({"intValue": "0"}));
    let time =
        |span: &Value, end: &str| span[end].as_str().and_then(|nanos| nanos.parse::<u64>().ok()).expect("a time");
    assert!(time(&first, "startTimeUnixNano") <= time(&first, "endTimeUnixNano"));
    assert!(time(&handled, "startTimeUnixNano") <= time(&second, "startTimeUnixNano"));

    // What is stored names the spans that committed it.
    for (number, span) in [(0, &first), (1, &second)] {
        let event = ask(&server, "GET", &format!("/v1/log/{number}"), &json!({}), None);
        let stored = format!("00-{trace}-{}-01", span["spanId"].as_str().expect("an id"));
        assert_eq!(event["header"]["traceparent"], json!(stored));
    }

    let address = server.url.strip_prefix("http://").expect("a URL");
    let mut metrics = TcpStream::connect(address).expect("it is alive");
    write!(metrics, "GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").expect("written");
    let mut text = String::new();
    metrics.read_to_string(&mut text).expect("text");
    assert!(text.contains("annals_spans_dropped_total 0"), "{text}");

    // A failure says why, and what has ended is sent before the server ends. No caller named a span, so the commit begins a trace.
    commit(&server, "order", None);
    settle(&server, &pull(&server), Some(json!({"reason": "no invoice address", "never": true})));
    assert_eq!(server.terminate(), Some(0));
    let (_, failed) = received.span(|span| span["status"]["code"] == 2);
    assert_eq!(failed["status"]["message"], "no invoice address");
    let (_, begins) = received.span(|span| span["traceId"] == failed["traceId"] && span["parentSpanId"] == "");
    assert_eq!((&begins["name"], &begins["spanId"]), (&json!("POST /v1/commits"), &failed["parentSpanId"]));
}

#[test]
fn an_endpoint_that_is_no_url_is_refused_before_anything_is_served() {
    let folder = folder();
    let mut command = annals(folder.path());
    command.args(["serve", "--store", "memory:", "--dev", "--listen", "127.0.0.1:0"]);
    let output = command.env("ANNALS__TELEMETRY__OTLP_ENDPOINT", "collector").output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("telemetry.otlp_endpoint"), "{said}");
}
