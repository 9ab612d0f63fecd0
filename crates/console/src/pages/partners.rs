//! Partners: what each sends and receives, its events with their attempts, and the acts of an operator.

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Facts, Input, Json, Link, Search, Table};
use crate::page::{Act, Field, Group, Kind, Page, Permission};
use crate::values::{items, number, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "partners",
    title: "Partners",
    group: Group::Processing,
    permission: Permission::Reader,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[
        Act::post("pause", "Pause", "/v1/partners/{name}/pause", "Nothing is sent to the partner {name} until it is resumed. Events are still selected for it and received from it.").shows(NOW),
        Act::post("resume", "Resume", "/v1/partners/{name}/resume", "Sending to the partner {name} resumes, with the earliest event of each entity.").shows(NOW),
        Act::post("replay", "Replay a range", "/v1/partners/{name}/replay", "The events of a range of the log that the partner {name} selects are resent as new deliveries.").shows(NOW).fields(&[
            Field::new("from", "From sequence number", "0", Kind::Number).optional(),
            Field::new("to", "To sequence number, exclusive", "the end of the log", Kind::Number).optional(),
        ]),
        Act::delete("delete", "Delete", "/v1/partners/{name}", "The partner {name} and its secrets are deleted: nothing is sent to it or received from it. Its events stay.").shows(NOW),
        Act::post("resend", "Resend", "/v1/partner-events/{event}/resend", "The event {event} is attempted immediately, with five more attempts, without waiting for other events of its entity.").shows(EVENT).back(EVENT_OF),
        Act::post("cancel", "Cancel", "/v1/partner-events/{event}/cancel", "The event {event} is cancelled: it is not attempted again, and the next event of its entity follows.").shows(EVENT).back(EVENT_OF),
    ],
};

const NOW: &[&str] = &["/v1/partners/{name}"];
const EVENT: &[&str] = &["/v1/partner-events/{event}"];
const EVENT_OF: &[&str] = &["name", "event"];
/// The filters of a partner's history.
const FILTERS: [&str; 9] =
    ["direction", "status", "ended", "type", "entity_id", "entity_type", "day", "due", "cursor"];

#[derive(Template)]
#[template(path = "partners.html")]
struct Partners {
    title: String,
    list: Option<Table>,
    one: Option<One>,
    event: Option<Event>,
}

struct One {
    acts: Vec<Link>,
    facts: Facts,
    statistics: Option<(Facts, Table)>,
    counted: String,
    search: Search,
    events: Table,
    definition: Json,
}

struct Event {
    partner: Link,
    acts: Vec<Link>,
    facts: Facts,
    attempts: Table,
    data: Json,
    whole: Json,
}

async fn render(view: &View) -> Result<String, Refused> {
    let mut partners = Partners { title: "Partners".to_owned(), list: None, one: None, event: None };
    if let Some(id) = view.parameter("event") {
        partners.title = "Partner event".to_owned();
        partners.event = Some(event(view, id).await?);
    } else if let Some(name) = view.parameter("name") {
        partners.title = format!("Partner {name}");
        partners.one = Some(one(view, name).await?);
    } else {
        partners.list = Some(list(view).await?);
    }
    Ok(partners.render()?)
}

async fn list(view: &View) -> Result<Table, Refused> {
    let page = view.query("/v1/partners", &[("cursor", &view.value("cursor"))]).await?;
    let row = |partner: &Value| {
        let id = text(partner, "partner");
        vec![
            Cell::link(&id, view.link("partners", &[("name", &id)])),
            Cell::text(text(partner, "name")),
            Cell::state(&text(partner, "state")),
            Cell::text(text(partner, "url")),
            Cell::text(if partner["select"].is_null() { "none" } else { "selected" }),
            Cell::number(number(partner, "secrets")),
            Cell::text(text(partner, "retry_at")),
            Cell::text(text(partner, "changed")),
        ]
    };
    Ok(Table {
        id: "partners",
        title: "Partners".to_owned(),
        columns: vec!["id", "name", "state", "url", "events", "secrets", "next retry", "changed"],
        rows: items(&page, "items").iter().map(row).collect(),
        empty: "No partner is defined.",
        next: view.next("More", "cursor", &page["cursor"]),
    })
}

async fn one(view: &View, name: &str) -> Result<One, Refused> {
    let path = format!("/v1/partners/{}", escape(name));
    let partner = view.get(&path).await?;
    let values: Vec<(&str, String)> = FILTERS.iter().map(|filter| (*filter, view.value(filter))).collect();
    let mut parameters: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
    parameters.push(("limit", "100"));
    let history = view.query(&format!("{path}/events"), &parameters).await?;
    let statistics = match view.parameter("statistics") {
        Some(_) => Some(counts(&view.get(&format!("{path}/statistics")).await?)),
        None => None,
    };
    let toggle = if partner["paused"] == true { "resume" } else { "pause" };
    let mut facts = Facts::default().with("state", Cell::state(&text(&partner, "state")));
    for field in ["name", "url", "format", "secrets", "retry_at", "retention_days", "defined", "changed"] {
        facts = facts.with(&field.replace('_', " "), Cell::text(text(&partner, field)));
    }
    let choice = |name, label, choices| Input::choice(view, name, label, choices);
    let inputs = vec![
        choice("direction", "Direction", &["OUT", "IN"]),
        choice("status", "Status", &["PENDING", "PROCESSING", "SUCCESS", "FAILED"]),
        choice("ended", "Ended", &["success", "exhausted", "refused", "cancelled"]),
        Input::of(view, "type", "Type", ""),
        Input::of(view, "entity_id", "Entity", ""),
        Input::of(view, "entity_type", "Kind of entity", ""),
        Input::of(view, "day", "Day, in days since 1970-01-01", ""),
        choice("due", "Due now", &["true"]),
    ];
    let hidden = view.hidden().into_iter().chain([("name".to_owned(), name.to_owned())]).collect();
    Ok(One {
        acts: view.acts(&[toggle, "replay", "delete"], &[("name", name)]),
        facts,
        statistics,
        counted: view.link("partners", &[("name", name), ("statistics", "yes")]),
        search: Search { action: view.address(), hidden, inputs, button: "Show" },
        events: events(view, name, &history),
        definition: Json::new("Definition", &partner, false),
    })
}

