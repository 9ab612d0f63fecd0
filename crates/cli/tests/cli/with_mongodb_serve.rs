//! `annals serve` on a MongoDB, which these tests reach through a proxy of their own, so that they can take it away. The name of this
//! file leaves it out where there is no MongoDB: see CONTRIBUTING.md.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use serde_json::Value;

use crate::process::{Server, annals};
use crate::run::{folder, run};

/// `host:port` of the MongoDB.
pub fn server() -> String {
    let url = std::env::var("ANNALS_TEST_MONGODB").expect("ANNALS_TEST_MONGODB names a MongoDB: cargo xtask services");
    let place = url.strip_prefix("mongodb://").expect("a mongodb:// URL");
    place.split(['/', ',', '?']).next().expect("a host").to_owned()
}

/// A way to the server that can be cut and mended.
struct Proxy {
    port: u16,
    to: String,
    /// Open connections, while it listens.
    open: Arc<Mutex<Option<Vec<TcpStream>>>>,
    /// Connections stay, and nothing gets through any more.
    silent: Arc<AtomicBool>,
}

impl Proxy {
    /// One that lets nobody through yet.
    fn closed(to: String) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
        Self { port, to, open: Arc::default(), silent: Arc::default() }
    }

    fn open(&self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).expect("the port is free");
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
        let (open, silent, to) = (Arc::clone(&self.open), Arc::clone(&self.silent), self.to.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) =
                    (client.expect("accepted"), TcpStream::connect(&to).expect("the server is there"));
                let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(connections) = &mut *open else { return };
                connections.extend([client.try_clone().expect("cloned"), server.try_clone().expect("cloned")]);
                let (from, to) = (client.try_clone().expect("cloned"), server.try_clone().expect("cloned"));
                pipe(from, to, Arc::clone(&silent));
                pipe(server, client, Arc::clone(&silent));
            }
        });
    }

    /// Breaks every connection and refuses new ones.
    fn cut(&self) {
        let connections = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        connections.into_iter().flatten().for_each(|connection| drop(connection.shutdown(Shutdown::Both)));
        // Wakes the listener, which ends.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        until("the port closed", || TcpStream::connect(("127.0.0.1", self.port)).is_err());
    }

    fn url(&self, database: &str) -> String {
        let options = "directConnection=true&serverSelectionTimeoutMS=1000&connectTimeoutMS=1000";
        format!("mongodb://127.0.0.1:{}/{database}?{options}", self.port)
    }
}

fn pipe(mut from: TcpStream, mut to: TcpStream, silent: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count) = from.read(&mut bytes) {
            let passed = count > 0 && (silent.load(Ordering::SeqCst) || to.write_all(&bytes[..count]).is_ok());
            if !passed {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

#[expect(clippy::disallowed_methods, reason = "a deadline of the test")]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what} was due");
        // tidy: allow(pause) between two looks
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The name of a database of a test's own, which is dropped with this value, and with it those whose names only go on from there.
pub struct Database(pub String);

impl Database {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Self(format!("annals_test_cli_{}_{}_", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let url = format!("mongodb://{}/?directConnection=true", server());
            let client = mongodb::Client::with_uri_str(url).await.expect("a client");
            let names = client.list_database_names().await.unwrap_or_default();
            for name in names.iter().filter(|name| name.starts_with(&self.0)) {
                let _ = client.database(name).drop().await;
            }
        });
    }
}

/// Serves the store at `url`.
pub fn serve(folder: &Path, url: &str) -> Server {
    let mut command = annals(folder);
    command.env("ANNALS__STORE__URL", url).args(["serve", "--dev", "--listen", "127.0.0.1:0"]);
    Server::of(command)
}

/// A GET: the status, and the body as JSON.
pub fn get(server: &Server, path: &str) -> (u16, Value) {
    let address = server.url.strip_prefix("http://").expect("a URL");
    let mut stream = TcpStream::connect(address).expect("it is alive");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, serde_json::from_str(body).expect(body))
}

fn is_ready(server: &Server) -> bool {
    get(server, "/health/ready").0 == 200
}

fn commit(folder: &Path, server: &Server, id: &str) -> crate::run::Ran {
    let aggregate = format!("order/{id}");
    let arguments = ["--aggregate", &aggregate, "--type", "order_placed", "--wait", "logged"];
    run(folder, &[&["commit", "--server", &server.url], &arguments[..]].concat())
}

