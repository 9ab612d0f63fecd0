//! Many clients at once, of which most do nothing: what a server does about them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::process::{Server, annals};
use crate::run::{body, folder, lines, run, run_with};

/// A server that is started with this limit of open files, as the arguments of `ulimit`.
fn with_open_files(folder: &std::path::Path, limit: &str) -> Server {
    let plain = annals(folder);
    let mut command = Command::new("sh");
    command
        .current_dir(folder)
        .arg("-c")
        .arg(format!("ulimit {limit} && exec \"$0\" serve --dev --listen 127.0.0.1:0"));
    command.arg(plain.get_program());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Server::of(command)
}

#[test]
fn idle_connections_take_no_descriptor_that_the_store_needs() {
    let folder = folder();
    let server = with_open_files(folder.path(), "-n 256");
    let address = server.url.strip_prefix("http://").expect("a URL").to_owned();
    let idle: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(&address).expect("a connection")).collect();
    let there = ["--server", &server.url];
    // The first records and a full segment need files that are not open yet.
    run(folder.path(), &[&["record", "declare", "things"], &there[..]].concat()).ok();
    let insert = ["record", "insert", "things", "--document", "{\"_id\": \"a\"}"];
    run(folder.path(), &[&insert[..], &there[..]].concat()).ok();
    let large = "x".repeat(1_000_000);
    let input = lines((0..40).map(|n| body("o-1", json!({ "n": n, "text": large }))));
    assert_eq!(run_with(folder.path(), &[&["commit"], &there[..]].concat(), &input).ok().json().len(), 40);
    drop(idle);
    assert_eq!(server.terminate(), Some(0));
}

/// Ten thousand connections, or as many as this process may open: half of them say nothing, and half begin a body that never ends.
#[test]
fn a_crowd_that_says_nothing_or_never_finishes_gives_its_places_to_those_who_commit() {
    const WAITING: u64 = 500;
    let most = annals::server::raise_open_files().expect("the limit").unwrap_or(u64::MAX);
    // Other tests of this process open files beside it.
    let crowd = (most / 2).min(10_000 + WAITING);
    // An eighth is kept for the store. So that many find no place.
    let limit = (crowd.saturating_sub(WAITING) * 8 / 7).max(128);
    let folder = folder();
    let server = with_open_files(folder.path(), &format!("-n {limit}"));
    let address = server.url.strip_prefix("http://").expect("a URL").to_owned();
    let unfinished = format!("POST /v1/commits HTTP/1.1\r\nhost: {address}\r\ncontent-length: 100\r\n\r\n{{");
    let join = |n: u64| {
        let mut stream = TcpStream::connect(&address).expect("a connection");
        if n.is_multiple_of(2) {
            // On a slow machine it may have lost its place already.
            let _ = stream.write_all(unfinished.as_bytes());
        }
        stream
    };
    let streams: Vec<TcpStream> = (0..crowd).map(join).collect();
    for n in 0..3 {
        let input = lines([body("o-1", json!({ "n": n }))]);
        let committed = run_with(folder.path(), &["commit", "--server", &server.url], &input).ok().json();
        assert_eq!(committed[0]["version"], n + 1);
    }
    // The clients that came later have places, so at least as many of the crowd have lost theirs.
    let is_closed = |stream: &&TcpStream| {
        stream.set_nonblocking(true).expect("set");
        match stream.peek(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        }
    };
    let closed = streams.iter().filter(is_closed).count() as u64;
    assert!(closed >= WAITING / 2, "{closed} of {crowd} at a limit of {limit}");
    drop(streams);
    assert_eq!(server.terminate(), Some(0));
}

/// Systems start programs with a soft limit that is far below what they allow.
#[test]
#[cfg(target_os = "linux")]
fn a_server_may_open_as_many_files_as_the_hard_limit_allows() {
    let folder = folder();
    let server = with_open_files(folder.path(), "-S -n 128");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id())).expect("a process of Linux");
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("the limit");
    let mut words = files.split_whitespace();
    let (soft, hard) = (words.next(), words.next());
    assert_ne!(soft, Some("128"), "{files}");
    assert_eq!(soft, hard, "{files}");
}

/// The kilobytes of memory that a process has.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("a process of Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
#[cfg(target_os = "linux")]
fn a_follower_that_waits_keeps_no_page() {
    const FOLLOWERS: u64 = 400;
    let folder = folder();
    let server = Server::start(folder.path());
    let address = server.url.strip_prefix("http://").expect("a URL").to_owned();
    let there = ["--server", &server.url];
    let large = "x".repeat(2_000);
    let input = lines((0..300).map(|n| body("o-1", json!({ "n": n, "text": large }))));
    run_with(folder.path(), &[&["commit"], &there[..]].concat(), &input).ok();
    let follow = || {
        let mut stream = TcpStream::connect(&address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
        write!(stream, "GET /v1/log/follow HTTP/1.1\r\nhost: {address}\r\n\r\n").expect("written");
        let mut reader = BufReader::with_capacity(64 * 1024, stream);
        let mut line = String::new();
        while line != "id: 299\n" {
            line.clear();
            assert!(reader.read_line(&mut line).expect("it is read") > 0, "the stream ended");
        }
        // The rest of the last event.
        while line != "\n" {
            line.clear();
            assert!(reader.read_line(&mut line).expect("it is read") > 0, "the stream ended");
        }
        reader.into_inner()
    };
    // What the server keeps for all.
    let warm: Vec<_> = (0..40).map(|_| follow()).collect();
    let before = resident(server.id());
    let followers: Vec<_> = (0..FOLLOWERS).map(|_| follow()).collect();
    let each = resident(server.id()).saturating_sub(before) / FOLLOWERS;
    // The room of one page is more than ten times that. Without optimisation a connection alone has more than 20 KiB.
    let most = if cfg!(debug_assertions) { 64 } else { 20 };
    assert!(each <= most, "{each} KiB for each follower");
    drop((warm, followers));
}
