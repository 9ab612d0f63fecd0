//! A Kafka of a test's own, which it kills and starts again.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{java, until};

/// Runs the program for each line that it is given and says the process id; when its own input ends, which is when this process ends,
/// however that ends, it kills the program and removes the data.
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

pub struct Kafka {
    keeper: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    pid: u32,
    port: u16,
    /// The port of the listener beside the plain one, if there is one.
    beside: u16,
}

/// A listener beside the plain one.
#[derive(Debug, Clone, Default)]
pub struct Beside {
    /// `SASL_PLAINTEXT` or `SASL_SSL`; empty for none.
    pub protocol: &'static str,
    /// Its settings, which begin with `listener.name.beside.` where they are its own.
    pub properties: String,
    /// Arguments of formatting the data folder, such as users.
    pub format: Vec<String>,
}

impl Kafka {
    /// Starts one, and waits until it takes connections.
    pub async fn start() -> Self {
        Self::start_with(Beside::default()).await
    }

    /// Starts one with another listener.
    pub async fn start_with(listener: Beside) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("kafka-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&data).expect("a folder");
        let (port, controller, beside) = (free_port(), free_port(), free_port());
        let properties = data.join("server.properties");
        let mut written = server_properties(port, controller, &data);
        if !listener.protocol.is_empty() {
            let (at, protocol) = (format!("127.0.0.1:{beside}"), listener.protocol);
            written = written
                .replace("\nlisteners=", &format!("\nlisteners=BESIDE://{at},"))
                .replace("\nadvertised.listeners=", &format!("\nadvertised.listeners=BESIDE://{at},"))
                .replace("protocol.map=", &format!("protocol.map=BESIDE:{protocol},"));
            written.push_str(&listener.properties);
        }
        std::fs::write(&properties, written).expect("written");
        let mut format = java("kafka.tools.StorageTool");
        format.args(["format", "-t", "YW5uYWxzLWZvci10ZXN0cw", "-c"]).arg(&properties).args(&listener.format);
        let formatted = format.output().expect("java runs");
        assert!(formatted.status.success(), "{}", String::from_utf8_lossy(&formatted.stderr));
        let program = java("kafka.Kafka");
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "sh"]).arg(&data).arg(program.get_program()).args(program.get_args());
        // What ends this process by a signal to its group is not for the keeper, which has to clean up.
        command.arg(&properties).process_group(0);
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sh runs");
        let output = BufReader::new(keeper.stdout.take().expect("piped"));
        let input = keeper.stdin.take();
        let mut kafka = Self { keeper, input, output, pid: 0, port, beside };
        kafka.start_again().await;
        kafka
    }

    /// Runs it again after it was killed.
    pub async fn start_again(&mut self) {
        self.input.as_mut().expect("open").write_all(b"start\n").expect("the keeper reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the keeper answers");
        self.pid = line.trim().parse().expect("a process id");
        let address = self.address();
        until("Kafka takes connections", async || TcpStream::connect(&address).ok()).await;
    }

    /// Kills it with SIGKILL.
    pub fn kill(&self) {
        let sent = Command::new("kill").args(["-KILL", &self.pid.to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "it is killed");
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The address of the listener beside the plain one.
    pub fn beside(&self) -> String {
        format!("127.0.0.1:{}", self.beside)
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.keeper.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port()
}

fn server_properties(port: u16, controller: u16, data: &Path) -> String {
    let logs = data.join("logs");
    format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={}
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
broker.session.timeout.ms=3000
",
        logs.display()
    )
}
