//! The service: its settings, how it starts, and how it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use annals::groups::GroupError;
use annals::handlers::HandlerError;
use annals::queue::QueueError;
use annals::runtime::{Host, HostOptions, RelayOptions, TaskState};
use annals::sagas::SagaError;
use annals::server::{Options, router, serve_router};
use annals::types::TypeError;
use annals::{Broker, Code, CommitError, DEFAULT_TENANT, ReadError, RecordError, Store, UnknownLog};
use futures_util::future::{BoxFuture, FutureExt};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::lines::{Lines, Printer};
use crate::parts::Parts;
use crate::process::is_root;
use crate::roles::Role;
use crate::types;
use crate::users::Users;
use crate::web;
use crate::worker::Worker;

/// The address that is tried first if none is named.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7171);

/// The settings of the service.
pub struct Settings {
    /// The store of its events. It is closed when the service ends.
    pub store: Arc<dyn Store>,
    /// The name of the store in the first line of output, for example its URL.
    pub store_name: String,
    /// The folder in which each program gets a folder of its own while it runs. No other service may use it at the same time.
    pub work: PathBuf,
    /// The parts of the service that this process runs. Parts in separate processes share a store.
    pub roles: BTreeSet<Role>,
    /// How its tasks run, and where the items of its work queue are stored.
    pub tasks: HostOptions,
    /// The broker to which its events are published, beside the embedded broker.
    pub broker: Option<(Arc<dyn Broker>, RelayOptions)>,
    /// The callers it accepts.
    pub users: Users,
    /// A loopback address. `None` means [`DEFAULT_LISTEN`], or any free port if that one is taken.
    pub listen: Option<SocketAddr>,
    /// Whether to submit the samples that this store has not seen yet. The role API does so.
    pub submit_samples: bool,
    /// How many programs run at once, from 1 to 256: the cap of the work queue.
    pub at_once: usize,
    /// How long slots and pods remain with a process that has died.
    pub lease: Duration,
    /// How often an idle stream of events sends a comment.
    pub ping: Duration,
    /// Bytes of a program's stdout, and of its stderr, that are kept.
    pub output_bytes: usize,
    /// The output for a line for each event, flushed. The service ends when its reader closes it.
    pub output: Box<dyn Write + Send + Sync>,
}

impl Settings {
    /// Returns settings with every role, two programs at once, 64 KiB of each output, leases of 30 s, the samples and the default
    /// address.
    pub fn new(
        store: Arc<dyn Store>,
        store_name: impl Into<String>,
        work: impl Into<PathBuf>,
        output: impl Write + Send + Sync + 'static,
    ) -> Self {
        Self {
            store,
            store_name: store_name.into(),
            work: work.into(),
            roles: Role::ALL.into(),
            tasks: HostOptions::default(),
            broker: None,
            users: Users::default(),
            listen: None,
            submit_samples: true,
            at_once: 2,
            lease: Duration::from_secs(30),
            ping: Duration::from_secs(15),
            output_bytes: 64 * 1024,
            output: Box::new(output),
        }
    }
}

/// Why the service did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is not on loopback, so the service would run programs from anyone on the network.
    #[error(
        "other machines can reach {0}, and every caller of the service could run programs as you; name a loopback address"
    )]
    NotLoopback(SocketAddr),
    /// Listening on the address failed.
    #[error("cannot listen on {address}: {error}; name another address, or stop the program that uses it")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        error: io::Error,
    },
    /// A resource of the system other than files is not available.
    #[error("cannot start: {0}")]
    System(io::Error),
    /// The store has no default log.
    #[error(transparent)]
    Log(#[from] UnknownLog),
    /// The log could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The samples could not be submitted.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The event types could not be registered.
    #[error(transparent)]
    Types(#[from] TypeError),
    /// A handler could not be started.
    #[error(transparent)]
    Handler(#[from] HandlerError),
    /// A consumer could not be started.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The sagas could not be started.
    #[error(transparent)]
    Saga(#[from] SagaError),
    /// The work queue could not be defined.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The records could not be declared or read.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// A task ended.
    #[error("a task of the service ended: {0}")]
    Task(String),
}

impl Error {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Listen { error, .. } if error.kind() == io::ErrorKind::AddrInUse => Code::AddressInUse,
            Self::NotLoopback(_) | Self::Listen { .. } => Code::InvalidConfig,
            Self::System(_) | Self::Task(_) => Code::Internal,
            Self::Log(error) => error.code(),
            Self::Read(error) => error.code(),
            Self::Commit(error) => error.code(),
            Self::Types(error) => error.code(),
            Self::Handler(error) => error.code(),
            Self::Group(error) => error.code(),
            Self::Saga(error) => error.code(),
            Self::Queue(error) => error.code(),
            Self::Records(error) => error.code(),
        }
    }
}

/// Runs the service until `shutdown` completes, or until its output has no reader any more.
///
/// It starts with what an earlier run left: it ends started executions as `interrupted`, kills what still runs, and continues requests
/// that were not started.
///
/// It ends within 10 seconds. It takes no further requests, kills running programs, which become `interrupted`, and closes the store.
/// Waiting requests stay for the next start. Dropping the future leaves everything to the next start, except the programs, which are
/// killed.
///
/// # Errors
/// See [`Error`].
pub fn run<'a>(settings: Settings, shutdown: impl Future<Output = ()> + Send + 'a) -> BoxFuture<'a, Result<(), Error>> {
    run_until(settings, shutdown.boxed()).boxed()
}

