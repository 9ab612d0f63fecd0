//! The work queue on a Redis that is killed and comes back empty.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use annals::Store;
use annals_example_execution::{COMPLETED, CREATE_POD, QUEUE};
use serde_json::json;

use crate::machine::marker;
use crate::service::{Service, ended, history_of, memory, started, until, within};

/// A Redis of this test, which keeps nothing.
struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    async fn start(port: Option<u16>) -> Self {
        let free = || TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let port = port.unwrap_or_else(free);
        let program = std::env::var("ANNALS_TEST_REDIS_SERVER");
        let mut command = Command::new(program.expect("`cargo xtask services redis` prints ANNALS_TEST_REDIS_SERVER"));
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
        within("Redis", async {
            while TcpStream::connect(("127.0.0.1", port)).is_err() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        Self { child, port }
    }

    /// Kills it, and starts one that is empty in its place.
    async fn replace(&mut self) {
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it ended");
        let next = Self::start(Some(self.port)).await;
        drop(std::mem::replace(self, next));
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn executions_survive_a_redis_that_is_killed_and_comes_back_empty() {
    redis_is_replaced(&memory().await).await;
}

/// Kills the Redis of a service in the middle of its work, on a store of any kind.
pub async fn redis_is_replaced(store: &Arc<dyn Store>) {
    let mut redis = Redis::start(None).await;
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let service = Service::start_with(store, |settings| {
        settings.at_once = 1;
        settings.tasks.queues = annals::open_queue(&url).expect("a URL");
    });
    let service = service.await;
    let gate = marker();
    let script = format!("until [ -e /tmp/{gate} ]; do sleep 0.01; done; rm /tmp/{gate}");
    let running = service.submit_with(json!({ "language": "sh", "script": script, "timeout_seconds": 60 })).await;
    started(&service.log, &running).await;
    let waiting = service.submit("sh", "echo waited").await;
    until(&service.log, &waiting, &["execution_queued"]).await;
    redis.replace().await;
    // The queue is rebuilt from the sagas; what ran has its slot again.
    let path = format!("/v1/queues/{QUEUE}/items/{running}");
    service.until_answered("the slot", &path, |status, item| status == 200 && item["state"] == "active").await;
    let submitted = service.submit("sh", "echo meanwhile").await;
    std::fs::write(format!("/tmp/{gate}"), "").expect("can be written");
    for id in [&running, &waiting, &submitted] {
        assert_eq!(ended(&service.log, id).await.event_type, COMPLETED);
        assert_eq!(history_of(&service.log, id, &[CREATE_POD]).await, [CREATE_POD], "it ran once");
    }
    service.until("free slots", &format!("/v1/queues/{QUEUE}"), |queue| queue["active"] == 0).await;
    service.stop().await;
}
