//! `annals demo` as two processes on one MongoDB: the worker, and every other part. They publish to the Kafka of the tests and hold their
//! queue in its Redis, if this program is built with them. The name of this file leaves it out where there is no MongoDB: see
//! CONTRIBUTING.md.

use annals::Filter;

use crate::demo::Demo;
use crate::histories::{PROGRAMS, client, expected, submit, types_of, until, whole};
use crate::run::folder;
use crate::with_mongodb_serve::{Database, server};

/// The options of the services beside MongoDB.
fn beside() -> Vec<String> {
    let mut options = Vec::new();
    if let Some(kafka) = kafka() {
        options.extend(["--broker".to_owned(), format!("kafka://{kafka}")]);
    }
    if cfg!(feature = "redis")
        && let Ok(redis) = std::env::var("ANNALS_TEST_REDIS")
    {
        options.extend(["--queue".to_owned(), redis]);
    }
    options
}

/// `host:port` of the Kafka.
fn kafka() -> Option<String> {
    if cfg!(feature = "kafka") { std::env::var("ANNALS_TEST_KAFKA").ok() } else { None }
}

/// Whether the worker's group follows the log. With a Kafka, it is known only there.
async fn follows_the_log(address: &str) -> bool {
    let group = reqwest::get(format!("{address}/v1/groups/k8s-worker")).await.expect("answers");
    assert!([200, 404].contains(&group.status().as_u16()), "{group:?}");
    group.status().is_success()
}

#[test]
fn a_worker_that_is_a_process_of_its_own_gives_the_histories_of_the_demo_in_one_process() {
    let (folder, database) = (folder(), Database::new());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut alone = Demo::start(folder.path(), &[]);
    let address = alone.address();
    let expected = runtime.block_on(expected(&address));
    alone.stop("TERM");

    let url = format!("mongodb://{}/{}?directConnection=true", server(), database.0);
    let beside = beside();
    // Topics and groups of this test alone.
    let tenants = format!(r#"{{ default = {{ prefix = "{}." }} }}"#, database.0);
    let environment = kafka().map(|_| ("ANNALS__BROKER__TENANTS", tenants.as_str()));
    let with = |roles: &[&str]| {
        let mut arguments = vec!["--store", url.as_str()];
        arguments.extend(beside.iter().map(String::as_str));
        arguments.extend(roles.iter().flat_map(|role| ["--role", *role]));
        let mut demo = Demo::configured(folder.path(), &arguments, environment.as_slice());
        let address = demo.address();
        demo.wait_for(&format!("This process runs {}.", roles.join(", ")));
        (demo, address)
    };
    let (rest, address) = with(&["api", "saga-orchestrator", "result-processor", "notification-service", "sse-bridge"]);
    let client = client(&address);
    let ids = runtime.block_on(async {
        let mut ids = Vec::new();
        for (script, _) in PROGRAMS {
            let id = submit(&address, script).await;
            until(&client, &id, &["execution_queued"]).await;
            ids.push(id);
        }
        let pods = types_of(&client, Filter { types: vec!["pod_created".into()], ..Filter::default() }).await;
        assert!(pods.is_empty(), "no process is the worker");
        ids
    });
    let (worker, _) = with(&["worker"]);
    for (id, expected) in ids.iter().zip(expected) {
        assert_eq!(runtime.block_on(whole(&client, id)), expected);
    }
    assert_eq!(runtime.block_on(follows_the_log(&address)), kafka().is_none(), "the commands came from Kafka");
    worker.stop("TERM");
    rest.stop("TERM");
}
