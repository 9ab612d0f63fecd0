//! Partners whose certificates are not theirs: nothing is sent to them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use annals::partners::{Answered, Outgoing, Sending};
use annals::server::{Options, Tls, serve};
use annals::{HttpSending, Resolve, Resolved};
use tokio::net::TcpListener;

fn of_the_server(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../server/tests/fixtures").join(name)
}

fn own(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Starts a server with this certificate. It answers 404 where partners are posted to, once it has read the request.
async fn receiver(certificate: PathBuf, key: PathBuf) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let store = annals::open("memory:").await.expect("a store");
    let mut options = Options::default();
    options.tls = Some(Tls::read(certificate, key, None).expect("a certificate"));
    tokio::spawn(serve(listener, store, options, std::future::pending()));
    address
}

/// Finds one address for every name.
struct Always(SocketAddr);

impl Resolve for Always {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Resolved<'a> {
        Box::pin(async move { Ok(vec![self.0]) })
    }
}

async fn sent(to: SocketAddr, name: &str, trusts: PathBuf) -> Result<Answered, String> {
    let sending = HttpSending::default().allowing(["127.0.0.0/8"]).expect("a network");
    let sending = sending.trusting(Some(trusts)).resolving(Arc::new(Always(to)));
    let headers = vec![("content-type", "application/json".to_owned())];
    let url = format!("https://{name}:{}/events", to.port());
    sending.send(Outgoing { url, headers, body: "{}".into(), timeout: Duration::from_secs(20) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partner_whose_certificate_is_wrong_gets_nothing() {
    let good = receiver(of_the_server("server.pem"), of_the_server("server.key")).await;
    let answered = sent(good, "localhost", of_the_server("ca.pem")).await;
    assert_eq!(answered.map(|answered| answered.status), Ok(404), "with the right one, the request arrives");
    let expired = receiver(own("expired.pem"), own("expired.key")).await;
    for (to, name, trusts, why) in [
        (good, "localhost", of_the_server("foreign-ca.pem"), "UnknownIssuer"),
        (good, "partner.example", of_the_server("ca.pem"), "not valid for name"),
        (expired, "localhost", own("expired-ca.pem"), "expired"),
    ] {
        let error = sent(to, name, trusts).await.expect_err(why);
        assert!(error.contains("TLS") && error.contains(why), "{error}");
    }
}
