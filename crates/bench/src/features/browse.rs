//! Measures the browse view: its cost for commits, the time for a first page, and replays, exports and archives beside reading the log.

mod archive;
mod exports;

use std::sync::Arc;
use std::time::{Duration, Instant};

use annals_core::browse::{Browse, BrowseQuery, ReplayFilter, ViewBody, ViewSwitch, json_line};
use annals_core::handlers::Reason;
use annals_core::replays::{ReplayAct, ReplayBody, ReplayState, ReplayTarget};
use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, Data, Follower, Store, Timestamp};
use annals_runtime::{Host, HostOptions};

use super::{Arguments, Places, commit_all, data, median, text, until};
use crate::row::{self, Parts, Target};

/// What can be measured alone.
pub const PARTS: [&str; 4] = ["commits", "pages", "archive", "export"];

pub async fn measure(places: &Places<'_>, arguments: &Arguments, parts: &mut Parts) {
    let mut served = arguments.server.as_ref();
    for backend in places.backends() {
        if arguments.wants("commits") {
            parts.note(&format!("{backend}: commits with the view"), commits(backend, places, arguments).await);
        }
        if arguments.wants("pages") {
            parts.note(&format!("{backend}: browsing"), browsing(backend, places, arguments).await);
        }
        if arguments.wants("archive") {
            parts.note(&format!("{backend}: archive"), archive::measure(backend, places, arguments).await);
        }
        // Once, and before a slower backend begins.
        if let Some(program) = served.take().filter(|_| arguments.wants("export")) {
            parts.note("http: export", exports::measure(program, places, arguments).await);
        }
    }
}

async fn browsing(backend: &str, places: &Places<'_>, arguments: &Arguments) -> Result<(), String> {
    let store = places.open(backend, "pages").await?;
    let exports = places.folder.join(format!("exports-{backend}"));
    std::fs::create_dir_all(&exports).map_err(text)?;
    let host = Host::start(Arc::clone(&store), HostOptions { exports: Some(exports), ..HostOptions::default() });
    let browse = host.browse(DEFAULT_TENANT).map_err(text)?;
    switch(&*browse, ViewSwitch::On).await?;
    commit_all(&*store, "p", arguments.events, event).await?;
    behind(&*browse).await?;
    pages(backend, &*browse).await?;
    sent_again(backend, &store, &host, &*browse, arguments).await?;
    host.drain().await;
    store.close().await;
    Ok(())
}

fn event(n: u64) -> Data {
    data(&serde_json::json!({
        "user_id": format!("u-{}", n % 1_000), "execution_id": format!("e-{}", n / 10), "total": n % 100,
        "note": "leave it at the door, please",
    }))
}

async fn switch(browse: &dyn Browse, state: ViewSwitch) -> Result<(), String> {
    let body = ViewBody::switched(Some(state), "measured");
    browse.set_view(body).await.map(drop).map_err(text)
}

/// Waits until the view has every event of the log.
async fn behind(browse: &dyn Browse) -> Result<Duration, String> {
    let began = Instant::now();
    let has_all = || async {
        let view = browse.view().await.map_err(text)?;
        Ok::<_, String>(view.position >= view.head)
    };
    until("the view", Duration::from_millis(5), has_all).await?;
    Ok(began.elapsed())
}

/// Measures commits per second with and without the view, and how long the view needs after the last one.
async fn commits(backend: &str, places: &Places<'_>, arguments: &Arguments) -> Result<(), String> {
    let (mut on, mut off, mut late) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        for state in [ViewSwitch::Off, ViewSwitch::On] {
            let store = places.open(backend, &format!("commits{round}{}", u8::from(state == ViewSwitch::On))).await?;
            let host = Host::start(Arc::clone(&store), HostOptions::default());
            let browse = host.browse(DEFAULT_TENANT).map_err(text)?;
            switch(&*browse, state).await?;
            let rate = commit_all(&*store, "c", arguments.events, event).await?;
            if state == ViewSwitch::On {
                late.push(behind(&*browse).await?.as_secs_f64());
                on.push(rate);
            } else {
                off.push(rate);
            }
            host.drain().await;
            store.close().await;
        }
    }
    let (on, off, late) = (median(on), median(off), median(late));
    let target = Target::AtLeast(if backend == "mongodb" { 0.75 } else { 0.85 });
    row::ratio(format!("{backend}: commits with the view on ÷ off"), "per second", on, off, target);
    row::figure(format!("{backend}: the view is complete after the last commit"), "s", late, Target::Unset);
    Ok(())
}

