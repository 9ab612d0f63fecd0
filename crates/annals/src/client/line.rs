//! A connection that is driven by the task that uses it. Passing each request to the connection's own task, and the answer back, takes
//! longer than everything else that a client does for a commit (docs/decisions/0008-http.md).

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::http::{SILENCE_MAX, next_frame, with_causes};
use super::tls::{CONNECT_MAX, Secured, Stream};

/// An HTTP/1.1 connection with a single user.
pub(super) struct Line {
    requests: SendRequest<Full<Bytes>>,
    connection: Connection<TokioIo<Stream>, Full<Bytes>>,
    ended: bool,
}

impl Line {
    /// Connects to a host and port such as `127.0.0.1:4000`; in plain text unless `secured` is given.
    pub async fn open(authority: &str, secured: Option<&Secured>) -> Result<Self, String> {
        let connecting = timeout(CONNECT_MAX, TcpStream::connect(authority)).await;
        let stream = match connecting {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(format!("{authority}: {error}")),
            Err(_) => return Err(format!("{authority} did not answer within {} s", CONNECT_MAX.as_secs())),
        };
        // Each request is written in one piece, so Nagle's algorithm would only delay it.
        let _ = stream.set_nodelay(true);
        let stream = match secured {
            None => Stream::Plain(stream),
            Some(secured) => match timeout(CONNECT_MAX, secured.connect(stream)).await {
                Ok(secured) => secured.map_err(|error| format!("{authority}: {error}"))?,
                Err(_) => {
                    return Err(format!("{authority} did not finish its handshake within {} s", CONNECT_MAX.as_secs()));
                }
            },
        };
        let (requests, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| with_causes(&error))?;
        Ok(Self { requests, connection, ended: false })
    }

    /// Returns whether the connection can be reused: as far as this side knows, the server has not closed it.
    pub fn is_open(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.ended && !self.requests.is_closed()
    }

    /// Sends a request and waits until its answer begins.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, String> {
        let answered = self.requests.send_request(request);
        match timeout(SILENCE_MAX, self.beside(answered)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(with_causes(&error)),
            Err(_) => Err(format!("no answer within {} s", SILENCE_MAX.as_secs())),
        }
    }

    /// Returns the next bytes of an answer's body, or `None` at its end.
    pub async fn next(&mut self, body: &mut Incoming) -> Result<Option<Bytes>, String> {
        self.beside(next_frame(body)).await
    }

    /// Returns whether the answer has been read completely, so that the next request may be sent.
    pub fn is_free(&mut self) -> bool {
        self.is_open() && self.requests.is_ready()
    }

    /// Waits for `what` while driving the connection.
    async fn beside<T>(&mut self, what: impl Future<Output = T>) -> T {
        let mut what = pin!(what);
        poll_fn(|cx| {
            if let Poll::Ready(done) = what.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            self.drive(cx);
            what.as_mut().poll(cx)
        })
        .await
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        // The request in flight reports how the connection ended.
        self.ended = self.ended || Pin::new(&mut self.connection).poll(cx).is_ready();
    }
}
