//! The overview: first what needs attention, then rates, the head, and the progress of every task.

use std::fmt::Write;

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Link, Notice, Table};
use crate::page::{Group, Page, Permission};
use crate::samples::Rates;
use crate::values::{bytes, count, items, number, text};
use crate::view::{Refused, View};

pub(super) const PAGE: Page = Page {
    id: "overview",
    title: "Overview",
    group: Group::Events,
    permission: Permission::Reader,
    live: true,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[],
};

/// A lag of this many seconds is reported.
const LATE_SECONDS: u64 = 60;
/// The width and height of the chart of the rate.
const COURSE: (f64, f64) = (120.0, 24.0);

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    notices: Vec<Notice>,
    head: String,
    rate: String,
    course: String,
    commits: Option<String>,
    disk: Option<String>,
    free: Option<String>,
    newest: String,
    status: String,
    processors: Table,
    tasks: Table,
    doctor: Option<Table>,
}

async fn render(view: &View) -> Result<String, Refused> {
    // This comes first, because it is refused for a tenant that the caller may not see.
    let last = view.query("/v1/log", &[("limit", "1"), ("backwards", "true")]).await?;
    let ready = view.get("/health/ready").await?;
    let head = number(&last, "head");
    let mut notices = Vec::new();
    let status = text(&ready, "status");
    // The causes of a degraded state are listed by name.
    if !matches!(&*status, "ready" | "degraded") {
        notices.push(bad("The server is not ready.", text(&ready, "detail"), None));
    }
    let log = items(&ready, "logs").iter().find(|log| text(log, "tenant") == view.tenant && text(log, "scope") == "default");
    let mut processors = Table {
        id: "processors",
        title: "Processors".to_owned(),
        columns: vec!["kind", "name", "state", "position", "head", "lag", "behind", "failing", "last progress"],
        empty: "No handler, filter, projection, group or subscription is defined.",
        ..Table::default()
    };
    for (kind, page, path, name) in [
        ("handler", "handlers", "/v1/handlers", "name"),
        ("group", "groups", "/v1/groups", "name"),
        ("projection", "projections", "/v1/projections", "name"),
        ("filter", "filters", "/v1/filters", "stream"),
        ("subscription", "horizon", "/v1/subscriptions", "name"),
    ] {
        match view.query(path, &[("limit", "1000")]).await {
            Ok(list) => {
                for item in items(&list, "items") {
                    let name = text(item, name);
                    let link = view.link(page, &[("name", &name)]);
                    notices.extend(attention(kind, &name, item, &link));
                    processors.rows.push(row(kind, &name, item, link));
                }
            }
            Err(refused) => notices.push(refused.notice()),
        }
    }
    notices.extend(items(&ready, "degraded").iter().filter_map(|degraded| beside(view, degraded)));
    let diagnosis = diagnosis(view).await;
    // Faults come first.
    notices.sort_by_key(|notice| notice.class != "bad");
    processors.rows.sort_by_key(|row| std::cmp::Reverse(row.iter().any(|cell| cell.class.contains("bad"))));
    let Rates { now, course } = view.samples.take(&view.tenant, head, view.api.clock().now());
    let overview = Overview {
        notices,
        head: count(head),
        rate: now.map_or_else(|| "measuring".to_owned(), |rate| format!("{rate:.1}")),
        course: points(&course),
        commits: log.map(|log| count(number(log, "commits"))),
        disk: log.map(|log| bytes(number(log, "bytes"))),
        free: diagnosis.as_ref().and_then(|said| said["free_disk_bytes"].as_u64()).map(bytes),
        doctor: diagnosis.as_ref().map(findings),
        newest: items(&last, "events").first().map(|event| text(event, "time")).unwrap_or_default(),
        status,
        processors,
        tasks: tasks(&ready),
    };
    Ok(overview.render()?)
}

/// Returns a notice for a degraded component that the table of tasks does not list.
fn beside(view: &View, degraded: &Value) -> Option<Notice> {
    let (kind, name, tenant) = (text(degraded, "kind"), text(degraded, "name"), text(degraded, "tenant"));
    let page = match &*kind {
        "handler" | "group" | "projection" | "filter" | "subscription" => return None,
        "dead_letters" => view.link("dead-letters", &[("statistics", "yes")]),
        "archive" => view.link("archive", &[]),
        "saga" => view.link("sagas", &[("name", &name), ("parked", "true")]),
        _ => String::new(),
    };
    let is_here = tenant.is_empty() || tenant == view.tenant;
    let link = Some(Link::new("Show", page)).filter(|link| !link.href.is_empty());
    is_here.then(|| bad(format!("{} {name}", kind.replace('_', " ")).trim(), text(degraded, "reason"), link))
}

