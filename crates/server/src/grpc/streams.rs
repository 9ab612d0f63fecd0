//! The service `Streams`.

use std::sync::Arc;

use annals_core::{
    Included, Partitions, StreamFollower, StreamInfo, StreamPosition, StreamQuery, Streams, StreamsQuery, Verdicts,
};
use axum::extract::{Request, State};
use axum::response::Response;

use super::documents::Form;
use super::generated::partition::Partition as Chosen;
use super::generated::{
    self, AppendRequest, AppendResponse, FollowStreamRequest, FollowStreamResponse, ListRequest, ListResponse,
    ListedStream, PageEnd, Partition, Quiet, ReadStreamRequest, ReadStreamResponse, Started, StateRequest,
    StateResponse, follow_stream_response, read_stream_response,
};
use super::log::{page_length, visible_scope};
use super::{Method, feed, frames};
use crate::answer::data_bytes;
use crate::caller::Caller;
use crate::following::Following;
use crate::granted_streams;
use crate::problem::Problem;
use crate::route::Permission;
use crate::source::Source;
use crate::state::Server;
use crate::v1;

pub(super) fn methods() -> Vec<Method> {
    let method = |method: Method| method.naming_scope().checking_streams();
    vec![
        method(Method::new("/annals.v1.Streams/List", Permission::Reader, list)),
        method(Method::new("/annals.v1.Streams/State", Permission::Reader, state)),
        method(Method::new("/annals.v1.Streams/Read", Permission::Reader, read)),
        method(Method::new("/annals.v1.Streams/Follow", Permission::Reader, follow)),
        Method::new("/annals.v1.Streams/Append", Permission::Writer, append).naming_scope(),
    ]
}

/// Returns the streams of the scope that a message names, if the caller may use the stream of this name.
fn named(server: &Server, caller: Caller, scope: String, name: &str) -> Result<(Source, Arc<dyn Streams>), Problem> {
    let scope = visible_scope(&caller, scope)?;
    v1::streams::named(server, caller, Some(scope), name)
}

fn partitions(partition: Option<Partition>) -> Partitions {
    match partition.and_then(|partition| partition.partition) {
        Some(Chosen::Name(name)) => Partitions::One(name.into()),
        Some(Chosen::None(true)) => Partitions::Without,
        Some(Chosen::None(false)) | None => Partitions::All,
    }
}

async fn list(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let asked: ListRequest = frames::read(&server, request).await?.message;
    let scope = visible_scope(&caller, asked.scope)?;
    let (source, streams) = v1::streams::found(&server, caller, Some(scope))?;
    let wanted = StreamsQuery { after: asked.after.map(Into::into), limit: page_length(asked.limit) };
    wanted.validate()?;
    let found = granted_streams::list(&source.caller.principal, &*streams, wanted).await?;
    let listed = |info: StreamInfo| ListedStream { name: info.name.to_string(), state: Some(state_of(&info)) };
    Ok(frames::answered(&ListResponse { streams: found.into_iter().map(listed).collect() }))
}

fn state_of(info: &StreamInfo) -> StateResponse {
    StateResponse { head: info.head, progress: info.progress, incarnation_start: info.incarnation_start }
}

async fn state(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let asked: StateRequest = frames::read(&server, request).await?.message;
    let (_, streams) = named(&server, caller, asked.scope, &asked.stream)?;
    Ok(frames::answered(&state_of(&streams.stream(&asked.stream).await?)))
}

async fn append(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let frames::Asked::<AppendRequest> { message: asked, held: _held } = frames::read(&server, request).await?;
    let scope = visible_scope(&caller, asked.scope)?;
    let (_, streams) = v1::streams::found(&server, caller, Some(scope))?;
    let included = |one: generated::Included| Included {
        sequence_number: one.sequence_number,
        partition: one.partition.map(Into::into),
    };
    let verdicts = Verdicts {
        included: asked.included.into_iter().map(included).collect(),
        ..Verdicts::new(asked.stream, asked.from..asked.to)
    };
    let appended = v1::verdicts::make(&server, &*streams, verdicts).await?;
    let (from, to) = (appended.positions.start, appended.positions.end);
    Ok(frames::answered(&AppendResponse { from, to, duplicate: appended.duplicate }))
}

async fn read(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let asked: ReadStreamRequest = frames::read(&server, request).await?.message;
    let form = Form::of(asked.encoding)?;
    let (source, streams) = named(&server, caller, asked.scope, &asked.stream)?;
    let wanted = StreamQuery {
        from: asked.from,
        to: asked.to.unwrap_or(StreamPosition::MAX),
        limit: page_length(asked.limit),
        partitions: partitions(asked.partition),
        ..StreamQuery::new(asked.stream)
    };
    wanted.validate()?;
    let found = streams.read_events(wanted).await?;
    let bytes = data_bytes(found.events.iter().map(|event| &event.event));
    frames::page(bytes, move || {
        let mut out = Vec::new();
        for event in &found.events {
            let event = entry(form, event, &source)?;
            frames::append(
                &ReadStreamResponse { response: Some(read_stream_response::Response::Event(event)) },
                &mut out,
            );
        }
        let end = PageEnd { next: found.next, head: found.head };
        frames::append(&ReadStreamResponse { response: Some(read_stream_response::Response::End(end)) }, &mut out);
        Ok(out)
    })
    .await
}

async fn follow(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let asked: FollowStreamRequest = frames::read(&server, request).await?.message;
    let form = Form::of(asked.encoding)?;
    let (source, streams) = named(&server, caller, asked.scope, &asked.stream)?;
    let partitions = partitions(asked.partition);
    let first_page =
        StreamQuery { from: asked.from, partitions: partitions.clone(), ..StreamQuery::new(asked.stream.clone()) };
    first_page.validate()?;
    let identity = source.identity(&server, None)?;
    let head = streams.stream(&asked.stream).await?.head;
    let following = Following::new(&server, StreamFollower::new(streams, asked.stream, asked.from, partitions))?;
    let started = Started { from: asked.from, head, incarnation: identity.incarnation, clamped: false };
    let mut first = Vec::new();
    message(follow_stream_response::Response::Started(started), &mut first);
    let caller = source.caller.clone();
    Ok(feed::followed(following, StreamMessages { source, form }, caller, first))
}

fn entry(form: Form, entry: &annals_core::StreamEvent, source: &Source) -> Result<generated::StreamEvent, Problem> {
    Ok(generated::StreamEvent {
        position: entry.position,
        partition: entry.partition.as_ref().map(ToString::to_string),
        event: Some(form.event(&entry.event, &source.caller.tenant, &source.scope)?),
    })
}

struct StreamMessages {
    source: Source,
    form: Form,
}

impl feed::Messages<annals_core::StreamEvent> for StreamMessages {
    fn event(&self, event: &annals_core::StreamEvent, out: &mut Vec<u8>) -> Result<(), Problem> {
        message(follow_stream_response::Response::Event(entry(self.form, event, &self.source)?), out);
        Ok(())
    }

    fn quiet(&self, next: u64, out: &mut Vec<u8>) {
        message(follow_stream_response::Response::Quiet(Quiet { next }), out);
    }
}

fn message(response: follow_stream_response::Response, out: &mut Vec<u8>) {
    frames::append(&FollowStreamResponse { response: Some(response) }, out);
}
