//! Handlers: their positions, their failing partitions, and the acts of an operator on both.

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Facts, Json, Link, Table};
use crate::page::{Act, Field, Group, Kind, Page, Permission};
use crate::values::{items, number, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "handlers",
    title: "Handlers",
    group: Group::Processing,
    permission: Permission::Reader,
    live: true,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[
        Act::post("pause", "Pause", "/v1/handlers/{name}/pause", "No more events of the handler {name} are handed out until it is resumed. Deliveries in flight may still be settled.").shows(NOW),
        Act::post("resume", "Resume", "/v1/handlers/{name}/resume", "Events of the handler {name} are handed out again from its position.").shows(NOW),
        Act::post("move", "Move", "/v1/handlers/{name}/move", "The handler {name} continues at another position. A move forward skips the events between; a move back handles events again.").shows(NOW).fields(&[Field::new("to", "To", "a position, beginning, latest or a time", Kind::Place)]),
        Act::post("replay", "Replay", "/v1/handlers/{name}/replay", "The handler {name} receives every event from a position on again, in addition to new events. Workers see these deliveries marked as a replay.").shows(NOW).fields(&[Field::new("from", "From", "a position, beginning or a time", Kind::Place)]),
        Act::delete("delete", "Delete", "/v1/handlers/{name}", "The handler {name}, its position and its failing partitions are deleted. A handler that is later defined under this name begins from its start.").shows(NOW),
        Act::post("retry", "Retry", "/v1/handlers/{name}/partitions/{partition}/retry", "The failing event of the partition {partition} is handed out again immediately, without waiting for its next attempt.").shows(EVENT),
        Act::post("skip", "Skip", "/v1/handlers/{name}/partitions/{partition}/skip", "The failing event of the partition {partition} is skipped: the handler {name} never handles it, and continues with the next event of the partition.").shows(EVENT).fields(&[Field::given("position")]),
        Act::post("park", "Park", "/v1/handlers/{name}/partitions/{partition}/park", "The failing event of the partition {partition} is parked: the handler {name} continues with the next event of the partition, and the event stays listed as parked.").shows(EVENT).fields(&[Field::given("position")]),
    ],
};

const NOW: &[&str] = &["/v1/handlers/{name}"];
/// The failing event comes first.
const EVENT: &[&str] = &["/v1/log/{sequence_number}", "/v1/handlers/{name}"];

#[derive(Template)]
#[template(path = "handlers.html")]
struct Handlers {
    title: String,
    list: Option<Table>,
    one: Option<One>,
}

struct One {
    facts: Facts,
    acts: Vec<Link>,
    failing: Table,
    workers: Table,
    definition: Json,
    done: Table,
}

async fn render(view: &View) -> Result<String, Refused> {
    let handlers = match view.parameter("name") {
        Some(name) => Handlers { title: format!("Handler {name}"), list: None, one: Some(one(view, name).await?) },
        None => Handlers { title: "Handlers".to_owned(), list: Some(list(view).await?), one: None },
    };
    Ok(handlers.render()?)
}

async fn list(view: &View) -> Result<Table, Refused> {
    let page = view.query("/v1/handlers", &[("cursor", &view.value("cursor"))]).await?;
    Ok(Table {
        id: "handlers",
        title: "Handlers".to_owned(),
        columns: STATUS.to_vec(),
        rows: items(&page, "items").iter().map(|item| status(view, "handlers", item)).collect(),
        empty: "No handler is defined.",
        next: view.next("More", "cursor", &page["cursor"]),
    })
}

/// The columns for handlers and groups.
pub(super) const STATUS: [&str; 8] = ["name", "state", "position", "head", "lag", "failing", "parked", "last progress"];

/// Returns the row of a handler or group in a list.
pub(super) fn status(view: &View, page: &str, item: &Value) -> Vec<Cell> {
    let name = text(item, "name");
    vec![
        Cell::link(&name, view.link(page, &[("name", &name)])),
        Cell::state(&text(item, "state")),
        Cell::number(number(item, "position")),
        Cell::number(number(item, "head")),
        Cell::number(number(item, "lag")),
        Cell::fault(number(item, "failing")),
        Cell::number(number(item, "parked")),
        Cell::text(text(item, "last_progress")),
    ]
}

