//! Aggregates: their names, their ids, the history of one, and what was known at each of its versions.

use askama::Template;
use serde_json::{Map, Value};

use crate::components::{Cell, Facts, Json, Table};
use crate::page::{Group, Page, Permission};
use crate::values::{items, number, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "aggregates",
    title: "Aggregates",
    group: Group::Events,
    permission: Permission::Reader,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[],
};

/// The number of commits that a page of history and the view of one version read.
const COMMITS: &str = "1000";

#[derive(Template)]
#[template(path = "aggregates.html")]
struct Aggregates {
    title: String,
    list: Option<Table>,
    one: Option<One>,
}

struct One {
    facts: Facts,
    past: Option<Past>,
    history: Table,
}

/// The view of one version: what was known at it.
struct Past {
    version: u64,
    previous: Option<String>,
    next: Option<String>,
    commit: Table,
    snapshot: Option<Json>,
    since: u64,
    merged: Json,
}

async fn render(view: &View) -> Result<String, Refused> {
    let aggregates = match (view.parameter("name"), view.parameter("id")) {
        (None, _) => names(view).await?,
        (Some(name), None) => ids(view, name).await?,
        (Some(name), Some(id)) => {
            Aggregates { title: format!("{name}/{id}"), list: None, one: Some(one(view, name, id).await?) }
        }
    };
    Ok(aggregates.render()?)
}

async fn names(view: &View) -> Result<Aggregates, Refused> {
    let page = view.query("/v1/aggregates", &[("after", &view.value("after"))]).await?;
    let rows = items(&page, "names").iter().map(|name| {
        let name = crate::values::shown(name);
        vec![Cell::link(&name, view.link("aggregates", &[("name", &name)]))]
    });
    let list = Table {
        id: "names",
        title: "Names".to_owned(),
        columns: vec!["name"],
        rows: rows.collect(),
        empty: "No aggregate has a commit yet.",
        next: more(view, &page, "names"),
    };
    Ok(Aggregates { title: "Aggregates".to_owned(), list: Some(list), one: None })
}

/// Returns a link to the next page, if this one is full.
fn more(view: &View, page: &Value, list: &str) -> Option<crate::components::Link> {
    if items(page, list).len() < 100 { None } else { view.next("More", "after", &page["next"]) }
}

async fn ids(view: &View, name: &str) -> Result<Aggregates, Refused> {
    let page = view.query(&format!("/v1/aggregates/{}", escape(name)), &[("after", &view.value("after"))]).await?;
    let rows = items(&page, "aggregates").iter().map(|aggregate| {
        let id = text(aggregate, "id");
        let tenant = text(aggregate, "tenant_id");
        vec![Cell::link(&id, view.link("aggregates", &[("name", name), ("id", &id)])), Cell::text(tenant)]
    });
    let list = Table {
        id: "ids",
        title: name.to_owned(),
        columns: vec!["id", "tenantId"],
        rows: rows.collect(),
        empty: "No aggregate has this name.",
        next: more(view, &page, "ids"),
    };
    Ok(Aggregates { title: name.to_owned(), list: Some(list), one: None })
}

fn path(name: &str, id: &str) -> String {
    format!("/v1/aggregates/{}/{}/commits", escape(name), escape(id))
}

async fn one(view: &View, name: &str, id: &str) -> Result<One, Refused> {
    let from = view.value("from_version");
    let page = view.query(&path(name, id), &[("from_version", &from), ("limit", "100")]).await?;
    let version = number(&page, "version");
    let at = |version: u64| view.link("aggregates", &[("name", name), ("id", id), ("version", &version.to_string())]);
    let commits = items(&page, "commits");
    let rows = commits.iter().map(|commit| {
        let version = number(commit, "version");
        let types: Vec<String> = items(commit, "events").iter().map(|event| text(event, "type")).collect();
        let first = items(commit, "events").first().map(|event| text(event, "sequence_number")).unwrap_or_default();
        vec![
            Cell { class: "number", ..Cell::link(version.to_string(), at(version)) },
            Cell::text(text(commit, "time")),
            Cell::link(&first, view.link("event", &[("number", &first)])),
            Cell::text(types.join(", ")),
            Cell::text(text(commit, "request_id")),
        ]
    });
    let after = commits.last().map(|commit| number(commit, "version")).filter(|last| *last < version);
    let history = Table {
        id: "history",
        title: "History".to_owned(),
        columns: vec!["version", "time", "first event", "events", "request id"],
        rows: rows.collect(),
        empty: "It has no commits at or after this version.",
        next: after.and_then(|last| view.next("Later versions", "from_version", &Value::from(last + 1))),
    };
    let past = match view.parameter("version").map(str::parse::<u64>) {
        Some(Ok(wanted)) if wanted > 0 => Some(past(view, name, id, wanted.min(version)).await?),
        _ => None,
    };
    let snapshot = view.link("snapshots", &[("name", name), ("id", id)]);
    let facts = Facts::default()
        .with("version", Cell::link(version.to_string(), at(version)))
        .with("snapshot", Cell::link("show", snapshot))
        .with("events", Cell::link("in the log", view.link("log", &[("aggregate", &format!("{name}/{id}"))])));
    Ok(One { facts, past, history })
}

/// Returns what was known at a version: the snapshot, unless it is newer, and the fields of the events in their order.
async fn past(view: &View, name: &str, id: &str, version: u64) -> Result<Past, Refused> {
    let at = |version: u64| view.link("aggregates", &[("name", name), ("id", id), ("version", &version.to_string())]);
    let snapshot = view.get(&format!("/v1/snapshots/{}/{}", escape(name), escape(id))).await.ok();
    let snapshot = snapshot.filter(|snapshot| number(snapshot, "version") <= version);
    let to = version.to_string();
    let page = view.query(&path(name, id), &[("to_version", &to), ("limit", COMMITS)]).await?;
    let commits = items(&page, "commits");
    let mut merged = Map::new();
    let mut rows = Vec::new();
    for commit in commits {
        for event in items(commit, "events") {
            merged.extend(event["data"].as_object().cloned().unwrap_or_default());
            if number(commit, "version") == version {
                rows.push(super::log::row(view, event));
            }
        }
    }
    let last = number(&page, "version");
    Ok(Past {
        version,
        previous: version.checked_sub(1).filter(|version| *version > 0).map(at),
        next: (version < last).then(|| at(version + 1)),
        commit: Table { title: format!("Events of version {version}"), ..super::log::table(rows, None) },
        since: snapshot.as_ref().map_or(version, |snapshot| version - number(snapshot, "version")),
        snapshot: snapshot
            .map(|snapshot| Json::new(&format!("Snapshot at version {}", number(&snapshot, "version")), &snapshot["state"], true)),
        merged: Json::new("Fields as last set by the events up to here", &Value::Object(merged), true),
    })
}