#[test]
fn a_server_stays_alive_without_a_primary_and_is_ready_once_there_is_one() {
    let to = server();
    let (folder, proxy, database) = (folder(), Proxy::closed(to), Database::new());
    let server = serve(folder.path(), &proxy.url(&database.0));
    assert_eq!(get(&server, "/health/live"), (200, serde_json::json!({ "status": "live" })));
    let refused = || get(&server, "/health/ready").1["detail"].as_str().unwrap_or_default().to_owned();
    until("a reason", || refused().contains("refused"));
    assert!(refused().contains(&proxy.port.to_string()), "{}", refused());
    let (status, problem) = get(&server, "/v1/log");
    assert_eq!((status, problem["code"].as_str()), (503, Some("not_ready")));
    commit(folder.path(), &server, "o-1").refused("unreachable", 5);

    proxy.open();
    until("a ready server", || is_ready(&server));
    commit(folder.path(), &server, "o-1").ok();
    let sequencer = get(&server, "/v1/sequencer").1;
    assert!(sequencer["head"] == 1 && sequencer["held"] == 0, "{sequencer}");
    until("a leader", || get(&server, "/v1/sequencer").1["leader"]["here"] == true);

    proxy.cut();
    until("a server that is not ready", || !is_ready(&server));
    let (_, problem) = get(&server, "/health/ready");
    assert_eq!(problem["logs"][0]["refusing"]["code"], "unreachable", "{problem}");
    assert_eq!(get(&server, "/health/live").0, 200);
    proxy.open();
    until("a server that is ready again", || is_ready(&server));
    commit(folder.path(), &server, "o-2").ok();
    assert_eq!(run(folder.path(), &["log", "read", "--server", &server.url]).ok().json().len(), 2);

    proxy.cut();
    #[expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
    let asked = std::time::Instant::now();
    assert_eq!(server.terminate(), Some(0), "it stops in order without a primary too");
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
}

/// The one sentence of an unreachable MongoDB, and the advice.
#[track_caller]
fn is_one_sentence(what: &str, said: &str, names: &str) {
    let lines: Vec<&str> = said.trim_end().lines().collect();
    let [error, help] = lines[..] else { panic!("{what}: {said}") };
    assert!(error.starts_with("error[unreachable]: ") && help.starts_with("help: "), "{what}: {said}");
    assert!(error.contains(names), "{what} does not name {names}: {said}");
    for word in ["Custom user error", "Topology", "ServerDescription", "Some(", "kind:", "{"] {
        assert!(!error.contains(word), "{what} has {word:?}: {said}");
    }
}

#[test]
fn a_mongod_that_is_stopped_is_told_in_one_sentence_without_the_driver_s_state() {
    let (folder, proxy, database) = (folder(), Proxy::closed(server()), Database::new());
    let url = proxy.url(&database.0);
    let port = proxy.port.to_string();
    let commands: [&[&str]; 5] = [
        &["log", "read"],
        &["commit", "--aggregate", "order/o-1", "--type", "order_placed"],
        &["record", "list"],
        &["sequencer"],
        &["held", "list"],
    ];
    for command in commands {
        let said = run(folder.path(), &[command, &["--store", &url][..]].concat()).refused("unreachable", 5);
        is_one_sentence(&command.join(" "), &said, &port);
    }
    proxy.open();
    let server = serve(folder.path(), &url);
    until("a ready server", || is_ready(&server));
    proxy.cut();
    until("a server that is not ready", || !is_ready(&server));
    for command in commands {
        let ran = run(folder.path(), &[command, &["--server", &server.url][..]].concat());
        if ran.code != 0 {
            is_one_sentence(&format!("{} of a server", command.join(" ")), &ran.refused("unreachable", 5), "");
        }
    }
}

/// MongoDB hangs: connections to it stay, and it says nothing more. Requests are under way, of which nobody knows what becomes.
#[test]
fn a_server_stops_within_ten_seconds_while_its_database_is_silent() {
    let (folder, proxy, database) = (folder(), Proxy::closed(server()), Database::new());
    proxy.open();
    let server = serve(folder.path(), &proxy.url(&database.0));
    until("a ready server", || is_ready(&server));
    commit(folder.path(), &server, "o-1").ok();
    proxy.silent.store(true, Ordering::SeqCst);
    let address = server.url.strip_prefix("http://").expect("a URL").to_owned();
    let body = r#"{"aggregate":{"name":"order","id":"o-2"},"events":[{"type":"order_placed","data":{}}]}"#;
    let mut under_way = TcpStream::connect(&address).expect("it is alive");
    let length = body.len();
    write!(under_way, "POST /v1/commits HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n{body}")
        .expect("written");
    // Behind it in line, so it has been taken by then.
    assert_eq!(get(&server, "/health/live").0, 200);
    #[expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
    let asked = std::time::Instant::now();
    assert_eq!(server.terminate(), Some(0), "it stops in order");
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    proxy.cut();
}