async fn run_until(settings: Settings, mut shutdown: BoxFuture<'_, ()>) -> Result<(), Error> {
    let store = Arc::clone(&settings.store);
    let started = tokio::select! {
        biased;
        () = &mut shutdown => Ok(None),
        started = Service::start(settings) => started.map(Some),
    };
    match started {
        Ok(Some(service)) => service.serve(shutdown).await,
        not_running => {
            store.close().await;
            not_running.map(|_| ())
        }
    }
}

struct Service {
    store: Arc<dyn Store>,
    listener: TcpListener,
    lines: Lines,
    printer: Printer,
    parts: Parts,
    host: Host,
}

impl Service {
    async fn start(settings: Settings) -> Result<Self, Error> {
        let mut settings = settings;
        let listener = listen(settings.listen).await?;
        let address = listener.local_addr().map_err(Error::System)?;
        let store = Arc::clone(&settings.store);
        let log = store.log(DEFAULT_TENANT, annals::DEFAULT_SCOPE)?;
        let head = log.head().await?;
        let output = std::mem::replace(&mut settings.output, Box::new(io::sink()));
        let lines = Lines::to(output).map_err(Error::System)?;
        lines.print(format!("Store {} holds {head} events.", settings.store_name)).await;
        lines.print(format!("Open http://{address}/ in a browser. Ctrl-C stops.")).await;
        if settings.roles.len() < Role::ALL.len() {
            let roles: Vec<_> = settings.roles.iter().map(|role| role.name()).collect();
            lines.print(format!("This process runs {}.", roles.join(", "))).await;
        }
        if is_root() && settings.roles.contains(&Role::Worker) {
            const WARNING: &str = "! You are root, so programs run with root privileges, because this is not a sandbox. Run it as an ordinary user.";
            lines.print(WARNING).await;
        }
        types::register(&*store).await?;
        let printer = Printer::new(Arc::clone(&log), head, lines.clone());
        let host = Host::start(Arc::clone(&store), settings.tasks.clone());
        if let Some((broker, options)) = settings.broker.take() {
            host.relay(DEFAULT_TENANT, broker, options)?;
        }
        let parts = Parts::start(&settings, &host, &lines).await?;
        Ok(Self { store, listener, lines, printer, parts, host })
    }

    async fn serve(self, shutdown: BoxFuture<'_, ()>) -> Result<(), Error> {
        const STOP_WAIT_MAX: Duration = Duration::from_secs(3);
        let Parts { worker, routes, tasks, stopping } = self.parts;
        let mut options = Options::default();
        options.stop_wait_max = STOP_WAIT_MAX;
        // The API shows the tasks, and the server drains the host before it closes the store.
        options.host = Some(self.host.clone());
        let mut console = annals::console::Settings::default();
        console.links = vec![("Programs".to_owned(), web::PAGE.to_owned())];
        options.pages = Some(annals::console::console(console));
        let router = web::router(routes, router(Arc::clone(&self.store), options.clone()));
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = serve_router(self.listener, router, self.store, options, async {
            let _ = stopped.await;
        });
        let (stop_printing, printing_stops) = oneshot::channel();
        let working = async {
            let ended = until_the_end(&self.host, worker.as_deref(), tasks, &stopping, &self.lines, shutdown).await;
            drop(stop_printing);
            ended
        };
        let working = async {
            let (ended, ()) = tokio::join!(working, self.printer.run(printing_stops));
            // Only now, so that followers also see the last events.
            drop(stop);
            ended
        };
        let (ended, served) = tokio::join!(working, serving);
        self.lines.print("Stopped.").await;
        self.lines.drained().await;
        ended.and(served.map_err(Error::System))
    }
}

/// Waits for a reason to end, then ends the programs and the streams.
async fn until_the_end(
    host: &Host,
    worker: Option<&Worker>,
    mut tasks: JoinSet<()>,
    stopping: &watch::Sender<bool>,
    lines: &Lines,
    shutdown: BoxFuture<'_, ()>,
) -> Result<(), Error> {
    /// Programs are killed at once; this limit is for a store that does not accept their last events.
    const PROGRAMS_WAIT_MAX: Duration = Duration::from_secs(4);
    let ended = tokio::select! {
        () = shutdown => Ok(()),
        () = lines.closed() => Ok(()),
        ended = until_a_task_ends(host, lines) => Err(ended),
    };
    stopping.send_replace(true);
    let stopped = async {
        if let Some(worker) = worker {
            worker.stop();
            worker.stopped().await;
        }
        while tasks.join_next().await.is_some() {}
    };
    // Executions whose end is not in the log by then become `interrupted` at the next start.
    let _ = timeout(PROGRAMS_WAIT_MAX, stopped).await;
    ended
}

/// Prints each failure of a host task, which the host restarts. Returns when a task has ended by itself.
async fn until_a_task_ends(host: &Host, lines: &Lines) -> Error {
    const LOOK_EVERY: Duration = Duration::from_secs(1);
    let mut told = BTreeMap::new();
    loop {
        sleep(LOOK_EVERY).await;
        for task in host.tasks() {
            if task.state == TaskState::Ended {
                return Error::Task(format!("{}: its store was closed, or its definition was deleted", task.name));
            }
            if told.insert(task.name.clone(), task.restarts).unwrap_or(0) < task.restarts {
                let error = task.last_error.unwrap_or_default();
                lines.print(format!("! {} failed; retrying: {error}", task.name)).await;
            }
        }
    }
}

async fn listen(named: Option<SocketAddr>) -> Result<TcpListener, Error> {
    let address = named.unwrap_or(DEFAULT_LISTEN);
    if !address.ip().is_loopback() {
        return Err(Error::NotLoopback(address));
    }
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && named.is_none() => {
            let any = SocketAddr::new(address.ip(), 0);
            TcpListener::bind(any).await.map_err(|error| Error::Listen { address: any, error })
        }
        Err(error) => Err(Error::Listen { address, error }),
    }
}