/// Returns the diagnosis of the doctor, if the caller may see it. It covers the whole store, so a recent one is reused.
async fn diagnosis(view: &View) -> Option<Value> {
    if !Permission::Admin.is_of(view.who.grant.as_ref()) {
        return None;
    }
    let now = view.api.clock().now();
    if let Some(said) = view.examined.recent(now) {
        return Some(said);
    }
    let said = view.get("/v1/doctor").await.ok()?;
    view.examined.keep(now, &said);
    Some(said)
}

fn findings(said: &Value) -> Table {
    let row = |finding: &Value| {
        vec![
            Cell::state(&text(finding, "severity")),
            Cell::text(text(finding, "about")),
            Cell::text(text(finding, "what")),
            Cell::text(text(finding, "advice")),
        ]
    };
    Table {
        id: "doctor",
        title: format!("Findings of the doctor in {}", crate::values::list(said, "examined")),
        columns: vec!["severity", "about", "what", "what to do"],
        rows: items(said, "findings").iter().map(row).collect(),
        empty: "Nothing is wrong.",
        next: None,
    }
}

fn bad(title: &str, text: String, link: Option<Link>) -> Notice {
    Notice { class: "bad", title: title.to_owned(), text, link }
}

/// Returns a notice if an operator should look at a processor.
fn attention(kind: &str, name: &str, item: &Value, link: &str) -> Option<Notice> {
    let state = text(item, "state");
    let (failing, parked) = (number(item, "failing"), number(item, "parked"));
    let reason = text(item, "last_reason");
    let link = Some(Link::new("Show", link));
    let title = |what: String| format!("{kind} {name}: {what}.");
    if matches!(&*state, "blocked" | "refused" | "failing") || number(item, "blocked") > 0 {
        return Some(bad(&title(format!("{state}, {failing} failing")), reason, link));
    }
    let degraded = text(item, "degraded");
    if failing > 0 || !degraded.is_empty() {
        let why = if degraded.is_empty() { reason } else { degraded };
        return Some(bad(&title(format!("{failing} failing")), why, link));
    }
    let late = number(item, "lag") > 0 && number(item, "lag_seconds") > LATE_SECONDS;
    let said = match &*state {
        "paused" => "paused by an operator".to_owned(),
        _ if late => format!("{} s lag", number(item, "lag_seconds")),
        _ if parked > 0 => format!("{parked} parked"),
        _ => return None,
    };
    Some(Notice { class: "warn", title: title(said), text: String::new(), link })
}

fn row(kind: &str, name: &str, item: &Value, link: String) -> Vec<Cell> {
    let state = text(item, "state");
    let state = if number(item, "failing") > 0 && state == "running" { "failing".to_owned() } else { state };
    vec![
        Cell::text(kind),
        Cell::link(name, link),
        Cell::state(&state),
        Cell::number(number(item, "position")),
        Cell::number(number(item, "head")),
        Cell::number(number(item, "lag")),
        Cell::text(format!("{} s", number(item, "lag_seconds"))),
        Cell::fault(number(item, "failing")),
        Cell::text(text(item, "last_progress")),
    ]
}

/// Returns the background tasks of this process. Only callers that may see every tenant, scope and event type get them.
fn tasks(ready: &Value) -> Table {
    let row = |task: &Value| {
        let cells = vec![Cell::text(text(task, "name")), Cell::state(&text(task, "state")), Cell::fault(number(task, "restarts"))];
        cells
    };
    let mut rows: Vec<_> = items(ready, "tasks").iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.iter().any(|cell| cell.class.contains("bad"))));
    Table {
        id: "tasks",
        title: "Tasks of this process".to_owned(),
        columns: vec!["task", "state", "restarts"],
        rows,
        empty: "There are no tasks that this credential may see.",
        next: None,
    }
}

/// Returns the chart of a rate as the points of a line.
fn points(course: &[f64]) -> String {
    let top = course.iter().copied().fold(1.0, f64::max);
    let step = COURSE.0 / course.len().saturating_sub(1).max(1) as f64;
    let mut points = String::new();
    for (index, rate) in course.iter().enumerate() {
        let _ = write!(points, "{:.1},{:.1} ", index as f64 * step, COURSE.1 - rate / top * (COURSE.1 - 2.0) - 1.0);
    }
    points
}
