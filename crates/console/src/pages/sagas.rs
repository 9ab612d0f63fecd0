//! Sagas: what each has done and undone, step by step, and the acts that cancel or continue it.

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Facts, Input, Json, Link, Search, Table};
use crate::page::{Act, Group, Page, Permission};
use crate::values::{count, items, list as words, number, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "sagas",
    title: "Sagas",
    group: Group::Processing,
    permission: Permission::Reader,
    live: true,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[
        Act::post("cancel", "Cancel", "/v1/sagas/{id}/cancel", "The saga {id} is cancelled: its completed steps are undone, the last one first.").shows(NOW).back(ID),
        Act::post("retry", "Retry", "/v1/sagas/{id}/retry", "The waiting step or compensation of the saga {id} is retried immediately.").shows(NOW).back(ID),
    ],
};

const NOW: &[&str] = &["/v1/sagas/{id}"];
const ID: &[&str] = &["id"];
const STATES: &[&str] = &["created", "running", "compensating", "completed", "failed", "timeout", "cancelled"];

#[derive(Template)]
#[template(path = "sagas.html")]
struct Sagas {
    title: String,
    list: Option<List>,
    one: Option<One>,
}

struct List {
    search: Search,
    counted: String,
    statistics: Option<Facts>,
    table: Table,
}

struct One {
    acts: Vec<Link>,
    facts: Facts,
    steps: Table,
    context: Json,
}

async fn render(view: &View) -> Result<String, Refused> {
    let sagas = match view.parameter("id") {
        Some(id) => {
            let (title, one) = one(view, id).await?;
            Sagas { title, list: None, one: Some(one) }
        }
        None => Sagas { title: "Sagas".to_owned(), list: Some(list(view).await?), one: None },
    };
    Ok(sagas.render()?)
}

async fn list(view: &View) -> Result<List, Refused> {
    let names = ["name", "state", "execution_id", "parked", "cursor"];
    let values: Vec<(&str, String)> = names.iter().map(|name| (*name, view.value(name))).collect();
    let mut parameters: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
    parameters.push(("limit", "50"));
    let page = view.query("/v1/sagas", &parameters).await?;
    let inputs = vec![
        Input::of(view, "name", "Definition", ""),
        Input::choice(view, "state", "State", STATES),
        Input::of(view, "execution_id", "Correlation", ""),
        Input::choice(view, "parked", "Needs an operator", &["true"]),
    ];
    Ok(List {
        search: Search { action: view.address(), hidden: view.hidden(), inputs, button: "Show" },
        counted: view.link("sagas", &[("name", &view.value("name")), ("statistics", "yes")]),
        statistics: statistics(view).await?,
        table: table(view, &page),
    })
}

/// Returns the statistics if they were requested, because they read every saga.
async fn statistics(view: &View) -> Result<Option<Facts>, Refused> {
    if view.parameter("statistics").is_none() {
        return Ok(None);
    }
    let counted = view.query("/v1/sagas/statistics", &[("name", &view.value("name"))]).await?;
    let mut facts = Facts::default().with("sagas", Cell::text(count(number(&counted, "total"))));
    for (state, number) in counted["by_state"].as_object().into_iter().flatten() {
        facts = facts.with(state, Cell::text(count(number.as_u64().unwrap_or(0))));
    }
    let parked = number(&counted, "parked");
    facts = facts.with("need an operator", if parked > 0 { Cell::bad(count(parked)) } else { Cell::text("0") });
    let took = text(&counted, "average_duration_seconds");
    let took = if took.is_empty() { String::new() } else { format!("{took} s") };
    Ok(Some(facts.with("average duration of completed sagas", Cell::text(took))))
}

/// Returns a table of sagas, for every page that lists some.
pub(super) fn table(view: &View, page: &Value) -> Table {
    let row = |saga: &Value| {
        let (id, name) = (text(saga, "id"), text(saga, "name"));
        let parked = text(saga, "parked");
        vec![
            Cell::link(&id, view.link("sagas", &[("id", &id)])),
            Cell::link(&name, view.link("saga-definitions", &[("name", &name)])),
            Cell::text(text(saga, "execution_id")),
            Cell::state(if parked.is_empty() { text(saga, "state") } else { "parked".to_owned() }.as_str()),
            Cell::text(text(saga, "current_step")),
            Cell::text(words(saga, "completed_steps")),
            Cell::bad(text(saga, "cause")),
            Cell::text(text(saga, "due")),
            Cell::text(text(saga, "updated_at")),
        ]
    };
    Table {
        id: "sagas",
        title: "Sagas, newest first".to_owned(),
        columns: vec!["saga", "definition", "correlation", "state", "step", "done", "cause", "due", "updated"],
        rows: items(page, "items").iter().map(row).collect(),
        empty: "No saga matches.",
        next: view.next("Older", "cursor", &page["cursor"]),
    }
}

async fn one(view: &View, id: &str) -> Result<(String, One), Refused> {
    let saga = view.get(&format!("/v1/sagas/{}", escape(id))).await?;
    let (name, state, parked) = (text(&saga, "name"), text(&saga, "state"), text(&saga, "parked"));
    let mut acts = Vec::new();
    if matches!(&*state, "created" | "running") {
        acts.push("cancel");
    }
    if !parked.is_empty() || (matches!(&*state, "created" | "running" | "compensating") && number(&saga, "retry_count") > 0) {
        acts.push("retry");
    }
    let version = format!("{name} {}", text(&saga, "version"));
    let execution = text(&saga, "execution_id");
    let mut facts = Facts::default()
        .with("state", Cell::state(&state))
        .with("needs an operator since", Cell::bad(parked))
        .with("cause", Cell::bad(text(&saga, "cause")))
        .with("definition", Cell::link(version, view.link("saga-definitions", &[("name", &name)])))
        .with("correlation", Cell::link(&execution, view.link("events", &[("search", &execution)])))
        .with("done", Cell::text(words(&saga, "completed_steps")))
        .with("undone", Cell::text(words(&saga, "compensated_steps")));
    for (name, path) in [
        ("step", "current_step"),
        ("due", "due"),
        ("retries", "retry_count"),
        ("began", "created_at"),
        ("updated", "updated_at"),
        ("ended", "completed_at"),
    ] {
        facts = facts.with(name, Cell::text(text(&saga, path)));
    }
    let row = |step: &Value| {
        vec![
            Cell::text(text(step, "at")),
            Cell::text(text(step, "name")),
            Cell::text(text(step, "kind")),
            Cell::number(number(step, "attempt")),
            Cell::state(&text(step, "state")),
            Cell::text(text(step, "ended")),
            Cell::bad(text(step, "reason")),
        ]
    };
    let steps = Table {
        id: "steps",
        title: "Timeline".to_owned(),
        columns: vec!["began", "step", "kind", "attempt", "state", "ended", "reason"],
        rows: items(&saga, "steps").iter().map(row).collect(),
        empty: "No step has run.",
        next: None,
    };
    let one = One { acts: view.acts(&acts, &[("id", id)]), facts, steps, context: Json::new("Context", &saga["context"], true) };
    Ok((format!("Saga {name} of {execution}"), one))
}
