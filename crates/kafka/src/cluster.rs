//! The addresses of a cluster, and the settings of its clients.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use annals_core::{BrokerError, Code, OpenError};
use percent_encoding::percent_decode_str;
use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaErrorCode as Kafka;
use tokio::task::spawn_blocking;

use crate::errors;

/// Timeout of a request to the cluster.
pub const ASK_MAX: Duration = Duration::from_secs(8);

/// Settings that a URL may not change, because the guarantees depend on them.
const OURS: [&str; 12] = [
    "acks",
    "auto.offset.reset",
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.idempotence",
    "group.id",
    "isolation.level",
    "partition.assignment.strategy",
    "partitioner",
    "request.required.acks",
    "transactional.id",
];

/// A cluster, and what its clients need to connect.
pub struct Cluster {
    /// The addresses, for messages.
    pub shown: String,
    config: ClientConfig,
    admin: OnceLock<Arc<AdminClient<Logged>>>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cluster").field(&self.shown).finish()
    }
}

impl Cluster {
    /// Parses `kafka://HOST:PORT,HOST:PORT?setting=value`. Settings of librdkafka follow the question mark, percent-encoded if a value
    /// contains `%`, `&` or `#`. No message repeats a value, which may be a password.
    pub fn open(url: &str) -> Result<Self, OpenError> {
        let refuse = |message: String| Err(OpenError::new(Code::InvalidConfig, message));
        let Some(rest) = url.strip_prefix("kafka://") else {
            return refuse(format!("{url:?} is no Kafka; write kafka://HOST:PORT,HOST:PORT"));
        };
        let (hosts, query) = rest.split_once('?').unwrap_or((rest, ""));
        let hosts = hosts.trim_end_matches('/');
        let is_address = |host: &str| {
            host.rsplit_once(':')
                .is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
        };
        if let Some(wrong) = hosts.split(',').find(|host| !is_address(host)) {
            return refuse(format!("{wrong:?} is not HOST:PORT; write kafka://HOST:PORT,HOST:PORT"));
        }
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", hosts).set("client.id", "annals");
        // Loopback and containers often have a name for each version of IP, and a broker listens on only one.
        config.set("broker.address.ttl", "1000").set("reconnect.backoff.max.ms", "2000");
        config.set("socket.connection.setup.timeout.ms", "5000");
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            let Some((name, value)) = setting.split_once('=') else {
                return refuse(format!("{hosts}: {setting:?} is not NAME=VALUE"));
            };
            if OURS.contains(&name) {
                return refuse(format!("{hosts}: {name} cannot be set, because exactly-once publishing depends on it"));
            }
            let Ok(value) = percent_decode_str(value).decode_utf8() else {
                return refuse(format!("{hosts}: the value of {name} is not UTF-8 once its percent signs are decoded"));
            };
            if let Some(missing) = needs_openssl(name, &value) {
                return refuse(format!("{hosts}: {missing}"));
            }
            config.set(name, value);
        }
        if let Err(error) = config.create_native_config() {
            return refuse(format!("{hosts}: {error}"));
        }
        Ok(Self { shown: hosts.to_owned(), config, admin: OnceLock::new() })
    }

    /// Returns the settings that all clients share.
    pub fn config(&self) -> ClientConfig {
        self.config.clone()
    }

    /// Returns the client for requests about topics and groups.
    pub fn admin(&self) -> Result<Arc<AdminClient<Logged>>, BrokerError> {
        if let Some(admin) = self.admin.get() {
            return Ok(Arc::clone(admin));
        }
        let made = AdminClient::from_config_and_context(&self.config, Logged).map_err(errors::of)?;
        Ok(Arc::clone(self.admin.get_or_init(|| Arc::new(made))))
    }

    /// Creates a consumer that is not part of any group assignment.
    pub fn reader(&self, group: &str) -> Result<BaseConsumer<Logged>, BrokerError> {
        let mut config = self.config();
        config.set("group.id", group).set("enable.auto.commit", "false").set("enable.partition.eof", "true");
        config.set("isolation.level", "read_committed").set("fetch.wait.max.ms", "10");
        config.set("auto.offset.reset", "earliest");
        BaseConsumer::from_config_and_context(&config, Logged).map_err(errors::of)
    }
}

/// Returns why a setting needs a feature with which this program was not built.
fn needs_openssl(name: &str, value: &str) -> Option<String> {
    if cfg!(feature = "tls") {
        return None;
    }
    let value = value.to_ascii_lowercase();
    let needs = match name {
        "security.protocol" => value.contains("ssl"),
        "sasl.mechanism" | "sasl.mechanisms" => value != "plain",
        _ => name.starts_with("ssl."),
    };
    needs.then(|| {
        format!(
            "{name}: this program was built without TLS; build it with the feature `kafka-tls` (--features kafka-tls)"
        )
    })
}

