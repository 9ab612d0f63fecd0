//! One event: its fields, its data, its cause and its effects.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Facts, Input, Json, Search};
use crate::page::{Group, Page, Permission};
use crate::values::{items, list, number, text};
use crate::view::{Refused, View};

pub(super) const PAGE: Page = Page {
    id: "event",
    title: "Event",
    group: Group::Events,
    permission: Permission::Reader,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[],
};

/// The number of events before and after that are searched for the same correlation.
const NEAR_EVENTS: u64 = 500;

#[derive(Template)]
#[template(path = "event.html")]
struct Event {
    search: Search,
    found: Option<Found>,
}

struct Found {
    title: String,
    facts: Facts,
    data: Json,
    whole: Json,
    tree: Vec<Branch>,
    near: u64,
    previous: Option<String>,
    next: String,
}

/// An event in the tree of causes, with its depth.
struct Branch {
    indent: String,
    text: String,
    href: String,
    this: bool,
}

async fn render(view: &View) -> Result<String, Refused> {
    let found = match view.parameter("number") {
        Some(at) => Some(found(view, at).await?),
        None => {
            // A tenant that the caller does not see is refused here as on every page.
            view.get("/v1").await?;
            None
        }
    };
    let input = Input::of(view, "number", "Sequence number", "0");
    let search = Search { action: view.address(), hidden: view.hidden(), inputs: vec![input], button: "Show" };
    Ok(Event { search, found }.render()?)
}

async fn found(view: &View, at: &str) -> Result<Found, Refused> {
    let scope = view.value("scope");
    let path = format!("/v1/log/{}", crate::view::escape(at));
    let event = view.query(&path, &[("scope", &scope)]).await?;
    let at = number(&event, "sequence_number");
    let (name, id) = (text(&event, "aggregate.name"), text(&event, "aggregate.id"));
    let version = text(&event, "version");
    let correlation = text(&event, "correlation_id");
    let link = |at: u64| view.link("event", &[("number", &at.to_string()), ("scope", &scope)]);
    let aggregate = view.link("aggregates", &[("name", &name), ("id", &id), ("version", &version)]);
    let searched = |words: &str| view.link("log", &[("search", words)]);
    let facts = Facts::default()
        .with("number", Cell::text(at.to_string()))
        .with("time", Cell::text(text(&event, "time")))
        .with("type", Cell::link(text(&event, "type"), view.link("types", &[("name", &text(&event, "type"))])))
        .with("generation", Cell::text(text(&event, "generation")))
        .with("aggregate", Cell::link(if name.is_empty() { String::new() } else { format!("{name}/{id}") }, aggregate))
        .with("version", Cell::text(version.clone()))
        .with("tags", Cell::text(list(&event, "tags")))
        .with("event id", Cell::text(text(&event, "id")))
        .with("commit id", Cell::text(text(&event, "commit_id")))
        .with("request id", Cell::text(text(&event, "request_id")))
        .with("correlation id", Cell::link(&correlation, searched(&correlation)))
        .with("causation id", Cell::link(text(&event, "causation_id"), searched(&text(&event, "causation_id"))))
        .with("owner", Cell::text(text(&event, "owner_id")))
        .with("received", Cell::text(text(&event, "received")));
    Ok(Found {
        title: format!("{} {at}", text(&event, "type")),
        facts,
        data: Json::new("Data", &event["data"], true),
        whole: Json::new("The whole event as JSON", &event, false),
        tree: tree(view, &event, &correlation, &scope).await?,
        near: NEAR_EVENTS,
        previous: at.checked_sub(1).map(link),
        next: link(at + 1),
    })
}

/// Returns the nearby events with the same correlation, as a tree of causes.
async fn tree(view: &View, event: &Value, correlation: &str, scope: &str) -> Result<Vec<Branch>, Refused> {
    if correlation.is_empty() {
        return Ok(Vec::new());
    }
    let at = number(event, "sequence_number");
    let from = at.saturating_sub(NEAR_EVENTS).to_string();
    let limit = (2 * NEAR_EVENTS).to_string();
    let page = view.query("/v1/log", &[("from", &from), ("limit", &limit), ("scope", scope)]).await?;
    let related: Vec<&Value> =
        items(&page, "events").iter().filter(|event| text(event, "correlation_id") == correlation).collect();
    // The names by which other events may refer to an event as their cause.
    let mut by_name = BTreeMap::new();
    for (index, event) in related.iter().enumerate() {
        for name in ["id", "commit_id", "request_id", "command_id"] {
            by_name.entry(text(event, name)).or_insert(index);
        }
    }
    let mut children: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (index, event) in related.iter().enumerate() {
        let cause = Some(text(event, "causation_id")).filter(|cause| !cause.is_empty());
        let cause = cause.and_then(|cause| by_name.get(&cause).copied()).filter(|cause| *cause < index);
        children.entry(cause).or_default().push(index);
    }
    let mut branches = Vec::new();
    let mut seen = BTreeSet::new();
    let mut stack: Vec<(usize, usize)> = children.get(&None).into_iter().flatten().rev().map(|index| (*index, 0)).collect();
    while let Some((index, depth)) = stack.pop() {
        if !seen.insert(index) {
            continue;
        }
        let number = text(related[index], "sequence_number");
        branches.push(Branch {
            indent: "\u{2003}".repeat(depth) + if depth > 0 { "└ " } else { "" },
            text: format!("{number} {} {}/{}", text(related[index], "type"), text(related[index], "aggregate.name"), text(related[index], "aggregate.id")),
            href: view.link("event", &[("number", &number), ("scope", scope)]),
            this: number == at.to_string(),
        });
        stack.extend(children.get(&Some(index)).into_iter().flatten().rev().map(|child| (*child, depth + 1)));
    }
    Ok(branches)
}
