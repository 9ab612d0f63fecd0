//! Servers of a test's own: a replica set of one or three whose members are killed, stopped and started again, and other kinds.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::options::{ClientOptions, ReadPreference, SelectionCriteria};
use mongodb::{Client, Database};
use tokio::sync::{Mutex, MutexGuard};

use crate::server::until;

/// Runs the program for each line that it is given and says the process id; when its own input ends, which is when this process ends,
/// however that ends, it kills the program and removes the data. So nothing is left behind, and nothing is ever ended by its name.
const KEEPER: &str = r#"
data=$1; shift
while read -r line; do
  [ -n "$child" ] && wait "$child" 2>/dev/null
  "$@" >/dev/null 2>&1 & child=$!
  echo "$child"
done
[ -n "$child" ] && kill -KILL "$child" 2>/dev/null
wait "$child" 2>/dev/null
rm -rf "$data"
"#;

/// A mongod process that is this test's to kill.
pub struct Member {
    keeper: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    pid: u32,
    pub port: u16,
}

impl Member {
    /// Starts one with these arguments beside the place and the port; it may not answer yet.
    pub fn start(arguments: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let program = std::env::var_os("ANNALS_TEST_MONGOD").expect(
            "this test starts servers of its own: run it with `cargo xtask test`, or set ANNALS_TEST_MONGOD to what \
             `cargo xtask services` prints",
        );
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mongod-{}-{count}", std::process::id());
        let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&data).expect("a folder");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "sh"]).arg(&data).arg(program).arg("--dbpath").arg(&data);
        command.arg("--logpath").arg(data.join("mongod.log")).args(["--logappend", "--bind_ip", "127.0.0.1"]);
        command.args(["--port", &port.to_string(), "--wiredTigerCacheSizeGB", "0.25"]);
        command.args(["--setParameter", "enableTestCommands=1"]);
        command.args(["--setParameter", "diagnosticDataCollectionEnabled=false"]).args(arguments);
        // What ends this process by a signal to its group is not for the keeper, which has to clean up.
        command.process_group(0);
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sh runs");
        let output = BufReader::new(keeper.stdout.take().expect("piped"));
        let input = keeper.stdin.take();
        let mut member = Self { keeper, input, output, pid: 0, port };
        member.start_again();
        member
    }

    /// Runs it again after it has ended.
    pub fn start_again(&mut self) {
        self.input.as_mut().expect("open").write_all(b"start\n").expect("the keeper reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the keeper answers");
        self.pid = line.trim().parse().expect("a process id");
    }

    /// Sends it a signal, such as `KILL`, `STOP` or `CONT`.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(self.pid.to_string()).status();
        assert!(sent.is_ok_and(|status| status.success()), "the process {} gets {signal}", self.pid);
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A client of this member alone, whatever its state. It does not wait long.
    pub async fn admin(&self) -> Database {
        let url = format!("mongodb://{}/?directConnection=true&serverSelectionTimeoutMS=1000", self.address());
        let mut options = ClientOptions::parse(url).await.expect("a URL");
        options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Nearest { options: None }));
        Client::with_options(options).expect("a client").database("admin")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.keeper.wait();
    }
}

/// A replica set whose members are this test's to kill.
pub struct ReplicaSet {
    pub members: Vec<Member>,
}

impl ReplicaSet {
    /// Starts so many members and waits until all of them work. A new primary is chosen within two seconds.
    pub async fn start(count: usize) -> Self {
        Self::start_with(count, &[]).await
    }

