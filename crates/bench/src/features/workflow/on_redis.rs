//! Measures work queues on Redis: through the adapter, beside calls of the same script by the bare client.

use std::sync::Arc;
use std::time::Instant;

use annals::SystemClock;
use annals_core::Clock;
use annals_core::queue::{QueueDefinition, Queues};
use annals_core::{DEFAULT_TENANT, Store};
use annals_redis::RedisQueues;
use annals_runtime::{Host, HostOptions};
use redis::FromRedisValue;
use redis::aio::ConnectionManager;
use tokio::task::JoinSet;

use super::super::{Arguments, Places, median, text};
use super::{CALLERS, ended, work};
use crate::row::{self, Target};

/// The response of the script to `take`: items with token and payload, and ids of lost ones.
type Taken = (Vec<(Vec<String>, String, String)>, Vec<String>);

pub async fn measure(url: &str, places: &Places<'_>, arguments: &Arguments) -> Result<(), String> {
    let items = arguments.events / 50 / CALLERS * CALLERS;
    let store: Arc<dyn Store> = places.open("embedded", "queue-on-redis").await?;
    let queues = RedisQueues::open(url, Arc::new(SystemClock)).map_err(text)?;
    let host =
        Host::start(Arc::clone(&store), HostOptions { queues: Some(Arc::new(queues)), ..HostOptions::default() });
    let queues = host.queues(DEFAULT_TENANT).map_err(text)?;
    let client = redis::Client::open(url).map_err(text)?;
    let connection = client.get_connection_manager().await.map_err(text)?;
    let script = Arc::new(redis::Script::new(include_str!("../../../../redis/src/queue.lua")));
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        let name = format!("work-{round}");
        let cap = u32::try_from(CALLERS).map_err(text)?;
        let definition = QueueDefinition { cap, ..QueueDefinition::new(name.clone()) };
        queues.put(definition.clone()).await.map_err(text)?;
        let began = Instant::now();
        let mut callers: JoinSet<Result<(), String>> = JoinSet::new();
        for caller in 0..CALLERS {
            let queues: Arc<dyn Queues> = Arc::clone(&queues) as _;
            callers.spawn(work(queues, name.clone(), caller, items / CALLERS));
        }
        ended(callers).await?;
        ours.push((3 * items) as f64 / began.elapsed().as_secs_f64());
        let key = format!("annals:{{bench/{}/{round}}}", std::process::id());
        let began = Instant::now();
        let mut callers: JoinSet<Result<(), String>> = JoinSet::new();
        for caller in 0..CALLERS {
            let bare = Bare {
                script: Arc::clone(&script),
                connection: connection.clone(),
                key: key.clone(),
                of: definition.clone(),
            };
            callers.spawn(bare.work(caller, items / CALLERS));
        }
        ended(callers).await?;
        bare.push((3 * items) as f64 / began.elapsed().as_secs_f64());
    }
    let (ours, bare) = (median(ours), median(bare));
    let name = format!("redis: queue operations ÷ calls of the bare script, {CALLERS} callers");
    row::ratio(name, "per second", ours, bare, Target::AtLeast(0.6));
    host.drain().await;
    store.close().await;
    Ok(())
}

/// A caller of the script without the adapter.
struct Bare {
    script: Arc<redis::Script>,
    connection: ConnectionManager,
    key: String,
    of: QueueDefinition,
}

impl Bare {
    async fn work(mut self, caller: u64, items: u64) -> Result<(), String> {
        for n in 0..items {
            let id = format!("{caller}-{n}");
            let _: redis::Value = self.call("enqueue", &[&id, "2", "", "null"]).await?;
            let (items, _): Taken = self.call("take", &["1", "30000", ""]).await?;
            for (fields, token, _) in items {
                let id = fields.first().ok_or("an item without an id")?;
                let _: redis::Value = self.call("done", &["0", id, &token]).await?;
            }
        }
        Ok(())
    }

    async fn call<T: FromRedisValue>(&mut self, request: &str, arguments: &[&str]) -> Result<T, String> {
        let mut call = self.script.prepare_invoke();
        call.key(&self.key).arg(request).arg(SystemClock.now().as_millis());
        call.arg(self.of.cap).arg(u8::from(self.of.fair)).arg(self.of.ageing_ms);
        call.arg(self.of.pending_max).arg(self.of.pending_max_per_user);
        for argument in arguments {
            call.arg(*argument);
        }
        call.invoke_async(&mut self.connection).await.map_err(text)
    }
}
