//! A Redis from Debian's own packages.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::keeper::{Keeper, TRIES, free_port, pause};
use super::{Running, Service};
use crate::command::{output, run};

/// The packages of the server, and of the libraries that a small system lacks.
const PACKAGES: [&str; 6] = ["redis-server", "redis-tools", "libjemalloc2", "liblua5.1-0", "liblzf1", "libatomic1"];
/// The name of the program.
const PROGRAM: &str = "redis-server";

/// Returns the path of redis-server: the installed one, or one that is fetched into `cache`.
fn program(cache: &Path) -> Result<PathBuf, String> {
    if let Some(installed) = installed() {
        return Ok(installed);
    }
    let folder = cache.join("redis-debian");
    let program = folder.join(PROGRAM);
    if program.exists() {
        return Ok(program);
    }
    // Under a temporary name until it is complete: two runs may fetch at once, and one may be interrupted.
    let part = cache.join(format!("redis-debian.part-{}", std::process::id()));
    fs::create_dir_all(&part).map_err(|error| format!("{}: {error}", part.display()))?;
    let fetched = fetch(&part, &folder);
    let _ = fs::remove_dir_all(&part);
    let install = "Redis is not here: install it (Debian: apt-get install redis-server)";
    fetched.map(|()| program).map_err(|why| format!("{install}; {why}"))
}

fn installed() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    let program = std::env::split_paths(&paths).map(|folder| folder.join(PROGRAM)).find(|path| path.is_file())?;
    output(Command::new(&program).arg("--version")).is_ok().then_some(program)
}

/// Unpacks the packages without installing them, so that the system does not start a Redis.
fn fetch(part: &Path, folder: &Path) -> Result<(), String> {
    let download = || run(Command::new("apt-get").args(["-qq", "download"]).args(PACKAGES).current_dir(part));
    if download().is_err() {
        run(Command::new("apt-get").args(["update", "-qq"]))?;
        download()?;
    }
    let root = part.join("whole");
    for entry in fs::read_dir(part).map_err(|error| error.to_string())?.flatten() {
        if entry.path().extension().is_some_and(|kind| kind == "deb") {
            run(Command::new("dpkg").arg("-x").arg(entry.path()).arg(&root))?;
        }
    }
    let place = std::path::absolute(folder).map_err(|error| error.to_string())?;
    let libraries = output(Command::new("find").arg(&root).args(["-name", "libjemalloc.so.2"]))?;
    let libraries = String::from_utf8_lossy(&libraries).trim().to_owned();
    let below = Path::new(&libraries).parent().and_then(|path| path.strip_prefix(&root).ok());
    let libraries = place.join(below.ok_or("the packages do not hold what they should")?);
    let (libraries, server) = (libraries.display(), place.join("usr/bin").join(PROGRAM));
    let script = format!("#!/bin/sh\nLD_LIBRARY_PATH='{libraries}' exec '{}' \"$@\"\n", server.display());
    fs::write(root.join(PROGRAM), script).map_err(|error| error.to_string())?;
    run(Command::new("chmod").arg("755").arg(root.join(PROGRAM)))?;
    match fs::rename(&root, folder) {
        Err(error) if !folder.join(PROGRAM).exists() => Err(format!("{}: {error}", folder.display())),
        _ => Ok(()),
    }
}

/// A Redis.
pub const REDIS: Service = Service {
    name: "redis",
    place: "ANNALS_TEST_REDIS",
    program: "ANNALS_TEST_REDIS_SERVER",
    meant: "the path of a redis-server 7 and the URL of a Redis",
    package: Some("annals-redis"),
    module: "with_redis",
    runs: true,
    fetch: program,
    start: |cache, program| Ok(Box::new(Redis::start(cache, program)?)),
};

/// A running Redis. It stops when it is dropped.
struct Redis {
    keeper: Keeper,
    port: u16,
}

impl Redis {
    /// Starts Redis on a free port with a new data folder, and waits until it accepts connections.
    fn start(cache: &Path, program: &Path) -> Result<Self, String> {
        let port = free_port()?;
        let data = cache.join(format!("run/redis-{}-{port}", std::process::id()));
        fs::create_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
        let mut server = Command::new(program);
        server.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "yes"]);
        server.arg("--dir").arg(&data);
        let mut redis = Self { keeper: Keeper::start(&server, &data, "KILL")?, port };
        redis.until_answers().map_err(|why| format!("Redis did not start: {why}"))?;
        Ok(redis)
    }

    fn until_answers(&mut self) -> Result<(), String> {
        for _ in 0..TRIES {
            self.keeper.check()?;
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(());
            }
            pause();
        }
        Err("nothing listens after a minute".to_owned())
    }
}

impl Running for Redis {
    fn place(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn check(&mut self) -> Result<(), String> {
        self.keeper.check().map_err(|why| format!("Redis: {why}"))
    }
}
