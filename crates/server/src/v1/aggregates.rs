//! `GET /v1/aggregates/…`: ids, commits and requests of aggregates.

use std::sync::Arc;

use annals_core::wire::CommitView;
use annals_core::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateQuery, KnownAggregate, Version, limits, valid_id,
};
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;

use super::documents;
use super::log::accepts;
use crate::answer::{data_bytes, json, json_of_events};
use crate::problem::Problem;
use crate::query::{Last, Query};
use crate::router::Server;
use crate::source::Source;

/// `GET /v1/aggregates/{name}`.
pub(crate) async fn ids(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Known<'a> {
        id: &'a str,
        tenant_id: &'a str,
    }
    #[derive(Serialize)]
    struct Ids<'a> {
        ids: Vec<&'a str>,
        aggregates: Vec<Known<'a>>,
        next: Option<&'a str>,
    }
    let query = Query::parse(raw.as_deref(), &["after", "limit", "scope"])?;
    let source = Source::to_read(&server, &headers, &query)?;
    let wanted = AggregateIdsQuery {
        name: name.into(),
        after: query.text("after")?.map(Into::into),
        limit: query.limit("limit")?.unwrap_or(limits::PAGE_DEFAULT),
    };
    wanted.validate()?;
    let found: Vec<KnownAggregate> = source.log.aggregate_ids(wanted).await?;
    let answer = Ids {
        ids: found.iter().map(|known| &*known.id).collect(),
        aggregates: found.iter().map(|known| Known { id: &known.id, tenant_id: &known.tenant_id }).collect(),
        next: found.last().map(|known| &*known.id),
    };
    json(StatusCode::OK, &answer)
}

/// `GET /v1/aggregates/{name}/{id}/commits`.
pub(crate) async fn commits(
    State(server): State<Arc<Server>>,
    Path((name, id)): Path<(String, String)>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(
        raw.as_deref(),
        &["from_version", "to_version", "from_time", "to_time", "limit", "last", "tenant_id", "scope"],
    )?;
    let source = Source::to_read(&server, &headers, &query)?;
    let wanted = aggregate_query(Aggregate::new(name, id), &query)?;
    wanted.validate()?;
    let found = source.log.read_aggregate(wanted).await?;
    if accepts(&headers, documents::MEDIA_TYPE) {
        return Ok(documents::aggregate(&found));
    }
    let bytes = data_bytes(found.commits.iter().flat_map(|commit| &commit.events));
    json_of_events(bytes, Commits { found, source }).await
}

fn aggregate_query(aggregate: Aggregate, query: &Query) -> Result<AggregateQuery, Problem> {
    let limit = query.limit("limit")?;
    let (last, limit) = match (query.last()?, limit) {
        (Last::No, limit) => (false, limit.unwrap_or(limits::PAGE_DEFAULT)),
        (Last::Yes, limit) => (true, limit.unwrap_or(1)),
        (Last::Count(count), None) => (true, count),
        (Last::Count(_), Some(_)) => {
            return Err(Problem::query("last", "names a number beside limit; give one of both"));
        }
    };
    if !(1..=limits::PAGE_MAX).contains(&limit) {
        let path = if matches!(query.last()?, Last::Count(_)) { "last" } else { "limit" };
        return Err(Problem::query(path, format!("{limit} is not between 1 and {}", limits::PAGE_MAX)));
    }
    if let Some(tenant_id) = query.text("tenant_id")? {
        valid_id("tenant_id", tenant_id)?;
    }
    Ok(AggregateQuery {
        aggregate,
        from_version: query.number("from_version")?.unwrap_or(1),
        to_version: query.number("to_version")?.unwrap_or(Version::MAX),
        from_time: query.time("from_time")?,
        to_time: query.time("to_time")?,
        limit,
        last,
        tenant_id: query.text("tenant_id")?.map(Into::into),
    })
}

struct Commits {
    found: AggregateCommits,
    source: Source,
}

impl Serialize for Commits {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let (tenant, scope) = (&*self.source.tenant, &*self.source.scope);
        let view = |commit| CommitView { commit, tenant, scope };
        let mut answer = serializer.serialize_struct("Commits", 2)?;
        answer.serialize_field("commits", &self.found.commits.iter().map(view).collect::<Vec<_>>())?;
        answer.serialize_field("version", &self.found.version)?;
        answer.end()
    }
}

/// `GET /v1/aggregates/{name}/{id}/requests/{request_id}`.
pub(crate) async fn request(
    State(server): State<Arc<Server>>,
    Path((name, id, request_id)): Path<(String, String, String)>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Exists {
        exists: bool,
    }
    let query = Query::parse(raw.as_deref(), &["scope"])?;
    let source = Source::to_read(&server, &headers, &query)?;
    let aggregate = Aggregate::new(name, id);
    aggregate.validate()?;
    valid_id("request_id", &request_id)?;
    let exists = source.log.request_exists(&aggregate, &request_id).await?;
    json(StatusCode::OK, &Exists { exists })
}
