//! The real server in a process of its own, over loopback: one connection per writer, kept alive, and the barest client that can
//! read the answer. Client and server share the machine's cores.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::cell::{Cell, Commits, Measured, run};
use crate::workload::{Row, Writer, payloads};

struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
    payloads: Arc<Vec<String>>,
    writer: Writer,
    events: usize,
}

impl Commits for Connection {
    async fn commit(&mut self) -> Result<(), String> {
        let turn = self.writer.turn();
        let mut body = format!(
            r#"{{"aggregate":{{"name":"order","id":"{}"}},"expected_version":{},"request_id":"{}","events":["#,
            turn.aggregate_id, turn.expected_version, turn.request_id
        );
        for offset in 0..self.events {
            if offset > 0 {
                body.push(',');
            }
            body.push_str(r#"{"type":"order_placed","data":"#);
            body.push_str(&self.payloads[(turn.payload + offset) % self.payloads.len()]);
            body.push('}');
        }
        body.push_str("]}");
        self.request.clear();
        let head = format!(
            "POST /v1/commits HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.request.extend_from_slice(head.as_bytes());
        self.request.extend_from_slice(body.as_bytes());
        self.stream.write_all(&self.request).await.map_err(|error| format!("writing the request: {error}"))?;
        let (status, body) = answer(&mut self.stream, &mut self.answer).await?;
        let text = String::from_utf8_lossy(body);
        if status != 201 {
            return Err(format!("answered {status}: {text}"));
        }
        let version =
            text.split_once(r#""version":"#).and_then(|(_, rest)| rest.split([',', '}']).next()?.parse().ok());
        let version = version.ok_or_else(|| format!("no version in {text}"))?;
        self.writer.committed(&turn, version, false)
    }
}

/// Reads one answer with a content length: its status and its body.
async fn answer<'a>(stream: &mut TcpStream, buffer: &'a mut Vec<u8>) -> Result<(u16, &'a [u8]), String> {
    buffer.clear();
    loop {
        if let Some(head) = buffer.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4) {
            let (status, length) = head_of(&buffer[..head])?;
            if buffer.len() >= head + length {
                return Ok((status, &buffer[head..head + length]));
            }
        }
        let read = stream.read_buf(buffer).await.map_err(|error| format!("reading the answer: {error}"))?;
        if read == 0 {
            return Err(format!("the server closed the connection after {:?}", String::from_utf8_lossy(buffer)));
        }
    }
}

fn head_of(head: &[u8]) -> Result<(u16, usize), String> {
    let text = std::str::from_utf8(head).map_err(|error| error.to_string())?.to_ascii_lowercase();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    status.zip(length).ok_or_else(|| format!("an answer without status or length: {text}"))
}

/// Starts the server on a new store in `folder` and measures it.
pub async fn measure(row: &Row, cell: &Cell, folder: &Path, program: &Path) -> Result<Measured, String> {
    let address = free_address().await.map_err(|error| error.to_string())?;
    let mut server = start(program, folder, address)?;
    let measured = measure_at(row, cell, address).await;
    server.start_kill().map_err(|error| error.to_string())?;
    server.wait().await.map_err(|error| error.to_string())?;
    measured.map_err(|error| format!("{error}; the server's log is in its output above"))
}

async fn measure_at(row: &Row, cell: &Cell, address: SocketAddr) -> Result<Measured, String> {
    until_ready(address).await?;
    let payloads = Arc::new(payloads());
    let mut connections = Vec::new();
    for number in 0..row.writers {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        connections.push(Connection {
            stream,
            request: Vec::new(),
            answer: Vec::new(),
            payloads: Arc::clone(&payloads),
            writer: Writer::new(number, row),
            events: row.events,
        });
    }
    run(cell, connections).await
}

async fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0").await?.local_addr()
}

fn start(program: &Path, folder: &Path, address: SocketAddr) -> Result<Child, String> {
    let store = format!("embedded:{}", folder.join("store").display());
    let mut command = Command::new(program);
    command.args(["serve", "--dev", "--store", &store, "--listen", &address.to_string()]);
    // What it says is of no interest unless it fails, and errors go to standard error.
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true).current_dir(folder);
    command.env("ANNALS__LOG__LEVEL", "warn");
    command.spawn().map_err(|error| format!("{} could not be started: {error}", program.display()))
}

const READY_TRIES: u32 = 500;

async fn until_ready(address: SocketAddr) -> Result<(), String> {
    for _ in 0..READY_TRIES {
        if ready(address).await.is_ok_and(|status| status == 200) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(format!("the server at {address} was not ready in time"))
}

async fn ready(address: SocketAddr) -> Result<u16, String> {
    let mut stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let request = b"GET /health/ready HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    stream.write_all(request).await.map_err(|error| error.to_string())?;
    answer(&mut stream, &mut Vec::new()).await.map(|(status, _)| status)
}
