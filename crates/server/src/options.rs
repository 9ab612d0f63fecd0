//! The limits of a server, and the signal that stops it.

use std::sync::Arc;
use std::time::Duration;

use annals_core::{QueryGuard, limits};
use annals_runtime::{Host, HostOptions};
use tokio::sync::watch;

use crate::connections::Connections;
use crate::cors::Origins;
use crate::pages::Pages;
use crate::relays::Relays;
use crate::security::Security;
use crate::tls::Tls;
use crate::unread::Unread;

/// The limits of a server. The default suits a server that takes what the store takes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Largest request body in bytes; more is `body_too_large`. 30 MiB.
    pub body_bytes_max: usize,
    /// Largest body of a batch of changes of records in bytes; more is `body_too_large`. 64 MiB.
    pub record_changes_bytes_max: usize,
    /// Largest request line and headers together in bytes; more is `headers_too_large`. 64 KiB.
    pub header_bytes_max: usize,
    /// Most commits under way at once; more is `overloaded`. 4,096.
    pub commits_in_flight_max: usize,
    /// Most bytes of request bodies held at once, over all requests; more is `overloaded`. 512 MiB.
    pub body_bytes_in_flight_max: usize,
    /// Most bytes of answers held at once that their clients have not read, over all connections; more is `overloaded`. 512 MiB.
    pub answer_bytes_in_flight_max: usize,
    /// Most open connections; for another one, those make room that have been idle longest, at least a second, or else it waits. Fewer
    /// where the process may not open so many files. 10,000.
    pub connections_max: usize,
    /// Most streams of server-sent events open at once, of which a connection over HTTP/2 has many; another one is `overloaded`. 10,000.
    pub followers_max: usize,
    /// How long the next bytes of a body may take to arrive; longer is `request_timeout`. 30 s.
    pub body_idle_max: Duration,
    /// How long a connection may take to send the headers of its next request, or be idle before it; longer closes it. 95 s, a
    /// little more than the pools of common clients keep an idle connection.
    pub header_wait_max: Duration,
    /// How long a client may take none of an answer that waits for it; longer closes its connection, and a stream of events ends with an
    /// event that says so. 30 s.
    pub write_wait_max: Duration,
    /// How often a quiet event stream sends a comment. 15 s.
    pub comment_interval: Duration,
    /// How long requests under way may take once the server stops; then their connections are cut. 8 s.
    pub stop_wait_max: Duration,
    /// How long a query of records, snapshots or commits may run; longer is `query_took_too_long`. 10 s.
    pub query_time_max: Duration,
    /// What queries may ask for. [`QueryGuard::default`].
    pub query_guard: QueryGuard,
    /// Who is let in. Anyone.
    pub callers: Callers,
    /// How callers are authenticated. None: every caller may do everything.
    pub security: Option<Security>,
    /// TLS. None: plain HTTP.
    pub tls: Option<Tls>,
    /// The names under which the server may be called, with or without a port, beside `localhost` and IP addresses. A request that
    /// calls it by another name is refused with `forbidden_origin` where [`callers`](Self::callers) is [`Callers::Named`].
    pub names: Vec<String>,
    /// The origins of other sites whose pages may call the API. None.
    pub cors_origins: Origins,
    /// The task host that runs handlers. None: the server starts one of its own. [`serve`](crate::serve) drains it before it closes the
    /// store.
    pub host: Option<Host>,
    /// What publishes the events of tenants through a broker, for as long as [`serve`](crate::serve) runs. None.
    pub relays: Relays,
    /// Pages that are served beside the API, such as those of the crate `annals-console`. None.
    pub pages: Option<Pages>,
    /// How the server's own task host runs its tasks: what it calls itself on the event horizon, and how it reaches producers.
    pub tasks: HostOptions,
    /// Ends streams, makes `/health/ready` say no, and is set by [`serve`](crate::serve) when it stops.
    pub stop: Stop,
    /// What is held for clients.
    pub(crate) unread: Unread,
    /// Those that are open.
    pub(crate) connections: Connections,
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
        }
    }
}

/// Who is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    /// Whoever reaches the server.
    Anyone,
    /// This machine's own pages and programs, as [`this_machine_only`](crate::this_machine_only) says.
    ThisMachine,
    /// Those that call it by an IP address or by one of [`Options::names`], and pages of its own.
    Named,
}

/// A signal that is given once and seen by everyone who has a clone of it.
#[derive(Debug, Clone)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Stop {
    /// Gives the signal. Again does nothing.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Whether the signal was given.
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the signal is given.
    pub async fn stopped(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|stopped| *stopped).await;
    }
}
