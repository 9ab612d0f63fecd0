//! A consumer on an external broker where groups join: a member of the group as a task of the host. [`annals_core::consuming`] decides
//! which message is processed next.
//!
//! ```text
//!  Broker::join ─▶ membership.rs: messages ─▶ event.rs: read ─▶ machine ─▶ function of the type ─▶ offsets committed
//!                                                │ unreadable      │ passed
//!                                                └─────────────────┴──▶ letters.rs: dead letter stored, delivered again when it is due
//! ```

mod event;
mod letters;
mod membership;
mod reserving;

pub(crate) use event::PARTITION as BROKER_PARTITION;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annals_core::groups::{GroupDefinition, GroupError, GuardRecord};
use annals_core::handlers::HandlerError;
use annals_core::types::EventTypes;
use annals_core::{
    Broker, BrokerError, ByteString, Code, DEFAULT_SCOPE, EventLog, GroupMember, GroupSubscription, Invalid,
    RecordType, Records, TopicSettings, UnknownLog,
};
use tokio::sync::watch;

use super::consumer::Functions;
use super::processor_of;
use crate::dead_letters::Policies;
use crate::host::{Ended, Host, Shared, Supervised, is_set, locked, supervise};
use crate::topics::TenantTopics;
use membership::Membership;
use reserving::Reserving;

/// The first and the longest pause before rejoining the group.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The status of a consumer that joined its group on a broker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConsumerStatus {
    /// The tenant.
    pub tenant: String,
    /// The group.
    pub group: ByteString,
    /// The number of partitions that are assigned to it now.
    pub partitions: usize,
    /// The number of messages that were processed since it started, including duplicates that a guard has passed.
    pub processed: u64,
    /// The number of attempts that failed.
    pub failed: u64,
    /// The number of messages that could not be read as events of their topics. They are among the dead letters.
    pub unreadable: u64,
    /// The number of messages that became dead letters.
    pub dead_letters: u64,
    /// Whether so many consecutive messages became dead letters that no more do until one succeeds.
    pub broken: bool,
    /// The last error of the broker or the store, while it persists.
    pub last_error: Option<String>,
}

/// The dependencies and the state of a consumer.
struct Work {
    shared: Arc<Shared>,
    tenant: String,
    broker: Arc<dyn Broker>,
    topics: Arc<TenantTopics>,
    log: Arc<dyn EventLog>,
    records: Arc<dyn Records>,
    policies: Policies,
    definition: GroupDefinition,
    types: Arc<dyn EventTypes>,
    functions: Arc<Functions>,
    guard: Option<Arc<Reserving>>,
    /// The name of its processor, under which its dead letters are stored.
    processor: String,
    /// The name of this member.
    member: String,
    status: watch::Sender<ConsumerStatus>,
}

struct Task(Arc<Work>);

impl Host {
    /// Returns the status of this process's consumers that joined groups on a broker.
    pub fn consumers(&self) -> Vec<ConsumerStatus> {
        locked(&self.0.consumers).iter().map(|status| status.borrow().clone()).collect()
    }

    /// Consumes the topics of a group on a broker for as long as the host runs.
    pub(super) async fn join(
        &self,
        tenant: &str,
        (broker, settings): (Arc<dyn Broker>, TopicSettings),
        (definition, functions): (GroupDefinition, Functions),
    ) -> Result<(), GroupError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        definition.validate()?;
        if settings.is_reserved(&settings.topic_of(&definition.name)) {
            let message = "begins as the groups of another tenant on the same cluster do; choose another name";
            return Err(Invalid::new(Code::InvalidGroup, "name", message).into());
        }
        let unknown = |error: UnknownLog| Invalid::new(error.code(), "tenant", error.to_string());
        match self.groups_of(tenant).map_err(unknown)?.definition(&definition.name).await {
            Err(HandlerError::Unknown(_)) => {}
            Ok(_) => {
                let message = format!(
                    "group {:?} is already defined as a group that follows the log and has a position of its own; delete that definition or choose another name",
                    &*definition.name
                );
                return Err(Invalid::new(Code::InvalidGroup, "name", message).into());
            }
            Err(error) => return Err(error.into()),
        }
        let shared = Arc::clone(&self.0.shared);
        let letters = self.dead_letters_of(tenant).map_err(unknown)?;
        letters.start();
        let (group, number) = (definition.name.clone(), COUNT.fetch_add(1, Ordering::Relaxed));
        let records = self.store().records(tenant).map_err(unknown)?;
        let (processor, member) = (processor_of(&group), format!("{}-{number}", shared.process));
        let guard = definition.guard.clone().map(|settings| {
            let names = ((tenant, &*group), (&*processor, &*member));
            Arc::new(Reserving::new(&shared, Arc::clone(&records), settings, names.0, names.1))
        });
        let status = ConsumerStatus { tenant: tenant.to_owned(), group: group.clone(), ..ConsumerStatus::default() };
        let (status, watched) = watch::channel(status);
        let work = Arc::new(Work {
            topics: Arc::new(self.topics_on(tenant, Arc::clone(&broker), settings).map_err(unknown)?),
            broker,
            log: self.store().log(tenant, DEFAULT_SCOPE).map_err(unknown)?,
            records,
            policies: Policies::of_tenant(&shared, tenant).map_err(unknown)?,
            definition,
            types: self.store().event_types(tenant).map_err(unknown)?,
            functions: Arc::new(functions),
            guard,
            processor,
            member,
            status,
            tenant: tenant.to_owned(),
            shared: Arc::clone(&shared),
        });
        locked(&self.0.consumers).push(watched);
        supervise(&shared, format!("consumer/{tenant}/{group}/{number}"), Task(work));
        Ok(())
    }
}

impl Work {
    /// Joins the group, and creates missing topics.
    async fn member(&self) -> Result<Box<dyn GroupMember>, BrokerError> {
        if self.guard.is_some() {
            self.records.declare(<GuardRecord as RecordType>::collection()).await?;
        }
        for topic in &self.definition.topics {
            self.topics.create(topic).await?;
        }
        let settings = self.topics.settings();
        let subscription = GroupSubscription {
            // Groups of different tenants on one cluster are different groups.
            group: settings.topic_of(&self.definition.name),
            topics: self.definition.topics.iter().map(|topic| settings.topic_of(topic)).collect(),
            start: self.definition.start,
            member: self.member.clone(),
        };
        self.broker.join(subscription).await
    }

    /// Returns the event type of a topic of this group.
    fn type_of<'t>(&self, topic: &'t str) -> &'t str {
        self.topics.settings().type_of(topic).unwrap_or(topic)
    }

    fn says(&self, error: Option<String>) {
        self.status.send_if_modified(|status| {
            let changed = status.last_error != error;
            status.last_error = error;
            changed
        });
    }
}

impl Supervised for Task {
    async fn run(&mut self) -> Ended {
        let work = &*self.0;
        let mut stop = work.shared.stop.subscribe();
        let mut pause = PAUSES.0;
        loop {
            let error = match work.member().await {
                Ok(member) => {
                    work.says(None);
                    match Membership::new(work, member).run().await {
                        Ok(()) => return Ended::Done,
                        Err(error) => {
                            pause = PAUSES.0;
                            error
                        }
                    }
                }
                Err(error) => error,
            };
            work.status.send_modify(|status| status.partitions = 0);
            tracing::warn!(group = &*work.definition.name, %error, "rejoining the group");
            work.says(Some(error.to_string()));
            tokio::select! {
                biased;
                () = is_set(&mut stop) => return Ended::Done,
                () = work.shared.options.clock.sleep(pause) => {}
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }
}
