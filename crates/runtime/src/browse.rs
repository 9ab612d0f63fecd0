//! The browse view of a tenant: a projection with one document for each event, and the reads of it. The contract is [`Browse`].
//!
//! ```text
//!  first read ─▶ projections.put(annals.events) ─▶ build.rs ─▶ records `events`
//!  read ─▶ on? ─▶ until the view has what the log has, at most 5 s ─▶ records: find, count, group
//! ```

pub(crate) mod paging;
mod statistics;

use std::sync::Arc;
use std::time::Duration;

use annals_core::browse::{
    BROWSE_VIEW, Browse, BrowseError, BrowsePage, BrowseQuery, EventDetail, EventStatistics, EventSummary,
    ShownDocument, StatisticsQuery, ViewBody, ViewPosition, ViewRecord, ViewStatus, ViewSwitch, browse_id, shown,
};
use annals_core::bson::{Document, RawDocumentBuf};
use annals_core::handlers::Reason;
use annals_core::projections::{ProjectionAct, ProjectionDefinition, ProjectionError, Projections};
use annals_core::{
    Condition, DEFAULT_SCOPE, EventLog, Expected, RecordError, RecordQuery, RecordType, Records, TypedRecords,
    UnknownLog,
};
use async_trait::async_trait;

use self::paging::Found;
use crate::host::{Host, Shared};
use crate::projections::TenantProjections;

/// The maximum time that a read waits for the view.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The most related events, and the most events of a timeline.
const RELATED_MAX: (usize, usize) = (10, 5);

/// The browse view of one tenant.
pub(crate) struct TenantBrowse {
    shared: Arc<Shared>,
    records: Arc<dyn Records>,
    log: Arc<dyn EventLog>,
    projections: Arc<TenantProjections>,
    tenant: String,
}

/// Reads the settings of the view, and the expectation for batches that depend on them.
pub(crate) async fn settings_of(records: &Arc<dyn Records>) -> Result<(ViewRecord, Expected), RecordError> {
    let typed = TypedRecords::<ViewRecord>::declared(Arc::clone(records));
    let found = match typed.get(ViewRecord::ID).await {
        Err(RecordError::UnknownCollection(_)) => None,
        found => found?,
    };
    Ok(match found {
        Some(found) => (found.value, Expected::Revision(found.revision)),
        None => (ViewRecord::default(), Expected::Absent),
    })
}

impl Host {
    /// Returns the browse view of a tenant.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn browse(&self, tenant: &str) -> Result<Arc<dyn Browse>, UnknownLog> {
        Ok(self.browse_of(tenant)?)
    }

    pub(crate) fn browse_of(&self, tenant: &str) -> Result<Arc<TenantBrowse>, UnknownLog> {
        let shared = Arc::clone(&self.0.shared);
        Ok(Arc::new(TenantBrowse {
            records: shared.store.records(tenant)?,
            log: shared.store.log(tenant, DEFAULT_SCOPE)?,
            projections: self.projections_of(tenant)?,
            tenant: tenant.to_owned(),
            shared,
        }))
    }
}

impl TenantBrowse {
    async fn settings(&self) -> Result<(ViewRecord, Expected), BrowseError> {
        Ok(settings_of(&self.records).await?)
    }

    /// Ensures that the view is being built.
    async fn on(&self) -> Result<(), BrowseError> {
        let (settings, _) = self.settings().await?;
        if settings.state == ViewSwitch::Off {
            return Err(BrowseError::Off);
        }
        match self.projections.check_defined(BROWSE_VIEW).await {
            Err(ProjectionError::Unknown(_)) => {
                self.projections.put(ProjectionDefinition::browse(None)).await?;
                Ok(())
            }
            defined => Ok(defined?),
        }
    }

    /// Waits until the view contains every event below a sequence number.
    pub(crate) async fn until(&self, number: u64) -> Result<(), BrowseError> {
        self.on().await?;
        Ok(self.projections.until_projected(BROWSE_VIEW, number).await?)
    }

