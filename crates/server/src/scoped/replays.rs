//! The replays of a tenant that a caller may see: all except those that send to a handler of another scope.

use std::sync::Arc;

use annals_core::Code;
use annals_core::handlers::{HandlerError, Reason};
use annals_core::replays::{
    PreviewBody, ReplayAct, ReplayBody, ReplayError, ReplayPage, ReplayPreview, ReplayState, ReplayStatus,
    ReplayTarget, Replays,
};

use super::Scopes;
use super::visible::Visible;
use crate::caller::Caller;
use crate::problem::Problem;
use crate::state::Server;

/// The replays of a tenant that a caller may see. The methods are those of [`Replays`].
pub(crate) struct ScopedReplays {
    replays: Arc<dyn Replays>,
    scopes: Scopes,
}

impl ScopedReplays {
    pub fn of(server: &Server, caller: &Caller) -> Result<Self, Problem> {
        Ok(Self { replays: server.host.replays(&caller.tenant)?, scopes: Scopes::of(server, caller) })
    }

    async fn check(&self, target: &ReplayTarget) -> Result<(), ReplayError> {
        let ReplayTarget::Handler { name } = target else { return Ok(()) };
        match self.scopes.has_handler(name).await.map_err(ReplayError::Handler)? {
            true => Ok(()),
            false => Err(ReplayError::Handler(HandlerError::Unknown(name.clone()))),
        }
    }

    pub async fn preview(&self, body: PreviewBody) -> Result<ReplayPreview, ReplayError> {
        self.check(&body.target).await?;
        self.replays.preview(body).await
    }

    pub async fn create(&self, body: ReplayBody) -> Result<ReplayStatus, ReplayError> {
        self.check(&body.target).await?;
        self.replays.create(body).await
    }

    pub async fn list(
        &self,
        state: Option<ReplayState>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<ReplayPage, ReplayError> {
        let Some(seen) = self.scopes.handlers().await.map_err(ReplayError::Handler)? else {
            return self.replays.list(state, cursor, limit).await;
        };
        let is_seen =
            |replay: &ReplayStatus| handler_of(replay).is_none_or(|handler| seen.iter().any(|name| **name == *handler));
        let mut visible = Visible::new(cursor, limit);
        while let Some((cursor, limit)) = visible.wanted() {
            let page = self.replays.list(state, cursor, limit).await?;
            visible.add(page.items, page.cursor, is_seen);
        }
        let (items, cursor) = visible.into_page();
        Ok(ReplayPage { items, cursor })
    }

    pub async fn get(&self, id: &str) -> Result<ReplayStatus, ReplayError> {
        let status = self.replays.get(id).await?;
        if let Some(name) = handler_of(&status)
            && !self.scopes.has_handler(name).await.map_err(ReplayError::Handler)?
        {
            return Err(ReplayError::Unknown(id.into()));
        }
        Ok(status)
    }

    pub async fn act(&self, id: &str, act: ReplayAct, reason: Reason) -> Result<ReplayStatus, ReplayError> {
        if !self.scopes.are_all() {
            self.get(id).await?;
        }
        self.replays.act(id, act, reason).await
    }

    /// Waits as [`Replays::changed`] does. The caller obtained `seen` from [`get`](Self::get), which checked it, and the target of a
    /// replay never changes.
    pub async fn changed(&self, id: &str, seen: Option<&ReplayStatus>) -> Result<ReplayStatus, ReplayError> {
        self.replays.changed(id, seen).await
    }

    /// Deletes replays as [`Replays::clean_up`] does. Only for callers of every scope, because it deletes and counts the replays of every
    /// handler.
    pub async fn clean_up(&self, older_than_hours: u32) -> Result<u64, Problem> {
        if !self.scopes.are_all() {
            let message = "replays of every scope would be removed, but the credential is limited to some scopes";
            return Err(
                Problem::new(Code::Forbidden, message).advise("Use a credential that is not limited to some scopes.")
            );
        }
        Ok(self.replays.clean_up(older_than_hours).await?)
    }
}

/// Returns the handler that a replay sends to, if its target is a handler.
fn handler_of(status: &ReplayStatus) -> Option<&str> {
    let target = status.config.get("target")?;
    if target.get("kind")?.as_str()? == "handler" { target.get("name")?.as_str() } else { None }
}
