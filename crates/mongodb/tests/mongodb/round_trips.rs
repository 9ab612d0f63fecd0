//! What crosses the wire: how many commands a sweep of expired records takes, and in which sessions commands are sent.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annals_conformance::ManualClock;
use annals_core::bson::{DateTime, RawDocument, rawdoc};
use annals_core::{
    Aggregate, AggregateQuery, Clock, Collection, Condition, DEFAULT_TENANT, Index, KeyValue, NewCommit, RecordChange,
    Reserve, Store, Wait,
};
use annals_mongodb::{MongoStore, Options};
use annals_system::SystemClock;
use mongodb::bson::doc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::server::{Databases, Faults, log_of, order, until, url};

/// A command, and the collection that it is about.
type Command = (String, String);

/// What a relay has seen.
#[derive(Default)]
struct Seen {
    commands: Vec<Command>,
    /// The sessions of transactions, and those of all other commands.
    sessions: [BTreeSet<String>; 2],
}

/// A relay to the server that notes each command. It ends when it is dropped.
struct Counting {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Counting {
    async fn start() -> Self {
        let place = url();
        let to = place.trim_start_matches("mongodb://").split(['/', ',']).next().expect("a host").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let noted = seen.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&to).await else { continue };
                tokio::spawn(relay(client, server, noted.clone()));
            }
        });
        Self { address, seen, task }
    }

    async fn store(&self, databases: &Databases, options: Options) -> MongoStore {
        let url = format!("mongodb://{}/{}?directConnection=true", self.address, databases.name);
        MongoStore::open(&url, options).await.expect("the store opens")
    }

    /// The commands about these collections since it was asked last.
    fn about(&self, collections: &[&str]) -> Vec<Command> {
        let seen = std::mem::take(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner).commands);
        seen.into_iter().filter(|(_, collection)| collections.contains(&&**collection)).collect()
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(client: TcpStream, server: TcpStream, seen: Arc<Mutex<Seen>>) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let there = async {
        let mut message = Vec::new();
        while read_message(&mut from_client, &mut message).await.is_ok() {
            if let Some(body) = body_of(&message) {
                seen.lock().unwrap_or_else(PoisonError::into_inner).note(body);
            }
            if to_server.write_all(&message).await.is_err() {
                return;
            }
        }
    };
    let back = tokio::io::copy(&mut from_server, &mut to_client);
    tokio::select! {
        () = there => {}
        _ = back => {}
    }
}

/// Reads a message of MongoDB's protocol, which begins with its length.
async fn read_message(from: &mut (impl AsyncReadExt + Unpin), message: &mut Vec<u8>) -> std::io::Result<()> {
    let mut length = [0; 4];
    from.read_exact(&mut length).await?;
    message.clear();
    message.extend_from_slice(&length);
    message.resize(u32::from_le_bytes(length) as usize, 0);
    from.read_exact(&mut message[4..]).await.map(drop)
}

/// The body of an `OP_MSG`.
fn body_of(message: &[u8]) -> Option<&RawDocument> {
    const OP_MSG: u32 = 2013;
    /// The header, the flags, and the kind of the first section, which is the body in all that the driver sends.
    const BODY: usize = 16 + 4 + 1;
    let number = |at: usize| message.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    if number(12)? != OP_MSG || message.get(BODY - 1) != Some(&0) {
        return None;
    }
    RawDocument::from_bytes(message.get(BODY..BODY + number(BODY)? as usize)?).ok()
}

impl Seen {
    /// Notes a command: its first element is its name and the collection.
    fn note(&mut self, body: &RawDocument) {
        let Some(Ok((name, value))) = body.iter().next() else { return };
        self.commands.push((name.to_string(), value.as_str().unwrap_or_default().to_owned()));
        // Ending a session is no use of it.
        let Ok(Some(session)) = body.get("lsid") else { return };
        let of_transaction = matches!(body.get("autocommit"), Ok(Some(_)));
        self.sessions[usize::from(!of_transaction)].insert(format!("{session:?}"));
    }
}

const SESSIONS: &str = "sessions";
const EXPIRIES: &str = "annals-record-expiries";
const CHANGES: &str = "annals-record-changes";

