//! The service: what it needs, how it starts, and how it ends.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use annals::handlers::HandlerError;
use annals::runtime::{Host, HostOptions, TaskState};
use annals::server::{Options, router, serve_router};
use annals::types::TypeError;
use annals::{Code, CommitError, DEFAULT_SCOPE, DEFAULT_TENANT, ReadError, Store, UnknownLog};
use futures_util::future::{BoxFuture, FutureExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::ids::random_uuid;
use crate::language::{Interpreters, Language};
use crate::lines::{Lines, Printer};
use crate::process::{Watchdog, is_root};
use crate::samples;
use crate::types;
use crate::web::{self, Office};
use crate::worker::{Worker, Workshop, definition, recover};

/// The address that is tried first when none is named.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7171);

/// What the service needs.
pub struct Settings {
    /// Where its events are. It is closed when the service ends.
    pub store: Arc<dyn Store>,
    /// How the store is called in the first line of output, for example its URL.
    pub store_name: String,
    /// Where each program gets a folder of its own while it runs. No other service may use it at the same time.
    pub work: PathBuf,
    /// A loopback address. None is [`DEFAULT_LISTEN`], or any free port when that one is taken.
    pub listen: Option<SocketAddr>,
    /// Whether to submit the samples that this store has not seen yet.
    pub submit_samples: bool,
    /// How many programs run at once, 1 to 256.
    pub at_once: usize,
    /// How many bytes of a program's stdout, and of its stderr, are kept.
    pub output_bytes: usize,
    /// Takes a line for each event, flushed. The service ends when it is closed at the other end.
    pub output: Box<dyn Write + Send>,
}

impl Settings {
    /// Two programs at once, 64 KiB of each output, the samples, the default address.
    pub fn new(
        store: Arc<dyn Store>,
        store_name: impl Into<String>,
        work: impl Into<PathBuf>,
        output: impl Write + Send + 'static,
    ) -> Self {
        Self {
            store,
            store_name: store_name.into(),
            work: work.into(),
            listen: None,
            submit_samples: true,
            at_once: 2,
            output_bytes: 64 * 1024,
            output: Box::new(output),
        }
    }
}

/// Why the service did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It would run what anybody on the network sends.
    #[error(
        "{0} can be reached by others, and whoever reaches the service runs programs as you; name a loopback address"
    )]
    NotLoopback(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}; name another address, or stop what uses it")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// What a service needs of the system besides files.
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
    /// The worker could not be started.
    #[error(transparent)]
    Handler(#[from] HandlerError),
    /// The worker ended.
    #[error("the worker ended: {0}")]
    Worker(String),
}

impl Error {
    /// The stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Listen { error, .. } if error.kind() == io::ErrorKind::AddrInUse => Code::AddressInUse,
            Self::NotLoopback(_) | Self::Listen { .. } => Code::InvalidConfig,
            Self::System(_) | Self::Worker(_) => Code::Internal,
            Self::Log(error) => error.code(),
            Self::Read(error) => error.code(),
            Self::Commit(error) => error.code(),
            Self::Types(error) => error.code(),
            Self::Handler(error) => error.code(),
        }
    }
}

/// Runs the service until `shutdown` is done, or until nobody reads its output any more.
///
/// First it ends as `interrupted` what an earlier run left started, kills what that run left running, and takes up what was requested
/// and not started. It ends within 10 seconds: no further request is taken, running programs are killed and become `interrupted`,
/// requests that wait stay for the next start, and the store is closed. Dropping the future leaves everything to the next start, but
/// for the programs, which are killed.
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
    worker: Arc<Worker>,
    host: Host,
    office: Office,
}

