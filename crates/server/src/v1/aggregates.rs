//! `GET /v1/aggregates/…`: ids, commits and requests of aggregates.

use std::sync::Arc;

use annals_core::wire::{CommitAnswer, CommitView};
use annals_core::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateNamesQuery, AggregateQuery, KnownAggregate, Version,
    limits, valid_id,
};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::documents;
use crate::accept::Accept;
use crate::answer::{data_bytes, json, json_of_page};
use crate::caller::Caller;
use crate::media;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Last, Limit, Number, Query, ScopeQuery, Time};
use crate::route::{Feature, Permission, get};
use crate::schemas;
use crate::source::Source;
use crate::state::Server;

/// Returns the operations on aggregates.
pub(crate) fn feature() -> Feature {
    Feature::new(
        "Aggregates",
        [
            get("/v1/aggregates", Permission::Reader, names).described(
                "listAggregateNames",
                "Lists the names of aggregates that have a commit, in order.",
                Payload::json::<AggregateNames>(),
            ),
            get("/v1/aggregates/{name}", Permission::Reader, ids).described(
                "listAggregates",
                "Lists the ids of the aggregates of one name, in order.",
                Payload::json::<AggregateIds>(),
            ),
            get("/v1/aggregates/{name}/{id}/commits", Permission::Reader, commits).described(
                "readAggregate",
                "Returns commits of one aggregate, in version order.",
                Payload::json::<schemas::AggregatePage>()
                    .or(media::BSON, "One document per event, then one with the version."),
            ),
            get("/v1/aggregates/{name}/{id}/requests/{request_id}", Permission::Reader, request).described(
                "requestExists",
                "Returns whether a request was committed to an aggregate.",
                Payload::json::<RequestExists>(),
            ),
        ],
    )
}

/// The parameters of a list of names.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct NamesQuery {
    /// Resumes after this name.
    after: Option<String>,
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The scope to read; `default` when absent.
    scope: Option<String>,
}

/// Names of aggregates.
#[derive(Serialize, ToSchema)]
struct AggregateNames {
    names: Vec<String>,
    /// The `after` of the next page; null on an empty page.
    next: Option<String>,
}

/// `GET /v1/aggregates`.
async fn names(
    State(server): State<Arc<Server>>,
    Query(query): Query<NamesQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let source = Source::to_read(&server, caller, query.scope)?;
    let wanted = AggregateNamesQuery { after: query.after.map(Into::into), limit: Limit::or_default(query.limit) };
    let found = source.log.aggregate_names(wanted).await?;
    let names: Vec<String> = found.iter().map(ToString::to_string).collect();
    let next = names.last().cloned();
    json(StatusCode::OK, &AggregateNames { names, next })
}

/// The parameters of a list of ids.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct IdsQuery {
    /// Resumes after this id.
    after: Option<String>,
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The scope to read; `default` when absent.
    scope: Option<String>,
}

/// Ids of aggregates.
#[derive(Serialize, ToSchema)]
struct AggregateIds {
    ids: Vec<String>,
    aggregates: Vec<KnownId>,
    /// The `after` of the next page; null on an empty page.
    next: Option<String>,
}

/// An aggregate of the list.
#[derive(Serialize, ToSchema)]
struct KnownId {
    id: String,
    tenant_id: String,
}

/// `GET /v1/aggregates/{name}`.
async fn ids(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    Query(query): Query<IdsQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let source = Source::to_read(&server, caller, query.scope)?;
    let wanted = AggregateIdsQuery {
        name: name.into(),
        after: query.after.map(Into::into),
        limit: Limit::or_default(query.limit),
    };
    wanted.validate()?;
    let found: Vec<KnownAggregate> = source.log.aggregate_ids(wanted).await?;
    let known = |known: &KnownAggregate| KnownId { id: known.id.to_string(), tenant_id: known.tenant_id.to_string() };
    let answer = AggregateIds {
        ids: found.iter().map(|known| known.id.to_string()).collect(),
        aggregates: found.iter().map(known).collect(),
        next: found.last().map(|known| known.id.to_string()),
    };
    json(StatusCode::OK, &answer)
}

