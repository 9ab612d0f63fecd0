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
