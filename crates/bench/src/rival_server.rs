//! Running a rival's server beside the benchmark.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

const READY_TRIES: u32 = 500;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// A server that ends when this is dropped.
pub struct RivalServer {
    /// Where it listens.
    pub address: SocketAddr,
    // Killed when dropped.
    _process: Child,
}

impl RivalServer {
    /// Starts the program of this name out of `programs` in `folder`, with the words that follow from its address, and waits until it
    /// takes connections.
    pub async fn start(
        programs: &Path,
        name: &str,
        folder: &Path,
        words: impl FnOnce(SocketAddr) -> Vec<String>,
    ) -> Result<Self, String> {
        let program = programs.join(name);
        let free = TcpListener::bind("127.0.0.1:0").await.and_then(|listener| listener.local_addr());
        let address = free.map_err(|error| error.to_string())?;
        let mut command = Command::new(&program);
        // What it says is of no interest unless it fails, and errors go to standard error.
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true).current_dir(folder);
        let mut process = command
            .args(words(address))
            .spawn()
            .map_err(|error| format!("{} could not be started: {error}", program.display()))?;
        for _ in 0..READY_TRIES {
            if TcpStream::connect(address).await.is_ok() {
                return Ok(Self { address, _process: process });
            }
            if let Some(status) = process.try_wait().map_err(|error| error.to_string())? {
                return Err(format!("{name} ended at once ({status}); what it says is above"));
            }
            tokio::time::sleep(BETWEEN_TRIES).await;
        }
        Err(format!("{name} did not listen on {address} in time"))
    }
}
