//! Measures partner events: deliveries with durable attempt records beside the same requests without them, and dead partners beside
//! healthy ones.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use annals::{HttpSending, SystemClock};
use annals_core::partners::{DELIVERIES, DeliveryRecord, EventDirection, Limits, Outgoing, PartnerDefinition, Sending};
use annals_core::{Clock, Condition, DEFAULT_TENANT, Expected, Store, Timestamp, TypedRecords};
use annals_runtime::{Host, HostOptions, PartnerKeys, PartnerOptions};
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use tokio::net::TcpListener;

use super::{Arguments, Places, commit_all, data, median, text, until};
use crate::http;
use crate::row::{self, Parts, Target};

/// Most concurrent requests to one partner, on both sides.
const CONCURRENCY: u32 = 64;
/// The body that the bare client sends, as long as the one that a partner gets.
const BODY: &[u8] = br#"{"specversion":"1.0","id":"6a1b2c3d4e5f6071829304a5","source":"/default/order/o-12345","type":"order_placed","subject":"o-12345","time":"2026-01-01T00:00:00.000Z","datacontenttype":"application/json","sequence":"0000000000000012345","data":{"total":12345}}"#;
const ID: &str = "6a1b2c3d4e5f6071829304a5";
const SIGNATURE: &str = "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A receiver of deliveries that answers 200.
struct Receiver {
    address: SocketAddr,
    arrived: Arc<AtomicU64>,
    /// Microseconds from the commit to the receipt.
    took: Arc<Mutex<Vec<f64>>>,
}

