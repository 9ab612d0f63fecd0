//! Exports spans to an OpenTelemetry collector: OTLP over HTTP, as JSON.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annals_core::trace::{BegunSpan, EndedSpan, SpanKind, SpanValue, Spans, TraceContext};
use annals_core::{Randomness, Uuid};
use annals_system::{Instant, SystemRandomness, sleep, unix_nanos};
use hyper::StatusCode;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::ClientOptions;
use super::http::Http;

/// Maximum number of spans in the queue; further ones are dropped.
const QUEUE_MAX: usize = 8_192;
/// Maximum number of spans in one request.
const BATCH_MAX: usize = 512;
/// How long a batch waits for further spans.
const BATCH_WAIT: Duration = Duration::from_secs(1);
/// Time limit for a collector's answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Maximum number of attempts for a batch, and the delay after the first failure; each further delay is doubled.
const ATTEMPTS: u32 = 5;
const FIRST_DELAY: Duration = Duration::from_millis(500);
/// Time limit for exporting the last batches when a process stops.
const STOP_MAX: Duration = Duration::from_secs(3);
/// The path below a collector's endpoint to which spans are posted.
const PATH: &str = "/v1/traces";

/// Where spans are exported, and which of them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OtlpOptions {
    /// The endpoint of a collector for OTLP over HTTP, such as `http://127.0.0.1:4318`. Spans are posted to `/v1/traces` below it.
    pub endpoint: String,
    /// The service name of the process in traces.
    pub service_name: String,
    /// Records one in this many of the traces that begin in this process; 0 records none. A caller's trace is recorded if the caller
    /// records it.
    pub sample_one_in: u32,
    /// A PEM file with the authorities that may sign the collector's certificate. If absent, the system's authorities are trusted.
    pub authorities: Option<PathBuf>,
}

impl OtlpOptions {
    /// Returns options that export every trace to this collector, under the service name `annals`.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self { endpoint: endpoint.into(), service_name: "annals".to_owned(), sample_one_in: 1, authorities: None }
    }
}

/// Records spans and exports them. Pass it to a task host as `HostOptions::spans`, as `annals serve` does. A task on the Tokio runtime on
/// which it was started sends them. Nothing waits for that task, and spans that the collector does not accept in time are dropped.
pub struct OtlpSpans {
    queue: mpsc::Sender<Sealed>,
    random: SystemRandomness,
    sample_one_in: u32,
    dropped: Arc<AtomicU64>,
    stop: watch::Sender<bool>,
    exporter: Mutex<Option<JoinHandle<()>>>,
}

/// A span and the time at which it ended.
struct Sealed {
    span: EndedSpan,
    ended: u64,
}

impl std::fmt::Debug for OtlpSpans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OtlpSpans").field("sample_one_in", &self.sample_one_in).finish_non_exhaustive()
    }
}

impl OtlpSpans {
    /// Starts exporting.
    ///
    /// # Errors
    /// A sentence, if the endpoint is not a URL or the authorities cannot be read. An unreachable collector is not an error.
    pub fn start(options: &OtlpOptions) -> Result<Arc<Self>, String> {
        let mut client = ClientOptions::default();
        client.authorities.clone_from(&options.authorities);
        let http = Http::new(&options.endpoint, annals_core::DEFAULT_TENANT, &client)?;
        let (queue, spans) = mpsc::channel(QUEUE_MAX);
        let (random, dropped, stop) = (SystemRandomness::new(), Arc::<AtomicU64>::default(), watch::Sender::new(false));
        let instance = Uuid::from_u128(random.bits()).to_string();
        let exporter = Exporter {
            http,
            endpoint: options.endpoint.clone(),
            resource: resource(&options.service_name, &instance),
            spans,
            stop: stop.subscribe(),
            dropped: Arc::clone(&dropped),
            is_failing: false,
        };
        let exporter = Mutex::new(Some(tokio::spawn(exporter.run())));
        Ok(Arc::new(Self { queue, random, sample_one_in: options.sample_one_in, dropped, stop, exporter }))
    }

