//! The service `Log`.

use std::sync::Arc;

use annals_core::{
    AggregateFilter, ByteString, Code, DEFAULT_SCOPE, Filter, Invalid, LogQuery, RecordedEvent, UnknownLog, limits,
};
use axum::extract::{Request, State};
use axum::response::Response;

use super::documents::Form;
use super::generated::follow_request::Start;
use super::generated::{
    self, FollowRequest, FollowResponse, GetRequest, HeadRequest, HeadResponse, PageEnd, Quiet, ReadRequest,
    ReadResponse, Started, follow_response, read_response,
};
use super::{Method, feed, frames};
use crate::answer::data_bytes;
use crate::caller::Caller;
use crate::event_types;
use crate::following::{Following, Position};
use crate::problem::Problem;
use crate::query;
use crate::route::Permission;
use crate::source::Source;
use crate::state::Server;
use crate::v1;

pub(super) fn methods() -> Vec<Method> {
    let method = |method: Method| method.naming_scope().checking_event_types();
    vec![
        method(Method::new("/annals.v1.Log/Head", Permission::Reader, head)),
        method(Method::new("/annals.v1.Log/Get", Permission::Reader, get)),
        method(Method::new("/annals.v1.Log/Read", Permission::Reader, read)),
        method(Method::new("/annals.v1.Log/Follow", Permission::Reader, follow)),
    ]
}

/// Returns the log of the scope that a message names, or of the default one, if the caller may see it.
fn source(server: &Server, caller: Caller, scope: String) -> Result<Source, Problem> {
    let scope = visible_scope(&caller, scope)?;
    Source::to_read(server, caller, Some(scope))
}

/// Returns the scope that a message names, or the default one, if the caller may see it. If not, the scope is reported as unknown.
pub(super) fn visible_scope(caller: &Caller, scope: String) -> Result<String, Problem> {
    let scope = if scope.is_empty() { DEFAULT_SCOPE.to_owned() } else { scope };
    if caller.principal.may_see_scope(&scope) {
        return Ok(scope);
    }
    Err(UnknownLog::Scope { tenant: caller.tenant.clone(), scope }.into())
}

/// Returns the filter of a message, restricted to what the caller may read.
fn filter(source: &Source, filter: Option<generated::Filter>) -> Result<Filter, Problem> {
    let generated::Filter { types, tags, aggregate_name, aggregate_id } = filter.unwrap_or_default();
    let aggregate = match (aggregate_name, aggregate_id) {
        (None, None) => None,
        (Some(name), id) => Some(AggregateFilter { name: name.into(), id: id.map(Into::into) }),
        (None, Some(_)) => {
            let message = "is given without aggregate_name";
            return Err(Invalid::new(Code::InvalidBody, "filter.aggregate_id", message).into());
        }
    };
    let texts = |texts: Vec<String>| -> Vec<ByteString> { texts.into_iter().map(Into::into).collect() };
    let wanted = query::checked(Filter { types: texts(types), tags: texts(tags), aggregate })?;
    event_types::narrow(&source.caller.principal, wanted)
}

/// Returns the length of a page; 0 stands for the default.
pub(super) fn page_length(limit: u32) -> usize {
    if limit == 0 { limits::PAGE_DEFAULT } else { usize::try_from(limit).unwrap_or(usize::MAX) }
}

async fn head(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let asked: HeadRequest = frames::read(&server, request).await?.message;
    let source = source(&server, caller, asked.scope)?;
    let identity = source.identity(&server, None)?;
    let head = source.log.head().await?;
    let (incarnation, incarnation_start) = (identity.incarnation, identity.incarnation_start);
    Ok(frames::answered(&HeadResponse { head, incarnation, incarnation_start }))
}

async fn get(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let asked: GetRequest = frames::read(&server, request).await?.message;
    let form = Form::of(asked.encoding)?;
    let source = source(&server, caller, asked.scope)?;
    let event = v1::log::find(&source, asked.sequence_number).await?;
    frames::page(data_bytes([&event]), move || {
        let mut out = Vec::new();
        frames::append(&form.event(&event, &source.caller.tenant, &source.scope)?, &mut out);
        Ok(out)
    })
    .await
}

async fn read(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let asked: ReadRequest = frames::read(&server, request).await?.message;
    let form = Form::of(asked.encoding)?;
    let source = source(&server, caller, asked.scope)?;
    let wanted = LogQuery {
        from: asked.from,
        limit: page_length(asked.limit),
        backwards: asked.backwards,
        filter: filter(&source, asked.filter)?,
    };
    wanted.validate()?;
    let found = source.log.read(wanted).await?;
    frames::page(data_bytes(&found.events), move || {
        let mut out = Vec::new();
        for event in &found.events {
            let event = form.event(event, &source.caller.tenant, &source.scope)?;
            frames::append(&ReadResponse { response: Some(read_response::Response::Event(event)) }, &mut out);
        }
        let end = PageEnd { next: found.next, head: found.head };
        frames::append(&ReadResponse { response: Some(read_response::Response::End(end)) }, &mut out);
        Ok(out)
    })
    .await
}

async fn follow(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let asked: FollowRequest = frames::read(&server, request).await?.message;
    let form = Form::of(asked.encoding)?;
    let source = source(&server, caller, asked.scope)?;
    let wanted = filter(&source, asked.filter)?;
    let seen = match &asked.start {
        Some(Start::After(seen)) => Some(Position { number: seen.sequence_number, incarnation: seen.incarnation }),
        _ => None,
    };
    let identity = source.identity(&server, seen.map(|seen| seen.incarnation))?;
    let head = source.log.head().await?;
    let (from, clamped) = match (asked.start, seen) {
        (_, Some(seen)) => seen.resume(&identity, head),
        (Some(Start::From(from)), None) => (from, false),
        (Some(Start::AtHead(true)), None) => (head, false),
        _ => (0, false),
    };
    let following = Following::of_log(&server, &source, from, wanted)?;
    let started = Started { from, head, incarnation: identity.incarnation, clamped };
    let mut first = Vec::new();
    append(follow_response::Response::Started(started), &mut first);
    let caller = source.caller.clone();
    Ok(feed::followed(following, LogMessages { source, form }, caller, first))
}

struct LogMessages {
    source: Source,
    form: Form,
}

impl feed::Messages<RecordedEvent> for LogMessages {
    fn event(&self, event: &RecordedEvent, out: &mut Vec<u8>) -> Result<(), Problem> {
        let event = self.form.event(event, &self.source.caller.tenant, &self.source.scope)?;
        append(follow_response::Response::Event(event), out);
        Ok(())
    }

    fn quiet(&self, next: u64, out: &mut Vec<u8>) {
        append(follow_response::Response::Quiet(Quiet { next }), out);
    }
}

fn append(response: follow_response::Response, out: &mut Vec<u8>) {
    frames::append(&FollowResponse { response: Some(response) }, out);
}
