//! HTTP/2 by hand: what one connection may ask of the server.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::running::{Running, soon};

const DATA_OF_SETTINGS: u8 = 4;
const RESET: u8 = 3;
const HEADERS: u8 = 1;
const GO_AWAY: u8 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

struct Wire(TcpStream);

impl Wire {
    async fn open(server: &Running) -> Self {
        let mut stream = TcpStream::connect(server.address).await.expect("a connection");
        let opening = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(DATA_OF_SETTINGS, 0, 0, &[])].concat();
        stream.write_all(&opening).await.expect("written");
        Self(stream)
    }

    /// The kind and payload of the next frame; none when the connection ends.
    async fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 9];
        soon("a frame", self.0.read_exact(&mut head)).await.ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        soon("a frame", self.0.read_exact(&mut payload)).await.ok()?;
        Some((head[3], payload))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_told_how_much_it_may_ask() {
    let server = Running::start().await;
    let mut wire = Wire::open(&server).await;
    let settings = loop {
        match wire.frame().await.expect("the settings") {
            (DATA_OF_SETTINGS, payload) if !payload.is_empty() => break payload,
            _ => {}
        }
    };
    let value = |wanted: u16| {
        let mut entries = settings.chunks_exact(6);
        let entry = entries.find(|entry| u16::from_be_bytes([entry[0], entry[1]]) == wanted).expect("it is told");
        u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]])
    };
    let (streams, window, header_list) = (value(3), value(4), value(6));
    assert_eq!((streams, window, header_list), (256, 1024 * 1024, 256 * 1024));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_only_begins_and_resets_streams_is_sent_away() {
    let server = Running::start().await;
    let mut wire = Wire::open(&server).await;
    // GET, http, /, and the authority "x", as HPACK writes them.
    let get = [0x82, 0x86, 0x84, 0x41, 0x01, b'x'];
    let mut flood = Vec::new();
    for stream in (1..4_000).step_by(2) {
        flood.extend(frame(HEADERS, 0x05, stream, &get));
        flood.extend(frame(RESET, 0, stream, &8u32.to_be_bytes()));
    }
    // It may be sent away before it has written all.
    let _ = wire.0.write_all(&flood).await;
    let reason = loop {
        match wire.frame().await {
            Some((GO_AWAY, payload)) => {
                break Some(u32::from_be_bytes([payload[4], payload[5], payload[6], payload[7]]));
            }
            Some(_) => {}
            None => break None,
        }
    };
    assert!(matches!(reason, None | Some(ENHANCE_YOUR_CALM)), "{reason:?}");
    assert_eq!(server.get("/health/live").await.status, 200);
}
