//! The door: connections are accepted one at a time, and enter once there is a place and a descriptor for them.

use std::io;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use crate::connections::Connections;
use crate::options::Options;

/// How often idle connections are looked for while a new one waits for a place.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The share of the process's descriptors that no connection takes, so that the store can open its files, and at least so many.
const RESERVED_SHARE: u64 = 8;
const RESERVED_MIN: u64 = 64;

/// Lets this process open as many files as it may: systems start programs with a limit that is far below what they allow. Answers the
/// limit; none is no limit. For programs that serve; a library leaves the limits of its process alone.
///
/// # Errors
/// What the system says; the limit is what it was then.
pub fn raise_open_files() -> io::Result<Option<u64>> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised)?;
    Ok(limit.maximum)
}

/// Where connections enter.
pub(crate) struct Door {
    connections: Connections,
    places: Arc<Semaphore>,
    /// Accepted, and without a place.
    waits: Option<TcpStream>,
    /// The system gives the lowest number that is free: one from here on says that so many files are open.
    reserved_from: u64,
}

impl Door {
    /// The door of a server.
    pub fn new(options: &Options) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self {
            connections: options.connections.clone(),
            places: Arc::new(Semaphore::new(options.connections_max.min(Semaphore::MAX_PERMITS))),
            waits: None,
            reserved_from: limit.saturating_sub(RESERVED_MIN.max(limit / RESERVED_SHARE)),
        }
    }

    /// The next connection, once there is a place for it. Dropping the future loses none.
    pub async fn next(&mut self, listener: &TcpListener) -> (TcpStream, OwnedSemaphorePermit) {
        let stream = match self.waits.take() {
            Some(stream) => stream,
            None => self.accept(listener).await,
        };
        let descriptor = u64::try_from(stream.as_raw_fd()).unwrap_or(0);
        self.waits = Some(stream);
        if descriptor >= self.reserved_from {
            tracing::warn!(descriptor, "descriptors run short; raise the limit of open files");
            self.until_one_ends().await;
        }
        let place = self.place().await;
        match self.waits.take() {
            Some(stream) => (stream, place),
            // It was put there above, and nobody else takes it.
            None => std::future::pending().await,
        }
    }

    async fn place(&self) -> OwnedSemaphorePermit {
        let mut place = pin!(Arc::clone(&self.places).acquire_owned());
        loop {
            tokio::select! {
                biased;
                // Nobody closes the semaphore.
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

    /// Waits until a connection ends, and lets those go that say nothing.
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
                    // Out of descriptors, most likely: connections that end make room, and asking again at once would not.
                    tracing::warn!(%error, "a connection could not be accepted");
                    if is_short(&error) {
                        self.connections.make_room();
                    }
                    sleep(LOOK_EVERY).await;
                }
            }
        }
    }
}

/// Whether the process or the machine has no descriptor left.
fn is_short(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}