impl Service {
    async fn start(settings: Settings) -> Result<Self, Error> {
        let listener = listen(settings.listen).await?;
        let address = listener.local_addr().map_err(Error::System)?;
        let log = settings.store.log(DEFAULT_TENANT, DEFAULT_SCOPE)?;
        let head = log.head().await?;
        let lines = Lines::to(settings.output).map_err(Error::System)?;
        lines.print(format!("Store {} holds {head} events.", settings.store_name)).await;
        lines.print(format!("Open http://{address}/ in a browser. Ctrl-C stops.")).await;
        if is_root() {
            const WARNING: &str = "! You are root, so the programs run with root's rights: this is no sandbox. Run it as an ordinary user.";
            lines.print(WARNING).await;
        }
        let interpreters = Interpreters::find().await;
        if let Err(reason) = interpreters.of(Language::Python) {
            lines.print(format!("! {reason}")).await;
        }
        let service = format!("worker-{}", &random_uuid().simple().to_string()[..12]);
        let workshop = Arc::new(Workshop {
            log: Arc::clone(&log),
            interpreters: interpreters.clone(),
            watchdog: Watchdog::start(&service).map_err(Error::System)?,
            folder: settings.work,
            service,
            output_bytes: settings.output_bytes,
            lines: lines.clone(),
        });
        types::register(&*settings.store).await?;
        let printer = Printer::new(Arc::clone(&log), head, lines.clone());
        recover(&workshop).await?;
        let worker = Worker::new(workshop);
        let host = Host::start(Arc::clone(&settings.store), HostOptions::default());
        host.handle(DEFAULT_TENANT, definition(settings.at_once), Arc::clone(&worker)).await?;
        if settings.submit_samples {
            samples::submit(&interpreters, &*log).await?;
        }
        let office = Office { log, interpreters };
        Ok(Self { store: settings.store, listener, lines, printer, worker, host, office })
    }

    async fn serve(self, shutdown: BoxFuture<'_, ()>) -> Result<(), Error> {
        const STOP_WAIT_MAX: Duration = Duration::from_secs(3);
        let mut options = Options::default();
        options.stop_wait_max = STOP_WAIT_MAX;
        // The API shows the worker, and the server drains the host before it closes the store.
        options.host = Some(self.host.clone());
        let mut console = annals::console::Settings::default();
        console.links = vec![("Programs".to_owned(), web::PAGE.to_owned())];
        options.pages = Some(annals::console::console(console));
        let router = web::router(self.office, router(Arc::clone(&self.store), options.clone()));
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = serve_router(self.listener, router, self.store, options, async {
            let _ = stopped.await;
        });
        let (stop_printing, printing_stops) = oneshot::channel();
        let working = async {
            let ended = until_the_end(&self.host, &self.worker, &self.lines, shutdown).await;
            drop(stop_printing);
            ended
        };
        let working = async {
            let (ended, ()) = tokio::join!(working, self.printer.run(printing_stops));
            // Only now, so that whoever watches can see the last events too.
            drop(stop);
            ended
        };
        let (ended, served) = tokio::join!(working, serving);
        self.lines.print("Stopped.").await;
        self.lines.drained().await;
        ended.and(served.map_err(Error::System))
    }
}

/// Waits for a reason to end, then ends the programs.
async fn until_the_end(host: &Host, worker: &Worker, lines: &Lines, shutdown: BoxFuture<'_, ()>) -> Result<(), Error> {
    /// Programs are killed at once; this is for a store that does not take their last events.
    const PROGRAMS_WAIT_MAX: Duration = Duration::from_secs(4);
    let ended = tokio::select! {
        () = shutdown => Ok(()),
        () = lines.closed() => Ok(()),
        ended = until_a_task_ends(host, lines) => Err(ended),
    };
    worker.stop();
    // Those whose end is not in the log by then are interrupted by the next start.
    let _ = timeout(PROGRAMS_WAIT_MAX, worker.stopped()).await;
    ended
}

/// Says when a task of the worker failed, which its host restarts. Returns when one has ended by itself.
async fn until_a_task_ends(host: &Host, lines: &Lines) -> Error {
    const LOOK_EVERY: Duration = Duration::from_secs(1);
    let mut told = BTreeMap::new();
    loop {
        sleep(LOOK_EVERY).await;
        for task in host.tasks() {
            if task.state == TaskState::Ended {
                return Error::Worker(format!("{}: its store was closed, or its handler deleted", task.name));
            }
            if told.insert(task.name, task.restarts).unwrap_or(0) < task.restarts {
                let error = task.last_error.unwrap_or_default();
                lines.print(format!("! no further program is started, trying again: {error}")).await;
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
