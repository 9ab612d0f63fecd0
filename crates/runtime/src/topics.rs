//! The topics of a tenant on its broker: one for each registered event type.

use std::collections::BTreeMap;
use std::sync::Arc;

use annals_core::handlers::{ActRecord, Reason};
use annals_core::types::{EventTypes, TypeError, TypeStatus};
use annals_core::{
    Broker, BrokerError, ByteString, Clock, Condition, DEFAULT_CATEGORY, DEFAULT_SCOPE, Expected, RecordType, Records,
    StoreError, TopicDefinition, TopicGroup, TopicPage, TopicSettings, TopicState, TopicStatus, Topics, TypedRecords,
    UnknownLog, limits,
};
use async_trait::async_trait;

use crate::broker::Views;
use crate::groups::groups_of_type;
use crate::handlers::TenantHandlers;
use crate::host::{Host, Shared, locked};

/// The topics of one tenant.
pub(crate) struct TenantTopics {
    shared: Arc<Shared>,
    records: Arc<dyn Records>,
    types: Arc<dyn EventTypes>,
    groups: Arc<TenantHandlers>,
    broker: Arc<dyn Broker>,
    /// The log as a broker, in which groups that follow the log have their positions.
    views: Views,
    settings: TopicSettings,
}

impl Host {
    /// Returns the topics of a tenant.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn topics(&self, tenant: &str) -> Result<Arc<dyn Topics>, UnknownLog> {
        Ok(Arc::new(self.topics_of(tenant)?))
    }

    /// Returns the broker of a tenant: the one that its events are published to, else the embedded one, whose topics are views of the
    /// log.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn broker(&self, tenant: &str) -> Result<Arc<dyn Broker>, UnknownLog> {
        match self.copies(tenant) {
            Some((broker, _)) => Ok(broker),
            None => Ok(Arc::new(self.views(tenant)?)),
        }
    }

    /// Makes the topics of a tenant those on an external broker, whether or not this host publishes to it. A relay calls this itself.
    pub fn use_broker(&self, tenant: &str, broker: Arc<dyn Broker>, settings: TopicSettings) {
        locked(&self.0.brokers).insert(tenant.to_owned(), (broker, settings));
    }

    /// Returns the external broker to which a tenant's events are published, with the names of its topics; `None` if topics are views of
    /// the log.
    pub(crate) fn copies(&self, tenant: &str) -> Option<(Arc<dyn Broker>, TopicSettings)> {
        locked(&self.0.brokers).get(tenant).cloned()
    }

    fn views(&self, tenant: &str) -> Result<Views, UnknownLog> {
        let shared = &self.0.shared;
        Ok(Views {
            log: shared.store.log(tenant, DEFAULT_SCOPE)?,
            records: shared.store.records(tenant)?,
            clock: Arc::clone(&shared.options.clock),
            settings: shared.options.topics.clone(),
        })
    }

    pub(crate) fn topics_of(&self, tenant: &str) -> Result<TenantTopics, UnknownLog> {
        match self.copies(tenant) {
            Some((broker, settings)) => self.topics_on(tenant, broker, settings),
            None => self.views_of(tenant),
        }
    }

    /// Returns the topics as views of the log, wherever events are published.
    pub(crate) fn views_of(&self, tenant: &str) -> Result<TenantTopics, UnknownLog> {
        self.topics_on(tenant, Arc::new(self.views(tenant)?), self.0.shared.options.topics.clone())
    }

    /// Returns the topics on a broker.
    pub(crate) fn topics_on(
        &self,
        tenant: &str,
        broker: Arc<dyn Broker>,
        settings: TopicSettings,
    ) -> Result<TenantTopics, UnknownLog> {
        let shared = Arc::clone(&self.0.shared);
        Ok(TenantTopics {
            records: shared.store.records(tenant)?,
            types: shared.store.event_types(tenant)?,
            groups: self.groups_of(tenant)?,
            broker,
            views: self.views(tenant)?,
            settings,
            shared,
        })
    }
}

impl TenantTopics {
    pub fn broker(&self) -> &Arc<dyn Broker> {
        &self.broker
    }

    pub fn settings(&self) -> &TopicSettings {
        &self.settings
    }

    fn clock(&self) -> &dyn Clock {
        &*self.shared.options.clock
    }

    /// Returns the definition of the topic that an event type should have.
    async fn definition(&self, event_type: &str) -> Result<TopicDefinition, BrokerError> {
        let category = match self.types.get(event_type).await {
            Ok(known) => known.category,
            // An adapter by itself has no registry.
            Err(TypeError::Unknown(_) | TypeError::Store(StoreError::NotSupported(_))) => DEFAULT_CATEGORY.into(),
            Err(error) => return Err(of_types(error)),
        };
        Ok(self.settings.topic_in(event_type, &category)?)
    }

    /// Creates the topic of an event type. Returns false if it exists.
    pub async fn create(&self, event_type: &str) -> Result<bool, BrokerError> {
        self.broker.create_topic(&self.definition(event_type).await?).await
    }

