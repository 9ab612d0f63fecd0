//! Measures the real server in a process of its own, over loopback: one persistent connection per writer, and the barest client that can
//! read the response. Client and server share the machine's cores.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use annals::{Client, ClientOptions, DEFAULT_SCOPE, DEFAULT_TENANT, EventLog};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::cell::{Cell, Commits, Measured, run};
use crate::library;
use crate::workload::{Row, Turn, Writer, payloads};

/// A writer's connection.
pub struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
    payloads: Arc<Vec<String>>,
    writer: Writer,
    events: usize,
    /// The header that sends a key, or nothing.
    authorization: String,
}

impl Connection {
    /// Connects a writer whose commits have this many events.
    pub async fn open(
        address: SocketAddr,
        payloads: &Arc<Vec<String>>,
        writer: Writer,
        events: usize,
    ) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (payloads, authorization) = (Arc::clone(payloads), String::new());
        Ok(Self { stream, request: Vec::new(), answer: Vec::new(), payloads, writer, events, authorization })
    }

    /// Adds a key to every request.
    pub fn with_key(self, key: &str) -> Self {
        Self { authorization: format!("authorization: Bearer {key}\r\n"), ..self }
    }

    /// Sends the next commit and reads its response, which is 201. Returns what was sent and the body.
    pub async fn request(&mut self) -> Result<(Turn, String), String> {
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
            "POST /v1/commits HTTP/1.1\r\nhost: 127.0.0.1\r\n{}content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.authorization,
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
        Ok((turn, text.into_owned()))
    }
}

impl Commits for Connection {
    async fn commit(&mut self) -> Result<(), String> {
        let (turn, text) = self.request().await?;
        let version =
            text.split_once(r#""version":"#).and_then(|(_, rest)| rest.split([',', '}']).next()?.parse().ok());
        let version = version.ok_or_else(|| format!("no version in {text}"))?;
        self.writer.committed(&turn, version, false)
    }
}

/// Reads one response with a content length. Returns its status and its body.
pub async fn answer<'a>(stream: &mut TcpStream, buffer: &'a mut Vec<u8>) -> Result<(u16, &'a [u8]), String> {
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
    beside(folder, |address| serve(program, folder, address), |address| measure_at(row, cell, address, None)).await
}

/// Does the same with a server that requires credentials, with a key in every request.
pub async fn measure_keyed(row: &Row, cell: &Cell, folder: &Path, program: &Path) -> Result<Measured, String> {
    let key = create_key(folder, program).await?;
    let command = |address: SocketAddr| {
        let mut command = Command::new(program);
        command.args(["serve", "--store", &store_in(folder), "--listen", &address.to_string()]);
        command.env("ANNALS__LOG__LEVEL", "warn");
        command
    };
    beside(folder, command, |address| measure_at(row, cell, address, Some(key))).await
}

/// Creates a store in `folder` with a key to it.
async fn create_key(folder: &Path, program: &Path) -> Result<String, String> {
    let mut create = Command::new(program);
    create.args(["credential", "create", "--store", &store_in(folder), "--output", "json"]);
    create.args(["--name", "bench", "--role", "writer"]);
    let created = create.output().await.map_err(|error| format!("{create:?} could not be started: {error}"))?;
    let created: serde_json::Value = serde_json::from_slice(&created.stdout)
        .map_err(|_| format!("{create:?}: {}", String::from_utf8_lossy(&created.stderr)))?;
    let key = created["key"].as_str().ok_or("a credential without a key")?;
    Ok(key.to_owned())
}

/// The certificates of the server's tests.
#[cfg(not(feature = "rivals"))]
const CERTIFICATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../server/tests/fixtures");
/// The same from the folder of the other manifest.
#[cfg(feature = "rivals")]
const CERTIFICATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../server/tests/fixtures");

