//! The replays of a server's tenant, over HTTP, behind the same port as those of a host in this process.

use std::time::Duration;

use annals_core::handlers::{HandlerError, Reason};
use annals_core::replays::{
    PreviewBody, ReplayAct, ReplayBody, ReplayError, ReplayPage, ReplayPreview, ReplayState, ReplayStatus, Replays,
};
use annals_core::{Clock, Code, StoreError};
use annals_system::SystemClock;
use async_trait::async_trait;
use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::answers::{problem, unknown};
use super::browse::{refused as browse_refused, why};
use super::http::Answer;
use super::{Client, Path};

/// The interval at which a watched replay is polled.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The replays of one tenant of a server. It keeps the contract of [`Replays`].
#[derive(Clone)]
pub struct ReplaysClient(Client);

impl Client {
    /// Returns the replays of the same tenant, over the same connections.
    pub fn replays(&self) -> ReplaysClient {
        ReplaysClient(self.clone())
    }
}

impl ReplaysClient {
    async fn ask<T: DeserializeOwned>(&self, method: Method, path: Path, body: String) -> Result<T, ReplayError> {
        let json = "application/json";
        let answer = self.0.http.ask(method, &path.done(), Bytes::from(body), json, json).await;
        let answer = answer.map_err(StoreError::Unreachable)?;
        if !answer.status.is_success() {
            return Err(refused(&answer));
        }
        let read = serde_json::from_slice(&answer.body);
        read.map_err(|error| unknown(&format!("{} with {error}", answer.status)).into())
    }
}

fn refused(answer: &Answer) -> ReplayError {
    let (code, problem) = match problem(answer) {
        Ok(problem) => problem,
        Err(unknown) => return unknown.into(),
    };
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    match code {
        Code::UnknownReplay => ReplayError::Unknown(text(&problem.name).into()),
        Code::UnknownHandler => ReplayError::Handler(HandlerError::Unknown(text(&problem.name).into())),
        Code::StateConflict => {
            let what = text(&problem.what);
            let id = what.split('"').nth(1).unwrap_or(&what).to_owned();
            ReplayError::NotAllowed { act: text(&problem.act), id, state: text(&problem.state) }
        }
        _ => browse_refused(answer).into(),
    }
}

fn body(value: &impl serde::Serialize) -> String {
    // Strings and finite numbers always serialise to JSON.
    serde_json::to_string(value).unwrap_or_default()
}

#[async_trait]
impl Replays for ReplaysClient {
    async fn preview(&self, preview: PreviewBody) -> Result<ReplayPreview, ReplayError> {
        self.ask(Method::POST, Path::below(&["replays", "preview"]), body(&preview)).await
    }

    async fn create(&self, replay: ReplayBody) -> Result<ReplayStatus, ReplayError> {
        replay.validate()?;
        self.ask(Method::POST, Path::below(&["replays"]), body(&replay)).await
    }

    async fn list(
        &self,
        state: Option<ReplayState>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<ReplayPage, ReplayError> {
        let path = Path::below(&["replays"]).maybe("status", state.map(ReplayState::name)).maybe("cursor", cursor);
        self.ask(Method::GET, path.number("limit", limit), String::new()).await
    }

    async fn get(&self, id: &str) -> Result<ReplayStatus, ReplayError> {
        self.ask(Method::GET, Path::below(&["replays", id]), String::new()).await
    }

    async fn act(&self, id: &str, act: ReplayAct, reason: Reason) -> Result<ReplayStatus, ReplayError> {
        self.ask(Method::POST, Path::below(&["replays", id, act.name()]), why(reason)).await
    }

    async fn changed(&self, id: &str, seen: Option<&ReplayStatus>) -> Result<ReplayStatus, ReplayError> {
        loop {
            let now = self.get(id).await?;
            let plain = |status: &ReplayStatus| ReplayStatus { eta: None, ..status.clone() };
            if seen.is_none_or(|seen| plain(seen) != plain(&now)) {
                return Ok(now);
            }
            SystemClock.sleep(LOOK_EVERY).await;
        }
    }

    async fn clean_up(&self, older_than_hours: u32) -> Result<u64, ReplayError> {
        #[derive(Deserialize)]
        struct Removed {
            removed: u64,
        }
        let path = Path::below(&["replays"]).number("older_than_hours", older_than_hours);
        let removed: Removed = self.ask(Method::DELETE, path, String::new()).await?;
        Ok(removed.removed)
    }
}
