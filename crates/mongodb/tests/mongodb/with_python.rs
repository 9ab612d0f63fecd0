//! Integr8sCode's own models, in Beanie and Pydantic, read what Annals wrote into `events` and `events_archive`.

use std::process::Command;

use annals_conformance::Subject;
use annals_core::browse::BrowseQuery;
use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, Data, NewCommit, NewEvent, Reached};
use annals_runtime::{Host, HostOptions};
use serde_json::json;

use crate::records::MongoRecords;
use crate::server::url;

/// The models of Integr8sCode's `EventDocument` and `EventArchiveDocument`, with its indexes, and what its services ask.
const SCRIPT: &str = include_str!("with_python/models.py");

fn python(arguments: &[&str]) -> String {
    let variable =
        |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set; run `cargo xtask test`"));
    let mut command = Command::new(variable("ANNALS_TEST_PYTHON"));
    command.env("PYTHONPATH", variable("ANNALS_TEST_PYTHON_PACKAGES")).args(["-c", SCRIPT]).args(arguments);
    let ran = command.output().expect("python runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_models_of_integr8scode_read_what_was_written() {
    let subject = MongoRecords::new();
    let store = subject.open().await;
    let host = Host::start(store.clone(), HostOptions { clock: subject.clock(), ..HostOptions::default() });
    host.start_defined();
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("declared");
    let mut ids = Vec::new();
    for (event_type, data) in [
        (
            "execution_requested",
            json!({"execution_id": "e-1", "script": "print(1)", "language": "python", "timeout_seconds": 30}),
        ),
        (
            "execution_completed",
            json!({"execution_id": "e-1", "exit_code": 0, "resource_usage": {"execution_time_wall_seconds": 1.5}}),
        ),
        ("user_deleted", json!({"user_id": "ada", "deleted_by": "root", "reason": null})),
    ] {
        let event = NewEvent::new(event_type, Data::from_value(&data).expect("a document"));
        let mut commit = NewCommit::new("execution", "e-1").event(event).wait_until(Reached::Logged);
        let header = [("service_name", "api"), ("service_version", "2.1"), ("user_id", "ada"), ("environment", "test")];
        commit.header = header.map(|(name, value)| (name.into(), value.into())).to_vec();
        ids.push(log.commit(commit).await.expect("committed").event_ids[0].to_string());
    }
    host.browse(DEFAULT_TENANT).expect("declared").page(BrowseQuery::default()).await.expect("a page");
    host.archive(DEFAULT_TENANT).expect("declared").delete(&ids[2], "a test".into()).await.expect("deleted");
    let out = python(&[&url(), subject.database_name()]);
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(
        lines,
        [
            format!("event {} execution_requested 1.0 api ada e-1 python", ids[0]),
            format!("event {} execution_completed 1.0 api ada e-1 None", ids[1]),
            "by user: 2, by text: 2".to_owned(),
            format!("archived {} user_deleted root a test", ids[2]),
        ]
    );
    host.drain().await;
    store.close().await;
}
