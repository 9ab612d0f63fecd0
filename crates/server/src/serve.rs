//! Connections: accepted up to a limit, each with deadlines, and closed gracefully.

use std::convert::Infallible;
use std::future::{self, Future};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use annals_core::Store;
use annals_runtime::Host;
use annals_system::Instant;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, Request, Response, Version, header};
use futures_util::future::{BoxFuture, FutureExt};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::cors::Cors;
use crate::date;
use crate::direct::Direct;
use crate::door::Door;
use crate::grpc;
use crate::handover::Handover;
use crate::opening::{Obstacle, Opening};
use crate::options::Options;
use crate::reader::{READER, Reader};
use crate::streaming::Streaming;
use crate::tls::{HANDSHAKE_MAX, Tls, subject};
use crate::unread::NoRoom;
use crate::wire::Wire;
use crate::wire_guard::WireGuard;

/// Serves the API of `store` until `shutdown` completes, then stops as described at [`serve_router`].
///
/// # Errors
/// Returns the same errors as [`serve_router`].
pub async fn serve(
    listener: TcpListener,
    store: Arc<dyn Store>,
    options: Options,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let options = hosted(options, &store);
    let api = Direct::api(Arc::clone(&store), options.clone());
    let open = Opening::open(api, store);
    serve_api(listener, open, future::pending().boxed(), options, shutdown.boxed()).await
}

/// Serves the API of a store that is still being opened. Until `opening` returns it, everything except `/health/live` is answered with
/// `not_ready` and the reason in `obstacle`.
///
/// If opening fails, the server stops and returns that error as the inner result. If `shutdown` completes first, nothing is opened.
///
/// # Errors
/// Returns the same errors as [`serve_router`].
pub async fn serve_opening<E>(
    listener: TcpListener,
    opening: impl Future<Output = Result<Arc<dyn Store>, E>> + Send,
    obstacle: Obstacle,
    options: Options,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<Result<(), E>>
where
    E: Send,
{
    let api = Opening::new(obstacle, &options);
    let mut failed = None;
    let opened = opening.map(|opened| opened.map_err(|error| failed = Some(error)).ok()).boxed();
    serve_api(listener, api, opened, options, shutdown.boxed()).await?;
    Ok(failed.map_or(Ok(()), Err))
}

/// Serves `router`, which is [`router`](crate::router) extended with routes of your own, until `shutdown` completes.
///
/// Then the server stops gracefully. It accepts no more connections and gives `options.stop`, which ends streams. Requests in flight have
/// `options.stop_wait_max` to complete before their connections are cut. The host's tasks have 0.5 s more to drain. Only a webhook that
/// has been sent an event of a replay has until 16 s after `shutdown` to answer, so that the event is not posted again. Finally the store
/// is closed, for which there is one more second.
///
/// With [`Options::tls`] a connection begins with a handshake, which may take 10 s, and ALPN selects HTTP/2 or HTTP/1.1. Without it,
/// HTTP/1.1 and HTTP/2 with prior knowledge are both accepted. The HTTP library itself refuses some requests with 400, 431 or 414 and no
/// body: what is not HTTP, more than 100 header lines or 400 KiB of headers, and a request line over 64 KiB.
///
/// # Errors
/// Returns an error if the listener has no local address, which only happens if it is broken.
pub async fn serve_router(
    listener: TcpListener,
    router: Router,
    store: Arc<dyn Store>,
    options: Options,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let open = Opening::open(Direct::only(router), store);
    serve_api(listener, open, future::pending().boxed(), options, shutdown.boxed()).await
}

/// Runs the server. `opening` returns `None` if it fails. The arguments are boxed so that the server is compiled in this crate and not in
/// each caller.
fn serve_api<'a>(
    listener: TcpListener,
    api: Opening,
    opening: BoxFuture<'a, Option<Arc<dyn Store>>>,
    options: Options,
    shutdown: BoxFuture<'a, ()>,
) -> BoxFuture<'a, io::Result<()>> {
    serving(listener, api, opening, options, shutdown).boxed()
}

