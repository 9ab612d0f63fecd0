//! Clusters that ask who is there.

use annals_core::{Broker, BrokerError};
use annals_kafka::{KafkaBroker, KafkaOptions};

use crate::broker_process::{Beside, Kafka};
use crate::support::settings;

/// Creates a topic with this user, by a broker at the listener beside the plain one.
async fn creates_a_topic(kafka: &Kafka, query: &str) -> Result<bool, BrokerError> {
    let settings = settings();
    let topic = settings.definition("order_placed", "default").expect("a category");
    let options = KafkaOptions { settings, replication: Some(1) };
    let broker = KafkaBroker::open(&format!("kafka://{}?{query}", kafka.beside()), options).expect("a URL");
    broker.create_topic(&topic).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_asks_for_a_password_is_used_with_it_and_refuses_a_wrong_one() {
    let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
    let properties = format!(
        "listener.name.beside.sasl.enabled.mechanisms=PLAIN\n\
         listener.name.beside.plain.sasl.jaas.config={module} required user_eva=\"p%26ss word\";\n"
    );
    let kafka = Kafka::start_with(Beside { protocol: "SASL_PLAINTEXT", properties, format: Vec::new() }).await;
    let user = "security.protocol=SASL_PLAINTEXT&sasl.mechanism=PLAIN&sasl.username=eva";
    let right = creates_a_topic(&kafka, &format!("{user}&sasl.password=p%2526ss%20word")).await;
    assert_eq!(right, Ok(true), "a percent sign in a URL is written %25");
    let wrong = creates_a_topic(&kafka, &format!("{user}&sasl.password=guess")).await;
    assert!(matches!(wrong, Err(BrokerError::Refused(_) | BrokerError::Unavailable(_))), "{wrong:?}");
    assert!(!wrong.is_err_and(|error| error.to_string().contains("guess")), "no message repeats a password");
}

/// With TLS: the certificate of the broker is verified, and its users have passwords of SCRAM.
#[cfg(feature = "tls")]
mod with_tls {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn keytool(arguments: &[&str]) {
        let output = Command::new("keytool").args(arguments).output().expect("keytool comes with Java");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    /// A self-signed certificate of 127.0.0.1, as the keystore of a broker and as PEM.
    fn certificate(folder: &Path) -> (String, String) {
        let (store, pem) = (folder.join("broker.p12"), folder.join("broker.pem"));
        let (store, pem) = (store.display().to_string(), pem.display().to_string());
        let common = ["-alias", "broker", "-keystore", &store, "-storetype", "PKCS12", "-storepass", "changeit"];
        let made =
            ["-genkeypair", "-keyalg", "RSA", "-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1", "-validity", "30"];
        keytool(&[&made[..], &common[..]].concat());
        keytool(&[&["-exportcert", "-rfc", "-file", &pem][..], &common[..]].concat());
        (store, pem)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_cluster_with_tls_and_scram_is_used_with_its_authority_and_a_password() {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, pem) = certificate(folder.path());
        let module = "org.apache.kafka.common.security.scram.ScramLoginModule";
        let properties = format!(
            "listener.name.beside.sasl.enabled.mechanisms=SCRAM-SHA-256\n\
             listener.name.beside.scram-sha-256.sasl.jaas.config={module} required;\n\
             listener.name.beside.ssl.keystore.location={store}\n\
             listener.name.beside.ssl.keystore.type=PKCS12\n\
             listener.name.beside.ssl.keystore.password=changeit\n"
        );
        let format = ["--add-scram", "SCRAM-SHA-256=[name=eva,password=s3cret]"].map(str::to_owned).to_vec();
        let kafka = Kafka::start_with(Beside { protocol: "SASL_SSL", properties, format }).await;
        let user = "security.protocol=SASL_SSL&sasl.mechanism=SCRAM-SHA-256&sasl.username=eva";
        let trusted = format!("{user}&ssl.ca.location={pem}");
        assert_eq!(creates_a_topic(&kafka, &format!("{trusted}&sasl.password=s3cret")).await, Ok(true));
        for refused in [format!("{trusted}&sasl.password=guess"), format!("{user}&sasl.password=s3cret")] {
            let outcome = creates_a_topic(&kafka, &refused).await;
            assert!(outcome.is_err(), "a wrong password, and a certificate that nobody vouches for: {outcome:?}");
        }
    }
}
