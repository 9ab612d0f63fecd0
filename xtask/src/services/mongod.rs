//! A mongod as a replica set of one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::keeper::{Keeper, TRIES, free_port, pause};
use super::{Running, Service, fetch, wire};

/// A MongoDB.
pub const MONGODB: Service = Service {
    name: "mongodb",
    place: "ANNALS_TEST_MONGODB",
    program: "ANNALS_TEST_MONGOD",
    meant: "the path of a mongod 6.0 or later and the URL of a replica set",
    package: Some("annals-mongodb"),
    module: "with_mongodb",
    runs: true,
    fetch: fetch::mongod,
    start: |cache, program| Ok(Box::new(Mongod::start(cache, program)?)),
};

/// A running mongod. It stops when it is dropped.
struct Mongod {
    keeper: Keeper,
    port: u16,
    log: PathBuf,
}

impl Mongod {
    /// Starts mongod on a free port with a new data folder, and waits until it accepts writes.
    fn start(cache: &Path, program: &Path) -> Result<Self, String> {
        let port = free_port()?;
        let data = cache.join(format!("run/mongod-{}-{port}", std::process::id()));
        fs::create_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
        let keeper = Keeper::start(&command(program, port, &data), &data, "TERM")?;
        let mut mongod = Self { keeper, port, log: log_in(&data) };
        mongod.become_primary().map_err(|why| {
            let log = fs::read_to_string(log_in(&data)).unwrap_or_default();
            let last: Vec<_> = log.lines().rev().take(3).collect();
            format!("mongod did not start: {why}\n{}", last.join("\n"))
        })?;
        Ok(mongod)
    }

    fn become_primary(&mut self) -> Result<(), String> {
        let address = format!("127.0.0.1:{}", self.port);
        let initiate = wire::initiate_replica_set("rs0", &address);
        let mut why = String::new();
        let mut initiated = false;
        for _ in 0..TRIES {
            self.keeper.check()?;
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

impl Running for Mongod {
    fn place(&self) -> String {
        format!("mongodb://127.0.0.1:{}/?replicaSet=rs0", self.port)
    }

    fn check(&mut self) -> Result<(), String> {
        self.keeper.check().map_err(|why| format!("mongod: {why}"))
    }

    fn log(&self) -> Option<PathBuf> {
        Some(self.log.clone())
    }
}

fn log_in(data: &Path) -> PathBuf {
    data.join("mongod.log")
}

fn command(program: &Path, port: u16, data: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("--dbpath").arg(data).arg("--logpath").arg(log_in(data));
    command.args(["--port", &port.to_string(), "--bind_ip", "127.0.0.1", "--replSet", "rs0"]);
    // Test commands let the tests cause failures.
    command.args(["--wiredTigerCacheSizeGB", "2", "--setParameter", "enableTestCommands=1"]);
    command.args(["--setParameter", "diagnosticDataCollectionEnabled=false"]);
    // A dropped collection stays open as long as it is in the snapshot history: five minutes by default. In that time, the tests drop
    // more than a process may have open.
    command.args(["--setParameter", "minSnapshotHistoryWindowInSeconds=5"]);
    // Close dropped or idle files after seconds. The default is ten minutes, after which the tests have left tens of thousands of open
    // files, and walking their list takes a whole core.
    const CLOSE: &str = "file_manager=(close_idle_time=5,close_scan_interval=2,close_handle_minimum=100)";
    command.args(["--wiredTigerEngineConfigString", CLOSE]);
    // A session of the engine keeps a handle on each table that it has used, also on dropped ones, until it is closed for being idle. After
    // the default of five minutes the tests have dropped more than ten thousand tables, and most of mongod's time is spent in their list.
    command.args(["--setParameter", "wiredTigerSessionCloseIdleTimeSecs=5"]);
    // Builds of indexes wait for each other beyond this number, which is three by default; every store that is opened builds several.
    command.args(["--setParameter", "maxNumActiveUserIndexBuilds=64"]);
    // A test that ends its process's tasks in the middle of a transaction leaves it open, and dropping its database waits for that.
    command.args(["--setParameter", "transactionLifetimeLimitSeconds=10"]);
    command
}
