//! Two `annals serve` on one MongoDB that exchange events with a partner: one is killed in the middle of a delivery, and the other
//! continues. The name of this file leaves it out where there is no MongoDB: see CONTRIBUTING.md.

use std::sync::{Arc, Mutex, PoisonError};

use annals::partners::{
    EventStatus, EventsQuery, Incoming, PartnerDefinition, PartnerEventView, Partners, Signed, SigningSecret,
};
use annals::{Client, Clock, Condition, Data, EventLog, LogQuery, NewCommit, NewEvent, SystemClock};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::process::Server;
use crate::run::folder;
use crate::with_mongodb_handlers::{client, one_server, run};
use crate::with_mongodb_serve::Database;

/// A request that a partner has got: its `webhook-id`, and its body.
type Got = (String, Value);

/// The partner. It reads its first request and says nothing, and takes each later one.
struct Receiver {
    url: String,
    got: Arc<Mutex<Vec<Got>>>,
    count: watch::Receiver<usize>,
}

impl Receiver {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let (got, (counting, count)) = (Arc::default(), watch::channel(0));
        let (seen, counting) = (Arc::clone(&got), Arc::new(counting));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(take(stream, Arc::clone(&seen), Arc::clone(&counting)));
            }
        });
        Self { url, got, count }
    }

    /// Waits until it has got `count` requests.
    async fn has_got(&self, count: usize) -> Vec<Got> {
        self.count.clone().wait_for(|got| *got >= count).await.expect("it listens");
        self.got.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn take(stream: TcpStream, seen: Arc<Mutex<Vec<Got>>>, counting: Arc<watch::Sender<usize>>) {
    let mut stream = BufReader::new(stream);
    let (mut id, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.expect("a line");
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            if line.trim_end().is_empty() {
                break;
            }
            continue;
        };
        match &*name.to_ascii_lowercase() {
            "webhook-id" => id = value.to_owned(),
            "content-length" => length = value.parse().expect("a length"),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.expect("a body");
    let count = {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push((id, serde_json::from_slice(&body).expect("JSON")));
        seen.len()
    };
    counting.send_replace(count);
    if count == 1 {
        // The connection ends with the process that waits for the response.
        let _ = stream.read_u8().await;
        return;
    }
    let answer = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
    let _ = stream.get_mut().write_all(answer).await;
}

fn secret() -> SigningSecret {
    SigningSecret::of_bytes(vec![5; 32])
}

async fn place(client: &Client, order: &str) {
    let commit = NewCommit::new("order", order).event(NewEvent::new("order_placed", Data::empty()));
    client.commit(commit).await.expect("committed");
}

/// Whether a server has begun to send an event to a partner.
async fn has_attempted(server: &Server) -> bool {
    let answer = reqwest::get(format!("{}/metrics", server.url)).await.expect("an answer");
    answer.text().await.expect("text").contains("annals_partner_retries_total{")
}

/// Waits until the partner's events are as many, and all succeeded.
async fn succeeded(client: &Client, count: usize) -> Vec<PartnerEventView> {
    loop {
        let events = client.partners().events("acme", EventsQuery::default()).await.expect("listed").items;
        if events.len() == count && events.iter().all(|event| event.event_status == EventStatus::Success) {
            return events;
        }
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_delivery_whose_server_is_killed_before_the_response_is_repeated_by_another_with_the_same_id() {
    // Dropped after the runtime, because dropping it needs one of its own.
    let (folder, database) = (folder(), Database::new());
    run(async {
        let (one, two) = (one_server(folder.path(), &database).await, one_server(folder.path(), &database).await);
        let receiver = Receiver::start().await;
        let mut definition = PartnerDefinition::new("acme", "Acme")
            .sends(receiver.url.clone(), Condition::eq("type", "order_placed"))
            .secrets([secret().reveal()]);
        definition.limits.timeout_ms = 5_000;
        client(&one).partners().put(definition).await.expect("defined");
        place(&client(&one), "o-1").await;
        let held = receiver.has_got(1).await.remove(0);
        let (owner, other) = if has_attempted(&one).await { (one, two) } else { (two, one) };
        tokio::task::spawn_blocking(|| owner.kill()).await.expect("killed");

        let of_other = client(&other);
        for order in ["o-1", "o-2"] {
            place(&of_other, order).await;
        }
        let body = r#"{"type":"order_shipped","subject":"o-1","data":{"n":1}}"#;
        let signed = Signed::sign(&[secret()], "w-1", SystemClock.now(), body.as_bytes());
        let request = Incoming { signed, body: body.into() };
        let accepted = of_other.partners().receive("acme", request.clone()).await.expect("accepted");
        let again = of_other.partners().receive("acme", request).await.expect("accepted");
        assert_eq!((&again.id, again.repeated), (&accepted.id, true));

        let requests = receiver.has_got(4).await;
        let events = succeeded(&of_other, 4).await;
        let sent: Vec<_> = requests.iter().map(|(_, body)| [&body["subject"], &body["version"]]).collect();
        let due = [["order/o-1", "1"], ["order/o-2", "1"], ["order/o-1", "1"], ["order/o-1", "2"]];
        assert_eq!(sent, due, "another entity is not held up, and those of one entity are in order");
        assert_eq!(requests[2], held, "the partner can recognise the repeat");
        let repeated = events.iter().find(|event| event.id == held.0).expect("it is there");
        let attempts = &repeated.entity_metadata["resilienceAttemptCount"];
        let at = |n: &str| attempts[n].as_str().and_then(|at| at.parse::<i64>().ok()).expect("milliseconds");
        assert_eq!(repeated.attempts, 2, "the attempt of the killed server is on record");
        assert!(at("2") - at("1") >= 20_000, "it was repeated before its lease had ended: {attempts}");
        of_other.wait_past(3).await.expect("all are in the log");
        let logged = of_other.read(LogQuery::default()).await.expect("read").events;
        let shipped = logged.iter().filter(|event| &*event.event_type == "order_shipped").count();
        assert_eq!((shipped, logged.len()), (1, 4), "what was received is committed once");
    });
}
