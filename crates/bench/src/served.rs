//! A server in a process of its own beside the benchmark.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

const READY_TRIES: u32 = 5_000;
const BETWEEN_TRIES: Duration = Duration::from_millis(2);

/// A server that is killed when this is dropped.
pub struct Served {
    /// The address it listens on.
    pub address: SocketAddr,
    process: Child,
}

impl Served {
    /// Starts in `folder` the command that `command` returns for a free address, and waits until it accepts connections.
    pub async fn start(folder: &Path, command: impl FnOnce(SocketAddr) -> Command) -> Result<Self, String> {
        let free = TcpListener::bind("127.0.0.1:0").await.and_then(|listener| listener.local_addr());
        let address = free.map_err(|error| error.to_string())?;
        let mut command = command(address);
        // Its output matters only if it fails, and errors go to standard error.
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true).current_dir(folder);
        let process =
            command.spawn().map_err(|error| format!("{:?} could not be started: {error}", command.as_std()))?;
        let mut served = Self { address, process };
        for _ in 0..READY_TRIES {
            if TcpStream::connect(address).await.is_ok() {
                return Ok(served);
            }
            if let Some(status) = served.process.try_wait().map_err(|error| error.to_string())? {
                return Err(format!("{:?} ended at once ({status}); what it says is above", command.as_std()));
            }
            tokio::time::sleep(BETWEEN_TRIES).await;
        }
        Err(format!("{:?} did not listen on {address} in time", command.as_std()))
    }

    /// Kills the server, and waits until it has ended.
    #[cfg(feature = "mongodb")]
    pub async fn stop(mut self) -> Result<(), String> {
        self.process.kill().await.map_err(|error| error.to_string())
    }

    /// Returns the id of its process.
    pub fn process_id(&self) -> Option<u32> {
        self.process.id()
    }
}
