//! A partner that is a real HTTP server and misbehaves: what sending makes of each fault.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals::partners::{Answered, Outgoing, Sending};
use annals::{HttpSending, Resolve, Resolved};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a receiver does with a connection.
#[derive(Clone)]
pub enum Behaviour {
    /// Answers with these bytes, once it has read the request.
    Answers(String),
    /// Reads the request, and closes the connection: it has acted, and its answer is lost.
    LosesTheAnswer,
    /// Closes the connection at once.
    Resets,
    /// Reads the request, and says nothing more.
    Hangs,
    /// Sends an answer that never ends, byte by byte.
    Drips,
}

/// A partner's HTTP server.
pub struct Receiver {
    pub address: SocketAddr,
    /// The requests that it read, as they came.
    pub requests: Arc<Mutex<Vec<String>>>,
}

pub fn status(line: &str) -> Behaviour {
    Behaviour::Answers(format!("HTTP/1.1 {line}\r\ncontent-length: 0\r\n\r\n"))
}

impl Receiver {
    /// A server that does this with one connection after the other, and the last with all further ones.
    pub async fn start(behaviours: Vec<Behaviour>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            let mut next = 0;
            while let Ok((stream, _)) = listener.accept().await {
                let behaviour = behaviours[next.min(behaviours.len() - 1)].clone();
                next += 1;
                tokio::spawn(serve(stream, behaviour, Arc::clone(&seen)));
            }
        });
        Self { address, requests }
    }

    pub fn url(&self) -> String {
        format!("http://{}/events", self.address)
    }

    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("unpoisoned").clone()
    }
}

async fn serve(mut stream: TcpStream, behaviour: Behaviour, seen: Arc<Mutex<Vec<String>>>) {
    if matches!(behaviour, Behaviour::Resets) {
        return;
    }
    let Some(request) = read_request(&mut stream).await else { return };
    seen.lock().expect("unpoisoned").push(request);
    match behaviour {
        Behaviour::Answers(answer) => {
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.flush().await;
        }
        Behaviour::LosesTheAnswer | Behaviour::Resets => {}
        Behaviour::Hangs => std::future::pending().await,
        Behaviour::Drips => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nx-drip: ").await;
            while stream.write_all(b"x").await.is_ok() {
                between_bytes().await;
            }
        }
    }
}

/// The pause between two bytes.
async fn between_bytes() {
    use annals::Clock;
    annals::SystemClock.sleep(Duration::from_millis(20)).await;
}

/// A whole request; none when the connection ends before.
pub async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:").map(str::to_owned));
            let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
            if body.len() >= length {
                return Some(text.into_owned());
            }
        }
    }
}

fn to(url: String) -> Outgoing {
    let headers = vec![("content-type", "application/json".to_owned()), ("webhook-id", "m".to_owned())];
    Outgoing { url, headers, body: "{}".into(), timeout: Duration::from_secs(20) }
}

fn local() -> HttpSending {
    HttpSending::default().allowing(["127.0.0.0/8"]).expect("a network")
}

