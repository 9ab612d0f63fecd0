//! Measures what a follower that reads costs a server that has as many of them as it accepts connections.
//!
//! The followers are in a process of their own, as both ends of so many connections may be more than one process can open. They follow
//! everything: first what is there, then what is committed meanwhile, at a rate that two cores can deliver to all of them. So all of them
//! are in the middle of a page at the same time, and the memory is the most that was seen from the first connection to the last event.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use annals::{Client, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, NewCommit, NewEvent};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinSet;

use super::followers::{EVENT_LINES, GREETING_LINES, drain, follow};
use super::{process, start, text};
use crate::library;
use crate::row::{self, Target};
use crate::usage::{Peak, cpu_seconds_of, memory_of, raise_open_files};

/// The first argument that makes this program run the followers. The address, their number and that of the events of each follow.
pub const OPTION: &str = "--followers";

/// The server accepts 10,000 connections, and one is for the commits.
const FOLLOWERS: u64 = 9_999;
/// Events that are there before the first follower, and that come while all follow.
const BEFORE: u64 = 100;
const MEANWHILE: u64 = 100;
/// Events in a commit, of which there is one each second.
const PORTION: u64 = 10;
/// Connections that are opened at once.
const AT_ONCE: usize = 64;
const ANSWER_MAX: Duration = Duration::from_secs(180);
const KIBIBYTES_MAX: f64 = 20.0;

pub async fn measure(place: &Path, program: &Path) -> Result<(), String> {
    let folder = place.join("crowd");
    std::fs::create_dir_all(&folder).map_err(text)?;
    let server = start(&folder, program).await?;
    let process = process(&server)?;
    let client = Client::new(&format!("http://{}", server.address), DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
    let data = library::data()?;
    for first in (0..BEFORE).step_by(PORTION as usize) {
        client.commit(portion(first, &data)).await.map_err(text)?;
    }
    let (before, peak) = (memory_of(process)?, Peak::watch(process));
    let events = (BEFORE + MEANWHILE).to_string();
    let (mut followers, mut said) =
        start_clients(&[OPTION, &server.address.to_string(), &FOLLOWERS.to_string(), &events])?;
    next_line(&mut said).await?;
    let (cpu, mut pace) = (cpu_seconds_of(process)?, tokio::time::interval(Duration::from_secs(1)));
    for first in (BEFORE..BEFORE + MEANWHILE).step_by(PORTION as usize) {
        pace.tick().await;
        client.commit(portion(first, &data)).await.map_err(text)?;
    }
    next_line(&mut said).await?;
    let seconds = (MEANWHILE / PORTION) as f64;
    let share = 100.0 * (cpu_seconds_of(process)? - cpu) / seconds;
    let each = peak.end().await?.saturating_sub(before) as f64 / 1_024.0 / FOLLOWERS as f64;
    let _ = followers.kill().await;
    let name = format!("{FOLLOWERS} followers that read {PORTION} events/s each");
    row::figure(format!("{name}, memory of the server for each"), "KiB", each, Target::AtMost(KIBIBYTES_MAX));
    row::figure(format!("{name}, CPU of the server"), "% of a core", share, Target::Unset);
    server.stop().await
}

/// Returns the commit whose events begin with this one.
fn portion(first: u64, data: &[Data]) -> NewCommit {
    let data = data.iter().cloned().cycle().take(PORTION as usize);
    let events = data.map(|data| NewEvent::new("order_placed", data)).collect();
    NewCommit { events, ..NewCommit::new("order", format!("o-{first}")) }
}

/// Starts this program with these words, as the clients of a server.
pub(super) fn start_clients(words: &[&str]) -> Result<(Child, Lines<BufReader<ChildStdout>>), String> {
    let mut command = Command::new(std::env::current_exe().map_err(text)?);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut clients = command.spawn().map_err(text)?;
    let said = clients.stdout.take().ok_or("the clients have no output")?;
    Ok((clients, BufReader::new(said).lines()))
}

pub(super) async fn next_line(said: &mut Lines<BufReader<ChildStdout>>) -> Result<String, String> {
    let line = tokio::time::timeout(ANSWER_MAX, said.next_line()).await.map_err(|_| "the clients said nothing")?;
    line.map_err(text)?.ok_or_else(|| "the clients ended; what they said is above".to_owned())
}

/// Waits until the parent has measured and ends this process.
pub(super) async fn until_ended() -> Result<(), String> {
    tokio::task::spawn_blocking(|| io::stdin().read(&mut [0])).await.map_err(text)?.map(drop).map_err(text)
}

/// Runs the followers: reports when all follow, and then that all have read all events.
pub async fn obey(words: &[&str]) -> Result<(), String> {
    raise_open_files().map_err(text)?;
    let [address, followers, events] = words else { return Err(format!("{OPTION} is for this program alone")) };
    let address: SocketAddr = address.parse().map_err(text)?;
    let number = |word: &str| word.parse::<u64>().map_err(text);
    let (followers, events) = (number(followers)?, number(events)?);
    let mut connecting: JoinSet<Result<BufReader<TcpStream>, String>> = JoinSet::new();
    let mut reading: JoinSet<Result<(), String>> = JoinSet::new();
    let mut read = |stream| {
        reading.spawn(drain(stream, EVENT_LINES * events + GREETING_LINES));
    };
    for _ in 0..followers {
        if connecting.len() >= AT_ONCE {
            read(connecting.join_next().await.ok_or("no connection")?.map_err(text)??);
        }
        connecting.spawn(async move { follow(address, "from=0").await });
    }
    while let Some(stream) = connecting.join_next().await {
        read(stream.map_err(text)??);
    }
    println!("connected");
    while let Some(done) = reading.join_next().await {
        done.map_err(text)??;
    }
    println!("read");
    until_ended().await
}
