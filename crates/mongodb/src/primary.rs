//! Tracks whether the cluster has a primary, from the driver's own heartbeats, without any request. It serves diagnosis and readiness. It
//! does not decide the outcome of a request, except that requests fail early if the primary has been gone for long (`answers.rs`).

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annals_core::{Code, StoreError};
use annals_system::Instant;
use mongodb::bson::Document;
use mongodb::error::{Error, ErrorKind};
use mongodb::event::EventHandler;
use mongodb::event::sdam::SdamEvent;
use tokio::sync::watch;

use crate::refused::message_of;

/// The known state of the servers.
pub(crate) struct Primary {
    servers: Mutex<BTreeMap<String, Seen>>,
    /// Since when there has been no primary; `None` while there is one.
    gone: watch::Sender<Option<Instant>>,
}

impl Default for Primary {
    fn default() -> Self {
        Self { servers: Mutex::default(), gone: watch::Sender::new(Some(Instant::now())) }
    }
}

/// What a server reported last.
enum Seen {
    TakesWrites,
    /// What it is, if not a primary.
    Other(&'static str),
    /// Why it does not respond.
    Silent(String),
}

impl Primary {
    /// Returns the handler of the driver's monitoring events.
    pub(crate) fn handler(primary: &Arc<Self>) -> EventHandler<SdamEvent> {
        let primary = Arc::clone(primary);
        EventHandler::Callback(Arc::new(move |event| primary.hear(event)))
    }

    fn hear(&self, event: SdamEvent) {
        match event {
            SdamEvent::ServerHeartbeatSucceeded(heartbeat) => {
                self.note(heartbeat.server_address.to_string(), Some(seen(&heartbeat.reply)), Duration::ZERO);
            }
            SdamEvent::ServerHeartbeatFailed(heartbeat) => {
                let why = Seen::Silent(message_of(&heartbeat.failure));
                // The silence began with the request. A connection that broke was intact until then.
                let silence = if is_timeout(&heartbeat.failure) { heartbeat.duration } else { Duration::ZERO };
                self.note(heartbeat.server_address.to_string(), Some(why), silence);
            }
            SdamEvent::ServerClosed(server) => self.note(server.address.to_string(), None, Duration::ZERO),
            _ => {}
        }
    }

    /// Records the state of a server, which it has had for `already`; `None` removes a server.
    fn note(&self, address: String, seen: Option<Seen>, already: Duration) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        match seen {
            Some(seen) => drop(servers.insert(address, seen)),
            None => drop(servers.remove(&address)),
        }
        let there = servers.values().any(|server| matches!(server, Seen::TakesWrites));
        self.gone.send_if_modified(|gone| {
            let now = if there { None } else { gone.or_else(|| Instant::now().earlier_by(already)) };
            std::mem::replace(gone, now) != now
        });
    }

    /// Returns whether there has been no primary for this time.
    pub(crate) fn is_gone_for(&self, time: Duration) -> bool {
        self.gone.borrow().is_some_and(|since| since.elapsed() >= time)
    }

    /// Waits until there has been no primary for this time.
    pub(crate) async fn gone_for(&self, time: Duration) {
        let mut gone = self.gone.subscribe();
        loop {
            let since = *gone.borrow_and_update();
            let due = async {
                match since {
                    Some(since) => (since + time).comes().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => return,
                // The sender lives at least as long as this borrow.
                _ = gone.changed() => {}
            }
        }
    }

    /// Waits until there is a primary.
    pub(crate) async fn back(&self) {
        let mut gone = self.gone.subscribe();
        // The sender lives at least as long as this borrow.
        let _ = gone.wait_for(|gone| gone.is_none()).await;
    }

    /// Returns why a server does not respond; `None` if all respond.
    pub(crate) fn silence(&self) -> Option<String> {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.values().find_map(|server| match server {
            Seen::Silent(why) => Some(why.clone()),
            _ => None,
        })
    }

    /// Returns why nothing can be written; `None` while there is a primary.
    pub(crate) fn refusal(&self) -> Option<StoreError> {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if servers.values().any(|server| matches!(server, Seen::TakesWrites)) {
            return None;
        }
        let reasons: Vec<String> = servers
            .iter()
            .map(|(address, seen)| match seen {
                Seen::TakesWrites => format!("{address} is primary"),
                Seen::Other(what) => format!("{address} is {what}"),
                Seen::Silent(why) => format!("{address}: {why}"),
            })
            .collect();
        let none = || "no server has answered yet".to_owned();
        Some(no_primary(&if reasons.is_empty() { none() } else { reasons.join(", ") }))
    }
}

/// Returns the error for requests without a primary: nothing can be written or decided, and nothing of a commit was stored.
pub(crate) fn no_primary(why: &str) -> StoreError {
    let sentence =
        format!("no primary of the database answers ({why}); the store continues by itself once there is one");
    StoreError::other(Code::Unreachable, sentence)
}

fn is_timeout(failure: &Error) -> bool {
    matches!(&*failure.kind, ErrorKind::Io(error) if error.kind() == io::ErrorKind::TimedOut)
}

/// Interprets a server's response to `hello`; older servers call a primary master.
fn seen(hello: &Document) -> Seen {
    let is = |key: &str| hello.get_bool(key).unwrap_or(false);
    if is("isWritablePrimary") || is("ismaster") {
        Seen::TakesWrites
    } else if is("secondary") {
        Seen::Other("a secondary")
    } else if is("isreplicaset") {
        Seen::Other("a member of a replica set that is not initiated")
    } else {
        Seen::Other("starting or recovering")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;

    #[test]
    fn only_a_server_that_takes_writes_is_a_primary() {
        let primary = Primary::default();
        let say = |reply: Document| primary.note("a:1".to_owned(), Some(seen(&reply)), Duration::ZERO);
        let refusal = || primary.refusal().map(|why| why.to_string()).unwrap_or_default();
        assert!(refusal().contains("no server has answered"));
        say(doc! { "secondary": true, "isWritablePrimary": false });
        assert!(refusal().contains("a:1 is a secondary"), "{}", refusal());
        say(doc! { "isWritablePrimary": true });
        assert_eq!(refusal(), "");
        say(doc! { "isWritablePrimary": false, "isreplicaset": true });
        assert!(refusal().contains("not initiated"), "{}", refusal());
    }

    #[tokio::test]
    async fn it_is_known_since_when_there_is_no_primary() {
        let primary = Primary::default();
        let time = Duration::from_secs(10);
        let say = |seen: Seen, already: u64| primary.note("a:1".to_owned(), Some(seen), Duration::from_secs(already));
        say(Seen::TakesWrites, 0);
        primary.back().await;
        assert!(!primary.is_gone_for(Duration::ZERO));
        say(Seen::Other("a secondary"), 9);
        say(Seen::Other("starting or recovering"), 20);
        assert!(!primary.is_gone_for(time) && primary.is_gone_for(Duration::from_secs(9)), "the first news counts");
        say(Seen::TakesWrites, 0);
        say(Seen::Silent("timed out".to_owned()), 20);
        assert!(primary.is_gone_for(time), "it was silent before it was known to be");
        primary.gone_for(time).await;
    }
}
