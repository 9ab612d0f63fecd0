//! Whether the cluster has a primary, as the driver's own heartbeats say: nothing is asked for it. It is for people and for readiness; no
//! request is decided by it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::StoreError;
use mongodb::bson::Document;
use mongodb::event::EventHandler;
use mongodb::event::sdam::SdamEvent;

/// What is known of the servers.
#[derive(Default)]
pub(crate) struct Primary {
    servers: Mutex<BTreeMap<String, Seen>>,
}

/// What a server said last.
enum Seen {
    TakesWrites,
    /// What it is instead.
    Other(&'static str),
    /// Why it does not answer.
    Silent(String),
}

impl Primary {
    /// What the driver tells its news to.
    pub(crate) fn handler(primary: &Arc<Self>) -> EventHandler<SdamEvent> {
        let primary = Arc::clone(primary);
        EventHandler::Callback(Arc::new(move |event| primary.hear(event)))
    }

    fn hear(&self, event: SdamEvent) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            SdamEvent::ServerHeartbeatSucceeded(heartbeat) => {
                servers.insert(heartbeat.server_address.to_string(), seen(&heartbeat.reply));
            }
            SdamEvent::ServerHeartbeatFailed(heartbeat) => {
                let why = heartbeat.failure.kind.to_string();
                servers.insert(heartbeat.server_address.to_string(), Seen::Silent(why));
            }
            SdamEvent::ServerClosed(server) => drop(servers.remove(&server.address.to_string())),
            _ => {}
        }
    }

    /// Why nothing can be written; none while a server takes writes.
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
        Some(StoreError::NoPrimary(if reasons.is_empty() { none() } else { reasons.join(", ") }))
    }
}

/// What a server's answer to `hello` says; older servers call a primary master.
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
        let say = |reply: Document| drop(primary.servers.lock().expect("free").insert("a:1".to_owned(), seen(&reply)));
        let refusal = || primary.refusal().map(|why| why.to_string()).unwrap_or_default();
        assert!(refusal().contains("no server has answered"));
        say(doc! { "secondary": true, "isWritablePrimary": false });
        assert!(refusal().contains("a:1 is a secondary"), "{}", refusal());
        say(doc! { "isWritablePrimary": true });
        assert_eq!(refusal(), "");
        say(doc! { "isWritablePrimary": false, "isreplicaset": true });
        assert!(refusal().contains("not initiated"), "{}", refusal());
    }
}