async fn serving(
    listener: TcpListener,
    api: Opening,
    mut opening: BoxFuture<'_, Option<Arc<dyn Store>>>,
    options: Options,
    mut shutdown: BoxFuture<'_, ()>,
) -> io::Result<()> {
    let api = Arc::new(api);
    tracing::info!(address = %listener.local_addr()?, "listening");
    let mut connections = JoinSet::new();
    let cors = Cors::of(&options).map(Arc::new);
    let mut door = Door::new(&options);
    let tls = options.tls.clone();
    // Shared, because each of the options that a connection had of its own would count ten thousand times.
    let mut options = Arc::new(options);
    let mut certificates = pin!(async {
        match &tls {
            Some(tls) => tls.follow().await,
            None => future::pending().await,
        }
    });
    loop {
        let (stream, place) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            opened = &mut opening, if !api.is_open() => match opened {
                Some(store) => {
                    options = Arc::new(hosted(Options::clone(&options), &store));
                    api.set(Direct::api(Arc::clone(&store), Options::clone(&options)), store);
                    tracing::info!("the store is open");
                    continue;
                }
                None => break,
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            () = options.connections.pressed() => {
                options.connections.free_memory();
                continue;
            }
            () = &mut certificates => continue,
            entered = door.next(&listener) => entered,
        };
        let (api, cors) = (Arc::clone(&api), cors.clone());
        let connection = Connection { api, cors, options: Arc::clone(&options), _place: place };
        connections.spawn(connection.serve(stream));
    }
    drop(listener);
    tracing::info!(connections = connections.len(), "stopping");
    let stopping = Instant::now();
    options.stop.stop();
    if let Some(host) = &options.host {
        host.send_no_more();
    }
    let answered = timeout(options.stop_wait_max, async { while connections.join_next().await.is_some() {} }).await;
    if answered.is_err() {
        tracing::warn!(connections = connections.len(), "closing connections whose requests take too long");
        connections.shutdown().await;
    }
    if let Some(host) = &options.host {
        let left = (options.stop_wait_max + DRAIN_TIME).saturating_sub(stopping.elapsed());
        let mut draining = host.drain();
        // A task repeats at the next start what it could not store by then.
        if timeout(left, &mut draining).await.is_err() && host.awaits_answers() {
            // The exception is a webhook, to which the event would be posted again.
            let left = ANSWERS_MAX.saturating_sub(stopping.elapsed());
            let _ = timeout(left, draining).await;
        }
    }
    if let Some(store) = api.store() {
        let left = (options.stop_wait_max + DRAIN_TIME + CLOSE_TIME).saturating_sub(stopping.elapsed()).max(CLOSE_TIME);
        if timeout(left, store.close()).await.is_err() {
            tracing::warn!("the store did not close in time; exiting without waiting for it");
        }
    }
    Ok(())
}

/// Returns the options with a task host on this store, on which the relays are started.
fn hosted(mut options: Options, store: &Arc<dyn Store>) -> Options {
    let host = options.host.get_or_insert_with(|| Host::start(Arc::clone(store), options.tasks.clone()));
    options.relays.start(host);
    options
}

/// Time for draining the tasks, out of the ten seconds of a stop, if requests used all of theirs.
const DRAIN_TIME: Duration = Duration::from_millis(500);
/// Time for closing the store, out of the ten seconds of a stop, if requests used all of theirs.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// How long after the beginning of a stop to wait for a webhook's answer to an event of a replay, and to store it. A webhook has 15 s to
/// answer, and nothing more is posted once the stop has begun.
const ANSWERS_MAX: Duration = Duration::from_secs(16);

/// Most requests in flight on one HTTP/2 connection; further ones wait at the client.
const STREAMS_MAX: u32 = 256;
/// Most streams that a client may reset before they are processed, and most that may be reset for protocol errors. A connection that
/// exceeds either is closed.
const RESETS_PENDING_MAX: usize = 20;
const RESETS_OF_ERRORS_MAX: usize = 256;
/// Bytes that a client may send before they are read, per stream and per connection.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// Bytes of a response that are buffered for one stream.
const SEND_BYTES_MAX: usize = 128 * 1024;

