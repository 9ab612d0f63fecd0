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
    let farewell = Farewell::of(&response);
    let (access, ended) = (Arc::clone(access), access.ended());
    response.map(|body| Body::new(Governed { body, access, ended, farewell, over: false }))
}

/// How a response that ends early gives the reason.
#[derive(Clone, Copy)]
enum Farewell {
    /// A stream of events: by its last event.
    Event,
    /// A call of gRPC: by its status.
    Status,
    /// Nothing but a broken connection is understood.
    None,
}

impl Farewell {
    fn of(response: &Response) -> Self {
        if response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == media::EVENTS) {
            Self::Event
        } else if grpc::is_grpc(response.headers()) {
            Self::Status
        } else {
            Self::None
        }
    }
}

struct Governed {
    body: Body,
    access: Arc<Access>,
    ended: BoxFuture<'static, ()>,
    farewell: Farewell,
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
            return Poll::Ready(Some(match this.farewell {
                Farewell::Event => Ok(Frame::data(format!("event: problem\ndata: {}\n\n", problem.to_json()).into())),
                Farewell::Status => Ok(Frame::trailers(grpc::trailers(&problem))),
                Farewell::None => {
                    let broken =
                        std::io::Error::new(std::io::ErrorKind::PermissionDenied, "the credential was revoked");
                    Err(axum::Error::new(broken))
                }
            }));
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
