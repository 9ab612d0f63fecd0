//! `annals demo --broker kafka://…`. The name of this file leaves it out where there is no Kafka: see CONTRIBUTING.md.

use annals::Topics;

use crate::demo::Demo;
use crate::histories::{AGAIN, LIMIT, PROGRAMS, client, expected};
use crate::run::folder;

/// The groups that process every end of an execution.
const GROUPS: [&str; 2] = ["notification-service", "result-processor"];

/// Waits until the groups have processed what is on a topic.
async fn until_processed(address: &str, topic: &str) {
    let topics = client(address).topics();
    let mut again = tokio::time::interval(AGAIN);
    let processed = async {
        loop {
            again.tick().await;
            let Ok(shown) = topics.get(topic).await else { continue };
            let has_no_lag = |name: &&str| shown.groups.iter().any(|group| *group.group == **name && group.lag == 0);
            if shown.head.iter().sum::<u64>() > 0 && GROUPS.iter().all(has_no_lag) {
                return;
            }
        }
    };
    tokio::time::timeout(LIMIT, processed).await.unwrap_or_else(|_| panic!("{topic} is processed in time"));
}

#[test]
fn the_demo_has_the_same_histories_with_its_consumers_on_kafka() {
    let kafka =
        std::env::var("ANNALS_TEST_KAFKA").expect("ANNALS_TEST_KAFKA names a Kafka: cargo xtask services kafka");
    let folder = folder();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let histories = |mut demo: Demo| {
        let address = demo.address();
        let histories = runtime.block_on(expected(&address));
        (demo, address, histories)
    };
    let (alone, _, embedded) = histories(Demo::start(folder.path(), &[]));
    alone.stop("TERM");

    // Topics and groups of this test alone.
    let prefix = format!("demo-{}.", std::process::id());
    let tenants = format!(r#"{{ default = {{ prefix = "{prefix}" }} }}"#);
    let broker = format!("kafka://{kafka}");
    let arguments = ["--store", "embedded:./published", "--broker", &broker];
    let demo = Demo::configured(folder.path(), &arguments, &[("ANNALS__BROKER__TENANTS", tenants.as_str())]);
    let (demo, address, published) = histories(demo);
    assert_eq!(published, embedded);
    for (_, end) in PROGRAMS {
        runtime.block_on(until_processed(&address, &format!("{prefix}{end}")));
    }
    demo.stop("TERM");
}