/// The parameters of a read of one aggregate.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct CommitsQuery {
    /// The first version; 1 when absent.
    #[param(inline)]
    from_version: Option<Number>,
    /// The last version.
    #[param(inline)]
    to_version: Option<Number>,
    /// Commits at this time or later.
    #[param(inline)]
    from_time: Option<Time>,
    /// Commits at this time or earlier.
    #[param(inline)]
    to_time: Option<Time>,
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The last commit, or this many of the last.
    #[param(value_type = Option<String>, pattern = "^(true|false|[0-9]+)?$")]
    last: Option<Last>,
    /// Commits of the aggregate under this tenant id only.
    tenant_id: Option<String>,
    /// The scope to read; `default` when absent.
    scope: Option<String>,
}

/// `GET /v1/aggregates/{name}/{id}/commits`.
async fn commits(
    State(server): State<Arc<Server>>,
    Path((name, id)): Path<(String, String)>,
    Query(query): Query<CommitsQuery>,
    caller: Caller,
    accept: Accept,
) -> Result<Response, Problem> {
    let source = Source::to_read(&server, caller, query.scope.clone())?;
    let wanted = aggregate_query(Aggregate::new(name, id), query)?;
    wanted.validate()?;
    let found = source.log.read_aggregate(wanted).await?;
    if accept.bson {
        return Ok(documents::aggregate(&found));
    }
    let bytes = data_bytes(found.commits.iter().flat_map(|commit| &commit.events));
    json_of_page(bytes, Commits { found, source }).await
}

fn aggregate_query(aggregate: Aggregate, query: CommitsQuery) -> Result<AggregateQuery, Problem> {
    let asked = query.last.unwrap_or(Last::No);
    let (last, limit) = match (asked, query.limit.map(|limit| limit.0)) {
        (Last::No, limit) => (false, limit.unwrap_or(limits::PAGE_DEFAULT)),
        (Last::Yes, limit) => (true, limit.unwrap_or(1)),
        (Last::Count(count), None) => (true, count),
        (Last::Count(_), Some(_)) => {
            return Err(Problem::query("last", "cannot have a number together with limit; give one of them"));
        }
    };
    if !(1..=limits::PAGE_MAX).contains(&limit) {
        let path = if matches!(asked, Last::Count(_)) { "last" } else { "limit" };
        return Err(Problem::query(path, format!("{limit} is not between 1 and {}", limits::PAGE_MAX)));
    }
    if let Some(tenant_id) = &query.tenant_id {
        valid_id("tenant_id", tenant_id)?;
    }
    Ok(AggregateQuery {
        aggregate,
        from_version: query.from_version.map_or(1, |version| version.0),
        to_version: query.to_version.map_or(Version::MAX, |version| version.0),
        from_time: query.from_time.map(|time| time.0),
        to_time: query.to_time.map(|time| time.0),
        limit,
        last,
        tenant_id: query.tenant_id.map(Into::into),
    })
}

struct Commits {
    found: AggregateCommits,
    source: Source,
}

impl Serialize for Commits {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let (tenant, scope) = (&*self.source.caller.tenant, &*self.source.scope);
        let view = |commit| CommitView { commit, tenant, scope };
        let mut answer = serializer.serialize_struct("Commits", 2)?;
        answer.serialize_field("commits", &self.found.commits.iter().map(view).collect::<Vec<_>>())?;
        answer.serialize_field("version", &self.found.version)?;
        answer.end()
    }
}

/// Whether a request was committed.
#[derive(Serialize, ToSchema)]
struct RequestExists {
    exists: bool,
    /// The response to a repeat of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    commit: Option<CommitAnswer>,
}

/// `GET /v1/aggregates/{name}/{id}/requests/{request_id}`.
async fn request(
    State(server): State<Arc<Server>>,
    Path((name, id, request_id)): Path<(String, String, String)>,
    Query(query): Query<ScopeQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let source = Source::to_read(&server, caller, query.scope)?;
    let aggregate = Aggregate::new(name, id);
    aggregate.validate()?;
    valid_id("request_id", &request_id)?;
    let commit = source.log.request_outcome(&aggregate, &request_id).await?.map(CommitAnswer::from);
    json(StatusCode::OK, &RequestExists { exists: commit.is_some(), commit })
}
