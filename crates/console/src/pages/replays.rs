//! Replays: what each has sent, and the acts that start, pause and end it. A new replay begins with a preview (`preview.rs`).

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Facts, Input, Json, Link, Search, Table};
use crate::page::{Act, Field, Group, Page, Permission};
use crate::values::{items, number, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "replays",
    title: "Replays",
    group: Group::Events,
    permission: Permission::Reader,
    live: true,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[
        Act::post("start", "Start", "/v1/replays/{id}/start", "The replay {id} starts sending the events that are in the log now.").shows(NOW).back(ID),
        Act::post("pause", "Pause", "/v1/replays/{id}/pause", "The replay {id} sends nothing until it is resumed. Deliveries that are already stored are still handed out.").shows(NOW).back(ID),
        Act::post("resume", "Resume", "/v1/replays/{id}/resume", "The replay {id} continues with the next event.").shows(NOW).back(ID),
        Act::post("cancel", "Cancel", "/v1/replays/{id}/cancel", "The replay {id} ends at its position. What it has sent cannot be revoked, and it cannot be resumed.").shows(NOW).back(ID),
        Act::delete("remove", "Remove ended replays", "/v1/replays?older_than_hours={hours}", "Replays that ended more than {hours} hours ago are removed from the list. What they sent stays.").fields(&[Field::given("hours")]),
    ],
};

const NOW: &[&str] = &["/v1/replays/{id}"];
const ID: &[&str] = &["id"];
const STATES: &[&str] = &["created", "running", "paused", "completed", "failed", "cancelled"];
/// How many hours ended replays are kept.
const KEPT_HOURS: &str = "24";

#[derive(Template)]
#[template(path = "replays.html")]
struct Replays {
    title: String,
    list: Option<List>,
    one: Option<One>,
}

struct List {
    search: Search,
    links: Vec<Link>,
    table: Table,
}

struct One {
    /// Percent.
    progress: String,
    acts: Vec<Link>,
    facts: Facts,
    errors: Table,
    config: Json,
}

async fn render(view: &View) -> Result<String, Refused> {
    let replays = match view.parameter("id") {
        Some(id) => Replays { title: format!("Replay {id}"), list: None, one: Some(one(view, id).await?) },
        None => Replays { title: "Replays".to_owned(), list: Some(list(view).await?), one: None },
    };
    Ok(replays.render()?)
}

async fn list(view: &View) -> Result<List, Refused> {
    let parameters = [("status", &*view.value("status")), ("cursor", &*view.value("cursor")), ("limit", "50")];
    let page = view.query("/v1/replays", &parameters).await?;
    let row = |replay: &Value| {
        let id = text(replay, "session_id");
        vec![
            Cell::link(&id, view.link("replays", &[("id", &id)])),
            Cell::state(&text(replay, "status")),
            Cell::text(format!("{} %", text(replay, "progress"))),
            Cell::text(target(replay)),
            Cell::number(number(replay, "total")),
            Cell::number(number(replay, "replayed")),
            Cell::fault(number(replay, "failed")),
            Cell::text(text(replay, "created_at")),
            Cell::text(text(replay, "eta")),
        ]
    };
    let table = Table {
        id: "replays",
        title: "Replays".to_owned(),
        columns: vec!["id", "status", "progress", "target", "events", "sent", "failed", "created", "expected end"],
        rows: items(&page, "items").iter().map(row).collect(),
        empty: "No replay exists.",
        next: view.next("More", "cursor", &page["cursor"]),
    };
    let mut links = vec![Link::new("New replay", view.link("preview", &[]))];
    links.extend(view.act("remove", &[("hours", KEPT_HOURS)]));
    let inputs = vec![Input::choice(view, "status", "Status", STATES)];
    Ok(List { search: Search { action: view.address(), hidden: view.hidden(), inputs, button: "Show" }, links, table })
}

fn target(replay: &Value) -> String {
    [text(replay, "config.target.kind"), text(replay, "config.target.name")].join(" ").trim().to_owned()
}

async fn one(view: &View, id: &str) -> Result<One, Refused> {
    let replay = view.get(&format!("/v1/replays/{}", escape(id))).await?;
    let acts: &[&str] = match &*text(&replay, "status") {
        "created" => &["start", "cancel"],
        "running" => &["pause", "cancel"],
        "paused" => &["resume", "cancel"],
        _ => &[],
    };
    let row = |error: &Value| {
        let event = text(error, "event_id");
        vec![
            Cell::text(text(error, "timestamp")),
            Cell::link(&event, view.link("events", &[("event", &event)])),
            Cell::text(text(error, "error_type")),
            Cell::bad(text(error, "error")),
        ]
    };
    let errors = Table {
        id: "errors",
        title: "Events that could not be sent".to_owned(),
        columns: vec!["time", "event", "kind", "reason"],
        rows: items(&replay, "errors").iter().map(row).collect(),
        empty: "None.",
        next: None,
    };
    let mut facts = Facts::default().with("status", Cell::state(&text(&replay, "status"))).with("target", Cell::text(target(&replay)));
    for (name, path) in [
        ("events", "total"),
        ("sent", "replayed"),
        ("failed", "failed"),
        ("skipped", "skipped"),
        ("expected end", "eta"),
        ("created", "created_at"),
        ("started", "started_at"),
        ("completed", "completed_at"),
        ("last event", "last_event_at"),
        ("replay id", "replay_id"),
    ] {
        facts = facts.with(name, Cell::text(text(&replay, path)));
    }
    Ok(One {
        progress: text(&replay, "progress"),
        acts: view.acts(acts, &[("id", id)]),
        facts: facts.with("error", Cell::bad(text(&replay, "error"))),
        errors,
        config: Json::new("Settings", &replay["config"], false),
    })
}