struct Connection {
    api: Arc<Opening>,
    cors: Option<Arc<Cors>>,
    options: Arc<Options>,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        // Responses are written whole, so Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        let reader = Reader::new(&self.options, stream.peer_addr().ok());
        let _open = self.options.connections.enter(Arc::clone(&reader));
        // Boxed, because the connection would otherwise keep room for its requests while it streams, and followers live long.
        let streaming = Box::pin(self.converse(stream, &reader)).await;
        if let Some(streaming) = streaming {
            self.stream(streaming, &reader).await;
        }
    }

    /// Serves requests until the connection ends, or until nothing is left to do but to stream events to a follower.
    async fn converse(&self, stream: TcpStream, reader: &Arc<Reader>) -> Option<Streaming> {
        let options = &*self.options;
        let stream = WireGuard::new(stream, options.header_wait_max, options.stop.clone(), Arc::clone(reader));
        let wire = match &options.tls {
            None => Wire::Plain(stream),
            Some(tls) => Wire::Tls(Box::new(secured(tls, stream, options, reader).await?)),
        };
        let dated = is_dated(options);
        let (builder, maybe_http1) = match &wire {
            Wire::Plain(_) if dated => (builder(options), true),
            Wire::Plain(_) => (builder(options).http2_only(), false),
            // ALPN has determined the version, so the deadline for the headers can begin at once.
            Wire::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
                (builder(options).http2_only(), false)
            }
            Wire::Tls(_) => (builder(options).http1_only(), true),
        };
        let handover = Handover::of(wire);
        let speaks_http2 = AtomicBool::new(false);
        let service = service_fn(|request: Request<Incoming>| {
            let (api, cors, current) = (Arc::clone(&self.api), self.cors.clone(), Arc::clone(reader));
            let parting = (*request.method() == Method::GET).then(|| (Arc::clone(&handover), request.version()));
            let (http2, machine_time) = (request.version() == Version::HTTP_2, self.options.machine_time);
            if http2 {
                speaks_http2.store(true, Ordering::Relaxed);
            }
            // Boxed, because the connection would otherwise keep room for this future as long as it lives.
            let answered = Box::pin(async move {
                let allowed = cors.as_ref().and_then(|cors| cors.answers(&request));
                let mut response = match cors.as_ref().and_then(|cors| cors.preflight(&request)) {
                    Some(response) => response,
                    None => answer(&api, &current, request).await,
                };
                if let Some(allowed) = allowed {
                    allowed.put(response.headers_mut());
                }
                if http2 {
                    // Over HTTP/1 the library writes the header itself.
                    response.headers_mut().entry(header::DATE).or_insert_with(|| date::header(machine_time()));
                }
                Ok::<_, Infallible>(match parting {
                    Some((handover, version)) => handover.part(version, response),
                    None => response,
                })
            });
            READER.scope(Arc::clone(reader), answered)
        });
        let mut connection = pin!(builder.serve_connection(TokioIo::new(handover.lend()), service));
        let mut gone = pin!(reader.gone());
        let mut stopping = false;
        let ended = loop {
            let served = future::poll_fn(|cx| {
                if maybe_http1 && !speaks_http2.load(Ordering::Relaxed) && !is_dated(options) {
                    // The library would panic.
                    return Poll::Ready(Err("the machine's clock is not between the years 1970 and 9999".into()));
                }
                connection.as_mut().poll(cx)
            });
            tokio::select! {
                ended = served => break ended,
                () = handover.written() => return handover.take(),
                why = gone.as_mut() => {
                    tracing::debug!(why, "closed a connection");
                    return None;
                }
                () = reader.ends() => connection.as_mut().graceful_shutdown(),
                () = options.stop.stopped(), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error, "a connection failed");
        }
        None
    }

    /// Streams events to a follower until the stream or the connection ends.
    async fn stream(&self, mut streaming: Streaming, reader: &Reader) {
        let ended = tokio::select! {
            ended = &mut streaming => ended,
            () = reader.evicted() => {
                tracing::debug!("closed the connection of a follower to make room for another one");
                return;
            }
            // From now on a write waits less long for the client, which it notices when it is polled again.
            () = self.options.stop.stopped() => (&mut streaming).await,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "the connection of a follower failed");
        }
    }
}

/// Performs the TLS handshake of a connection. Returns `None` if the connection ends before it completes.
async fn secured(
    tls: &Tls,
    stream: WireGuard,
    options: &Options,
    reader: &Arc<Reader>,
) -> Option<TlsStream<WireGuard>> {
    let accepted = tokio::select! {
        accepted = timeout(HANDSHAKE_MAX.min(options.header_wait_max), tls.acceptor().accept(stream)) => accepted,
        why = reader.gone() => {
            tracing::debug!(why, "closed a connection during its TLS handshake");
            return None;
        }
        () = options.stop.stopped() => return None,
    };
    let mut stream = match accepted {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake failed");
            return None;
        }
        Err(_) => {
            tracing::debug!("a TLS handshake timed out");
            return None;
        }
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    if let Some(subject) = certificate.and_then(|certificate| subject(certificate)) {
        reader.certified(subject);
    }
    stream.get_mut().0.open_again(options.header_wait_max);
    Some(stream)
}