/// Formats the statistics. They are only read when requested, because they read every event of the partner.
fn counts(counted: &Value) -> (Facts, Table) {
    const STATES: [&str; 7] = ["pending", "processing", "success", "failed", "exhausted", "refused", "cancelled"];
    let facts = Facts::default()
        .with("events", Cell::text(text(counted, "total")))
        .with("share of final events that succeeded", Cell::text(text(counted, "success_rate")));
    let row = |(direction, title): &(&str, &str)| {
        let of = |state: &&str| Cell::number(number(counted, &format!("{direction}.{state}")));
        std::iter::once(Cell::text(*title)).chain(STATES.iter().map(of)).collect()
    };
    let table = Table {
        id: "counts",
        title: "Events by state".to_owned(),
        columns: std::iter::once("direction").chain(STATES).collect(),
        rows: [("out", "sent to it"), ("in", "received from it")].iter().map(row).collect(),
        empty: "None.",
        next: None,
    };
    (facts, table)
}

fn events(view: &View, name: &str, page: &Value) -> Table {
    let row = |event: &Value| {
        let id = text(event, "id");
        vec![
            Cell::link(&id, view.link("partners", &[("name", name), ("event", &id)])),
            Cell::text(text(event, "event_direction")),
            Cell::text(text(event, "event_type")),
            Cell::text(entity(event)),
            Cell::state(&text(event, "event_status")),
            Cell::state(&text(event, "ended")),
            Cell::number(number(event, "attempts")),
            Cell::text(text(event, "due_at")),
            Cell::bad(text(event, "last_reason")),
            Cell::links(view.acts(acts_of(event), &[("name", name), ("event", &id)])),
        ]
    };
    Table {
        id: "events",
        title: "Events, newest first".to_owned(),
        columns: vec!["event", "direction", "type", "entity", "status", "ended", "attempts", "due", "last reason", "acts"],
        rows: items(page, "items").iter().map(row).collect(),
        empty: "No event matches.",
        next: view.next("Older", "cursor", &page["cursor"]),
    }
}

fn entity(event: &Value) -> String {
    format!("{}/{}", text(event, "entity_metadata.entity_type"), text(event, "entity_metadata.entity_id"))
}

/// Returns the acts that are possible on an event. One that succeeded or was cancelled can only be sent again.
fn acts_of(event: &Value) -> &'static [&'static str] {
    match (&*text(event, "event_status"), &*text(event, "ended")) {
        ("PENDING" | "FAILED", "") => &["resend", "cancel"],
        ("FAILED", "exhausted" | "refused") => &["resend", "cancel"],
        ("PROCESSING", _) => &[],
        _ => &["resend"],
    }
}

async fn event(view: &View, id: &str) -> Result<Event, Refused> {
    let event = view.get(&format!("/v1/partner-events/{}", escape(id))).await?;
    let (partner, at) = (text(&event, "entity_metadata.partnerId"), text(&event, "sequence_number"));
    let mut facts = Facts::default()
        .with("status", Cell::state(&text(&event, "event_status")))
        .with("ended", Cell::state(&text(&event, "ended")))
        .with("direction", Cell::text(text(&event, "event_direction")))
        .with("type", Cell::text(text(&event, "event_type")))
        .with("entity", Cell::text(entity(&event)))
        .with("number", Cell::link(&at, view.link("event", &[("number", &at)])))
        .with("last reason", Cell::bad(text(&event, "last_reason")));
    for field in ["last_status", "attempts", "due_at", "expire_at", "createdBy", "webhook_id", "replay"] {
        facts = facts.with(&field.replace('_', " "), Cell::text(text(&event, field)));
    }
    let attempts = event["entity_metadata"]["resilienceAttemptCount"].as_object();
    let mut rows: Vec<(u64, Vec<Cell>)> = attempts
        .into_iter()
        .flatten()
        .map(|(number, at)| (number.parse().unwrap_or(0), vec![Cell::text(number), Cell::text(time(at))]))
        .collect();
    rows.sort_by_key(|(number, _)| *number);
    let attempts = Table {
        id: "attempts",
        title: "Attempts".to_owned(),
        columns: vec!["attempt", "time"],
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        empty: "It has not been attempted yet.",
        next: None,
    };
    Ok(Event {
        partner: Link::new(format!("Partner {partner}"), view.link("partners", &[("name", &partner)])),
        acts: view.acts(acts_of(&event), &[("name", &partner), ("event", id)]),
        facts,
        attempts,
        data: Json::new("Data", &event["entity_data"], true),
        whole: Json::new("The record", &event, false),
    })
}

/// Formats a time in milliseconds, which the layout stores as text.
fn time(millis: &Value) -> String {
    let written = crate::values::shown(millis);
    match written.parse() {
        Ok(millis) => annals_core::Timestamp::from_millis(millis).to_string(),
        Err(_) => written,
    }
}