async fn one(view: &View, name: &str) -> Result<One, Refused> {
    let path = format!("/v1/handlers/{}", escape(name));
    let handler = view.get(&path).await?;
    let partitions = view.query(&format!("{path}/partitions"), &[("cursor", &view.value("cursor"))]).await?;
    let acts = view.get(&format!("{path}/acts?limit=20")).await?;
    let toggle = if text(&handler, "state") == "paused" { "resume" } else { "pause" };
    Ok(One {
        facts: facts(&handler),
        acts: view.acts(&[toggle, "move", "replay", "delete"], &[("name", name)]),
        failing: failing(view, name, &partitions),
        workers: workers(&handler),
        definition: Json::new("Definition", &handler["definition"], false),
        done: done(&acts),
    })
}

/// Returns the main facts of a status.
pub(super) fn facts(status: &Value) -> Facts {
    let mut facts = Facts::default().with("state", Cell::state(&text(status, "state")));
    for (name, path) in [
        ("position", "position"),
        ("head", "head"),
        ("lag", "lag"),
        ("lag, s", "lag_seconds"),
        ("last progress", "last_progress"),
        ("parked", "parked"),
        ("replay", "replay"),
        ("owner", "owner"),
    ] {
        facts = facts.with(name, Cell::text(text(status, path)));
    }
    let bad = |path: &str| Cell { class: "bad", ..Cell::text(text(status, path)) };
    facts.with("degraded", bad("degraded")).with("last reason", bad("last_reason"))
}

/// Returns the failing partitions of a handler or a group, with the acts of the page.
pub(super) fn failing(view: &View, name: &str, page: &Value) -> Table {
    let rows = items(page, "items").iter().map(|partition| {
        let (of, position, event) = (text(partition, "partition"), text(partition, "position"), text(partition, "sequence_number"));
        let parameters = [("name", name), ("partition", &*of), ("position", &*position), ("sequence_number", &*event)];
        vec![
            Cell::text(&of),
            Cell::state(&text(partition, "state")),
            Cell::link(&event, view.link("event", &[("number", &event)])),
            Cell::number(number(partition, "attempts")),
            Cell { class: "bad", ..Cell::text(text(partition, "reason")) },
            Cell::text(text(partition, "retry_at")),
            Cell::number(number(partition, "behind")),
            Cell::links(view.acts(&["retry", "skip", "park"], &parameters)),
        ]
    });
    Table {
        id: "failing",
        title: "Failing partitions".to_owned(),
        columns: vec!["partition", "state", "event", "attempts", "reason", "next attempt", "behind", "acts"],
        rows: rows.collect(),
        empty: "No partition is failing.",
        next: view.next("More", "cursor", &page["cursor"]),
    }
}

/// Returns the workers that have pulled recently.
pub(super) fn workers(status: &Value) -> Table {
    let rows = items(status, "workers").iter().map(|worker| {
        vec![Cell::text(text(worker, "worker")), Cell::text(text(worker, "last_pull")), Cell::number(number(worker, "in_flight"))]
    });
    Table {
        id: "workers",
        title: "Workers".to_owned(),
        columns: vec!["worker", "last pull", "in flight"],
        rows: rows.collect(),
        empty: "No worker has pulled recently.",
        next: None,
    }
}

/// Returns the acts of operators.
pub(super) fn done(page: &Value) -> Table {
    let rows = items(page, "items").iter().map(|act| {
        ["at", "act", "partition", "position", "from", "to", "reason", "by"].iter().map(|name| Cell::text(text(act, name))).collect()
    });
    Table {
        id: "acts",
        title: "Acts of operators".to_owned(),
        columns: vec!["at", "act", "partition", "position", "from", "to", "reason", "by"],
        rows: rows.collect(),
        empty: "None.",
        next: None,
    }
}