    /// Waits a few seconds for the view to catch up, and returns its position.
    pub(crate) async fn caught_up(&self) -> Result<ViewPosition, BrowseError> {
        self.on().await?;
        let head = self.log.head().await?;
        let position = tokio::select! {
            biased;
            reached = self.projections.until_projected(BROWSE_VIEW, head) => {
                reached?;
                head
            }
            () = self.shared.options.clock.sleep(WAIT_MAX) => self.projections.get(BROWSE_VIEW).await?.position,
        };
        Ok(ViewPosition { position, head })
    }

    /// Reads the live collection. Its records are removed only after another build has become live, and then the read is repeated.
    async fn live<T, F: Future<Output = Result<T, RecordError>>>(
        &self,
        ask: impl Fn(String) -> F,
    ) -> Result<T, BrowseError> {
        loop {
            let before = self.projections.collection(BROWSE_VIEW).await?;
            let answer = ask(before.clone()).await?;
            if self.projections.collection(BROWSE_VIEW).await? == before {
                return Ok(answer);
            }
        }
    }

    pub(crate) async fn count(&self, condition: &Condition) -> Result<u64, BrowseError> {
        self.count_up_to(condition, u64::MAX).await
    }

    async fn count_up_to(&self, condition: &Condition, at_most: u64) -> Result<u64, BrowseError> {
        self.live(|collection| async move { self.records.count_up_to(&collection, condition, at_most).await }).await
    }

    /// Returns one page of documents and the next page's cursor. The collection in the query is ignored.
    pub(crate) async fn find(&self, query: RecordQuery) -> Result<Found<Document>, BrowseError> {
        let (stored, next) = self.find_stored(query).await?;
        // A document that cannot be read is shown as an empty one, which is marked as damaged.
        let documents = stored.iter().map(|it| Document::try_from(&**it).unwrap_or_default());
        Ok((documents.collect(), next))
    }

    /// Returns one page of stored documents, and the next page's cursor.
    pub(crate) async fn find_stored(&self, query: RecordQuery) -> Result<Found<RawDocumentBuf>, BrowseError> {
        let page = self.projections.find(BROWSE_VIEW, query).await?;
        Ok((page.records.into_iter().map(|it| it.document).collect(), page.next))
    }

    async fn asked(&self, query: &BrowseQuery) -> Result<Found<RawDocumentBuf>, BrowseError> {
        paging::asked(query, "", |query| self.find_stored(query)).await
    }

    async fn status(&self) -> Result<ViewStatus, BrowseError> {
        let (settings, _) = self.settings().await?;
        let head = self.log.head().await?;
        let absent = ViewStatus {
            state: settings.state,
            retention_days: settings.days(),
            off_types: settings.off_types.clone(),
            view: None,
            collection: None,
            position: 0,
            head,
            degraded: None,
            building: None,
        };
        match self.projections.get(BROWSE_VIEW).await {
            Err(ProjectionError::Unknown(_)) => Ok(absent),
            found => {
                let found = found?;
                Ok(ViewStatus {
                    view: Some(found.state),
                    collection: Some(found.collection),
                    position: found.position,
                    head: found.head,
                    degraded: found.degraded,
                    building: found.building,
                    ..absent
                })
            }
        }
    }
}

/// Returns the condition for documents of events below a sequence number.
pub(crate) fn below(number: u64) -> Condition {
    Condition::lt("_id", browse_id(number))
}

#[async_trait]
impl Browse for TenantBrowse {
    async fn page(&self, query: BrowseQuery) -> Result<BrowsePage, BrowseError> {
        query.validate()?;
        let view = self.caught_up().await?;
        let (found, next) = self.asked(&query).await?;
        let at_most = query.count_up_to.unwrap_or(u64::MAX);
        let counted = self.count_up_to(&query.condition(), at_most).await?;
        // Events may have been added or have expired between the two reads.
        let total = counted.max(query.skip.min(counted) + found.len() as u64);
        Ok(BrowsePage {
            items: found.iter().map(|it| ShownDocument::new(it).value()).collect(),
            total,
            total_is_bound: counted == at_most,
            has_more: next.is_some(),
            cursor: next.map(|cursor| cursor.to_string()),
            view,
        })
    }

