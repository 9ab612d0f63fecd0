//! Starts the parts of the service that a process runs, according to its roles.

use std::sync::Arc;

use annals::handlers::HandlerDefinition;
use annals::queue::{QueueDefinition, Queues};
use annals::runtime::Host;
use annals::sagas::Sagas;
use annals::{ByteString, DEFAULT_SCOPE, DEFAULT_TENANT, EventLog, Records};
use axum::Router;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::api::{self, Office};
use crate::bridge::{self, Bridge, Hub};
use crate::ids::random_uuid;
use crate::language::{Interpreters, Language};
use crate::lines::Lines;
use crate::listing::{self, Listing};
use crate::notifications::Notifications;
use crate::process::Watchdog;
use crate::records;
use crate::results::Results;
use crate::roles::Role;
use crate::saga::{self, Closer, Orchestra, QUEUE, UNDONE};
use crate::samples;
use crate::scheduler::Scheduler;
use crate::service::{Error, Settings};
use crate::worker::{Worker, Workshop};

/// The parts that run in a process beside its host.
pub(crate) struct Parts {
    pub(crate) worker: Option<Arc<Worker>>,
    pub(crate) routes: Router,
    pub(crate) tasks: JoinSet<()>,
    /// Set once, when the service ends.
    pub(crate) stopping: watch::Sender<bool>,
}

/// The state that the parts share.
struct Common<'a> {
    settings: &'a Settings,
    host: &'a Host,
    lines: &'a Lines,
    log: Arc<dyn EventLog>,
    records: Arc<dyn Records>,
    queues: Arc<dyn Queues>,
    /// The name of this run of the process. It is unique to the run.
    process: String,
}

impl Parts {
    /// Starts the parts of the configured roles.
    pub(crate) async fn start(settings: &Settings, host: &Host, lines: &Lines) -> Result<Self, Error> {
        let common = Common {
            settings,
            host,
            lines,
            log: settings.store.log(DEFAULT_TENANT, DEFAULT_SCOPE)?,
            records: settings.store.records(DEFAULT_TENANT)?,
            queues: host.queues(DEFAULT_TENANT)?,
            process: random_uuid().simple().to_string()[..12].to_owned(),
        };
        records::declare(&common.records).await?;
        // The queue is defined before anything is enqueued, whichever process starts first.
        let cap = u32::try_from(settings.at_once).unwrap_or(u32::MAX).max(1);
        let mut parts =
            Self { worker: None, routes: Router::new(), tasks: JoinSet::new(), stopping: watch::Sender::new(false) };
        let has = |role| settings.roles.contains(&role);
        if has(Role::Worker) {
            parts.worker(&common).await?;
        }
        if has(Role::Results) {
            let (log, records) = (Arc::clone(&common.log), Arc::clone(&common.records));
            Arc::new(Results { log, records }).consumer().run(host, DEFAULT_TENANT).await?;
        }
        if has(Role::Notifications) {
            Arc::new(Notifications { log: Arc::clone(&common.log) }).consumer().run(host, DEFAULT_TENANT).await?;
        }
        if has(Role::Sse) {
            parts.bridge(&common).await?;
        }
        if has(Role::Saga) {
            common
                .queues
                .put(QueueDefinition { lease_ms: common.lease_ms(), ..QueueDefinition::new(QUEUE) }.capped(cap))
                .await?;
            parts.saga(&common).await?;
        }
        if has(Role::Api) {
            parts.api(&common).await?;
        }
        Ok(parts)
    }

    async fn worker(&mut self, common: &Common<'_>) -> Result<(), Error> {
        let interpreters = Interpreters::find().await;
        if let Err(reason) = interpreters.of(Language::Python) {
            common.lines.print(format!("! {reason}")).await;
        }
        common.lines.print(format!("Programs run in {}.", interpreters.listed().join(", "))).await;
        let name = format!("worker-{}", common.process);
        let workshop = Arc::new(Workshop {
            log: Arc::clone(&common.log),
            records: Arc::clone(&common.records),
            clock: Arc::clone(common.host.clock()),
            interpreters,
            watchdog: Watchdog::start(&name).map_err(Error::System)?,
            folder: common.settings.work.clone(),
            name,
            output_bytes: common.settings.output_bytes,
            is_shared: common.settings.store.is_shared(),
            lease: common.settings.lease,
            lines: common.lines.clone(),
        });
        let worker = Worker::new(workshop);
        // What an earlier run left is ended before the first command is taken.
        if let Err(error) = worker.look().await {
            common.lines.print(format!("! pods cannot be supervised; retrying: {error}")).await;
        }
        self.tasks.spawn(Arc::clone(&worker).keep(self.stopping.subscribe()));
        worker.consumer().run(common.host, DEFAULT_TENANT).await?;
        self.worker = Some(worker);
        Ok(())
    }

    async fn bridge(&mut self, common: &Common<'_>) -> Result<(), Error> {
        let bridge = Arc::new(Bridge {
            log: Arc::clone(&common.log),
            from: common.log.head().await?,
            records: Arc::clone(&common.records),
            host: common.host.clone(),
            users: common.settings.users.clone(),
            lines: common.lines.clone(),
            ping: common.settings.ping,
            stopping: self.stopping.subscribe(),
            hub: Hub::default(),
        });
        self.routes = std::mem::take(&mut self.routes).merge(bridge::routes(Arc::clone(&bridge)));
        self.tasks.spawn(bridge.run());
        Ok(())
    }

    async fn saga(&mut self, common: &Common<'_>) -> Result<(), Error> {
        let wake = Arc::new(Notify::new());
        let orchestra = Arc::new(Orchestra {
            log: Arc::clone(&common.log),
            records: Arc::clone(&common.records),
            queues: Arc::clone(&common.queues),
            clock: Arc::clone(common.host.clock()),
            wake: Arc::clone(&wake),
        });
        let sagas = common.host.sagas(DEFAULT_TENANT)?;
        let program = saga::program(&orchestra).map_err(annals::sagas::SagaError::from)?;
        sagas.register(program).await?;
        let sagas: Arc<dyn Sagas> = sagas;
        let closer = HandlerDefinition::new("execution-closer").types(UNDONE.map(ByteString::from_static));
        common.host.handle(DEFAULT_TENANT, closer, Closer { orchestra, sagas: Arc::clone(&sagas) }).await?;
        let scheduler = Scheduler {
            log: Arc::clone(&common.log),
            queues: Arc::clone(&common.queues),
            sagas,
            clock: Arc::clone(common.host.clock()),
            wake,
            lease: common.settings.lease,
            name: format!("scheduler-{}", common.process),
            lines: common.lines.clone(),
        };
        self.tasks.spawn(scheduler.run(self.stopping.subscribe()));
        Ok(())
    }

    async fn api(&mut self, common: &Common<'_>) -> Result<(), Error> {
        let listing = Listing { records: Arc::clone(&common.records) };
        common.host.handle(DEFAULT_TENANT, listing::definition(), listing).await?;
        // Definitions made in the console run here, too.
        common.host.start_defined();
        if common.settings.submit_samples {
            samples::submit(&*common.log).await?;
        }
        let office = Office {
            log: Arc::clone(&common.log),
            records: Arc::clone(&common.records),
            queues: Arc::clone(&common.queues),
            users: common.settings.users.clone(),
        };
        self.routes = std::mem::take(&mut self.routes).merge(api::routes(office));
        Ok(())
    }
}

impl Common<'_> {
    fn lease_ms(&self) -> u64 {
        u64::try_from(self.settings.lease.as_millis()).unwrap_or(u64::MAX)
    }
}
