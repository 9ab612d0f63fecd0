//! The server's metrics, and `GET /metrics` in The text format of Prometheus.

mod consumers;
mod groups;
mod partners;
mod queues;
mod retries;
mod spans;
mod syncs;
#[cfg(test)]
mod tests;

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use annals_core::dead_letters::Statistics;
use annals_core::relay::{RelayState, RelayStatus};
use annals_core::{Code, CommitOutcome, LogStatus, SequencerStatus};
use annals_runtime::{ProcessorHealth, TaskState, TaskStatus};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::IntoResponse;

use self::consumers::write_consumers;
use self::groups::write_groups;
use self::partners::{write_partner_failures, write_partners};
use self::queues::write_queues;
use self::retries::write_retries;
use self::spans::write_spans;
use self::syncs::write_syncs;
use crate::health::sees_all;
use crate::payload::Payload;
use crate::route::{Feature, Permission, get};
use crate::state::Server;

/// Returns the operation of scrapers, which may send any query.
pub(crate) fn feature() -> Feature {
    let metrics = get("/metrics", Permission::Open, metrics).described(
        "metrics",
        "Returns all metrics.",
        Payload::raw(TEXT, "The text format of Prometheus."),
    );
    Feature::new("Health", [metrics.ignoring_query()])
}

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper bounds of the duration histogram's buckets, in microseconds.
const BUCKETS: [u64; 13] =
    [250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000];
/// The number of statuses, 100 to 599.
const STATUSES: usize = 500;

/// The counters of the server since it started.
pub(crate) struct Metrics {
    routes: Vec<Arc<RouteMetrics>>,
    pub in_flight: Gauge,
    pub followers: Gauge,
    pub commits: AtomicU64,
    pub duplicates: AtomicU64,
    pub events: AtomicU64,
    pub transactions: AtomicU64,
    /// Refused commits and transactions, by the index of the code in [`Code::ALL`].
    refusals: Vec<AtomicU64>,
}

/// The counters of one route.
pub(crate) struct RouteMetrics {
    path: &'static str,
    statuses: Vec<AtomicU64>,
    buckets: [AtomicU64; BUCKETS.len()],
    count: AtomicU64,
    micros: AtomicU64,
}

/// The number of things that currently exist.
#[derive(Clone, Default)]
pub(crate) struct Gauge(Arc<AtomicI64>);

/// One of the things that a [`Gauge`] counts.
pub(crate) struct Counted(Gauge);

impl Gauge {
    pub fn enter(&self) -> Counted {
        self.0.fetch_add(1, Relaxed);
        Counted(self.clone())
    }

    /// Counts one more, unless `most` exist already.
    pub fn enter_below(&self, most: usize) -> Option<Counted> {
        let before = self.0.fetch_add(1, Relaxed);
        // If it is not returned, dropping it undoes the count.
        let counted = Counted(self.clone());
        usize::try_from(before).is_ok_and(|before| before < most).then_some(counted)
    }

    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

fn counters(count: usize) -> Vec<AtomicU64> {
    std::iter::repeat_with(AtomicU64::default).take(count).collect()
}

impl RouteMetrics {
    fn new(path: &'static str) -> Self {
        Self {
            path,
            statuses: counters(STATUSES),
            buckets: Default::default(),
            count: AtomicU64::new(0),
            micros: AtomicU64::new(0),
        }
    }

