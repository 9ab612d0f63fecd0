//! The filters of a tenant that a caller may see.

use std::sync::Arc;

use annals_core::filters::{
    FilterDefinition, FilterError, FilterName, FilterPage, FilterSettleBody, FilterStatus, Filters,
};
use annals_core::handlers::{ActPage, Delivery, PullBody, Reason, SettleResult};

use super::Scopes;
use super::visible::Visible;
use crate::caller::Caller;
use crate::problem::Problem;
use crate::state::Server;

/// The filters of a tenant that a caller may see. The methods are those of [`Filters`].
pub(crate) struct ScopedFilters {
    filters: Arc<dyn Filters>,
    scopes: Scopes,
}

impl ScopedFilters {
    pub fn of(server: &Server, caller: &Caller) -> Result<Self, Problem> {
        Ok(Self { filters: server.host.filters(&caller.tenant)?, scopes: Scopes::of(server, caller) })
    }

    pub async fn put(&self, definition: FilterDefinition) -> Result<bool, FilterError> {
        self.scopes.check(&definition.name.scope)?;
        self.filters.put(definition).await
    }

    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<FilterPage, FilterError> {
        if self.scopes.are_all() {
            return self.filters.list(after, limit).await;
        }
        let mut visible = Visible::new(after, limit);
        while let Some((after, limit)) = visible.wanted() {
            let page = self.filters.list(after, limit).await?;
            visible.add(page.items, page.cursor, |filter| self.scopes.has(&filter.scope));
        }
        let (items, cursor) = visible.into_page();
        Ok(FilterPage { items, cursor })
    }

    pub async fn get(&self, name: &FilterName) -> Result<FilterStatus, FilterError> {
        self.scopes.check(&name.scope)?;
        self.filters.get(name).await
    }

    pub async fn delete(&self, name: &FilterName, reason: Reason) -> Result<(), FilterError> {
        self.scopes.check(&name.scope)?;
        self.filters.delete(name, reason).await
    }

    pub async fn pull(&self, name: &FilterName, pull: PullBody) -> Result<Vec<Delivery>, FilterError> {
        self.scopes.check(&name.scope)?;
        self.filters.pull(name, pull).await
    }

    pub async fn settle(&self, name: &FilterName, settle: FilterSettleBody) -> Result<Vec<SettleResult>, FilterError> {
        self.scopes.check(&name.scope)?;
        self.filters.settle(name, settle).await
    }

    pub async fn acts(&self, name: &FilterName, after: Option<&str>, limit: usize) -> Result<ActPage, FilterError> {
        self.scopes.check(&name.scope)?;
        self.filters.acts(name, after, limit).await
    }
}
