//! Serves routes over HTTP/1.1 with hyper, as the product does.

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tower_service::Service;

/// Serves until the listener fails.
pub async fn serve(listener: TcpListener, router: Router) -> std::io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let router = router.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request: Request<Incoming>| router.clone().call(request.map(Body::new)));
            // A disconnected client is not an error of the routes.
            let _ = Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}
