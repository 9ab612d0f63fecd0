//! `annals serve --broker kafka://…`. The name of this file leaves it out where there is no Kafka: see CONTRIBUTING.md.

use std::net::TcpListener;
use std::path::Path;

use serde_json::Value;

use crate::process::{Server, annals};
use crate::run::{folder, run};

fn serve(folder: &Path, broker: &str, tenant: &str) -> Server {
    let mut command = annals(folder);
    command.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--broker", broker]);
    // Topics of this test alone.
    command.env("ANNALS__TENANTS__NAMES", tenant);
    Server::of(command)
}

fn get(server: &Server, path: &str) -> String {
    let output = std::process::Command::new("curl").args(["-s", &format!("{}{path}", server.url)]).output();
    String::from_utf8(output.expect("curl runs").stdout).expect("text")
}

#[test]
fn a_commit_that_waits_for_published_is_on_kafka_and_health_and_metrics_show_the_relay() {
    let kafka =
        std::env::var("ANNALS_TEST_KAFKA").expect("ANNALS_TEST_KAFKA names a Kafka: cargo xtask services kafka");
    let (folder, tenant) = (folder(), format!("cli-{}", std::process::id()));
    let server = serve(folder.path(), &format!("kafka://{kafka}"), &tenant);
    let commit =
        ["commit", "--server", &server.url, "--tenant", &tenant, "--aggregate", "order/o-1", "--type", "order_placed"];
    let committed = run(folder.path(), &[&commit[..], &["--data", "{}", "--wait", "published"]].concat()).ok().json();
    assert_eq!(committed[0]["reached"], "published", "{committed:?}");
    let ready: Value = serde_json::from_str(&get(&server, "/health/ready")).expect("JSON");
    let relay = &ready["relays"][0];
    assert_eq!((&relay["tenant"], &relay["state"]), (&tenant.as_str().into(), &"publishing".into()), "{ready}");
    assert_eq!((&relay["lag"], &relay["published"], &relay["held"]), (&0.into(), &1.into(), &0.into()), "{ready}");
    assert!(get(&server, "/metrics").contains(&format!("annals_relay_lag{{tenant=\"{tenant}\"}} 0\n")));
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn without_a_kafka_at_the_address_commits_continue_and_the_lag_is_shown() {
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let folder = folder();
    let server = serve(folder.path(), &format!("kafka://127.0.0.1:{nobody}"), "default");
    for n in 0..3 {
        let aggregate = format!("order/o-{n}");
        let commit = ["commit", "--server", &server.url, "--aggregate", &aggregate, "--type", "order_placed"];
        run(folder.path(), &[&commit[..], &["--data", "{}"]].concat()).ok();
    }
    assert!(get(&server, "/metrics").contains("annals_relay_lag{tenant=\"default\"} 3\n"));
    let ready: Value = serde_json::from_str(&get(&server, "/health/ready")).expect("JSON");
    assert_eq!(ready["relays"][0]["lag"], 3, "{ready}");
    assert_eq!(server.terminate(), Some(0), "a broker that is away does not keep it");
}

#[test]
fn the_topics_of_a_store_that_is_published_are_those_on_kafka_and_are_altered_only_when_applied() {
    let kafka =
        std::env::var("ANNALS_TEST_KAFKA").expect("ANNALS_TEST_KAFKA names a Kafka: cargo xtask services kafka");
    let (folder, tenant) = (folder(), format!("cli-topics-{}", std::process::id()));
    let broker = format!("kafka://{kafka}");
    let server = serve(folder.path(), &broker, &tenant);
    let name = format!("{tenant}.job_done");
    let put = |category: &str| {
        let body = format!(r#"{{"category": "{category}", "schema": {{"type": "object"}}}}"#);
        let url = format!("{}/v1/types/job_done", server.url);
        let tenant = format!("Annals-Tenant: {tenant}");
        let put = ["-s", "-f", "-X", "PUT", &url, "-H", "Content-Type: application/json", "-H", &tenant, "-d", &body];
        assert!(std::process::Command::new("curl").args(put).output().expect("curl runs").status.success());
    };
    let topic = |arguments: &[&str]| {
        let at = ["--server", &server.url, "--tenant", &tenant];
        run(folder.path(), &[&["topic"][..], arguments, &at[..]].concat()).ok().json()
    };
    put("pod");
    let described = topic(&["describe", &name]);
    assert_eq!((&described[0]["partitions"], &described[0]["head"]), (&3.into(), &serde_json::json!([0, 0, 0])));
    put("execution");
    let listed = topic(&["list"]);
    assert_eq!((listed.len(), &listed[0]["partitions"]), (1, &3.into()), "{listed:?}");
    let settings: Vec<&Value> =
        listed[0]["differences"].as_array().expect("differences").iter().map(|it| &it["setting"]).collect();
    assert_eq!(settings, ["partitions", "retention_ms"]);
    let applied = topic(&["apply", &name, "--reason", "more consumers"]);
    assert_eq!((&applied[0]["partitions"], &applied[0]["differences"]), (&6.into(), &serde_json::json!([])));
    assert_eq!(server.terminate(), Some(0));
    // A command that opens the store itself asks the same broker.
    let store = ["topic", "describe", &name, "--tenant", &tenant];
    let mut command = annals(folder.path());
    command.args(store).env("ANNALS__TENANTS__NAMES", &tenant).env("ANNALS__BROKER__URL", &broker);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let described: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(described["partitions"], 6);
}

#[test]
fn two_tenants_of_one_cluster_that_would_share_topics_are_refused_at_the_start() {
    let folder = folder();
    let mut command = annals(folder.path());
    command.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--broker", "kafka://127.0.0.1:1"]);
    command.env("ANNALS__TENANTS__NAMES", "one,two");
    command.env("ANNALS__BROKER__TENANTS", r#"{ one = { prefix = "" }, two = { prefix = "" } }"#);
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("would share topics"), "{said}");
}
