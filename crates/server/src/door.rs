//! Accepts connections one at a time. Each enters once a place and a file descriptor are available for it.

use std::io;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use annals_system::sleep;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connections::Connections;
use crate::options::Options;

/// How often idle connections are looked for while a new connection waits for a place.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The share of the process's file descriptors that is reserved for the store's files, and its minimum.
const RESERVED_SHARE: u64 = 8;
const RESERVED_MIN: u64 = 64;

/// Raises this process's limit of open files to the maximum that the system allows; systems start programs with a limit far below it.
/// Returns the new limit, or `None` if there is no limit. It is meant for servers: a library should not change the limits of its process.
///
/// # Errors
/// Returns the error of the system. The limit is then unchanged.
pub fn raise_open_files() -> io::Result<Option<u64>> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised)?;
    Ok(limit.maximum)
}

/// The door of a server, which admits connections.
pub(crate) struct Door {
    connections: Connections,
    places: Arc<Semaphore>,
    /// A connection that was accepted and waits for a place.
    waits: Option<TcpStream>,
    /// The system assigns the lowest free descriptor, so a descriptor from this number on shows that this many files are open.
    reserved_from: u64,
}

impl Door {
    /// Creates the door of a server.
    pub fn new(options: &Options) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self {
            connections: options.connections.clone(),
            places: Arc::new(Semaphore::new(options.connections_max.min(Semaphore::MAX_PERMITS))),
            waits: None,
            reserved_from: limit.saturating_sub(RESERVED_MIN.max(limit / RESERVED_SHARE)),
        }
    }

    /// Returns the next connection, once there is a place for it. Cancel-safe: dropping the future loses no connection.
    pub async fn next(&mut self, listener: &TcpListener) -> (TcpStream, OwnedSemaphorePermit) {
        let stream = match self.waits.take() {
            Some(stream) => stream,
            None => self.accept(listener).await,
        };
        let descriptor = u64::try_from(stream.as_raw_fd()).unwrap_or(0);
        self.waits = Some(stream);
        if descriptor >= self.reserved_from {
            tracing::warn!(descriptor, "file descriptors are running out; raise the limit of open files");
            self.until_one_ends().await;
        }
        let place = self.place().await;
        match self.waits.take() {
            Some(stream) => (stream, place),
            // Unreachable: it was stored above, and nothing else takes it.
            None => std::future::pending().await,
        }
    }

    async fn place(&self) -> OwnedSemaphorePermit {
        let mut place = pin!(Arc::clone(&self.places).acquire_owned());
        loop {
            tokio::select! {
                biased;
                // The semaphore is never closed.
                Ok(place) = place.as_mut() => return place,
                () = std::future::ready(()) => self.connections.make_room(),
            }
            tokio::select! {
                biased;
                Ok(place) = place.as_mut() => return place,
                () = sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Waits until a connection ends, and closes idle ones meanwhile.
    async fn until_one_ends(&self) {
        while !self.connections.is_empty() {
            let ended = self.connections.ended();
            self.connections.make_room();
            tokio::select! {
                () = ended => return,
                () = sleep(LOOK_EVERY) => {}
            }
        }
    }

    async fn accept(&self, listener: &TcpListener) -> TcpStream {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(error) => {
                    // Most likely out of descriptors. Connections that end free some; retrying at once would not.
                    tracing::warn!(%error, "could not accept a connection");
                    if is_short(&error) {
                        self.connections.make_room();
                    }
                    sleep(LOOK_EVERY).await;
                }
            }
        }
    }
}

/// Returns whether the error means that the process or the machine has run out of descriptors.
fn is_short(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}
