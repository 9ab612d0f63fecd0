//! Waits for room among the unread bytes of the server. A task that reads for a client, such as a follower, waits here before it reads.

use std::time::Duration;

use tokio::time::timeout;

use crate::connections::Connections;
use crate::options::Options;
use crate::unread::{HeldBytes, Unread};

/// How often clients that do not read are disconnected while a task waits for room.
const PRESS_EVERY: Duration = Duration::from_secs(1);

/// The room for everything that is read for clients, among the unread bytes of the server.
#[derive(Clone)]
pub(crate) struct Room {
    unread: Unread,
    max: usize,
    connections: Connections,
    press_every: Duration,
}

impl Room {
    /// Returns the room of a server with these options.
    pub fn of(options: &Options) -> Self {
        Self {
            unread: options.unread.clone(),
            max: options.answer_bytes_in_flight_max,
            connections: options.connections.clone(),
            press_every: PRESS_EVERY,
        }
    }

    /// Waits until there is room, and disconnects clients that do not read until then. It can be cancelled without loss.
    pub async fn open(&self) {
        while timeout(self.press_every, self.unread.room(self.max)).await.is_err() {
            self.connections.press();
        }
    }

    /// Waits as [`open`](Self::open) does, and counts these bytes as unread, even if they exceed the room.
    pub async fn reserve(&self, bytes: usize) -> HeldBytes {
        loop {
            match timeout(self.press_every, self.unread.hold_in_room(self.max, bytes)).await {
                Ok(held) => return held,
                Err(_) => self.connections.press(),
            }
        }
    }

    /// Counts bytes as unread if there is room for them.
    pub fn hold_below(&self, bytes: usize) -> Option<HeldBytes> {
        self.unread.hold_below(self.max, bytes)
    }

    /// Counts bytes as unread, whether or not there is room for them.
    pub fn hold(&self, bytes: usize) -> HeldBytes {
        self.unread.hold(bytes)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_task_that_waits_for_room_presses_clients_that_do_not_read_until_there_is_some() {
        let options = Options { answer_bytes_in_flight_max: 100, ..Options::default() };
        let room = Room { press_every: Duration::from_millis(1), ..Room::of(&options) };
        let others = room.hold(100);
        for _ in 0..2 {
            tokio::select! {
                biased;
                () = options.connections.pressed() => {}
                () = room.open() => panic!("there is no room"),
            }
            tokio::select! {
                biased;
                () = options.connections.pressed() => {}
                _ = room.reserve(1) => panic!("there is no room"),
            }
        }
        drop(others);
        assert!(room.open().now_or_never().is_some());
        let held = room.reserve(150).now_or_never().expect("room for one that is too large alone");
        assert_eq!(options.unread.bytes(), 150);
        drop(held);
        assert_eq!(options.unread.bytes(), 0);
    }
}