#[test]
fn scopes_of_a_store_on_mongodb_are_read() {
    let (folder, database) = (folder(), Database::new());
    let url = format!("mongodb://{}/{}?directConnection=true", server(), database.0);
    let scope = "0a1b2c3d-0000-4000-8000-00000000abcd";
    let text = format!("[store]\nurl = \"{url}\"\n[tenants]\nscopes = [\"{scope}\"]\n");
    std::fs::write(folder.path().join("annals.toml"), text).expect("written");
    let mut command = annals(folder.path());
    command.args(["serve", "--dev", "--listen", "127.0.0.1:0"]);
    let server = Server::of(command);
    until("a ready server", || is_ready(&server));
    commit(folder.path(), &server, "o-1").ok();
    let (status, page) = get(&server, &format!("/v1/log?scope={scope}"));
    assert_eq!((status, &page["head"]), (200, &0.into()), "{page}");
    assert_eq!(get(&server, &format!("/v1/stats?scope={scope}")).1["events"], 0);
    assert_eq!(get(&server, "/v1/log?scope=elsewhere").1["code"], "unknown_scope");
    let ready = get(&server, "/health/ready").1;
    let scopes: Vec<_> = ready["logs"].as_array().expect("logs").iter().map(|log| log["scope"].clone()).collect();
    assert_eq!(scopes, ["default", scope], "{ready}");
}

#[test]
fn a_server_that_waits_for_its_database_stops_when_it_is_told() {
    let folder = folder();
    let server = serve(folder.path(), "mongodb://eva:s3cr3t@127.0.0.1:1/shop?serverSelectionTimeoutMS=500");
    until("a reason", || get(&server, "/health/ready").1.to_string().contains("127.0.0.1:1"));
    assert!(!get(&server, "/health/ready").1.to_string().contains("s3cr3t"));
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn what_cannot_be_served_is_refused_at_once() {
    let folder = folder();
    let serve = |url: &str| run(folder.path(), &["serve", "--dev", "--listen", "127.0.0.1:0", "--store", url]);
    for (url, says) in [
        ("mongodb:shop", "mongodb://HOST/DATABASE"),
        ("mongodb://eva:s3/cr3t@127.0.0.1:1/shop", "cannot be read"),
        ("mongodb://127.0.0.1:1/shop?w=1", "w=majority"),
    ] {
        let said = serve(url).refused("invalid_config", 2);
        assert!(said.contains(says) && !said.contains("cr3t"), "{url}: {said}");
    }
    let to = server();
    let said = serve(&format!("mongodb://{to}/?directConnection=true")).refused("invalid_config", 2);
    assert!(said.contains("last slash"), "{said}");
}

const TENANT: &str = "445f8ea8-1a6f-40d7-b2fc-796dba92dc44";

#[test]
fn a_microservice_s_tenants_have_their_own_databases() {
    let to = server();
    let (folder, database) = (folder(), Database::new());
    let base = &database.0;
    std::fs::create_dir(folder.path().join(".dolittle")).expect("created");
    let resources = format!(r#"{{"{TENANT}": {{"eventStore": {{"servers": ["{to}"], "database": "{base}_a"}}}}}}"#);
    std::fs::write(folder.path().join(".dolittle/resources.json"), resources).expect("written");
    let url = format!("mongodb://eva:s3cr3t@{to}/?directConnection=true");
    let text =
        format!("[store]\nurl = \"{}\"\n[tenants]\ndolittle_folder = \".dolittle\"\n", url.replace("eva:s3cr3t@", ""));
    std::fs::write(folder.path().join("annals.toml"), text).expect("written");
    let one = ["commit", "--tenant", TENANT, "--aggregate", "order/o-1", "--type", "order_placed", "--wait", "logged"];
    run(folder.path(), &one).ok();
    assert_eq!(run(folder.path(), &["log", "read", "--tenant", TENANT]).ok().json().len(), 1);
    let said = run(folder.path(), &["log", "read"]).refused("unknown_tenant", 4);
    assert!(said.contains("default"), "{said}");
    let shown = run(folder.path(), &["config", "show", "--store", &url]).ok().out;
    assert!(shown.contains(TENANT) && shown.contains(&format!("{base}_a")) && !shown.contains("s3cr3t"), "{shown}");

    let text =
        format!("[store]\nurl = \"mongodb://{to}/{base}_a?directConnection=true\"\n[tenants]\nnames = [\"default\"]\n");
    std::fs::write(folder.path().join("other.toml"), format!("{text}dolittle_folder = \".dolittle\"\n"))
        .expect("written");
    let said = run(folder.path(), &["log", "read", "--config", "other.toml"]).refused("invalid_config", 2);
    assert!(said.contains("share database"), "{said}");
}

#[test]
fn held_commits_are_asked_for_on_the_command_line() {
    let to = server();
    let folder = folder();
    let database = Database::new();
    let url = format!("mongodb://{to}/{}?directConnection=true", database.0);
    let one = ["commit", "--aggregate", "order/o-1", "--type", "order_placed", "--wait", "logged"];
    run(folder.path(), &[&one, &["--store", &url][..]].concat()).ok();
    assert_eq!(run(folder.path(), &["held", "list", "--store", &url]).ok().out, "");
    run(folder.path(), &["held", "retry", "order_event_stream", "x", "--store", &url])
        .refused("unknown_held_commit", 4);
    let server = serve(folder.path(), &url);
    let state = run(folder.path(), &["sequencer", "--server", &server.url]).ok().json();
    assert_eq!((&state[0]["head"], &state[0]["held"]), (&1.into(), &0.into()), "{state:?}");
    let arguments = ["held", "accept", "order_event_stream", "x", "--server", &server.url];
    run(folder.path(), &arguments).refused("unknown_held_commit", 4);
    run(folder.path(), &["held", "list"]).refused("not_a_store", 6);
    run(folder.path(), &["commit", "--aggregate", "order/o-1", "--type", "order_placed"]).ok();
    run(folder.path(), &["held", "list"]).refused("not_supported_by_store", 2);
    let quiet = annals(folder.path()).args(["sequencer", "--store", &url]).stdout(Stdio::null()).status();
    assert!(quiet.expect("it runs").success());
}

/// What a finding about held commits of the default tenant is about.
const HELD: &str = "log default/default";

/// Stores a document that is no commit where commits are.
fn insert_malformed(database: &Database) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let url = format!("mongodb://{}/?directConnection=true", server());
        let client = mongodb::Client::with_uri_str(url).await.expect("a client");
        let commits = client.database(&database.0).collection::<Document>("order_event_stream");
        commits.insert_one(doc! { "_id": "broken", "aggregateId": "o-9" }).await.expect("inserted");
    });
}

