//! HTTP/2 by hand: what one connection may ask of the server.

use std::time::Duration;

use annals_server::Options;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::running::{Running, opened, soon};

const DATA: u8 = 0;
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
        next_frame(&mut self.0).await.map(|(kind, _, payload)| (kind, payload))
    }
}

/// The kind, stream and payload of the next frame; none when the connection ends.
async fn next_frame(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<(u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    soon("a frame", stream.read_exact(&mut head)).await.ok()?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    soon("a frame", stream.read_exact(&mut payload)).await.ok()?;
    Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
}

/// Reads until a frame of this kind and stream.
async fn until_frame(stream: &mut (impl AsyncReadExt + Unpin), kind: u8, of: u32) -> Vec<u8> {
    loop {
        let (found, number, payload) = next_frame(stream).await.expect("the connection stays");
        if (found, number) == (kind, of) {
            return payload;
        }
    }
}

/// A header field whose name has this number, as HPACK writes it.
fn field(number: u8, value: &str) -> Vec<u8> {
    let length = u8::try_from(value.len()).expect("a short value");
    [[0x40 | number, length].as_slice(), value.as_bytes()].concat()
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

/// Its connection is never idle, and the other stream is none of its business.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_trickles_beside_a_follower_ends_and_the_follower_goes_on() {
    let mut options = Options::default();
    options.body_idle_max = Duration::from_secs(1);
    let server = Running::start_with(options).await;
    let mut wire = Wire::open(&server).await;
    // GET and POST, http, and then the fields with the numbers of :path, :authority and content-type.
    let follow = [vec![0x82, 0x86], field(4, "/v1/log/follow"), field(1, "x")].concat();
    let post = [vec![0x83, 0x86], field(4, "/v1/commits"), field(1, "x"), field(31, "application/json")].concat();
    wire.0.write_all(&frame(HEADERS, 0x05, 1, &follow)).await.expect("written");
    until_frame(&mut wire.0, HEADERS, 1).await;
    wire.0.write_all(&frame(HEADERS, 0x04, 3, &post)).await.expect("written");
    let (mut reading, mut writing) = wire.0.split();
    let trickles = async {
        while writing.write_all(&frame(DATA, 0, 3, b" ")).await.is_ok() {
            // tidy: allow(pause) the pace of the client
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        _ = soon("an answer before the body ends", until_frame(&mut reading, HEADERS, 3)) => {}
        () = trickles => panic!("the connection ended"),
    }
    server.commit(&opened()).await;
    while !until_frame(&mut reading, DATA, 1).await.windows(6).any(|part| part == b"opened") {}
}
