//! The options of a server, and the signal that stops it.

use std::sync::Arc;
use std::time::Duration;

use annals_core::{Clock, QueryGuard, Timestamp, limits};
use annals_runtime::{Host, HostOptions};
use annals_system::SystemClock;
use tokio::sync::watch;

use crate::connections::Connections;
use crate::cors::Origins;
use crate::pages::Pages;
use crate::relays::Relays;
use crate::security::Security;
use crate::tls::Tls;
use crate::unread::Unread;

/// The options of a server. The defaults accept whatever the store accepts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Largest request body in bytes; a larger one is `body_too_large`. Default: 30 MiB.
    pub body_bytes_max: usize,
    /// Largest body of a batch of record changes in bytes; a larger one is `body_too_large`. Default: 64 MiB.
    pub record_changes_bytes_max: usize,
    /// Largest request line and headers together in bytes; more is `headers_too_large`. Default: 64 KiB.
    pub header_bytes_max: usize,
    /// Most commits in flight at once; more are `overloaded`. Default: 4,096.
    pub commits_in_flight_max: usize,
    /// Most bytes of request bodies held at once, over all requests; more is `overloaded`. Default: 512 MiB.
    pub body_bytes_in_flight_max: usize,
    /// Most bytes of unread responses held at once, over all connections; more is `overloaded`. Default: 512 MiB.
    pub answer_bytes_in_flight_max: usize,
    /// Most open connections. To make room for another one, those that have been idle longest are closed, if they were idle for at least
    /// a second; otherwise the new one waits. The limit is lower if the process may not open as many files. Default: 10,000.
    pub connections_max: usize,
    /// Most streams of server-sent events open at once; another one is `overloaded`. An HTTP/2 connection can have many. Default: 10,000.
    pub followers_max: usize,
    /// How long the next bytes of a body may take to arrive; longer is `request_timeout`. Default: 30 s.
    pub body_idle_max: Duration,
    /// How long a connection may be idle, or take to send the headers of its next request; longer closes it. Default: 95 s, slightly
    /// longer than the pools of common clients keep an idle connection.
    pub header_wait_max: Duration,
    /// How long a client may leave a pending response unread. After that its connection is closed; a stream of events first gets an event
    /// with the reason. Default: 30 s.
    pub write_wait_max: Duration,
    /// How often an idle event stream sends a comment. Default: 15 s.
    pub comment_interval: Duration,
    /// How long requests in flight may take once the server stops, before their connections are cut. Default: 8 s.
    pub stop_wait_max: Duration,
    /// How long a query of records, snapshots or commits may run; longer is `query_took_too_long`. Default: 10 s.
    pub query_time_max: Duration,
    /// The cost limits of queries. Default: [`QueryGuard::default`].
    pub query_guard: QueryGuard,
    /// Which callers may reach the server. Default: anyone.
    pub callers: Callers,
    /// How callers are authenticated. Default: not at all, and every caller may do everything.
    pub security: Option<Security>,
    /// TLS. Default: plain HTTP.
    pub tls: Option<Tls>,
    /// The host names of the server, with or without a port, in addition to `localhost` and IP addresses. If [`callers`](Self::callers)
    /// is [`Callers::Named`], a request for another host is refused with `forbidden_origin`.
    pub names: Vec<String>,
    /// The origins of other sites whose pages may call the API. Default: none.
    pub cors_origins: Origins,
    /// The task host that runs handlers. Default: the server starts its own. [`serve`](crate::serve) drains it before it closes the
    /// store.
    pub host: Option<Host>,
    /// The relays that publish tenants' events through a broker while [`serve`](crate::serve) runs. Default: none.
    pub relays: Relays,
    /// Pages that are served beside the API, such as those of the crate `annals-console`. Default: none.
    pub pages: Option<Pages>,
    /// The options of the server's own task host, such as its microservice name on the event horizon and how it reaches producers.
    pub tasks: HostOptions,
    /// The stop signal: it ends streams and makes `/health/ready` fail. [`serve`](crate::serve) gives it when it stops.
    pub stop: Stop,
    /// The bytes of unread responses.
    pub(crate) unread: Unread,
    /// The open connections.
    pub(crate) connections: Connections,
    /// The machine's clock, which the HTTP library reads as well.
    pub(crate) machine_time: fn() -> Timestamp,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            body_bytes_max: limits::BODY_BYTES_MAX,
            record_changes_bytes_max: limits::RECORD_CHANGES_BODY_BYTES_MAX,
            header_bytes_max: 64 * 1024,
            commits_in_flight_max: 4_096,
            body_bytes_in_flight_max: 512 * 1024 * 1024,
            answer_bytes_in_flight_max: 512 * 1024 * 1024,
            connections_max: 10_000,
            followers_max: 10_000,
            body_idle_max: Duration::from_secs(30),
            header_wait_max: Duration::from_secs(95),
            write_wait_max: Duration::from_secs(30),
            comment_interval: Duration::from_secs(15),
            stop_wait_max: Duration::from_secs(8),
            query_time_max: Duration::from_secs(10),
            query_guard: QueryGuard::default(),
            callers: Callers::Anyone,
            security: None,
            tls: None,
            names: Vec::new(),
            cors_origins: Origins::default(),
            host: None,
            relays: Relays::default(),
            pages: None,
            tasks: HostOptions::default(),
            stop: Stop::default(),
            unread: Unread::default(),
            connections: Connections::default(),
            machine_time: || SystemClock.now(),
        }
    }
}

/// Which callers may reach the server, apart from credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    /// Any caller that can connect.
    Anyone,
    /// Pages and programs of this machine, as [`this_machine_only`](crate::this_machine_only) defines them.
    ThisMachine,
    /// Callers that address the server by an IP address or by one of [`Options::names`], and its own pages.
    Named,
}

/// A signal that is given once and seen by every clone.
#[derive(Debug, Clone)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Stop {
    /// Gives the signal. Later calls do nothing.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Returns whether the signal was given.
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the signal is given.
    pub async fn stopped(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|stopped| *stopped).await;
    }
}
