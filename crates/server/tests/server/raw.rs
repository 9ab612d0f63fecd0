//! HTTP by hand, for what a proper client does not do.

use std::io;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::running::{Answer, Running, soon};

pub struct Raw {
    pub stream: TcpStream,
    unread: Vec<u8>,
}

impl Raw {
    pub async fn open(server: &Running) -> Self {
        Self { stream: TcpStream::connect(server.address).await.expect("a connection"), unread: Vec::new() }
    }

    /// Asks for `path` over a connection that takes little ahead of its reader, and reads nothing yet.
    pub async fn slow_reader(server: &Running, path: &str, accept: &str) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(16 * 1024).expect("a small buffer");
        let stream = socket.connect(server.address).await.expect("a connection");
        let mut raw = Self { stream, unread: Vec::new() };
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\n\r\n");
        raw.write(request).await.expect("written");
        raw
    }

    /// The body of an answer that comes in chunks; none when it breaks off before its end.
    pub async fn body_in_chunks(&mut self) -> Option<Vec<u8>> {
        self.through(b"\r\n\r\n").await?;
        self.rest_in_chunks().await
    }

    /// The same behind the headers.
    pub async fn rest_in_chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = String::from_utf8(self.through(b"\r\n").await?).expect("text");
            let size = usize::from_str_radix(size.trim_end(), 16).expect("a size");
            while self.unread.len() < size + 2 {
                (self.read_more().await > 0).then_some(())?;
            }
            if size == 0 {
                return Some(body);
            }
            body.extend_from_slice(&self.unread[..size]);
            self.unread.drain(..size + 2);
        }
    }

    /// What comes up to and with `mark`; none when the connection ends before.
    pub async fn through(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        let mut searched = 0;
        loop {
            if let Some(place) = self.unread[searched..].windows(mark.len()).position(|part| part == mark) {
                return Some(self.unread.drain(..searched + place + mark.len()).collect());
            }
            searched = self.unread.len().saturating_sub(mark.len());
            (self.read_more().await > 0).then_some(())?;
        }
    }

    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        soon("a write", self.stream.write_all(bytes.as_ref())).await
    }

    /// The next answer, which says its length.
    pub async fn answer(&mut self) -> Answer {
        let head = self.through(b"\r\n\r\n").await.expect("an answer");
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
        // A connection that is cut ends like one that is closed.
        soon("more of an answer", self.stream.read_buf(&mut self.unread)).await.unwrap_or(0)
    }
}

/// A commit with this body.
pub fn commit_request(body: &str) -> String {
    format!("POST /v1/commits HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}