#[test]
fn the_doctor_finds_a_mongod_that_is_gone_and_held_commits_and_names_what_it_examined() {
    let (folder, proxy, database) = (folder(), Proxy::closed(server()), Database::new());
    let url = proxy.url(&database.0);
    let doctor = |arguments: &[&str]| {
        let ran = run(folder.path(), &[&["doctor"][..], arguments].concat());
        (ran.code, ran.json().pop().unwrap_or_default())
    };
    let (code, gone) = doctor(&["--store", &url]);
    let found = &gone["findings"][0];
    assert_eq!((code, found["severity"].as_str()), (6, Some("critical")), "{gone}");
    assert!(found["what"].as_str().is_some_and(|what| what.contains(&proxy.port.to_string())), "{found}");

    proxy.open();
    let server = serve(folder.path(), &url);
    until("a ready server", || is_ready(&server));
    commit(folder.path(), &server, "o-1").ok();
    let of_server = || doctor(&["--server", &server.url]);
    until("one event is examined", || of_server().1["examined"].to_string().contains("1 log with 1 event"));
    for (code, found) in [doctor(&["--store", &url]), of_server()] {
        let findings = found["findings"].as_array().expect("a list");
        let is_well = findings.iter().all(|finding| finding["severity"] != "critical" && finding["about"] != HELD);
        assert!(code == 0 && is_well, "{found}");
        let examined = found["examined"].to_string();
        assert!(examined.contains("MongoDB ") && examined.contains("replica set"), "{examined}");
    }

    insert_malformed(&database);
    let held = || {
        let (_, found) = of_server();
        found["findings"].as_array().into_iter().flatten().find(|finding| finding["about"] == HELD).cloned()
    };
    until("the held commit is found", || held().is_some());
    let held = held().expect("a finding");
    assert_eq!(held["severity"], "warning");
    assert!(held["what"].as_str().is_some_and(|what| what.starts_with("1 commit held")), "{held}");
    let advice = held["advice"].as_str().expect("advice");
    assert!(advice.contains("annals held list --tenant default"), "{advice}");
}