async fn sent(behaviour: Behaviour) -> (Result<Answered, String>, Vec<String>) {
    let receiver = Receiver::start(vec![behaviour]).await;
    let answered = local().send(to(receiver.url())).await;
    (answered, receiver.requests())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_returned_with_its_status_its_wish_and_the_beginning_of_its_body() {
    let (answered, requests) = sent(status("204 No Content")).await;
    assert_eq!(answered, Ok(Answered { status: 204, retry_after: None, said: String::new() }));
    assert!(requests[0].starts_with("POST /events HTTP/1.1\r\n") && requests[0].contains("webhook-id: m\r\n"));
    let busy = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nbusy".to_owned();
    let (answered, _) = sent(Behaviour::Answers(busy)).await;
    let due = Answered { status: 429, retry_after: Some(Duration::from_secs(7)), said: "busy".to_owned() };
    assert_eq!(answered, Ok(due));
    let until = "date: Wed, 21 Oct 2026 07:28:00 GMT\r\nretry-after: Wed, 21 Oct 2026 07:30:00 GMT";
    let (answered, _) =
        sent(Behaviour::Answers(format!("HTTP/1.1 503 Busy\r\n{until}\r\ncontent-length: 0\r\n\r\n"))).await;
    let due = Answered { status: 503, retry_after: Some(Duration::from_secs(120)), said: String::new() };
    assert_eq!(answered, Ok(due), "a date is as good as a number of seconds");
    let long = format!("HTTP/1.1 500 Oops\r\ncontent-length: 100000\r\n\r\n{}", "x".repeat(100_000));
    let (answered, _) = sent(Behaviour::Answers(long)).await;
    assert!(answered.is_ok_and(|answered| answered.status == 500 && answered.said.len() == 300));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed() {
    let other = Receiver::start(vec![status("200 OK")]).await;
    let moved = format!("HTTP/1.1 307 Moved\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", other.url());
    let (answered, requests) = sent(Behaviour::Answers(moved)).await;
    assert_eq!((answered.map(|answered| answered.status), requests.len()), (Ok(307), 1));
    assert_eq!(other.requests().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partner_that_resets_or_loses_its_answer_is_a_failure() {
    for behaviour in [Behaviour::Resets, Behaviour::LosesTheAnswer] {
        let (answered, _) = sent(behaviour).await;
        assert!(answered.is_err(), "{answered:?}");
    }
    let nobody = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = nobody.local_addr().expect("an address");
    drop(nobody);
    let refused = local().send(to(format!("http://{address}/"))).await;
    assert!(refused.is_err(), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partner_that_hangs_or_drips_ends_at_the_timeout() {
    for behaviour in [Behaviour::Hangs, Behaviour::Drips] {
        let receiver = Receiver::start(vec![behaviour]).await;
        let request = Outgoing { timeout: Duration::from_millis(300), ..to(receiver.url()) };
        let error = local().send(request).await.expect_err("it does not end");
        assert!(error.contains("300 ms"), "{error}");
    }
}

/// It does not speak TLS, and nothing is sent to it in plain text.
#[tokio::test(flavor = "multi_thread")]
async fn a_partner_without_a_valid_certificate_gets_nothing() {
    let receiver = Receiver::start(vec![status("200 OK")]).await;
    let request = to(format!("https://{}/events", receiver.address));
    let request = Outgoing { timeout: Duration::from_millis(500), ..request };
    let error = local().send(request).await.expect_err("no TLS");
    assert!(!error.is_empty());
    assert!(receiver.requests().iter().all(|request| !request.contains("POST")), "{:?}", receiver.requests());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_not_public_is_refused_unless_it_is_allowed() {
    let receiver = Receiver::start(vec![status("200 OK")]).await;
    let strict = HttpSending::default();
    for url in [
        receiver.url(),
        "https://10.0.0.1/".to_owned(),
        "https://[::ffff:127.0.0.1]/".to_owned(),
        "https://169.254.169.254/latest/meta-data".to_owned(),
        "http://8.8.8.8/".to_owned(),
    ] {
        assert!(strict.check(&url).is_err() && strict.send(to(url.clone())).await.is_err(), "{url}");
    }
    assert_eq!(receiver.requests().len(), 0);
    assert!(strict.check("https://partner.example/events").is_ok() && local().check(&receiver.url()).is_ok());
    for url in ["", "ftp://a/", "https:///x", "https://user@host/", "not a url"] {
        assert!(strict.check(url).is_err(), "{url:?}");
    }
}

/// A name whose addresses a test decides, one answer after the other.
struct Changing {
    answers: Vec<Vec<SocketAddr>>,
    asked: AtomicUsize,
}

impl Resolve for Changing {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Resolved<'a> {
        let place = self.asked.fetch_add(1, Ordering::SeqCst).min(self.answers.len() - 1);
        let answer = self.answers[place].clone();
        Box::pin(async move { Ok(answer) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_goes_to_the_address_that_was_checked_whatever_the_name_means_later() {
    let receiver = Receiver::start(vec![status("200 OK")]).await;
    let inner = Receiver::start(vec![status("200 OK")]).await;
    // The second answer would lead elsewhere; it is never asked for.
    let resolver =
        Arc::new(Changing { answers: vec![vec![receiver.address], vec![inner.address]], asked: AtomicUsize::new(0) });
    let sending = local().resolving(resolver.clone());
    let answered = sending.send(to("http://partner.example/events".to_owned())).await;
    assert_eq!(answered.map(|answered| answered.status), Ok(200));
    assert_eq!((resolver.asked.load(Ordering::SeqCst), receiver.requests().len(), inner.requests().len()), (1, 1, 0));
    assert!(receiver.requests()[0].contains("host: partner.example\r\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_with_any_address_that_is_not_allowed_is_refused() {
    let receiver = Receiver::start(vec![status("200 OK")]).await;
    let public: SocketAddr = "8.8.8.8:443".parse().expect("an address");
    let answers = vec![vec![public, receiver.address]];
    let sending = HttpSending::default().resolving(Arc::new(Changing { answers, asked: AtomicUsize::new(0) }));
    let error = sending.send(to("https://partner.example/".to_owned())).await.expect_err("refused");
    assert!(error.contains("not a public address"), "{error}");
    assert_eq!(receiver.requests().len(), 0);
}
