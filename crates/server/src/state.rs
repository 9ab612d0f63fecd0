//! The state that the handlers share.

use std::sync::Arc;

use annals_core::{Code, Store};
use annals_runtime::Host;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::metrics::{Counted, Metrics};
use crate::options::Options;
use crate::pool::Pool;
use crate::problem::Problem;
use crate::security::Guard;
use crate::v1::backup;
use crate::v1::portions::Portions;

/// The state of one server.
pub(crate) struct Server {
    pub store: Arc<dyn Store>,
    /// The task host, which runs the background tasks.
    pub host: Host,
    pub options: Options,
    /// The guard that authenticates and authorises callers; `None` if every caller that reaches the server is admitted.
    pub guard: Option<Guard>,
    pub metrics: Metrics,
    /// One permit for each commit or transaction in flight.
    commits: Semaphore,
    /// One permit for each byte of the request bodies that are held.
    pub bodies: Arc<Semaphore>,
    /// The threads that run long queries.
    pub pool: Pool,
    /// One permit for each backup in flight.
    pub backups: Arc<Semaphore>,
    /// What followers have been sent lately.
    pub portions: Portions,
}

impl Server {
    /// Creates the state of a server whose routes have these metrics labels.
    pub fn new(store: Arc<dyn Store>, options: Options, labels: impl IntoIterator<Item = &'static str>) -> Self {
        let permits = |count: usize| Semaphore::new(count.min(Semaphore::MAX_PERMITS));
        let host = options.host.clone().unwrap_or_else(|| Host::start(Arc::clone(&store), options.tasks.clone()));
        // A router that is only built to be described has no runtime for tasks.
        let runs = tokio::runtime::Handle::try_current().is_ok();
        if runs {
            host.start_defined();
        }
        let security = options.security.clone().filter(|_| runs);
        Self {
            guard: security.map(|security| Guard::new(&*store, &host, security)),
            host,
            metrics: Metrics::new(labels),
            pool: Pool::default(),
            commits: permits(options.commits_in_flight_max),
            bodies: Arc::new(permits(options.body_bytes_in_flight_max)),
            backups: Arc::new(permits(backup::AT_ONCE)),
            portions: Portions::default(),
            store,
            options,
        }
    }

    /// Runs a query that may take long.
    pub async fn query<T, E>(&self, query: impl Future<Output = Result<T, E>> + Send + 'static) -> Result<T, Problem>
    where
        T: Send + 'static,
        E: Send + 'static,
        Problem: From<E>,
    {
        self.pool.run(self.options.query_time_max, query).await
    }

    /// Runs a query that reads the whole log, however little is requested. It may take five times as long as other queries.
    pub async fn query_of_the_log<T, E>(
        &self,
        query: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        E: Send + 'static,
        Problem: From<E>,
    {
        self.pool.run(self.options.query_time_max.saturating_mul(5), query).await
    }

    /// Counts a follower for as long as its stream is open, or refuses it with `overloaded`.
    pub fn follower(&self) -> Result<Counted, Problem> {
        let most = self.options.followers_max;
        self.metrics.followers.enter_below(most).ok_or_else(|| {
            let message =
                format!("the server already has {most} followers, its maximum; close one, or retry in a moment");
            Problem::new(Code::Overloaded, message)
        })
    }

    /// Takes a place among the writes in flight, or refuses with `overloaded`; `then` says what the caller does next.
    pub fn place(&self, then: &str) -> Result<SemaphorePermit<'_>, Problem> {
        let full = |_| Problem::new(Code::Overloaded, format!("too many commits are in flight; {then}"));
        self.commits.try_acquire().map_err(full)
    }
}