    /// The same, with more arguments for each.
    pub async fn start_with(count: usize, more: &[&str]) -> Self {
        let arguments = [&["--replSet", "rs0"], more].concat();
        let members: Vec<Member> = (0..count).map(|_| Member::start(&arguments)).collect();
        let hosts = members.iter().enumerate();
        let hosts: Vec<Document> =
            hosts.map(|(id, member)| doc! { "_id": id as i32, "host": member.address() }).collect();
        let settings = doc! { "electionTimeoutMillis": 1500, "heartbeatIntervalMillis": 300 };
        let initiate = doc! { "replSetInitiate": { "_id": "rs0", "members": hosts, "settings": settings } };
        let first = members[0].admin().await;
        until("a member that can be initiated", async || first.run_command(initiate.clone()).await.is_ok()).await;
        let set = Self { members };
        set.until_well().await;
        set
    }

    /// The URL of a database in it.
    pub fn url(&self, database: &str) -> String {
        let hosts: Vec<String> = self.members.iter().map(Member::address).collect();
        format!("mongodb://{}/{database}?replicaSet=rs0", hosts.join(","))
    }

    pub async fn client(&self) -> Client {
        Client::with_uri_str(self.url("admin")).await.expect("a URL")
    }

    /// A client of each member alone: each has connections and heartbeats of its own, so they are made once for many looks.
    async fn admins(&self) -> Vec<Database> {
        futures_util::future::join_all(self.members.iter().map(Member::admin)).await
    }

    /// The place of the primary among the members.
    pub async fn primary(&self) -> usize {
        let admins = self.admins().await;
        let mut found = None;
        until("a primary", async || {
            for (place, admin) in admins.iter().enumerate() {
                let hello = answer(admin, doc! { "hello": 1 }).await;
                if hello.is_some_and(|hello| hello.get_bool("isWritablePrimary").unwrap_or(false)) {
                    found = Some(place);
                }
            }
            found.is_some()
        })
        .await;
        found.expect("found")
    }

    /// Waits until one member is primary and all others follow it.
    pub async fn until_well(&self) {
        let admins = self.admins().await;
        until("a replica set of which all members work", async || {
            for admin in &admins {
                let Some(status) = answer(admin, doc! { "replSetGetStatus": 1 }).await else { continue };
                let Ok(members) = status.get_array("members") else { continue };
                let states: Vec<i32> =
                    members.iter().filter_map(|member| member.as_document()?.get_i32("state").ok()).collect();
                let primaries = states.iter().filter(|state| **state == 1).count();
                let followers = states.iter().filter(|state| **state == 2).count();
                if status.get_i32("myState").is_ok_and(|state| state == 1) {
                    return primaries == 1 && followers + 1 == self.members.len();
                }
            }
            false
        })
        .await;
    }

    /// Sets a fail point on all members.
    pub async fn fail_point(&self, name: &str, mode: &str) {
        for member in &self.members {
            let set = doc! { "configureFailPoint": name, "mode": mode };
            member.admin().await.run_command(set).await.expect("the fail point is set");
        }
    }
}

/// What a member answers; none while it does not, which a stopped one never does.
async fn answer(admin: &Database, command: Document) -> Option<Document> {
    let answered = tokio::time::timeout(Duration::from_secs(1), admin.run_command(command)).await;
    answered.ok().and_then(Result::ok)
}

/// The one replica set of three that the tests of this process use in turn: three servers are enough for one machine.
pub async fn three() -> MutexGuard<'static, Option<ReplicaSet>> {
    static THREE: Mutex<Option<ReplicaSet>> = Mutex::const_new(None);
    let mut three = THREE.lock().await;
    match &mut *three {
        Some(set) => {
            for member in &mut set.members {
                // One that was killed has no such process any more; whichever it is, it runs afterwards.
                let alive = member.admin().await.run_command(doc! { "ping": 1 }).await.is_ok();
                if !alive {
                    let pid = member.pid.to_string();
                    let _ = Command::new("kill").args(["-KILL", &pid]).stderr(Stdio::null()).status();
                    member.start_again();
                }
            }
            set.until_well().await;
            set.fail_point("stopReplProducer", "off").await;
        }
        none => *none = Some(ReplicaSet::start(3).await),
    }
    three
}
