//! A network that can be cut: a relay between a client and a server on this machine.

use std::net::SocketAddr;

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
    /// What the client sends arrives, and no answer comes back.
    OneWay,
    /// Connections stay, and nothing gets through. Those that are there are of no use afterwards.
    Silent,
    /// Every connection is broken, and no new one can be made.
    Cut,
}

/// A relay. It ends when it is dropped.
pub struct Proxy {
    pub address: SocketAddr,
    network: watch::Sender<Network>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A relay to the server on this port.
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (network, seen) = watch::channel(Network::Whole);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, port, seen.clone()));
            }
        });
        Self { address, network, task }
    }

    /// Connections that are not broken.
    pub fn connections(&self) -> usize {
        // Each has a receiver, and the task that takes new ones has one.
        self.network.receiver_count().saturating_sub(1)
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

async fn cut(network: &mut watch::Receiver<Network>) {
    let _ = network.wait_for(|network| *network == Network::Cut).await;
}

async fn relay(client: TcpStream, port: u16, mut network: watch::Receiver<Network>) {
    if *network.borrow() == Network::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let (requests, answers) = (network.clone(), network.clone());
    let there = async { pass(&mut from_client, &mut to_server, || *requests.borrow() != Network::Silent).await };
    let back = async { pass(&mut from_server, &mut to_client, || *answers.borrow() == Network::Whole).await };
    tokio::select! {
        _ = there => {}
        _ = back => {}
        () = cut(&mut network) => {}
    }
}

async fn pass(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    gets_through: impl Fn() -> bool,
) -> std::io::Result<()> {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut bytes).await?;
        if count == 0 {
            return Ok(());
        }
        if gets_through() {
            to.write_all(&bytes[..count]).await?;
        }
    }
}