    async fn rows(&self, query: BrowseQuery) -> Result<(Vec<RawDocumentBuf>, Option<String>), BrowseError> {
        query.validate()?;
        if query.cursor.is_none() {
            self.caught_up().await?;
        }
        let (found, next) = self.asked(&query).await?;
        Ok((found, next.map(|cursor| cursor.to_string())))
    }

    async fn event(&self, event_id: &str) -> Result<EventDetail, BrowseError> {
        self.caught_up().await?;
        let one = RecordQuery::new("").matching(Condition::eq("event_id", event_id)).limit(1);
        let Some(event) = self.find(one).await?.0.into_iter().next() else {
            return Err(BrowseError::UnknownEvent(event_id.to_owned()));
        };
        let mut related = Vec::new();
        if let (Ok(aggregate), Some(id)) = (event.get_str("aggregate_id"), event.get("_id").cloned()) {
            let mut same = vec![Condition::eq("aggregate_id", aggregate), Condition::ne("_id", id)];
            let own = event.get_document("annals").ok();
            same.extend(
                own.and_then(|own| own.get("aggregate").cloned()).map(|it| Condition::eq("annals.aggregate", it)),
            );
            let query = RecordQuery::new("").matching(Condition::and(same)).ascending("timestamp").limit(RELATED_MAX.0);
            related = self.find(query).await?.0.iter().map(EventSummary::of).collect();
        }
        let timeline = related.iter().take(RELATED_MAX.1).cloned().collect();
        Ok(EventDetail { event: shown(&event), related, timeline })
    }

    async fn statistics(&self, query: StatisticsQuery) -> Result<EventStatistics, BrowseError> {
        query.validate()?;
        self.caught_up().await?;
        self.counted(query).await
    }

    async fn view(&self) -> Result<ViewStatus, BrowseError> {
        self.status().await
    }

    async fn set_view(&self, body: ViewBody) -> Result<ViewStatus, BrowseError> {
        body.validate()?;
        self.records.declare(<ViewRecord as RecordType>::collection()).await?;
        let typed = TypedRecords::<ViewRecord>::declared(Arc::clone(&self.records));
        let settings = loop {
            let (settings, expected) = self.settings().await?;
            let before = settings.off_types.clone();
            let changed = settings.changed(&body, self.shared.options.clock.now());
            if let (ViewSwitch::Off, Some(hold)) = (changed.state, changed.holds.first()) {
                let state = format!("hold {:?} protects events in it", hold.name);
                return Err(BrowseError::NotAllowed { act: "switch off".to_owned(), state });
            }
            let is_new = changed.off_types.iter().any(|it| !before.contains(it));
            if let (true, Some(hold)) = (is_new, changed.holds.first()) {
                let state = format!("hold {:?} protects events in it", hold.name);
                return Err(BrowseError::NotAllowed { act: "exclude an event type from".to_owned(), state });
            }
            match typed.replace_if(&changed, expected).await {
                Ok(_) => break changed,
                Err(RecordError::NotAsExpected { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let is_defined = match self.projections.check_defined(BROWSE_VIEW).await {
            Err(ProjectionError::Unknown(_)) => false,
            defined => defined.map(|()| true)?,
        };
        match settings.state {
            ViewSwitch::Off if is_defined => self.projections.delete(BROWSE_VIEW, body.why()).await?,
            ViewSwitch::Off => {}
            ViewSwitch::Auto if !is_defined => {}
            ViewSwitch::Auto | ViewSwitch::On if is_defined => {}
            ViewSwitch::Auto | ViewSwitch::On => {
                _ = self.projections.put(ProjectionDefinition::browse(None)).await?;
            }
        }
        self.shared.archive_of(&self.tenant).notify_one();
        self.status().await
    }

    async fn rebuild(&self, reason: Reason) -> Result<ViewStatus, BrowseError> {
        self.on().await?;
        self.projections.act(BROWSE_VIEW, ProjectionAct::Rebuild, reason).await?;
        self.status().await
    }
}