    async fn all_types(&self) -> Result<Vec<TypeStatus>, BrokerError> {
        let (mut all, mut after) = (Vec::new(), None::<ByteString>);
        loop {
            let page = match self.types.list(after.as_deref(), limits::PAGE_MAX).await {
                Err(TypeError::Store(StoreError::NotSupported(_))) => return Ok(all),
                page => page.map_err(of_types)?,
            };
            all.extend(page.items);
            after = page.cursor;
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    /// Returns the topics of registered types, by name. A type that can have none is left out; the relay holds its events.
    async fn all_wanted(&self) -> Result<BTreeMap<ByteString, TopicDefinition>, BrokerError> {
        let types = self.all_types().await?.into_iter();
        let wanted = types.filter_map(|it| self.settings.topic_in(&it.name, &it.category).ok());
        Ok(wanted.map(|it| (it.name.clone(), it)).collect())
    }

    /// Stores an act of an operator on a topic.
    async fn record(&self, act: &str, topic: &str, reason: Reason) -> Result<(), BrokerError> {
        self.records.declare(<ActRecord as RecordType>::collection()).await?;
        let place = (self.clock().now(), 0, self.shared.options.random.bits());
        let act = ActRecord::new(&format!("topic/{topic}"), act, reason, place);
        self.records.write(vec![TypedRecords::replacement(&act, Expected::AbsentOr(Condition::All))?]).await?;
        Ok(())
    }

    fn shown(&self, state: TopicState, wanted: Option<&TopicDefinition>) -> TopicStatus {
        let event_type = self.settings.type_of(&state.name).unwrap_or(&state.name);
        let default = || self.settings.topic_in(event_type, DEFAULT_CATEGORY).ok();
        let category = wanted.map_or_else(|| DEFAULT_CATEGORY.into(), |wanted| wanted.category.clone());
        let wanted = wanted.cloned().or_else(default);
        let differences = wanted.map(|wanted| wanted.differences(state.partitions(), state.retention_ms));
        TopicStatus {
            event_type: event_type.into(),
            category,
            partitions: state.partitions(),
            retention_ms: state.retention_ms,
            groups: Vec::new(),
            differences: differences.unwrap_or_default(),
            name: state.name,
            head: state.heads,
        }
    }
}

pub(crate) fn of_types(error: TypeError) -> BrokerError {
    match error {
        TypeError::Invalid(invalid) => BrokerError::Invalid(invalid),
        TypeError::Store(error) => BrokerError::Store(error),
        other => BrokerError::Refused(other.to_string()),
    }
}

#[async_trait]
impl Topics for TenantTopics {
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<TopicPage, BrokerError> {
        self.create_missing().await?;
        let wanted = self.all_wanted().await?;
        let all = self.broker.topics(None).await?;
        let own = all.into_iter().filter(|it| self.settings.type_of(&it.name).is_some());
        let mut behind = own.filter(|it| after.is_none_or(|after| *it.name > *after)).peekable();
        let taken: Vec<TopicState> = behind.by_ref().take(limit.clamp(1, limits::PAGE_MAX)).collect();
        let more = behind.peek().is_some();
        let items: Vec<_> = taken
            .into_iter()
            .map(|it| {
                let definition = wanted.get(&it.name);
                self.shown(it, definition)
            })
            .collect();
        let cursor = items.last().filter(|_| more).map(|it| it.name.clone());
        Ok(TopicPage { items, cursor })
    }

    async fn get(&self, name: &str) -> Result<TopicStatus, BrokerError> {
        let unknown = || BrokerError::UnknownTopic(name.into());
        let event_type = self.settings.type_of(name).ok_or_else(unknown)?;
        let definition = self.definition(event_type).await?;
        let found = self.broker.topics(Some(&[name.into()])).await?.into_iter().next().ok_or_else(unknown)?;
        let mut shown = self.shown(found, Some(&definition));
        let named = groups_of_type(&self.groups, event_type).await;
        let view = self.views.settings.topic_of(event_type);
        for group in named.map_err(|error| BrokerError::Refused(error.to_string()))? {
            let offsets = self.views.group_offsets(&group).await?;
            let lag = offsets.iter().filter(|offset| offset.at.topic == view).map(|offset| offset.lag).sum();
            shown.groups.push(TopicGroup { group, lag });
        }
        for TopicGroup { group, lag } in self.broker.joined_groups(name).await? {
            // Groups of other programs are shown under their names on the broker.
            let group = self.settings.type_of(&group).map_or_else(|| group.clone(), ByteString::from);
            shown.groups.push(TopicGroup { group, lag });
        }
        shown.groups.sort_by(|one, other| one.group.cmp(&other.group));
        Ok(shown)
    }

    async fn apply(&self, name: &str, reason: Reason) -> Result<TopicStatus, BrokerError> {
        reason.validate()?;
        let unknown = || BrokerError::UnknownTopic(name.into());
        let definition = self.definition(self.settings.type_of(name).ok_or_else(unknown)?).await?;
        let known = self.broker.topics(Some(&[name.into()])).await?.into_iter().next();
        let differences = known.map(|known| definition.differences(known.partitions(), known.retention_ms));
        if let Some(fixed) = differences.iter().flatten().find(|it| !it.applicable) {
            let why = fixed.warning.clone().unwrap_or_default();
            return Err(BrokerError::Refused(format!("{} of topic {name:?} cannot be applied: {why}", fixed.setting)));
        }
        tracing::info!(
            topic = name,
            reason = reason.reason,
            by = reason.by,
            "an operator applies the configuration of a topic"
        );
        // A broker of its own is in no batch with the record, and may make a change without showing it in time.
        self.record("apply", name, reason).await?;
        let changes = match differences {
            // Somebody else may create it meanwhile.
            None => !self.broker.create_topic(&definition).await?,
            Some(differences) => !differences.is_empty(),
        };
        if changes {
            self.broker.alter_topic(&definition).await?;
        }
        self.get(name).await
    }

    async fn create_missing(&self) -> Result<(), BrokerError> {
        let wanted = self.all_wanted().await?;
        let names: Vec<ByteString> = wanted.keys().cloned().collect();
        if names.is_empty() {
            return Ok(());
        }
        let known = self.broker.topics(Some(&names)).await?;
        for (name, definition) in &wanted {
            if known.iter().all(|it| it.name != *name) {
                self.broker.create_topic(definition).await?;
            }
        }
        Ok(())
    }
}