    /// Returns the route as it is documented.
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Counts one response, sent `duration` after its request.
    pub fn answered(&self, status: u16, duration: Duration) {
        let slot = usize::from(status).saturating_sub(100).min(STATUSES - 1);
        self.statuses[slot].fetch_add(1, Relaxed);
        let micros = duration.as_micros() as u64;
        if let Some(bucket) = BUCKETS.iter().position(|end| micros <= *end) {
            self.buckets[bucket].fetch_add(1, Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
        self.micros.fetch_add(micros, Relaxed);
    }
}

impl Metrics {
    pub fn new(paths: impl IntoIterator<Item = &'static str>) -> Self {
        Self {
            routes: paths.into_iter().map(|path| Arc::new(RouteMetrics::new(path))).collect(),
            in_flight: Gauge::default(),
            followers: Gauge::default(),
            commits: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
            events: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            refusals: counters(Code::ALL.len()),
        }
    }

    /// Returns the counters of a route.
    pub fn route(&self, path: &'static str) -> Arc<RouteMetrics> {
        let known = self.routes.iter().find(|route| route.path == path);
        known.map_or_else(|| Arc::new(RouteMetrics::new(path)), Arc::clone)
    }

    pub fn committed(&self, outcome: &CommitOutcome) {
        if outcome.duplicate {
            self.duplicates.fetch_add(1, Relaxed);
        } else {
            self.commits.fetch_add(1, Relaxed);
            self.events.fetch_add(outcome.event_ids.len() as u64, Relaxed);
        }
    }

    /// Counts a transaction, and each of its commits.
    pub fn transacted(&self, outcomes: &[CommitOutcome]) {
        outcomes.iter().for_each(|outcome| self.committed(outcome));
        if outcomes.iter().any(|outcome| !outcome.duplicate) {
            self.transactions.fetch_add(1, Relaxed);
        }
    }

    pub fn refused(&self, code: Code) {
        if let Some(place) = Code::ALL.iter().position(|known| *known == code) {
            self.refusals[place].fetch_add(1, Relaxed);
        }
    }

    fn text(&self, logs: &[LogStatus], tasks: &[TaskStatus], relays: &[RelayStatus]) -> String {
        let mut out = String::with_capacity(8 * 1024);
        self.write_routes(&mut out);
        let single = [
            ("annals_http_requests_in_flight", "gauge", "Requests whose response has not begun.", self.in_flight.get()),
            ("annals_followers", "gauge", "Open event streams.", self.followers.get()),
            ("annals_commits_total", "counter", "Commits accepted by this server.", self.commits.load(Relaxed) as i64),
            (
                "annals_commits_duplicate_total",
                "counter",
                "Commits answered as duplicates of an earlier request.",
                self.duplicates.load(Relaxed) as i64,
            ),
            (
                "annals_events_total",
                "counter",
                "Events of the commits accepted by this server.",
                self.events.load(Relaxed) as i64,
            ),
            (
                "annals_transactions_total",
                "counter",
                "Transactions accepted by this server; their commits are also counted as commits.",
                self.transactions.load(Relaxed) as i64,
            ),
        ];
        for (name, kind, help, value) in single {
            family(&mut out, name, kind, help);
            line(&mut out, format_args!("{name} {value}"));
        }
        let name = "annals_commits_refused_total";
        family(&mut out, name, "counter", "Commits and transactions refused by this server, by code.");
        for (code, count) in Code::ALL.iter().zip(&self.refusals) {
            let count = count.load(Relaxed);
            if count > 0 {
                line(&mut out, format_args!("{name}{{code=\"{}\"}} {count}", code.as_str()));
            }
        }
        write_logs(&mut out, logs);
        write_syncs(&mut out, logs);
        write_sequencers(&mut out, logs);
        write_tasks(&mut out, tasks);
        write_relays(&mut out, relays);
        out
    }

    fn write_routes(&self, out: &mut String) {
        let name = "annals_http_requests_total";
        family(out, name, "counter", "Requests answered, by route and status.");
        for route in &self.routes {
            for (slot, count) in route.statuses.iter().enumerate() {
                let count = count.load(Relaxed);
                if count > 0 {
                    let (path, status) = (route.path, slot + 100);
                    line(out, format_args!("{name}{{route=\"{path}\",status=\"{status}\"}} {count}"));
                }
            }
        }
        let name = "annals_http_request_duration_seconds";
        family(out, name, "histogram", "Time from the headers of a request to those of its response, by route.");
        for route in self.routes.iter().filter(|route| route.count.load(Relaxed) > 0) {
            let path = route.path;
            let mut sum = 0;
            for (end, bucket) in BUCKETS.iter().zip(&route.buckets) {
                sum += bucket.load(Relaxed);
                let end = *end as f64 / 1e6;
                line(out, format_args!("{name}_bucket{{route=\"{path}\",le=\"{end}\"}} {sum}"));
            }
            // Read last, so that requests counted meanwhile cannot make it smaller than a bucket.
            let count = route.count.load(Relaxed).max(sum);
            line(out, format_args!("{name}_bucket{{route=\"{path}\",le=\"+Inf\"}} {count}"));
            let seconds = route.micros.load(Relaxed) as f64 / 1e6;
            line(out, format_args!("{name}_sum{{route=\"{path}\"}} {seconds}"));
            line(out, format_args!("{name}_count{{route=\"{path}\"}} {count}"));
        }
    }
}

/// A metric of one log: name, type, help, value.
type OfLog = (&'static str, &'static str, &'static str, fn(&LogStatus) -> u64);

fn write_logs(out: &mut String, logs: &[LogStatus]) {
    const OF_LOG: [OfLog; 5] = [
        ("annals_log_head", "gauge", "Events in the log.", |log| log.head),
        ("annals_log_commits_total", "counter", "Commits made durable since the store was opened.", |log| log.commits),
        ("annals_log_syncs_total", "counter", "Batches written and synced since the store was opened.", |log| {
            log.syncs
        }),
        ("annals_log_bytes_total", "counter", "Bytes appended since the store was opened.", |log| log.bytes),
        ("annals_log_refusing", "gauge", "1 while the log refuses commits.", |log| u64::from(log.refusing.is_some())),
    ];
    for (name, kind, help, value) in OF_LOG {
        family(out, name, kind, help);
        for log in logs {
            let (tenant, scope) = (label(&log.tenant), label(&log.scope));
            line(out, format_args!("{name}{{tenant=\"{tenant}\",scope=\"{scope}\"}} {}", value(log)));
        }
    }
}

/// A metric of a log's sequencer: name, help, and the value, if there is one.
type OfSequencer = (&'static str, &'static str, fn(&SequencerStatus) -> Option<f64>);

fn write_sequencers(out: &mut String, logs: &[LogStatus]) {
    const OF_SEQUENCER: [OfSequencer; 3] = [
        ("annals_log_held_commits", "Held commits: stored, but without sequence numbers.", |it| Some(it.held as f64)),
        ("annals_sequencer_leads", "1 while this process assigns sequence numbers to commits.", |it| {
            Some(f64::from(u8::from(it.leads)))
        }),
        (
            "annals_sequencer_lag_seconds",
            "Time between storing the newest numbered commit and assigning its sequence numbers; 0 while none is pending. From the leading process.",
            |it| it.lag_ms.map(|lag| lag as f64 / 1e3),
        ),
    ];
    let known: Vec<_> = logs.iter().filter_map(|log| Some((log, log.sequencer?))).collect();
    for (name, help, value) in OF_SEQUENCER.into_iter().filter(|_| !known.is_empty()) {
        family(out, name, "gauge", help);
        for (log, sequencer) in &known {
            let (tenant, scope) = (label(&log.tenant), label(&log.scope));
            if let Some(value) = value(sequencer) {
                line(out, format_args!("{name}{{tenant=\"{tenant}\",scope=\"{scope}\"}} {value}"));
            }
        }
    }
}

fn write_tasks(out: &mut String, tasks: &[TaskStatus]) {
    if tasks.is_empty() {
        return;
    }
    let name = "annals_task_up";
    family(out, name, "gauge", "1 while a background task of this process runs; 0 while it waits to be restarted.");
    for task in tasks.iter().filter(|task| task.state != TaskState::Ended) {
        let up = u8::from(task.state == TaskState::Running);
        line(out, format_args!("{name}{{task=\"{}\"}} {up}", label(&task.name)));
    }
    let name = "annals_task_restarts_total";
    family(out, name, "counter", "Restarts of a background task after failures.");
    for task in tasks {
        line(out, format_args!("{name}{{task=\"{}\"}} {}", label(&task.name), task.restarts));
    }
}

/// A metric of a handler, filter, projection, saga definition or subscription: name, help, value.
type OfProcessor = (&'static str, &'static str, fn(&ProcessorHealth) -> u64);

/// Writes the state of all processors, which is the same in every process. `None` means that the store cannot be read.
fn write_processors(out: &mut String, health: Option<&[ProcessorHealth]>) {
    const OF_PROCESSOR: [OfProcessor; 9] = [
        (
            "annals_processor_position",
            "Position in the source: everything below it is processed, or belongs to a failing partition.",
            |it| it.position,
        ),
        ("annals_processor_head", "Events in the source.", |it| it.head),
        ("annals_processor_lag_events", "Positions of the source that are not processed.", ProcessorHealth::lag),
        (
            "annals_processor_lag_seconds",
            "Age of the oldest event that is not processed; 0 when there is none.",
            |it| it.lag_seconds,
        ),
        ("annals_processor_since_progress_seconds", "Time since the position or the definition last changed.", |it| {
            it.seconds_since_progress
        }),
        ("annals_processor_failing_partitions", "Partitions whose next event failed.", |it| it.failing),
        ("annals_processor_blocked_partitions", "Failing partitions that wait for an operator.", |it| it.blocked),
        ("annals_processor_dead_letters", "Open dead letters of the processor.", |it| it.letters),
        ("annals_processor_degraded", "1 while the processor is unhealthy; /health/ready has the reason.", |it| {
            u64::from(it.degraded.is_some())
        }),
    ];
    let name = "annals_processors_readable";
    family(
        out,
        name,
        "gauge",
        "1 while the state of handlers, filters, projections, sagas and subscriptions can be read.",
    );
    line(out, format_args!("{name} {}", u8::from(health.is_some())));
    for (name, help, value) in OF_PROCESSOR.into_iter().filter(|_| health.is_some_and(|health| !health.is_empty())) {
        family(out, name, "gauge", help);
        for of in health.unwrap_or_default() {
            let (tenant, kind, processor) = (label(&of.tenant), of.kind, label(&of.name));
            let labels = format_args!("tenant=\"{tenant}\",kind=\"{kind}\",processor=\"{processor}\"").to_string();
            line(out, format_args!("{name}{{{labels}}} {}", value(of)));
        }
    }
}

/// A metric of a relay: name, type, help, value.
type OfRelay = (&'static str, &'static str, &'static str, fn(&RelayStatus) -> u64);

fn write_relays(out: &mut String, relays: &[RelayStatus]) {
    const OF_RELAY: [OfRelay; 5] = [
        (
            "annals_relay_up",
            "gauge",
            "1 while the broker accepts messages; 0 while the relay retries or is stopped.",
            |it| u64::from(matches!(it.state, RelayState::Publishing | RelayState::Standby | RelayState::Views)),
        ),
        (
            "annals_relay_position",
            "gauge",
            "Position of the relay: events below it are published, if their types have topics.",
            |it| it.position,
        ),
        ("annals_relay_lag", "gauge", "Events from the position to the head of the log.", |it| it.lag),
        ("annals_relay_published_total", "counter", "Messages published since the process started.", |it| it.published),
        ("annals_relay_held", "gauge", "Events that the broker refused; they are on no topic.", |it| it.held),
    ];
    if relays.is_empty() {
        return;
    }
    for (name, kind, help, value) in OF_RELAY {
        family(out, name, kind, help);
        for relay in relays {
            line(out, format_args!("{name}{{tenant=\"{}\"}} {}", label(&relay.tenant), value(relay)));
        }
    }
}

/// Writes the number of dead letters. A topic without any left shows 0.
fn write_letters(out: &mut String, counts: &[(String, Statistics)]) {
    if counts.iter().all(|(_, counted)| counted.topics.is_empty()) {
        return;
    }
    let name = "annals_dead_letters";
    family(out, name, "gauge", "Dead letters that are pending or scheduled, by topic.");
    for (tenant, counted) in counts {
        for topic in &counted.topics {
            let labels = format_args!("tenant=\"{}\",topic=\"{}\"", label(tenant), label(&topic.topic)).to_string();
            line(out, format_args!("{name}{{{labels}}} {}", topic.open()));
        }
    }
    let name = "annals_dead_letters_ended";
    family(out, name, "gauge", "Dead letters that are no longer open, by topic and status.");
    for (tenant, counted) in counts {
        for topic in &counted.topics {
            for status in ["retried", "discarded"] {
                let count = topic.status_breakdown.get(status).copied().unwrap_or(0);
                let (tenant, topic) = (label(tenant), label(&topic.topic));
                line(out, format_args!("{name}{{tenant=\"{tenant}\",topic=\"{topic}\",status=\"{status}\"}} {count}"));
            }
        }
    }
    let name = "annals_dead_letters_level";
    family(out, name, "gauge", "1 while more than 100 dead letters are open, 2 while more than 1,000 are.");
    for (tenant, counted) in counts {
        line(out, format_args!("{name}{{tenant=\"{}\"}} {}", label(tenant), counted.level as u8));
    }
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    line(out, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

/// `GET /metrics`. If the server has credentials, only a caller that may see every tenant, scope and event type gets the metrics that
/// name them.
async fn metrics(State(server): State<Arc<Server>>, request: Request) -> impl IntoResponse {
    if !sees_all(&server, &request.into_parts().0) {
        return ([(header::CONTENT_TYPE, TEXT)], server.metrics.text(&[], &[], &[]));
    }
    let mut text = server.metrics.text(&server.store.status(), &server.host.tasks(), &server.host.relays());
    let partners = server.host.partner_metrics();
    write_partners(&mut text, &partners);
    write_partner_failures(&mut text, &partners, &server.host.partner_failures().await);
    let health = server.host.health().await;
    write_processors(&mut text, health.as_ref().ok().map(|health| &***health));
    write_queues(&mut text, server.host.queue_status().await.ok().as_deref());
    write_retries(&mut text, &server.host.retry_metrics());
    write_groups(&mut text, &server.host.group_metrics());
    write_consumers(&mut text, &server.host.consumers());
    write_letters(&mut text, &server.host.dead_letter_counts().await);
    write_spans(&mut text, server.host.spans().map(|spans| &**spans));
    ([(header::CONTENT_TYPE, TEXT)], text)
}
