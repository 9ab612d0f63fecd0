//! A store with a host on it, its browse view and its replays, and shorthands for the steps of the cases.

use std::sync::Arc;

use annals_core::browse::{Browse, BrowseQuery, ReplayFilter, ViewBody, ViewSwitch};
use annals_core::replays::Replays;
use annals_core::{ByteString, DEFAULT_TENANT, Data, NewCommit, NewEvent, Reached, Records, Store, Timestamp, Uuid};
use annals_runtime::HostOptions;
use serde_json::Value;

use crate::handlers::opened::Opened;
use crate::{ManualClock, Subject};

/// A store, a host on it, and the browse view and the replays of the default tenant. Time stands still until a case advances it.
pub struct Browsed {
    pub it: Opened,
    pub browse: Arc<dyn Browse>,
    pub replays: Arc<dyn Replays>,
    pub records: Arc<dyn Records>,
}

impl Browsed {
    /// Opens it with a view that keeps events forever, because the clock of a case is not the clock of the store's expiry.
    pub async fn of(subject: &dyn Subject) -> Self {
        let it = Self::on(subject.open().await, subject.clock());
        it.switch(Some(ViewSwitch::Auto)).await;
        it
    }

    /// Starts another host on a store, as another process would.
    pub fn on(store: Arc<dyn Store>, clock: Arc<ManualClock>) -> Self {
        Self::with(store, clock, HostOptions::default())
    }

    /// Starts another host with these options, except for the clock.
    pub fn with(store: Arc<dyn Store>, clock: Arc<ManualClock>, options: HostOptions) -> Self {
        let it = Opened::with(store, clock, options);
        it.host.start_defined();
        let browse = it.host.browse(DEFAULT_TENANT).expect("declared");
        let replays = it.host.replays(DEFAULT_TENANT).expect("declared");
        let records = it.store.records(DEFAULT_TENANT).expect("declared");
        Self { it, browse, replays, records }
    }

    /// Continues on the same store with a new host, as after a restart.
    pub async fn restarted(self) -> Self {
        let Self { it: Opened { store, host, clock, .. }, .. } = self;
        host.drain().await;
        Self::on(store, clock)
    }

    pub async fn switch(&self, state: Option<ViewSwitch>) {
        let body = ViewBody { retention_days: Some(None), ..ViewBody::switched(state, "a test") };
        self.browse.set_view(body).await.expect("switched");
    }

    /// Commits one event with this time and header.
    pub async fn commit(&self, sample: Sample<'_>) -> Uuid {
        let data = Data::from_value(&sample.data).expect("a document");
        let time = Some(Timestamp::from_millis(sample.time));
        let event = NewEvent { time, id: sample.id, ..NewEvent::new(sample.event_type, data) };
        let mut commit =
            NewCommit::new(sample.aggregate.0, sample.aggregate.1).event(event).wait_until(Reached::Logged);
        let text = |(key, value): &(&str, &str)| (ByteString::from(*key), ByteString::from(*value));
        commit.header = sample.header.iter().map(text).collect();
        self.it.log.commit(commit).await.expect("committed").event_ids[0]
    }

    /// Commits `count` events of a type, one for each second.
    pub async fn commit_many(&self, event_type: &str, count: usize) {
        for n in 0..count {
            let data = serde_json::json!({ "n": n });
            let id = format!("o-{}", n % 7);
            self.commit(Sample { event_type, data, aggregate: ("order", &id), time: 1_000 * n as i64, ..sample() })
                .await;
        }
    }

    /// Returns the field `n` of the events of a page.
    pub async fn numbers(&self, query: BrowseQuery) -> Vec<i64> {
        let page = self.browse.page(query).await.expect("a page");
        page.items.iter().map(|item| item["n"].as_i64().unwrap_or(-1)).collect()
    }
}

/// An event that a case commits.
pub struct Sample<'a> {
    pub event_type: &'a str,
    pub data: Value,
    pub aggregate: (&'a str, &'a str),
    /// The time of the event, in milliseconds.
    pub time: i64,
    pub header: &'a [(&'a str, &'a str)],
    pub id: Option<Uuid>,
}

/// Returns an event of the type `placed` of the order `o-1`, without data.
pub fn sample<'a>() -> Sample<'a> {
    Sample {
        event_type: "placed",
        data: serde_json::json!({}),
        aggregate: ("order", "o-1"),
        time: 0,
        header: &[],
        id: None,
    }
}

/// Returns the filter of a type.
pub fn of_type(event_type: &str) -> ReplayFilter {
    ReplayFilter { event_types: Some(vec![event_type.to_owned()]), ..ReplayFilter::default() }
}