/// Starts the server with TLS and measures it through one client that all writers share, with persistent connections.
pub async fn measure_tls(row: &Row, cell: &Cell, folder: &Path, program: &Path) -> Result<Measured, String> {
    let address = free_address().await.map_err(|error| error.to_string())?;
    let mut command = serve(program, folder, address);
    command.env("ANNALS__TLS__CERTIFICATE_FILE", format!("{CERTIFICATES}/server.pem"));
    command.env("ANNALS__TLS__KEY_FILE", format!("{CERTIFICATES}/server.key"));
    let mut server = start(command, folder)?;
    let mut options = ClientOptions::default();
    options.authorities = Some(format!("{CERTIFICATES}/ca.pem").into());
    let client = Client::with(&format!("https://{address}"), DEFAULT_TENANT, DEFAULT_SCOPE, &options);
    let log: Arc<dyn EventLog> = Arc::new(client.map_err(|error| error.to_string())?);
    let mut tries = 0;
    while let Err(error) = log.head().await {
        tries += 1;
        if tries == READY_TRIES {
            return Err(format!("the server at {address} was not ready in time: {error}"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let measured = run(cell, library::writers(&log, row)?).await;
    server.start_kill().map_err(|error| error.to_string())?;
    server.wait().await.map_err(|error| error.to_string())?;
    measured
}

/// Starts the server on a new store in `folder` and measures it through one client that all writers share.
pub async fn measure_client(row: &Row, cell: &Cell, folder: &Path, program: &Path) -> Result<Measured, String> {
    beside(
        folder,
        |address| serve(program, folder, address),
        async |address| {
            let client = Client::new(&format!("http://{address}"), DEFAULT_TENANT, DEFAULT_SCOPE);
            let log: Arc<dyn EventLog> = Arc::new(client.map_err(|error| error.to_string())?);
            run(cell, library::writers(&log, row)?).await
        },
    )
    .await
}

/// Starts a server and runs `work` beside it, once the server is ready.
pub async fn beside<T, F: Future<Output = Result<T, String>>>(
    folder: &Path,
    command: impl Fn(SocketAddr) -> Command,
    measure: impl FnOnce(SocketAddr) -> F,
) -> Result<T, String> {
    let address = free_address().await.map_err(|error| error.to_string())?;
    let mut server = start(command(address), folder)?;
    let measured = match until_ready(address).await {
        Ok(()) => measure(address).await,
        Err(error) => Err(error),
    };
    server.start_kill().map_err(|error| error.to_string())?;
    server.wait().await.map_err(|error| error.to_string())?;
    measured.map_err(|error| format!("{error}; the server's log is in its output above"))
}

async fn measure_at(row: &Row, cell: &Cell, address: SocketAddr, key: Option<String>) -> Result<Measured, String> {
    let payloads = Arc::new(payloads());
    let mut connections = Vec::new();
    for number in 0..row.writers {
        let connection = Connection::open(address, &payloads, Writer::new(number, row), row.events).await?;
        connections.push(match &key {
            Some(key) => connection.with_key(key),
            None => connection,
        });
    }
    run(cell, connections).await
}

async fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0").await?.local_addr()
}

fn store_in(folder: &Path) -> String {
    format!("embedded:{}", folder.join("store").display())
}

/// Returns the command of the server on a store in `folder`.
pub fn serve(program: &Path, folder: &Path, address: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command.args(["serve", "--dev", "--store", &store_in(folder), "--listen", &address.to_string()]);
    command.env("ANNALS__LOG__LEVEL", "warn");
    command
}

fn start(mut command: Command, folder: &Path) -> Result<Child, String> {
    // Its output matters only if it fails, and errors go to standard error.
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true).current_dir(folder);
    command.spawn().map_err(|error| format!("{command:?} could not be started: {error}"))
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

/// Returns the status with which the server reports whether it is ready.
pub async fn ready(address: SocketAddr) -> Result<u16, String> {
    let mut stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    get(&mut stream, "/health/ready").await
}

/// Gets a path over a persistent connection. Returns the status.
pub async fn get(stream: &mut TcpStream, path: &str) -> Result<u16, String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: */*\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    answer(stream, &mut Vec::new()).await.map(|(status, _)| status)
}
