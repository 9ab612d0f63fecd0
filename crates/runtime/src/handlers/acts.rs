//! Acts of operators.

use std::sync::Arc;

use annals_core::handlers::{Act, ActPage, ActRecord, HandlerError, Reason};
use annals_core::order::Direction;
use annals_core::{Condition, RecordError, Records, SortBy, StoreError, TypedRecords, limits};
use tokio::sync::oneshot;

use super::TenantHandlers;
use crate::engine::owner::Command;

impl TenantHandlers {
    pub(super) async fn carry_out(&self, name: &str, act: Act, reason: Reason) -> Result<(), HandlerError> {
        reason.validate()?;
        let owner = self.owner(name).await?;
        let (answer, answered) = oneshot::channel();
        // Sent only once: a second skip would skip the next event.
        let unknown = || {
            StoreError::Unreachable("the handler was restarted in the meantime, so whether the act took effect is unknown; read its state before you repeat the act".to_owned())
        };
        owner.send(Command::Act { act: Box::new((act, reason)), answer }).await.map_err(|_| unknown())?;
        answered.await.map_err(|_| unknown())?
    }

    pub(super) async fn acts_page(
        &self,
        name: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<ActPage, HandlerError> {
        self.open()?;
        let page = acts_of(&self.records, &self.kind.processor_of(name), after, limit).await?;
        if page.items.is_empty() && after.is_none() {
            self.definition(name).await?;
        }
        Ok(page)
    }
}

/// Lists an operator's acts on a processor, newest first: at most `limit` acts before `after`.
pub(crate) async fn acts_of(
    records: &Arc<dyn Records>,
    processor: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<ActPage, RecordError> {
    let before = after.map_or(Condition::All, |after| Condition::lt("_id", after));
    let mut query = TypedRecords::<ActRecord>::query()
        .matching(Condition::and([Condition::eq("processor", processor), before]))
        .limit(limit.clamp(1, limits::PAGE_MAX));
    query.sort = vec![SortBy { path: "_id".to_owned(), direction: Direction::Descending }];
    let (found, next) = match TypedRecords::<ActRecord>::declared(Arc::clone(records)).find(query).await {
        Err(RecordError::UnknownCollection(_)) => (Vec::new(), None),
        found => found?,
    };
    let items: Vec<_> = found.into_iter().map(|record| record.value.entry()).collect();
    let cursor = next.and(items.last()).map(|last| last.id.clone());
    Ok(ActPage { items, cursor })
}