/// Answers one request of a connection, once the client has read enough of the earlier responses.
async fn answer(api: &Opening, reader: &Arc<Reader>, request: Request<Incoming>) -> Response<Body> {
    let http2 = request.version() == Version::HTTP_2;
    let busy = reader.busy();
    reader.room().await;
    let calls = grpc::is_grpc(request.headers());
    let again = (http2 && request.method() == Method::GET).then(|| without_body(&request));
    let mut response = api.answer(request).await;
    if let Some(again) = again
        && (reader.refuses(&response) || response.extensions().get::<NoRoom>().is_some())
    {
        // Many were requested at once. They are built again one at a time, each after the client has read the ones before.
        drop(response);
        let _turn = reader.turn().await;
        reader.until_read().await;
        response = api.answer_again(again).await;
    }
    let mut response = reader.counted(response, http2, busy);
    if calls && http2 {
        // What is refused before or after its method is told to its client in the same way.
        response = grpc::translated(response).await;
    }
    // Other sites must not run a response as a script, or embed it.
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CROSS_ORIGIN_RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    response
}

const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

fn without_body(request: &Request<Incoming>) -> Request<Body> {
    let mut copy = Request::new(Body::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy
}

/// Returns whether the HTTP library can state the time of the machine's clock. It warns once each time when that ends.
fn is_dated(options: &Options) -> bool {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let dated = date::can_state((options.machine_time)());
    if !dated && !WARNED.swap(true, Ordering::Relaxed) {
        tracing::warn!("the machine's clock is not between the years 1970 and 9999; only HTTP/2 is served");
    }
    if dated && WARNED.load(Ordering::Relaxed) {
        WARNED.store(false, Ordering::Relaxed);
    }
    dated
}

fn builder(options: &Options) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(options.header_wait_max);
    // Up to this size, headers that are too large still get a problem document; beyond it HTTP/2 refuses them itself.
    let header_list_max = u32::try_from(options.header_bytes_max.saturating_mul(4)).unwrap_or(u32::MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(header_list_max)
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_PENDING_MAX)
        .max_local_error_reset_streams(RESETS_OF_ERRORS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BYTES_MAX)
        // It panics outside of the years 1970 to 9999.
        .auto_date_header(false)
        .keep_alive_interval(Duration::from_secs(30));
    builder
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use annals_core::Timestamp;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Semaphore;

    use super::*;

    /// Serves one connection of a machine whose clock shows this time, and returns its address.
    async fn serving_at(machine_time: fn() -> Timestamp) -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let options = Options { machine_time, ..Options::default() };
        let api = Arc::new(Opening::new(Obstacle::default(), &options));
        let place = Arc::new(Semaphore::new(1)).acquire_owned().await.expect("a place");
        let connection = Connection { api, cors: None, options: Arc::new(options), _place: place };
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a connection");
            connection.serve(stream).await;
        });
        address
    }

    #[tokio::test]
    async fn a_clock_past_the_year_9999_ends_connections_of_http1_and_no_others() {
        let client = reqwest::Client::builder().http2_prior_knowledge().no_proxy().build().expect("a client");
        let address = serving_at(past_9999).await;
        let answer = timeout(ANSWER_MAX, client.get(format!("http://{address}/health/live")).send()).await;
        let answer = answer.expect("in time").expect("an answer");
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()[header::DATE], "Fri, 31 Dec 9999 23:59:59 GMT");
        let times: [(fn() -> Timestamp, bool); 2] = [(of_2026, true), (past_9999, false)];
        for (time, answered) in times {
            let mut stream = TcpStream::connect(serving_at(time).await).await.expect("a connection");
            let request = "GET /health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
            stream.write_all(request.as_bytes()).await.expect("written");
            let mut answer = Vec::new();
            // A connection that is closed before its request was read may be reset.
            let _ = timeout(ANSWER_MAX, stream.read_to_end(&mut answer)).await.expect("the connection is closed");
            assert_eq!(answer.starts_with(b"HTTP/1.1 200"), answered, "{}", String::from_utf8_lossy(&answer));
        }
    }

    const ANSWER_MAX: Duration = Duration::from_secs(20);

    fn of_2026() -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000)
    }

    /// As the port shows it.
    fn past_9999() -> Timestamp {
        Timestamp::LAST_WRITABLE
    }

    /// Ten thousand followers may keep 20 KiB each, of which most is for their streams.
    #[tokio::test]
    async fn a_connection_keeps_little_beside_its_requests_and_its_stream() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let options = Options::default();
        let api = Arc::new(Opening::new(Obstacle::default(), &options));
        let place = Arc::new(Semaphore::new(1)).acquire_owned().await.expect("a place");
        let connection = Connection { api, cors: None, options: Arc::new(options), _place: place };
        let bytes = size_of_val(&connection.serve(stream));
        assert!(bytes <= 3 * 1_024, "the task of a connection has {bytes} bytes");
    }
}
