//! A mongod as a replica set of one.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use super::wire;

/// Runs the program until its own standard input ends, which is when its parent ends, however that ends; then stops it and removes its
/// data. So nothing is left behind after a kill, and nothing is ever stopped by its name.
const UNTIL_PARENT_ENDS: &str = r#"
data=$1; shift
"$@" & child=$!
cat > /dev/null
kill -TERM $child; wait $child
rm -rf "$data"
"#;

/// How often and how long apart it is asked whether it is up: a minute in all.
const TRIES: u32 = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// A running mongod. It stops when it is dropped.
pub struct Mongod {
    keeper: Child,
    input: Option<ChildStdin>,
    port: u16,
}

impl Mongod {
    /// Starts one on a free port with a new data folder, and waits until it takes writes.
    pub fn start(cache: &Path, program: &Path) -> Result<Self, String> {
        let port = free_port()?;
        let data = cache.join(format!("run/mongod-{}-{port}", std::process::id()));
        fs::create_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
        let mut keeper = command(program, port, &data).spawn().map_err(|error| format!("sh: {error}"))?;
        let input = keeper.stdin.take();
        let mut mongod = Self { keeper, input, port };
        mongod.become_primary().map_err(|why| {
            let log = fs::read_to_string(data.join("mongod.log")).unwrap_or_default();
            let last: Vec<_> = log.lines().rev().take(3).collect();
            format!("mongod did not start: {why}\n{}", last.join("\n"))
        })?;
        Ok(mongod)
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("mongodb://127.0.0.1:{}/?replicaSet=rs0", self.port)
    }

    /// Waits until it ends.
    pub fn wait(mut self) -> Result<(), String> {
        let input = self.input.take();
        let ended = self.keeper.wait().map_err(|error| error.to_string())?;
        drop(input);
        Err(format!("mongod ended ({ended})"))
    }

    fn become_primary(&mut self) -> Result<(), String> {
        let address = format!("127.0.0.1:{}", self.port);
        let initiate = wire::initiate_replica_set("rs0", &address);
        let mut why = String::new();
        let mut initiated = false;
        for _ in 0..TRIES {
            if let Some(ended) = self.keeper.try_wait().map_err(|error| error.to_string())? {
                return Err(format!("it ended ({ended})"));
            }
            if !initiated {
                match wire::ask(&address, &initiate) {
                    Ok(_) => initiated = true,
                    Err(error) => why = error,
                }
            } else if wire::ask(&address, &wire::hello()).is_ok_and(|answer| wire::is_primary(&answer)) {
                return Ok(());
            }
            pause();
        }
        Err(if initiated { "it is not primary after a minute".to_owned() } else { why })
    }
}

impl Drop for Mongod {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.keeper.wait();
    }
}

fn command(program: &Path, port: u16, data: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", UNTIL_PARENT_ENDS, "sh"]).arg(data).arg(program);
    command.arg("--dbpath").arg(data).arg("--logpath").arg(data.join("mongod.log"));
    command.args(["--port", &port.to_string(), "--bind_ip", "127.0.0.1", "--replSet", "rs0"]);
    // Test commands let the tests make it fail on purpose.
    command.args(["--wiredTigerCacheSizeGB", "2", "--setParameter", "enableTestCommands=1"]);
    command.args(["--setParameter", "diagnosticDataCollectionEnabled=false"]);
    // What is dropped stays open for as long as someone may read the past: five minutes, in which the tests drop more than a process may
    // have open.
    command.args(["--setParameter", "minSnapshotHistoryWindowInSeconds=30"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    own_group(&mut command);
    command
}

/// A Ctrl-C is for this program; what it started then ends in order because its input ends.
#[cfg(unix)]
fn own_group(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
}

#[cfg(not(unix))]
fn own_group(_: &mut Command) {}

/// A port that nothing listens on. Someone may take it before mongod does; then mongod ends and says so.
fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

/// A moment between two questions.
fn pause() {
    let (_sender, receiver) = channel::<()>();
    let waited = receiver.recv_timeout(PAUSE);
    debug_assert_eq!(waited, Err(RecvTimeoutError::Timeout));
}