/// Measures the first page of each filter, with and without its total, beside the look-up of one event by its id.
async fn pages(backend: &str, browse: &dyn Browse) -> Result<(), String> {
    const TIMES: usize = 21;
    let some = browse.page(BrowseQuery { limit: 1, ..BrowseQuery::default() }).await.map_err(text)?;
    let id = some.items.first().and_then(|item| item["event_id"].as_str()).ok_or("the view is empty")?.to_owned();
    let now = Timestamp::from_millis(annals_core::bson::DateTime::now().timestamp_millis());
    let of = |filter: ReplayFilter| BrowseQuery { filter, limit: 50, ..BrowseQuery::default() };
    let none = ReplayFilter::default;
    let asked = [
        ("look-up by id", of(ReplayFilter { event_ids: Some(vec![id]), ..none() })),
        ("everything", of(none())),
        ("type", of(ReplayFilter { event_types: Some(vec!["order_placed".to_owned()]), ..none() })),
        ("aggregate", of(ReplayFilter { aggregate_id: Some("p-77".to_owned()), ..none() })),
        ("execution", of(ReplayFilter { execution_id: Some("e-77".to_owned()), ..none() })),
        ("user", of(ReplayFilter { user_id: Some("u-77".to_owned()), ..none() })),
        ("time", of(ReplayFilter { end_time: Some(now), ..none() })),
        // All events have the word `u`, and about a thousandth of them `77`.
        ("words", BrowseQuery { search: Some("u-77".to_owned()), ..of(none()) }),
        ("a rare word", BrowseQuery { search: Some("77".to_owned()), ..of(none()) }),
    ];
    let mut by_id = 0.0;
    for (name, query) in asked {
        let (mut rows, mut counted) = (Vec::new(), Vec::new());
        for _ in 0..TIMES {
            let began = Instant::now();
            browse.rows(query.clone()).await.map_err(text)?;
            rows.push(1e6 * began.elapsed().as_secs_f64());
            let began = Instant::now();
            browse.page(query.clone()).await.map_err(text)?;
            counted.push(1e6 * began.elapsed().as_secs_f64());
        }
        let (took, counted) = (median(rows), median(counted));
        if by_id == 0.0 {
            by_id = took;
        }
        let name = format!("{backend}: first page by {name}");
        row::ratio(format!("{name} ÷ look-up by id"), "µs", took, by_id, Target::AtMost(3.0));
        row::ratio(format!("{name} with its total ÷ look-up by id"), "µs", counted, by_id, Target::AtMost(3.0));
    }
    Ok(())
}

/// Measures a replay to a file and an export as JSON lines, beside reading the log.
async fn sent_again(
    backend: &str,
    store: &Arc<dyn Store>,
    host: &Host,
    browse: &dyn Browse,
    arguments: &Arguments,
) -> Result<(), String> {
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
    let (mut read, mut replayed, mut exported) = (Vec::new(), Vec::new(), Vec::new());
    let events = arguments.events as f64;
    for round in 0..arguments.rounds {
        let (began, head) = (Instant::now(), log.head().await.map_err(text)?);
        let mut follower = Follower::new(Arc::clone(&log), 0, Default::default());
        while follower.position() < head {
            follower.step().await.map_err(text)?;
        }
        read.push(events / began.elapsed().as_secs_f64());
        replayed.push(events / replay(host, &format!("replay-{round}.jsonl")).await?.as_secs_f64());
        exported.push(events / export(browse).await?.as_secs_f64());
    }
    let [read, replayed, exported] = [read, replayed, exported].map(median);
    let name = format!("{backend}: replay to a file ÷ log read");
    row::ratio(name, "events/s", replayed, read, Target::AtLeast(0.5));
    let name = format!("{backend}: export as JSON lines ÷ log read, both in this process");
    row::ratio(name, "events/s", exported, read, Target::AtLeast(0.3));
    Ok(())
}

async fn replay(host: &Host, file: &str) -> Result<Duration, String> {
    let replays = host.replays(DEFAULT_TENANT).map_err(text)?;
    let filter = ReplayFilter { event_types: Some(vec!["order_placed".to_owned()]), ..ReplayFilter::default() };
    let body =
        ReplayBody { batch_size: 1_000, ..ReplayBody::new(filter, ReplayTarget::File { name: file.to_owned() }) };
    let session = replays.create(body).await.map_err(text)?.session_id;
    let began = Instant::now();
    let why = Reason { reason: "measured".to_owned(), by: None };
    let mut status = replays.act(&session, ReplayAct::Start, why).await.map_err(text)?;
    while !matches!(status.status, ReplayState::Completed) {
        if let Some(error) = status.error {
            return Err(error);
        }
        status = replays.changed(&session, Some(&status)).await.map_err(text)?;
    }
    Ok(began.elapsed())
}

async fn export(browse: &dyn Browse) -> Result<Duration, String> {
    let began = Instant::now();
    let (mut query, mut bytes) = (BrowseQuery { limit: 1_000, ..BrowseQuery::default() }, 0);
    loop {
        let (rows, cursor) = browse.rows(query.clone()).await.map_err(text)?;
        bytes += rows.iter().map(|row| json_line(row).len()).sum::<usize>();
        match cursor {
            Some(_) => query.cursor = cursor,
            None => break,
        }
    }
    std::hint::black_box(bytes);
    Ok(began.elapsed())
}