impl Receiver {
    async fn start(began: Instant) -> Result<Self, String> {
        let (arrived, took) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (count, times) = (Arc::clone(&arrived), Arc::clone(&took));
        let receive = move |body: Bytes| {
            let event: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            if let Some(at) = event["data"]["at"].as_u64() {
                let now = began.elapsed().as_micros() as f64;
                times.lock().unwrap_or_else(PoisonError::into_inner).push(now - at as f64);
            }
            count.fetch_add(1, Ordering::Relaxed);
            async {}
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(text)?;
        let address = listener.local_addr().map_err(text)?;
        let router = Router::new().route("/", post(receive));
        tokio::spawn(http::serve(listener, router));
        Ok(Self { address, arrived, took })
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    async fn until(&self, count: u64) -> Result<(), String> {
        let every = Duration::from_millis(2);
        until("the deliveries", every, || async { Ok::<_, String>(self.arrived.load(Ordering::Relaxed) >= count) })
            .await
    }

    fn p99(&self) -> f64 {
        let mut times = self.took.lock().unwrap_or_else(PoisonError::into_inner).clone();
        times.sort_by(f64::total_cmp);
        times.get(times.len() * 99 / 100).copied().unwrap_or(0.0) / 1_000.0
    }
}

fn sending() -> Result<HttpSending, String> {
    HttpSending::default().allowing(["127.0.0.0/8"]).map_err(text)
}

fn host(store: &Arc<dyn Store>) -> Result<Host, String> {
    let partners = PartnerOptions { sending: Arc::new(sending()?), keys: Some(PartnerKeys::for_development()) };
    Ok(Host::start(Arc::clone(store), HostOptions { partners, ..HostOptions::default() }))
}

pub async fn measure(places: &Places<'_>, arguments: &Arguments, parts: &mut Parts) {
    for backend in places.backends() {
        parts.note(&format!("{backend}: deliveries"), rate(backend, places, arguments).await);
    }
    parts.note("embedded: dead partners", dead(places, arguments).await);
    for backend in places.backends() {
        parts.note(&format!("{backend}: pending deliveries"), pending(backend, places, arguments).await);
    }
}

/// Measures the time to find due deliveries among many that are due later, beside the time among one page of them.
async fn pending(backend: &str, places: &Places<'_>, arguments: &Arguments) -> Result<(), String> {
    const LOOK_UPS: u32 = 500;
    const PAGE: u64 = 100;
    let mut took = Vec::new();
    let mut explained = String::new();
    let many = 10 * arguments.events;
    for count in [PAGE, many] {
        let store = places.open(backend, &format!("pending{count}")).await?;
        let records = store.records(DEFAULT_TENANT).map_err(text)?;
        let deliveries = TypedRecords::<DeliveryRecord>::declare(Arc::clone(&records)).await.map_err(text)?;
        let now = SystemClock.now();
        for first in (0..count).step_by(1_000) {
            let batch = (first..count.min(first + 1_000)).map(|n| {
                let due = if n == 0 { now } else { now.plus(Duration::from_secs(3_600 + n)) };
                TypedRecords::replacement(&delivery(n, due), Expected::Absent)
            });
            records.write(batch.collect::<Result<_, _>>().map_err(text)?).await.map_err(text)?;
        }
        let lane = DeliveryRecord::lane_of(EventDirection::Out, "acme");
        let query = TypedRecords::<DeliveryRecord>::query().matching(DeliveryRecord::due_in(&lane)).ascending("due");
        let query = query.limit(PAGE as usize);
        let began = Instant::now();
        for _ in 0..LOOK_UPS {
            let (found, _) = deliveries.find(query.clone()).await.map_err(text)?;
            if found.first().is_none_or(|found| found.value.order != 0) {
                return Err("what is due was not found first".to_owned());
            }
        }
        took.push(began.elapsed().as_secs_f64() * 1_000.0 / f64::from(LOOK_UPS));
        let how = records.explain(query).await.map_err(text)?;
        explained = format!("index {}, {} entries read", how.index.unwrap_or_default(), how.entries_examined);
        store.close().await;
    }
    let name = format!("{backend}: finding a due delivery among {many} pending ÷ among {PAGE} ({explained})");
    row::ratio(name, "ms", took[1], took[0], Target::AtMost(2.0));
    Ok(())
}

/// Returns a delivery that is due then.
fn delivery(n: u64, due: Timestamp) -> DeliveryRecord {
    let mut id = [0; 12];
    id[4..].copy_from_slice(&n.to_be_bytes());
    let key = DeliveryRecord::key_out("acme", &n.to_string(), None);
    let mut delivery = DeliveryRecord::new(key, id.into(), EventDirection::Out, "acme", due);
    (delivery.entity, delivery.order) = (format!("order/o-{n}"), n as i64);
    delivery
}

/// Measures deliveries per second to one partner, beside the bare client at the same concurrency.
async fn rate(backend: &str, places: &Places<'_>, arguments: &Arguments) -> Result<(), String> {
    let events = arguments.events / 10;
    let (mut delivered, mut bare) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        bare.push(post_all(events).await?);
        let store = places.open(backend, &format!("partners{round}")).await?;
        let host = host(&store)?;
        let receiver = Receiver::start(Instant::now()).await?;
        commit_all(&*store, "o", events, |n| data(&serde_json::json!({ "total": n }))).await?;
        let partners = host.partners(DEFAULT_TENANT).map_err(text)?;
        let mut definition = partner("acme", &receiver.url(), Condition::eq("type", "order_placed"));
        definition.start = annals_core::partners::SelectFrom::Beginning;
        let began = Instant::now();
        partners.put(definition).await.map_err(text)?;
        receiver.until(events).await?;
        ended(&*store, "acme").await?;
        delivered.push(events as f64 / began.elapsed().as_secs_f64());
        let success = partners.statistics("acme").await.map_err(text)?.out.success;
        if success != events {
            return Err(format!("{success} of {events} deliveries succeeded"));
        }
        host.drain().await;
        store.close().await;
    }
    let (delivered, bare) = (median(delivered), median(bare));
    // On MongoDB a delivery is two transactions; the other side has none.
    let target = Target::AtLeast(if backend == "mongodb" { 0.25 } else { 0.5 });
    let name = format!("{backend}: deliveries with durable attempts ÷ the bare client, at {CONCURRENCY} in flight");
    row::ratio(name, "per second", delivered, bare, target);
    Ok(())
}

fn partner(id: &str, url: &str, select: Condition) -> PartnerDefinition {
    let limits = Limits { concurrency: CONCURRENCY, timeout_ms: 1_000, ..Limits::default() };
    PartnerDefinition { limits, ..PartnerDefinition::new(id.to_owned(), id.to_owned()) }
        .sends(url.to_owned(), select)
        .secrets([SECRET])
}

/// Waits until no delivery to a partner is due, not even at the end of a lease, so that every one has ended. Each check is one look-up in
/// an index, so it does not slow what is measured.
async fn ended(store: &dyn Store, partner: &str) -> Result<(), String> {
    let records = store.records(DEFAULT_TENANT).map_err(text)?;
    let due = DeliveryRecord::due_in(&DeliveryRecord::lane_of(EventDirection::Out, partner));
    let none = || async { Ok::<_, String>(records.count_up_to(DELIVERIES, &due, 1).await.map_err(text)? == 0) };
    until("the ends of the deliveries", Duration::from_millis(2), none).await
}

async fn post_all(count: u64) -> Result<f64, String> {
    let (receiver, sending) = (Receiver::start(Instant::now()).await?, Arc::new(sending()?));
    let left = Arc::new(AtomicU64::new(count));
    let began = Instant::now();
    let lanes = (0..CONCURRENCY).map(|_| {
        let (left, sending, url) = (Arc::clone(&left), Arc::clone(&sending), receiver.url());
        tokio::spawn(async move {
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                let body = Bytes::from_static(BODY);
                let headers = [
                    ("content-type", "application/cloudevents+json"),
                    ("webhook-id", ID),
                    ("webhook-signature", SIGNATURE),
                ];
                let headers = headers.map(|(name, value)| (name, value.to_owned())).to_vec();
                let request = Outgoing { url: url.clone(), headers, body, timeout: Duration::from_secs(5) };
                sending.send(request).await?;
            }
            Ok::<_, String>(())
        })
    });
    for lane in lanes.collect::<Vec<_>>() {
        lane.await.map_err(text)??;
    }
    receiver.until(count).await?;
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Measures the 99th percentile of the time from commit to receipt, alternately with a tenth of the partners dead and with none.
async fn dead(places: &Places<'_>, arguments: &Arguments) -> Result<(), String> {
    let many = arguments.many.unwrap_or(1_000);
    let silent = TcpListener::bind("127.0.0.1:0").await.map_err(text)?;
    let silent_url = format!("http://{}/", silent.local_addr().map_err(text)?);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        without.push(tail(places, &format!("alive{round}"), many, 0, &silent_url).await?);
        with.push(tail(places, &format!("dead{round}"), many, many / 10, &silent_url).await?);
    }
    let (with, without) = (median(with), median(without));
    drop(silent);
    let name = format!("embedded: {many} partners, p99 of the others with {} dead ÷ with none", many / 10);
    row::ratio(name, "ms", with, without, Target::AtMost(1.2));
    Ok(())
}

/// Commits two events for each of many partners, the first of which never respond.
async fn tail(places: &Places<'_>, name: &str, many: u64, dead: u64, silent: &str) -> Result<f64, String> {
    let store = places.open("embedded", name).await?;
    let host = host(&store)?;
    let began = Instant::now();
    let receiver = Receiver::start(began).await?;
    let partners = host.partners(DEFAULT_TENANT).map_err(text)?;
    for n in 0..many {
        let url = if n < dead { silent.to_owned() } else { receiver.url() };
        let select = Condition::eq("data.partner", i64::try_from(n).map_err(text)?);
        partners.put(partner(&format!("p-{n}"), &url, select)).await.map_err(text)?;
    }
    // One core delivers ten times as much, so the tail shows which deliveries wait for others, and not how long a full queue is.
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    let events = 2 * many;
    for n in 0..events {
        pace.tick().await;
        let at = began.elapsed().as_micros() as u64;
        let event = |_| data(&serde_json::json!({ "partner": n % many, "at": at }));
        commit_all(&*store, &format!("d-{n}"), 1, event).await?;
    }
    receiver.until(events - 2 * dead).await?;
    host.drain().await;
    store.close().await;
    Ok(receiver.p99())
}
