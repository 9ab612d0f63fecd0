//! Compressed bodies: a small one may be a large one when it is unpacked, so the server unpacks none, and packs no answer.

use annals_core::Code;
use reqwest::Method;

use crate::credentials::operations;
use crate::raw::{Raw, commit_request};
use crate::running::{Running, opened};
use crate::secured::Secured;

/// Times that the bomb repeats 258 spaces: unpacked it has 67 MB, four times the largest body.
const REPEATS: u32 = 260_000;
/// The CRC-32 of what the bomb unpacks to.
const CRC: u32 = 0xc198_77ba;

/// Packs bits into bytes as DEFLATE does: the lowest bit first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    held: u32,
    count: u32,
}

impl Bits {
    fn put(&mut self, bits: u32, count: u32) {
        self.held |= bits << self.count;
        self.count += count;
        while self.count >= 8 {
            self.bytes.push(self.held.to_le_bytes()[0]);
            self.held >>= 8;
            self.count -= 8;
        }
    }
}

/// A valid gzip file of 0.4 MB that holds nothing but spaces, which are JSON's white space.
fn bomb() -> Vec<u8> {
    let mut bits = Bits::default();
    // The last block, with the fixed codes; codes are written with their highest bit first, so they are reversed here.
    bits.put(0b011, 3);
    // A space, and then 258 bytes as one byte before, again and again.
    bits.put(0x0a, 8);
    for _ in 0..REPEATS {
        bits.put(0b1010_0011, 8);
        bits.put(0, 5);
    }
    // The end of the block, and bits that fill the last byte.
    bits.put(0, 7 + 7);
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    gzip.extend(bits.bytes);
    gzip.extend(CRC.to_le_bytes());
    gzip.extend((1 + 258 * REPEATS).to_le_bytes());
    gzip
}

#[tokio::test(flavor = "multi_thread")]
async fn no_operation_unpacks_a_body() {
    let secured = Secured::start(&["default"]).await;
    let bomb = bomb();
    assert!(bomb.len() < 500_000, "{}", bomb.len());
    let mut refused = 0;
    for (method, path, said) in operations(&secured).await {
        if said["requestBody"].is_null() {
            continue;
        }
        let request = secured.request(&secured.admin, method.clone(), &path).header("content-encoding", "gzip");
        let answer = secured.send(request.body(bomb.clone())).await;
        assert!(!answer.status.is_success() && answer.status != 500, "{method} {path}: {}", answer.text());
        // What has to be there for the body to be read may not be there.
        refused += usize::from(answer.status == 415);
    }
    assert!(refused > 30, "{refused}");
    for encoding in ["gzip", "x-gzip", "deflate", "br", "zstd", "gzip, gzip", "identity, gzip"] {
        let request = secured.request(&secured.admin, Method::POST, "/v1/commits").header("content-encoding", encoding);
        secured.send(request.body(bomb.clone())).await.problem(Code::UnsupportedMediaType);
    }
    // Without the header it is a body that is no JSON.
    let request = secured.request(&secured.admin, Method::POST, "/v1/commits").body(bomb.clone());
    secured.send(request).await.problem(Code::NotJson);
    assert_eq!(secured.get(&secured.admin, "/v1/log").await.json()["head"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_encoding_that_packs_is_refused_or_not_unpacked() {
    let server = Running::start().await;
    let head =
        |encoding: &str| format!("POST /v1/commits HTTP/1.1\r\nhost: x\r\ntransfer-encoding: {encoding}\r\n\r\n");
    // What has no chunks at its end is not read at all.
    for encoding in ["gzip", "chunked, gzip"] {
        let mut raw = Raw::open(&server).await;
        raw.write(head(encoding)).await.expect("written");
        assert_eq!(raw.answer().await.status, 400, "{encoding}");
    }
    let bomb = bomb();
    let mut raw = Raw::open(&server).await;
    raw.write(format!("{}{:x}\r\n", head("gzip, chunked"), bomb.len())).await.expect("written");
    raw.write(&bomb).await.expect("written");
    raw.write("\r\n0\r\n\r\n").await.expect("written");
    raw.answer().await.problem(Code::NotJson);
    // The next caller is answered.
    let mut raw = Raw::open(&server).await;
    raw.write(commit_request(&opened().to_string())).await.expect("written");
    assert_eq!(raw.answer().await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_is_packed() {
    let server = Running::start().await;
    server.commit_batches(1).await;
    for path in ["/v1/log", "/openapi.json", "/metrics"] {
        let request = server.request(Method::GET, path).header("accept-encoding", "gzip, br, zstd, deflate");
        let answer = server.send(request).await;
        assert_eq!((answer.status.as_u16(), answer.headers.get("content-encoding")), (200, None), "{path}");
    }
}
