//! A Kafka cluster of one node, which is broker and controller.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::keeper::{Keeper, TRIES, free_port, pause};
use super::{Running, Service, maven};
use crate::command::output;

/// The id of the cluster; any 16 bytes would do.
const CLUSTER: &str = "YW5uYWxzLWZvci10ZXN0cw";
/// The heap limit of the broker.
const HEAP: &str = "-Xmx512m";

/// Kafka. Its program is the folder of its jars, with which tests also start consumers that are not ours.
pub const KAFKA: Service = Service {
    name: "kafka",
    place: "ANNALS_TEST_KAFKA",
    program: "ANNALS_TEST_KAFKA_JARS",
    meant: "the folder of the jars of Kafka 4 and HOST:PORT of a broker",
    package: Some("annals-kafka"),
    module: "with_kafka",
    runs: true,
    fetch: maven::kafka,
    start: |cache, jars| {
        maven::java()?;
        Ok(Box::new(Kafka::start(cache, jars)?))
    },
};

/// A running Kafka. It stops when it is dropped.
struct Kafka {
    keeper: Keeper,
    port: u16,
}

impl Kafka {
    /// Starts Kafka on free ports with a new data folder, and waits until it responds.
    fn start(cache: &Path, jars: &Path) -> Result<Self, String> {
        let (port, controller) = (free_port()?, free_port()?);
        let data = cache.join(format!("run/kafka-{}-{port}", std::process::id()));
        fs::create_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
        let properties = data.join("server.properties");
        fs::write(&properties, server_properties(port, controller, &data)).map_err(|error| error.to_string())?;
        let mut format = java(jars, "kafka.tools.StorageTool");
        output(format.args(["format", "-t", CLUSTER, "-c"]).arg(&properties))?;
        let mut server = java(jars, "kafka.Kafka");
        server.arg(&properties);
        // Its data is removed with it, so it need not shut down cleanly.
        let mut kafka = Self { keeper: Keeper::start(&server, &data, "KILL")?, port };
        kafka.until_answers().map_err(|why| format!("Kafka did not start: {why}"))?;
        Ok(kafka)
    }

    fn until_answers(&mut self) -> Result<(), String> {
        let mut why = String::new();
        for _ in 0..TRIES {
            self.keeper.check()?;
            match api_versions(&self.place()) {
                Ok(()) => return Ok(()),
                Err(error) => why = error.to_string(),
            }
            pause();
        }
        Err(why)
    }
}

impl Running for Kafka {
    fn place(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn check(&mut self) -> Result<(), String> {
        self.keeper.check().map_err(|why| format!("Kafka: {why}"))
    }
}

fn java(jars: &Path, class: &str) -> Command {
    let mut command = Command::new("java");
    command.args([HEAP, "-cp"]).arg(jars.join("*")).arg(class);
    command
}

/// Requests the versions of its API, to which it responds once it accepts requests.
fn api_versions(address: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    // Length, API 18 in version 0, a correlation id that the response repeats, and no client name.
    stream.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff])?;
    let mut head = [0; 10];
    stream.read_exact(&mut head)?;
    match head[8..] {
        [0, 0] => Ok(()),
        _ => Err(std::io::Error::other("it refuses to say what it speaks")),
    }
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
offsets.topic.num.partitions=3
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
",
        logs.display()
    )
}