/// The commands by which so many records that expired together are deleted and noted.
async fn commands_of_a_sweep(count: i32) -> Vec<Command> {
    let (databases, counting) = (Databases::new(), Counting::start().await);
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let store = counting.store(&databases, Options { clock: clock.clone(), ..Options::default() }).await;
    let records = store.records(DEFAULT_TENANT).expect("the tenant is declared");
    records
        .declare(Collection::new(SESSIONS).index(Index::on("until").expires_after_seconds(0)).with_feed())
        .await
        .expect("declared");
    // An hour from now, so that the server, whose clock goes on, leaves them to the store.
    let until_then = DateTime::from_millis(clock.now().as_millis() + 3_600_000);
    let session = |id| RecordChange::insert(SESSIONS, rawdoc! { "_id": id, "until": until_then });
    records.write((0..count).map(session).collect()).await.expect("written");
    let written = records.last_change(SESSIONS).await.expect("read");
    counting.about(&[]);
    clock.advance_millis(3_600_001);
    // These look at what is at majority, and with commands that are not counted.
    until("no record", async || records.count(SESSIONS, &Condition::All).await.is_ok_and(|count| count == 0)).await;
    until("every note", async || records.last_change(SESSIONS).await.is_ok_and(|last| last == written + count as u64))
        .await;
    let commands = counting.about(&[SESSIONS, EXPIRIES, CHANGES]);
    store.close().await;
    commands.into_iter().filter(|(name, _)| ["insert", "update", "delete"].contains(&&**name)).collect()
}

/// Inside the tenant's transaction every round trip makes all other writers of the tenant wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_expire_together_are_deleted_and_noted_by_one_command_each() {
    let due = [("delete", SESSIONS), ("delete", EXPIRIES), ("insert", CHANGES)];
    let due = due.map(|(name, collection)| (name.to_owned(), collection.to_owned()));
    for count in [1, 60] {
        assert_eq!(commands_of_a_sweep(count).await, due, "{count} records");
    }
}

/// A successor ends the sessions of a process that is gone; were one of them used for anything else as well, that would end too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_transactions_sends_no_other_command_also_when_transactions_are_given_up() {
    let (databases, counting) = (Databases::new(), Counting::start().await);
    let place = format!("mongodb://{}/{}?directConnection=true", counting.address, databases.name);
    let options = Options { outcome_time: Duration::from_millis(100), ..Options::default() };
    let store = MongoStore::open(&format!("{place}&appName={}", databases.name), options).await.expect("it opens");
    let log = log_of(&store);
    let commit = async |id: &str| {
        let key = Reserve::new("number", id, KeyValue::new(id).expect("a value"));
        let commit = NewCommit { wait: Wait::default(), ..order(id, 1) }.reserve(key);
        let done = log.commit(commit).await;
        // Other commands, for which the driver takes whatever session is there.
        let _ = log.read_aggregate(AggregateQuery::new(Aggregate::new("order", id))).await;
        done
    };
    commit("first").await.expect("committed");
    let faults = Faults::take().await;
    let slow = doc! {
        "failCommands": ["commitTransaction"], "blockConnection": true, "blockTimeMS": 400, "appName": &databases.name,
    };
    faults.set(1_000, slow).await;
    let mut given_up = 0;
    for n in 0..6 {
        given_up += u64::from(commit(&format!("slow-{n}")).await.is_err());
    }
    faults.end().await;
    assert!(given_up > 0, "the outcome of none is unknown");
    let mut tried = 0;
    until("commits again", async || {
        tried += 1;
        commit(&format!("again-{tried}")).await.is_ok()
    })
    .await;
    for n in 0..20 {
        let _ = commit(&format!("later-{n}")).await;
    }
    store.close().await;
    let seen = counting.seen.lock().unwrap_or_else(PoisonError::into_inner);
    let [transactions, others] = &seen.sessions;
    assert!(!transactions.is_empty() && !others.is_empty());
    let both: Vec<_> = transactions.intersection(others).collect();
    assert!(both.is_empty(), "{both:?} of {} and {}", transactions.len(), others.len());
}
