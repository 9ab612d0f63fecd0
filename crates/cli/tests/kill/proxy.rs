//! A network that can be cut and slow: a relay on loopback between a client and a server, which may be another server later.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use annals::{Clock, SystemClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Everything gets through.
    Whole,
    /// Everything gets through in small pieces.
    Slow,
    /// Every connection is broken, wherever an answer has come to, and no new one can be made.
    Cut,
}

/// A relay. It ends when it is dropped.
pub struct Proxy {
    pub address: SocketAddr,
    port: Arc<AtomicU16>,
    network: watch::Sender<Network>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A relay to the server on this port.
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (network, seen) = watch::channel(Network::Whole);
        let port = Arc::new(AtomicU16::new(port));
        let to = Arc::clone(&port);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, to.load(Ordering::Relaxed), seen.clone()));
            }
        });
        Self { address, port, network, task }
    }

    /// New connections lead to the server on this port.
    pub fn lead_to(&self, port: u16) {
        self.port.store(port, Ordering::Relaxed);
    }

    pub fn set(&self, network: Network) {
        self.network.send_replace(network);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.network.send_replace(Network::Cut);
    }
}

async fn relay(client: TcpStream, port: u16, mut network: watch::Receiver<Network>) {
    if *network.borrow() == Network::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        _ = pass(from_client, to_server, network.clone()) => {}
        _ = pass(from_server, to_client, network.clone()) => {}
        _ = network.wait_for(|network| *network == Network::Cut) => {}
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    network: watch::Receiver<Network>,
) -> std::io::Result<()> {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let slow = *network.borrow() == Network::Slow;
        let most = if slow { 200 } else { bytes.len() };
        let count = from.read(&mut bytes[..most]).await?;
        if count == 0 {
            return Ok(());
        }
        if slow {
            SystemClock.sleep(Duration::from_millis(2)).await;
        }
        to.write_all(&bytes[..count]).await?;
    }
}
