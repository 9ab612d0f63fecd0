//! The log browser: filters that the log's indexes support, and a search through the text of events.

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Input, Search, Table};
use crate::page::{Group, Page, Permission};
use crate::values::{count, items, list, number, text};
use crate::view::{Refused, View};

pub(super) const PAGE: Page = Page {
    id: "log",
    title: "Log",
    group: Group::Events,
    permission: Permission::Reader,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[],
};

/// The number of events on a page. Of a search: the events per page, the most pages, and after how many results it stops.
const PAGE_EVENTS: &str = "50";
const SEARCH_EVENTS: &str = "1000";
const SEARCH_PAGES: usize = 5;
const FOUND_MAX: usize = 50;

#[derive(Template)]
#[template(path = "log.html")]
struct Log {
    search: Search,
    said: String,
    events: Table,
}

async fn render(view: &View) -> Result<String, Refused> {
    let search = view.value("search");
    let forwards = view.parameter("order") == Some("oldest");
    let mut from = view.value("from");
    let mut rows = Vec::new();
    let (mut looked, mut head, mut next) = (0, 0, Value::Null);
    let pages = if search.is_empty() { 1 } else { SEARCH_PAGES };
    for _ in 0..pages {
        let page = read(view, &from, forwards, !search.is_empty()).await?;
        let events = items(&page, "events");
        head = number(&page, "head");
        looked += events.len();
        let found = events.iter().filter(|event| search.is_empty() || holds(event, &search));
        rows.extend(found.map(|event| row(view, event)));
        next = if events.is_empty() { Value::Null } else { page["next"].clone() };
        from = text(&page, "next");
        if events.is_empty() || rows.len() >= FOUND_MAX {
            break;
        }
    }
    // A backward read that has reached the beginning has no next page.
    if !forwards && next == 0 {
        next = Value::Null;
    }
    let said = match search.is_empty() {
        true => format!("{} events in the log", count(head)),
        false => format!("{} found in {} searched events", rows.len(), count(looked as u64)),
    };
    let log = Log { search: form(view), said, events: table(rows, view.next(if forwards { "Newer events" } else { "Older events" }, "from", &next)) };
    Ok(log.render()?)
}

async fn read(view: &View, from: &str, forwards: bool, search: bool) -> Result<Value, Refused> {
    let parameters = [
        ("limit", if search { SEARCH_EVENTS } else { PAGE_EVENTS }),
        ("from", from),
        ("types", &view.value("types")),
        ("tags", &view.value("tags")),
        ("aggregate", &view.value("aggregate")),
        ("scope", &view.value("scope")),
        ("backwards", if forwards { "" } else { "true" }),
    ];
    view.query("/v1/log", &parameters).await
}

/// Returns whether the text of an event contains the search text, ignoring case.
fn holds(event: &Value, search: &str) -> bool {
    event.to_string().to_lowercase().contains(&search.to_lowercase())
}

/// Returns the row of an event, for every page that lists some.
pub(super) fn row(view: &View, event: &Value) -> Vec<Cell> {
    let at = text(event, "sequence_number");
    let scope = text(event, "scope");
    let scope = if scope == "default" { "" } else { &scope };
    let (name, id) = (text(event, "aggregate.name"), text(event, "aggregate.id"));
    let aggregate = match name.is_empty() {
        true => Cell::text(text(event, "event_source")),
        false => Cell::link(format!("{name}/{id}"), view.link("aggregates", &[("name", &name), ("id", &id)])),
    };
    vec![
        Cell { class: "number", ..Cell::link(&at, view.link("event", &[("number", &at), ("scope", scope)])) },
        Cell::text(text(event, "time")),
        Cell::text(text(event, "type")),
        aggregate,
        Cell::number(number(event, "version")),
        Cell::text(list(event, "tags")),
        Cell::code(&text(event, "data")),
    ]
}

/// Returns a table of events.
pub(super) fn table(rows: Vec<Vec<Cell>>, next: Option<crate::components::Link>) -> Table {
    Table {
        id: "events",
        title: "Events".to_owned(),
        columns: vec!["number", "time", "type", "aggregate", "version", "tags", "data"],
        rows,
        empty: "No event matches.",
        next,
    }
}

fn form(view: &View) -> Search {
    let input = |name, label, hint| Input::of(view, name, label, hint);
    Search {
        action: view.address(),
        hidden: view.hidden(),
        inputs: vec![
            input("search", "Search", "text in the event"),
            input("types", "Types", "a,b"),
            input("tags", "Tags", "a,b: all of them"),
            input("aggregate", "Aggregate", "name or name/id"),
            input("from", "From sequence number", "the end"),
            input("order", "Order", "newest or oldest"),
            input("scope", "Scope", "default"),
        ],
        button: "Show",
    }
}
