//! A client of `/v1/log/follow` that goes on with Last-Event-ID, as a browser does.

use annals::wire::EventLine;
use annals::{Filter, RecordedEvent};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::meeting::Guest;

/// What it follows, and what it was shown so far.
pub struct Follower {
    filter: Filter,
    seen: Vec<RecordedEvent>,
}

impl Follower {
    /// The first one follows everything, the others one type.
    pub fn new(n: usize) -> Self {
        let types = if n == 0 { Vec::new() } else { vec!["kind_0".into()] };
        Self { filter: Filter { types, ..Filter::default() }, seen: Vec::new() }
    }

    /// Follows each server until it is gone.
    pub async fn run(mut self, mut guest: Guest) -> Self {
        loop {
            let place = guest.next().await;
            if place.last {
                return self;
            }
            // Whatever ends the stream, the server was killed; how far a line got does not matter then.
            let _ = self.follow(&place.url).await;
        }
    }

    async fn follow(&mut self, url: &str) -> std::io::Result<()> {
        let address = url.strip_prefix("http://").expect("an http address");
        let mut stream = TcpStream::connect(address).await?;
        let types = if self.filter.types.is_empty() { "" } else { "?types=kind_0" };
        let last = match self.seen.last() {
            Some(event) => format!("Last-Event-ID: {}\r\n", event.sequence_number),
            None => String::new(),
        };
        // By HTTP/1.0 the body comes as it is, without the framing of chunks.
        let request = format!("GET /v1/log/follow{types} HTTP/1.0\r\nHost: {address}\r\n{last}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut lines = BufReader::new(stream).lines();
        let status = lines.next_line().await?.unwrap_or_default();
        assert!(status.is_empty() || status.contains(" 200 "), "{status}");
        let mut id = None;
        while let Some(line) = lines.next_line().await? {
            if let Some(number) = line.strip_prefix("id: ") {
                id = Some(number.parse::<u64>().expect("a number"));
            }
            assert!(!line.starts_with("event: "), "the stream was broken off or clamped: {line}");
            let Some(data) = line.strip_prefix("data: ") else { continue };
            // The last line may be cut short by the kill, and is then shown again.
            let Ok(event) = serde_json::from_str::<EventLine>(data) else { continue };
            let event = RecordedEvent::from(event);
            assert_eq!(id.take(), Some(event.sequence_number));
            self.seen.push(event);
        }
        Ok(())
    }

    /// Checks that it was shown the beginning of the log, as far as it passes the filter, without a gap or a repeat.
    pub fn compare(&self, log: &[RecordedEvent]) {
        assert!(!self.seen.is_empty());
        let expected = log.iter().filter(|event| self.filter.admits(event));
        for (seen, expected) in self.seen.iter().zip(expected) {
            assert_eq!(seen.sequence_number, expected.sequence_number, "a gap or a repeat");
            assert_eq!((seen.id, &seen.event_type, &seen.data), (expected.id, &expected.event_type, &expected.data));
            assert_eq!((&seen.tags, seen.ordinal), (&expected.tags, expected.ordinal));
            assert_eq!(seen.commit.commit_id, expected.commit.commit_id);
            assert_eq!(seen.commit.version, expected.commit.version);
        }
        let last = self.seen.last().map(|event| event.sequence_number);
        assert!(last < Some(log.len() as u64), "it was shown event {last:?}, which the log does not hold");
    }
}
