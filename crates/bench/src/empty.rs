//! The minimal HTTP handler, in a process of its own: it reads the body of a commit and sends a response as long as the server's. The
//! server's rate is divided by its rate, to show what a commit costs beyond its request.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::cell::{Cell, Commits, Measured, run};
use crate::http;
use crate::server::{self, Connection};
use crate::workload::{Row, Writer, payloads};

/// The option that makes this program the handler; the address follows.
pub const OPTION: &str = "--empty-handler";

const ANSWER: &str = r#"{"commit_id":"019c0000-0000-7000-8000-000000000000","version":1,"events":[{"id":"019c0000-0000-7000-8000-000000000000","sequence_number":123456}],"duplicate":false,"reached":"logged"}"#;

/// Serves until it is killed.
pub async fn serve(address: &str) -> Result<(), String> {
    let commit = |body: Bytes| async move {
        let status = if body.is_empty() { StatusCode::BAD_REQUEST } else { StatusCode::CREATED };
        (status, [(header::CONTENT_TYPE, "application/json")], ANSWER)
    };
    let router = Router::new().route("/v1/commits", post(commit)).route("/health/ready", get(|| async {}));
    let listener = TcpListener::bind(address).await.map_err(|error| format!("{address}: {error}"))?;
    http::serve(listener, router).await.map_err(|error| error.to_string())
}

struct Request(Connection);

impl Commits for Request {
    async fn commit(&mut self) -> Result<(), String> {
        self.0.request().await.map(drop)
    }
}

/// Starts the handler and measures it.
pub async fn measure(row: &Row, cell: &Cell, folder: &Path) -> Result<Measured, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let command = |address: SocketAddr| {
        let mut command = Command::new(&program);
        command.args([OPTION, &address.to_string()]);
        command
    };
    server::beside(folder, command, async |address| {
        let payloads = Arc::new(payloads());
        let mut connections = Vec::new();
        for number in 0..row.writers {
            let writer = Writer::new(number, row);
            connections.push(Request(Connection::open(address, &payloads, writer, row.events).await?));
        }
        run(cell, connections).await
    })
    .await
}
