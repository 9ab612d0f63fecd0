//! Responses whose messages are written before they are sent. Their size is known, so that they count as unread from the beginning, and are
//! refused if there is no room for them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::header;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::status::{self, MEDIA_TYPE};

/// Returns the response of a success with these messages.
pub(super) fn whole(messages: Vec<u8>) -> Response {
    let mut response = Response::new(Body::new(Whole { messages: messages.into(), over: false }));
    response.headers_mut().insert(header::CONTENT_TYPE, MEDIA_TYPE);
    response
}

struct Whole {
    /// What is not sent yet.
    messages: Bytes,
    /// Whether the trailers are sent.
    over: bool,
}

impl HttpBody for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if !self.messages.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.messages)))));
        }
        let first = !std::mem::replace(&mut self.over, true);
        Poll::Ready(first.then(|| Ok(Frame::trailers(status::ok()))))
    }

    fn is_end_stream(&self) -> bool {
        self.over
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.messages.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn the_messages_are_followed_by_trailers_and_their_size_is_known() {
        let mut body = whole(vec![0; 5]).into_body();
        assert_eq!(body.size_hint().exact(), Some(5));
        let data = body.frame().await.expect("a frame").expect("no error").into_data().expect("data");
        assert_eq!((data.len(), body.is_end_stream(), body.size_hint().exact()), (5, false, Some(0)));
        let trailers = body.frame().await.expect("a frame").expect("no error").into_trailers().expect("trailers");
        assert_eq!(trailers["grpc-status"], "0");
        assert!(body.is_end_stream() && body.frame().await.is_none());
    }
}
