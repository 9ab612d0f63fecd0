//! Tephra's server through its blocking client, which reads faster than the asynchronous one.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tephra::{Position, Query, QueryItem};
use tephra_client::{Client, Event, SubEvent};
use tokio::sync::mpsc::UnboundedSender;

use super::{Reads, Remote};
use crate::corpus::{Commit, TAG};
use crate::served::Served;
use crate::tephra::tags;

/// The server and a connection to it.
#[derive(Clone)]
pub struct TephraServer {
    server: Arc<Served>,
    client: Arc<Mutex<Client>>,
}

impl TephraServer {
    fn ask<T>(&self, ask: impl FnOnce(&mut Client) -> Result<T, tephra_client::ClientError>) -> Result<T, String> {
        ask(&mut self.client.lock().unwrap_or_else(PoisonError::into_inner)).map_err(|error| error.to_string())
    }

    fn count(&self, query: Query) -> Result<usize, String> {
        self.ask(|client| {
            let mut events = 0;
            for event in client.read(query, Position::ZERO, None)? {
                std::hint::black_box(event?);
                events += 1;
            }
            Ok(events)
        })
    }

    fn count_tagged(&self, tag: &str) -> Result<usize, String> {
        self.count(Query::item(QueryItem::with_tags(tags([tag])?)))
    }
}

impl Reads for TephraServer {
    async fn append(&self, commit: Commit) -> Result<(), String> {
        let event = |(place, payload): (usize, &String)| {
            let tagged = (commit.tagged && place == 0).then_some(TAG);
            let tags = std::iter::once(commit.aggregate_id.as_str()).chain(tagged);
            Event::new("order_placed", tags, payload.as_bytes())
        };
        let events: Result<Vec<Event>, _> = commit.payloads.iter().enumerate().map(event).collect();
        let events = events.map_err(|error| error.to_string())?;
        self.ask(|client| client.append(events, None)).map(drop)
    }

    async fn read_all(&self) -> Result<usize, String> {
        self.count(Query::all())
    }

    async fn read_aggregate(&self, id: &str) -> Result<usize, String> {
        self.count_tagged(id)
    }

    async fn read_tagged(&self, tag: &str) -> Result<usize, String> {
        self.count_tagged(tag)
    }

    async fn follow(&self, events: usize, seen: UnboundedSender<Instant>) -> Result<(), String> {
        let head = self.ask(Client::stats)?.event_count;
        let address = self.server.address;
        let following = move || {
            let mut client = Client::connect(address).map_err(|error| error.to_string())?;
            let subscribed = client.subscribe(Query::all(), Position::new(head)).map_err(|error| error.to_string())?;
            let mut left = events;
            let mut in_place = false;
            for event in subscribed.0 {
                match event.map_err(|error| error.to_string())? {
                    SubEvent::CaughtUp(_) if in_place => continue,
                    SubEvent::CaughtUp(_) => in_place = true,
                    SubEvent::Event(_) => left -= 1,
                }
                seen.send(Instant::now()).map_err(|_| "nobody waits for the follower".to_owned())?;
                if left == 0 {
                    break;
                }
            }
            Ok(())
        };
        tokio::task::spawn_blocking(following).await.map_err(|error| error.to_string())?
    }
}

impl Remote for TephraServer {
    async fn start(folder: &Path, programs: &Path) -> Result<Self, String> {
        let server = crate::tephra_server::start(folder, programs).await?;
        let client = Client::connect(server.address).map_err(|error| error.to_string())?;
        let started = Self { server: Arc::new(server), client: Arc::new(Mutex::new(client)) };
        started.ask(Client::stats)?;
        Ok(started)
    }

    fn server(&self) -> Option<&Served> {
        Some(&self.server)
    }
}
