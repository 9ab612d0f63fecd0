//! Producers of the event horizon that are not servers of Annals.

use annals::HttpProducers;
use annals::horizon::{OfferRequest, Producers};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Accepts one request and answers it with zeros without end. Returns its URL, and how many MiB were taken before the connection broke.
async fn endless() -> (String, oneshot::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sent, taken) = oneshot::channel();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a request");
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).await.expect("it is read") > 0);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/bson\r\nconnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).await.expect("the head is taken");
        let zeros = vec![0; 1024 * 1024];
        let mut count = 0;
        while stream.write_all(&zeros).await.is_ok() {
            count += 1;
        }
        let _ = sent.send(count);
    });
    (url, taken)
}

fn request(credits: usize) -> OfferRequest {
    OfferRequest {
        microservice: "shipping".into(),
        tenant: "default".into(),
        stream: "public-orders".into(),
        partition: "".into(),
        from: 0,
        credits,
        wait_ms: 0,
        incarnation: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_a_producer_takes_no_more_memory_than_a_page() {
    // Beyond what is read, the connection has buffers of its own.
    for (credits, mib_max) in [(0, 20), (1_000, 48)] {
        let (url, taken) = endless().await;
        let producer = HttpProducers::default().producer(&url, "default", None).expect("an address");
        producer.offer(request(credits)).await.expect_err("no page ends");
        let taken = taken.await.expect("the connection broke");
        assert!(taken <= mib_max, "{taken} MiB for {credits} events");
    }
}

#[test]
fn nothing_is_sent_where_a_cloud_tells_its_secrets() {
    for url in ["http://169.254.169.254", "http://[fe80::1]:80", "https://[::ffff:a9fe:a9fe]/latest"] {
        let refused = HttpProducers::default().producer(url, "default", None).map(drop).expect_err(url);
        assert!(refused.contains("nothing is sent"), "{refused}");
    }
}
