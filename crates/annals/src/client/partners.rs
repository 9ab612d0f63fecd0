//! The partners of a server's tenant, over HTTP, behind the same port as in this process.

use annals_core::handlers::{ActBody, Reason};
use annals_core::partners::{
    Accepted, Ending, EventsQuery, Incoming, PartnerDefinition, PartnerError, PartnerEventPage, PartnerEventView,
    PartnerPage, PartnerStatistics, PartnerStatus, Partners, ReplayStarted, Unsigned,
};
use annals_core::{Code, Invalid, ReadError, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::de::DeserializeOwned;

use super::answers::{self, problem};
use super::http::Answer;
use super::{Client, Path};

const JSON: &str = "application/json";

/// The partners of one tenant of a server. It keeps the contract of [`Partners`].
#[derive(Clone)]
pub struct PartnersClient(Client);

impl Client {
    /// Returns the partners of the same tenant, over the same connections.
    pub fn partners(&self) -> PartnersClient {
        PartnersClient(self.clone())
    }
}

impl PartnersClient {
    async fn send(&self, method: Method, path: Path, body: String) -> Result<Answer, PartnerError> {
        let answer = self.0.http.ask(method, &path.done(), Bytes::from(body), JSON, JSON).await;
        Ok(answer.map_err(StoreError::Unreachable)?)
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: Path, body: String) -> Result<T, PartnerError> {
        let answer = self.send(method, path, body).await?;
        if answer.status.is_success() { Ok(answers::parse(&answer)?) } else { Err(refused(&answer)) }
    }

    async fn get<T: DeserializeOwned>(&self, path: Path) -> Result<T, PartnerError> {
        self.ask(Method::GET, path, String::new()).await
    }
}

fn of_reason(reason: Reason) -> String {
    let Reason { reason, by } = reason;
    let body = ActBody { reason, by, position: None, to: None, from: None };
    // Strings always serialise to JSON.
    serde_json::to_string(&body).unwrap_or_default()
}

fn refused(answer: &Answer) -> PartnerError {
    let (code, problem) = match problem(answer) {
        Ok(problem) => problem,
        Err(unknown) => return unknown.into(),
    };
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    match code {
        Code::UnknownPartner => PartnerError::Unknown(text(&problem.name)),
        Code::UnknownPartnerEvent => PartnerError::UnknownEvent(text(&problem.name)),
        Code::WebhookIdReused => PartnerError::OtherContent(text(&problem.name)),
        Code::InvalidSignature => match problem.what.as_deref() {
            Some("headers") => Unsigned::Headers.into(),
            Some("stale") => Unsigned::Stale.into(),
            _ => Unsigned::Signature.into(),
        },
        Code::PartnerEventState => {
            PartnerError::State { id: text(&problem.name), state: text(&problem.state), act: text(&problem.act) }
        }
        Code::PartnerKey => PartnerError::Key(problem.into_reason()),
        code => match answers::other::<ReadError>(code, problem) {
            ReadError::Store(error) => error.into(),
            ReadError::Invalid(invalid) => invalid.into(),
            other => Invalid::new(code, "", other.to_string()).into(),
        },
    }
}

#[async_trait]
impl Partners for PartnersClient {
    async fn put(&self, definition: PartnerDefinition) -> Result<bool, PartnerError> {
        definition.validate()?;
        let answer = self.send(Method::PUT, Path::below(&["partners", &definition.id]), definition.write()).await?;
        if answer.status.is_success() { Ok(answer.status == StatusCode::CREATED) } else { Err(refused(&answer)) }
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<PartnerPage, PartnerError> {
        self.get(Path::below(&["partners"]).maybe("cursor", after).number("limit", limit)).await
    }

    async fn get(&self, partner: &str) -> Result<PartnerStatus, PartnerError> {
        self.get(Path::below(&["partners", partner])).await
    }

    async fn switch(&self, partner: &str, paused: bool, reason: Reason) -> Result<PartnerStatus, PartnerError> {
        let act = if paused { "pause" } else { "resume" };
        self.ask(Method::POST, Path::below(&["partners", partner, act]), of_reason(reason)).await
    }

    async fn delete(&self, partner: &str, reason: Reason) -> Result<(), PartnerError> {
        let answer = self.send(Method::DELETE, Path::below(&["partners", partner]), of_reason(reason)).await?;
        if answer.status.is_success() { Ok(()) } else { Err(refused(&answer)) }
    }

    async fn receive(&self, partner: &str, request: Incoming) -> Result<Accepted, PartnerError> {
        let path = Path::below(&["partners", partner, "events"]).done();
        let signed = request.signed;
        let headers = [
            ("webhook-id", signed.id),
            ("webhook-timestamp", signed.timestamp),
            ("webhook-signature", signed.signature),
        ];
        let answer = self.0.http.post_with(&path, request.body, JSON, &headers).await;
        let answer = answer.map_err(StoreError::Unreachable)?;
        if !answer.status.is_success() {
            return Err(refused(&answer));
        }
        let accepted: Accepted = answers::parse(&answer)?;
        Ok(Accepted { repeated: answer.status == StatusCode::OK, ..accepted })
    }

    async fn events(&self, partner: &str, query: EventsQuery) -> Result<PartnerEventPage, PartnerError> {
        let path = Path::below(&["partners", partner, "events"])
            .maybe("direction", query.direction.map(|it| it.as_str()))
            .maybe("status", query.status.map(|it| it.as_str()))
            .maybe("type", query.event_type)
            .maybe("entity_id", query.entity_id)
            .maybe("entity_type", query.entity_type)
            .maybe("day", query.day)
            .maybe("due", query.due.then_some("true"))
            .maybe("ended", query.ended.map(Ending::as_str))
            .maybe("cursor", query.cursor)
            .number("limit", query.limit);
        self.get(path).await
    }

    async fn event(&self, id: &str) -> Result<PartnerEventView, PartnerError> {
        self.get(Path::below(&["partner-events", id])).await
    }

    async fn resend(&self, id: &str, reason: Reason) -> Result<PartnerEventView, PartnerError> {
        self.ask(Method::POST, Path::below(&["partner-events", id, "resend"]), of_reason(reason)).await
    }

    async fn cancel(&self, id: &str, reason: Reason) -> Result<PartnerEventView, PartnerError> {
        self.ask(Method::POST, Path::below(&["partner-events", id, "cancel"]), of_reason(reason)).await
    }

    async fn replay(
        &self,
        partner: &str,
        from: u64,
        to: Option<u64>,
        reason: Reason,
    ) -> Result<ReplayStarted, PartnerError> {
        let body = serde_json::json!({ "from": from, "to": to, "reason": reason.reason, "by": reason.by });
        self.ask(Method::POST, Path::below(&["partners", partner, "replay"]), body.to_string()).await
    }

    async fn statistics(&self, partner: &str) -> Result<PartnerStatistics, PartnerError> {
        self.get(Path::below(&["partners", partner, "statistics"])).await
    }
}