/// Returns the options of administrative requests.
pub fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(ASK_MAX)).operation_timeout(Some(ASK_MAX))
}

/// Returns the first offset of a partition and the one after its last. For a topic that was just created or whose leader moves, the
/// request is repeated for a while. Blocks.
pub fn bounds<C: ConsumerContext>(
    client: &impl Consumer<C>,
    topic: &str,
    partition: i32,
) -> Result<(i64, i64), BrokerError> {
    bounds_of(topic, || client.fetch_watermarks(topic, partition, ASK_MAX))
}

/// Returns the bounds of a partition with any client, like [`bounds`].
pub fn bounds_of(topic: &str, ask: impl Fn() -> KafkaResult<(i64, i64)>) -> Result<(i64, i64), BrokerError> {
    let mut answer = ask();
    for _ in 0..50 {
        match &answer {
            Err(error) if error.rdkafka_error_code().is_some_and(is_moving) => {
                std::thread::park_timeout(Duration::from_millis(100));
                answer = ask();
            }
            _ => break,
        }
    }
    answer.map_err(|error| match error.rdkafka_error_code() {
        Some(code) => errors::of_topic(topic, code),
        None => errors::of(error),
    })
}

/// Returns whether the leader of a partition is not known everywhere yet.
pub fn is_moving(code: Kafka) -> bool {
    matches!(
        code,
        Kafka::UnknownTopicOrPartition
            | Kafka::UnknownPartition
            | Kafka::UnknownTopic
            | Kafka::LeaderNotAvailable
            | Kafka::NotLeaderForPartition
    )
}

/// Runs a blocking call.
pub async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, BrokerError> + Send + 'static,
) -> Result<T, BrokerError> {
    match spawn_blocking(call).await {
        Ok(done) => done,
        Err(ended) => Err(BrokerError::Unavailable(format!("a call of the Kafka client ended early: {ended}"))),
    }
}

/// A client context that writes librdkafka's messages to the debug log. While a broker is away there are many, and callers get the error
/// anyway.
#[derive(Debug, Clone, Copy)]
pub struct Logged;

impl ClientContext for Logged {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(facility, "librdkafka: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, "librdkafka: {reason}");
    }
}

impl ConsumerContext for Logged {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_and_scram_are_there_or_refused_with_how_to_build_them() {
        for url in ["kafka://a:1?security.protocol=ssl", "kafka://a:1?sasl.mechanism=SCRAM-SHA-256"] {
            let refused = Cluster::open(url).err();
            #[cfg(feature = "tls")]
            assert!(refused.is_none(), "{url}: {refused:?}");
            #[cfg(not(feature = "tls"))]
            assert!(refused.is_some_and(|refused| refused.message.contains("kafka-tls")), "{url}");
        }
    }

    #[test]
    fn a_url_names_hosts_with_ports_and_settings_that_no_guarantee_depends_on() {
        let cluster = Cluster::open("kafka://a:9092,[::1]:9093/?compression.type=lz4").expect("a cluster");
        assert_eq!(cluster.shown, "a:9092,[::1]:9093");
        assert_eq!(cluster.config().get("compression.type"), Some("lz4"));
        let with_password = "kafka://a:1?security.protocol=SASL_PLAINTEXT&sasl.mechanism=PLAIN&sasl.password=%70%26%3D";
        let cluster = Cluster::open(with_password).expect("a user with a password");
        assert_eq!(cluster.config().get("sasl.password"), Some("p&="));
        let refused = Cluster::open(&format!("{with_password}&acks=0")).expect_err("a setting of ours");
        assert!(!refused.message.contains("%26") && !refused.message.contains("p&="), "{refused}");
        for (url, says) in [
            ("kafka://", "HOST:PORT"),
            ("kafka://a", "HOST:PORT"),
            ("kafka://a:x", "HOST:PORT"),
            ("kafka://a:0", "HOST:PORT"),
            ("redis://a:1", "kafka://HOST:PORT"),
            ("kafka://a:1?linger.ms", "NAME=VALUE"),
            ("kafka://a:1?acks=0", "exactly-once"),
            ("kafka://a:1?no.such.setting=1", "no.such.setting"),
            ("kafka://a:1?client.id=%ff", "UTF-8"),
        ] {
            let refused = Cluster::open(url).expect_err(url);
            assert!(refused.code == Code::InvalidConfig && refused.message.contains(says), "{url}: {refused}");
        }
    }
}
