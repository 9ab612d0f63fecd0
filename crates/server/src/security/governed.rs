//! Responses to authenticated callers: the bytes sent count against the caller's limits, and a stream ends when the caller's credential
//! does.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::header;
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use hyper::body::{Frame, SizeHint};

use super::{Access, unauthenticated};
use crate::grpc;
use crate::media;

/// Counts a response against the limits of its caller. A response without a known length ends when the caller's credential does.
pub(crate) fn governed(response: Response, access: &Arc<Access>) -> Response {
    if let Some(bytes) = response.body().size_hint().exact() {
        access.limits.charge(bytes);
        return response;
    }
    let events = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == media::EVENTS);
    let (access, ended) = (Arc::clone(access), access.ended());
    let calls = grpc::is_grpc(response.headers());
    response.map(|body| Body::new(Governed { body, access, ended, events, calls, over: false }))
}

struct Governed {
    body: Body,
    access: Arc<Access>,
    ended: BoxFuture<'static, ()>,
    /// Whether it is a stream of events, which can end with an event that gives the reason.
    events: bool,
    /// Whether it is the response to a call of gRPC, which can end with a status that gives the reason.
    calls: bool,
    over: bool,
}

impl HttpBody for Governed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if this.over {
            return Poll::Ready(None);
        }
        if this.ended.poll_unpin(cx).is_ready() {
            this.over = true;
            tracing::info!(who = this.access.who, "ending a stream, because its credential was revoked or has expired");
            // Stops reading for this caller.
            this.body = Body::empty();
            let problem = unauthenticated("the credential was revoked or has expired; the stream ends");
            if this.events {
                let last = format!("event: problem\ndata: {}\n\n", problem.to_json());
                return Poll::Ready(Some(Ok(Frame::data(last.into()))));
            }
            if this.calls {
                return Poll::Ready(Some(Ok(Frame::trailers(grpc::trailers(&problem)))));
            }
            let broken = std::io::Error::new(std::io::ErrorKind::PermissionDenied, "the credential was revoked");
            return Poll::Ready(Some(Err(axum::Error::new(broken))));
        }
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            this.access.limits.charge(frame.data_ref().map_or(0, |data| data.len() as u64));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