    /// Exports the spans that have ended so far, for at most 3 s. Spans that end later are dropped.
    pub async fn stop(&self) {
        self.stop.send_replace(true);
        let exporter = self.exporter.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(exporter) = exporter {
            // Failures to export the rest are logged.
            let _ = (Instant::now() + STOP_MAX).limit(exporter).await;
        }
    }

    /// Returns a random number other than 0, which span ids must not be.
    fn id(&self) -> u64 {
        (self.random.bits() as u64).max(1)
    }
}

impl Spans for OtlpSpans {
    fn begin(&self, parent: Option<TraceContext>) -> Option<BegunSpan> {
        let context = match parent {
            Some(parent) => parent.is_sampled().then(|| parent.child(self.id()))?,
            None => {
                let trace = self.random.bits().max(1);
                let of_sample = self.sample_one_in > 0 && trace.is_multiple_of(u128::from(self.sample_one_in));
                of_sample.then(|| TraceContext::root(trace, self.id()))?
            }
        };
        Some(BegunSpan { context, parent, began: unix_nanos() })
    }

    fn end(&self, span: EndedSpan) {
        if self.queue.try_send(Sealed { span, ended: unix_nanos() }).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The task that exports ended spans.
struct Exporter {
    http: Http,
    endpoint: String,
    resource: Value,
    spans: mpsc::Receiver<Sealed>,
    stop: watch::Receiver<bool>,
    dropped: Arc<AtomicU64>,
    /// Whether the last batch was dropped; only the first in a row is logged.
    is_failing: bool,
}

impl Exporter {
    async fn run(mut self) {
        loop {
            let batch = self.batch().await;
            if batch.is_empty() {
                return;
            }
            let count = batch.len() as u64;
            let sent = self.send(&body(&self.resource, &batch)).await;
            self.say(sent, count);
        }
    }

    /// Collects a batch of spans. Returns an empty batch once there will be no more.
    async fn batch(&mut self) -> Vec<Sealed> {
        let mut batch = Vec::new();
        let Some(first) = self.next(None).await else { return batch };
        batch.push(first);
        let ends = Instant::now() + BATCH_WAIT;
        while batch.len() < BATCH_MAX {
            let Some(next) = self.next(Some(ends)).await else { break };
            batch.push(next);
        }
        batch
    }

    /// Returns the next span, or `None` at the time `until`, or once the queue is empty after a stop.
    async fn next(&mut self, until: Option<Instant>) -> Option<Sealed> {
        loop {
            let ends = async {
                match until {
                    Some(until) => until.comes().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                next = self.spans.recv() => return next,
                () = stopped(&mut self.stop), if !self.spans.is_closed() => self.spans.close(),
                () = ends => return None,
            }
        }
    }

    /// Sends a batch until it is accepted, permanently refused, or out of attempts.
    async fn send(&mut self, body: &[u8]) -> Result<(), String> {
        let mut delay = FIRST_DELAY;
        for attempt in 1.. {
            let posted = self.http.post(PATH, body.to_vec().into());
            let answer = (Instant::now() + ANSWER_MAX).limit(posted).await;
            let answer = answer.unwrap_or_else(|| Err(format!("no answer within {ANSWER_MAX:?}")));
            let failure = match answer {
                Ok(answer) if answer.status.is_success() => return Ok(()),
                Ok(answer) if !may_pass(answer.status) => return Err(format!("it answered {}", answer.status)),
                Ok(answer) => format!("it answered {}", answer.status),
                Err(error) => error,
            };
            if attempt == ATTEMPTS || *self.stop.borrow() {
                return Err(failure);
            }
            tokio::select! {
                () = sleep(delay) => {}
                () = stopped(&mut self.stop) => {}
            }
            delay *= 2;
        }
        Ok(())
    }

    fn say(&mut self, sent: Result<(), String>, count: u64) {
        let endpoint = &self.endpoint;
        match sent {
            Ok(()) if self.is_failing => {
                let dropped = self.dropped.load(Ordering::Relaxed);
                tracing::info!(endpoint, dropped, "exporting spans works again");
                self.is_failing = false;
            }
            Ok(()) => {}
            Err(error) => {
                self.dropped.fetch_add(count, Ordering::Relaxed);
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(
                        endpoint,
                        error,
                        "spans cannot be exported; they are dropped until the export works again"
                    );
                }
            }
        }
    }
}

/// Returns whether the OTLP specification requires a client to retry after this answer.
fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A recorder that was dropped has stopped too.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn resource(service: &str, instance: &str) -> Value {
    let attributes = [("service.name", service), ("service.version", env!("CARGO_PKG_VERSION"))];
    let attributes = attributes.into_iter().chain([("service.instance.id", instance)]);
    json!({ "attributes": attributes.map(|(key, value)| text(key, value)).collect::<Vec<_>>() })
}

/// Builds an `ExportTraceServiceRequest` in OTLP's JSON encoding: ids are hexadecimal, and 64-bit numbers are strings.
fn body(resource: &Value, batch: &[Sealed]) -> Vec<u8> {
    let scope = json!({ "name": "annals", "version": env!("CARGO_PKG_VERSION") });
    let spans: Vec<Value> = batch.iter().map(span).collect();
    let request = json!({
        "resourceSpans": [{ "resource": resource, "scopeSpans": [{ "scope": scope, "spans": spans }] }],
    });
    // Strings and numbers always serialise to JSON.
    serde_json::to_vec(&request).unwrap_or_default()
}

fn span(Sealed { span, ended }: &Sealed) -> Value {
    let attributes = span.attributes.iter().map(|(key, value)| match value {
        SpanValue::Text(value) => text(key, value),
        SpanValue::Number(value) => json!({ "key": key, "value": { "intValue": value.to_string() } }),
    });
    let kind = match span.kind {
        SpanKind::Server => 2,
        SpanKind::Consumer => 5,
    };
    let status = match &span.failure {
        Some(failure) => json!({ "code": 2, "message": failure }),
        None => json!({}),
    };
    json!({
        "traceId": span.begun.context.trace_id(),
        "spanId": span.begun.context.span_id(),
        "parentSpanId": span.begun.parent.as_ref().map_or("", TraceContext::span_id),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": span.begun.began.to_string(),
        "endTimeUnixNano": ended.max(&span.begun.began).to_string(),
        "attributes": attributes.collect::<Vec<_>>(),
        "status": status,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_callers_do_not_record_is_not_recorded_and_new_traces_are_sampled() {
        let spans = |one_in| {
            let options = OtlpOptions { sample_one_in: one_in, ..OtlpOptions::new("http://127.0.0.1:1") };
            OtlpSpans::start(&options).expect("it starts")
        };
        let all = spans(1);
        let (one, other) = (all.begin(None).expect("sampled"), all.begin(None).expect("sampled"));
        assert!(one.context != other.context && one.context.is_sampled() && one.parent.is_none());
        let child = all.begin(Some(one.context)).expect("its parent is recorded");
        assert_eq!((child.context.trace_id(), child.parent), (one.context.trace_id(), Some(one.context)));
        assert_ne!(child.context.span_id(), one.context.span_id());
        let unrecorded = TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
        assert_eq!(all.begin(unrecorded), None);
        assert_eq!(spans(0).begin(None), None);
        assert!(spans(0).begin(Some(one.context)).is_some(), "the caller has decided");
        let few = spans(10);
        let count = (0..1_000).filter(|_| few.begin(None).is_some()).count();
        assert!((20..300).contains(&count), "one in ten, not {count} of 1,000");
        assert!(OtlpSpans::start(&OtlpOptions::new("collector")).is_err_and(|error| error.contains("collector")));
    }

    #[tokio::test]
    async fn spans_that_nobody_takes_are_dropped_and_counted() {
        let spans = OtlpSpans::start(&OtlpOptions::new("http://127.0.0.1:1")).expect("it starts");
        let begun = spans.begin(None).expect("sampled");
        let ended =
            |name: String| EndedSpan { begun, name, kind: SpanKind::Server, attributes: Vec::new(), failure: None };
        for n in 0..3 {
            spans.end(ended(n.to_string()));
        }
        spans.stop().await;
        spans.end(ended("late".to_owned()));
        assert_eq!(spans.dropped(), 4);
    }
}
