//! `annals demo` as two processes on one MongoDB: the worker, and every other part. The name of this file leaves it out where there is no
//! MongoDB: see CONTRIBUTING.md.

use annals::Filter;

use crate::demo::Demo;
use crate::histories::{PROGRAMS, client, expected, submit, types_of, until, whole};
use crate::run::folder;
use crate::with_mongodb_serve::{Database, server};

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
    let with = |roles: &[&str]| {
        let mut arguments = vec!["--store", url.as_str()];
        arguments.extend(roles.iter().flat_map(|role| ["--role", *role]));
        let mut demo = Demo::start(folder.path(), &arguments);
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
    worker.stop("TERM");
    rest.stop("TERM");
}
