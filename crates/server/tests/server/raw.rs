//! HTTP by hand, for what a proper client does not do.

use std::io;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::running::{Answer, Running, soon};

pub struct Raw {
    pub stream: TcpStream,
    unread: Vec<u8>,
}

impl Raw {
    pub async fn open(server: &Running) -> Self {
        Self { stream: TcpStream::connect(server.address).await.expect("a connection"), unread: Vec::new() }
    }

    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        soon("a write", self.stream.write_all(bytes.as_ref())).await
    }

    /// The next answer, which says its length.
    pub async fn answer(&mut self) -> Answer {
        let head = loop {
            if let Some(end) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break self.unread.drain(..end + 4).collect::<Vec<u8>>();
            }
            assert!(self.read_more().await > 0, "closed without an answer");
        };
        let head = String::from_utf8(head).expect("text");
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse::<u16>().ok()).expect("a status line");
        let mut headers = HeaderMap::new();
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            let name = HeaderName::try_from(name).expect("a header name");
            headers.append(name, HeaderValue::try_from(value).expect("a header value"));
        }
        let length = headers.get("content-length").map_or("0", |value| value.to_str().expect("text"));
        let length: usize = length.parse().expect("a length");
        while self.unread.len() < length {
            assert!(self.read_more().await > 0, "closed inside an answer");
        }
        let body = self.unread.drain(..length).collect();
        Answer { status: StatusCode::from_u16(status).expect("a status"), headers, body }
    }

    /// Waits until the server closes the connection; says whether it sent something before.
    pub async fn closed(mut self) -> bool {
        let mut said = !self.unread.is_empty();
        loop {
            let mut some = [0; 1024];
            match soon("the end of the connection", self.stream.read(&mut some)).await {
                Ok(0) | Err(_) => return said,
                Ok(_) => said = true,
            }
        }
    }

    async fn read_more(&mut self) -> usize {
        soon("more of an answer", self.stream.read_buf(&mut self.unread)).await.expect("a connection")
    }
}

/// A commit with this body.
pub fn commit_request(body: &str) -> String {
    format!("POST /v1/commits HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}
