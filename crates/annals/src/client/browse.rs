//! The browse view of a server's tenant, over HTTP, behind the same port as the view of a store in this process.

use annals_core::browse::{
    Browse, BrowseError, BrowsePage, BrowseQuery, EventDetail, EventStatistics, StatisticsQuery, ViewBody, ViewStatus,
};
use annals_core::bson::{Bson, DateTime, Document, RawDocumentBuf};
use annals_core::handlers::{ActBody, Reason};
use annals_core::{Code, Invalid, ReadError, StoreError, Timestamp};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::answers::{self, problem, unknown};
use super::http::Answer;
use super::{Client, Path};

/// The browse view of one tenant of a server. It keeps the contract of [`Browse`].
#[derive(Clone)]
pub struct BrowseClient(Client);

impl Client {
    /// Returns the browse view of the same tenant, over the same connections.
    pub fn browse(&self) -> BrowseClient {
        BrowseClient(self.clone())
    }
}

impl BrowseClient {
    async fn ask<T: DeserializeOwned>(&self, method: Method, path: Path, body: String) -> Result<T, BrowseError> {
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

pub(super) fn refused(answer: &Answer) -> BrowseError {
    let (code, problem) = match problem(answer) {
        Ok(problem) => problem,
        Err(unknown) => return unknown.into(),
    };
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    match code {
        Code::UnknownEvent => BrowseError::UnknownEvent(text(&problem.name)),
        Code::BrowseViewOff => BrowseError::Off,
        Code::StateConflict => BrowseError::NotAllowed { act: text(&problem.act), state: text(&problem.state) },
        code => match answers::other::<ReadError>(code, problem) {
            ReadError::Store(error) => error.into(),
            ReadError::Invalid(invalid) => invalid.into(),
            other => Invalid::new(code, "", other.to_string()).into(),
        },
    }
}

/// Returns the body of an act, which contains its reason.
pub(super) fn why(reason: Reason) -> String {
    let Reason { reason, by } = reason;
    let body = ActBody { reason, by, position: None, to: None, from: None };
    // Strings always serialise to JSON.
    serde_json::to_string(&body).unwrap_or_default()
}

fn list(values: Option<&Vec<String>>) -> Option<String> {
    let escaped = |text: &String| text.replace('\\', "\\\\").replace(',', "\\,");
    values.filter(|values| !values.is_empty()).map(|values| values.iter().map(escaped).collect::<Vec<_>>().join(","))
}

fn page(query: &BrowseQuery) -> Path {
    filtered(&["events"], query)
}

/// Returns the path of a page of events, with the filter as its query.
pub(super) fn filtered(path: &[&str], query: &BrowseQuery) -> Path {
    let filter = &query.filter;
    Path::below(path)
        .maybe("event_ids", list(filter.event_ids.as_ref()))
        .maybe("event_types", list(filter.event_types.as_ref()))
        .maybe("exclude_event_types", list(filter.exclude_event_types.as_ref()))
        .maybe("aggregate_id", filter.aggregate_id.as_ref())
        .maybe("execution_id", filter.execution_id.as_ref())
        .maybe("execution", query.execution.as_ref())
        .maybe("user_id", filter.user_id.as_ref())
        .maybe("service_name", filter.service_name.as_ref())
        .maybe("start_time", filter.start_time)
        .maybe("end_time", filter.end_time)
        .maybe("search", query.search.as_ref())
        .maybe("exclude_system", query.exclude_system.then_some(true))
        .number("sort", query.sort)
        .maybe("skip", (query.skip > 0).then_some(query.skip))
        .number("limit", query.limit)
        .maybe("cursor", query.cursor.as_ref())
        .maybe("count_up_to", query.count_up_to)
}

/// Returns the stored document of an event as the API shows it: dates become BSON dates, and a damaged document is unwrapped.
fn document(shown: Value) -> Document {
    let Value::Object(mut fields) = shown else { return Document::new() };
    if fields.contains_key("damaged")
        && let Some(Value::Object(whole)) = fields.remove("document")
    {
        fields = whole;
    }
    let mut document = Document::try_from(fields).unwrap_or_default();
    for name in ["timestamp", "stored_at", "ttl_expires_at"] {
        if let Some(time) = document.get_str(name).ok().and_then(|text| Timestamp::parse(text).ok()) {
            document.insert(name, Bson::DateTime(DateTime::from_millis(time.as_millis())));
        }
    }
    document
}

#[async_trait]
impl Browse for BrowseClient {
    async fn page(&self, query: BrowseQuery) -> Result<BrowsePage, BrowseError> {
        query.validate()?;
        self.ask(Method::GET, page(&query), String::new()).await
    }

    async fn rows(&self, query: BrowseQuery) -> Result<(Vec<RawDocumentBuf>, Option<String>), BrowseError> {
        let page = self.page(query).await?;
        let stored = |item| RawDocumentBuf::try_from(&document(item)).unwrap_or_default();
        Ok((page.items.into_iter().map(stored).collect(), page.cursor))
    }

    async fn event(&self, event_id: &str) -> Result<EventDetail, BrowseError> {
        self.ask(Method::GET, Path::below(&["events", event_id]), String::new()).await
    }

    async fn statistics(&self, query: StatisticsQuery) -> Result<EventStatistics, BrowseError> {
        query.validate()?;
        let path = Path::below(&["events", "statistics"]).number("hours", query.hours);
        self.ask(Method::GET, path.maybe("failure_types", list(query.failure_types.as_ref())), String::new()).await
    }

    async fn view(&self) -> Result<ViewStatus, BrowseError> {
        self.ask(Method::GET, Path::below(&["events", "view"]), String::new()).await
    }

    async fn set_view(&self, body: ViewBody) -> Result<ViewStatus, BrowseError> {
        body.validate()?;
        let text = serde_json::to_string(&body).unwrap_or_default();
        self.ask(Method::PUT, Path::below(&["events", "view"]), text).await
    }

    async fn rebuild(&self, reason: Reason) -> Result<ViewStatus, BrowseError> {
        self.ask(Method::POST, Path::below(&["events", "view", "rebuild"]), why(reason)).await
    }
}
