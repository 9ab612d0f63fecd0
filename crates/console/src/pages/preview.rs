//! A new replay: its filter and target, a preview of what it would send, and then the act that creates it.

use askama::Template;
use axum::http::Method;
use serde_json::{Map, Value};

use crate::act::put;
use crate::components::{Facts, Input, Link, Notice, Search, Table};
use crate::page::{Act, Field, Group, Kind, Page, Permission};
use crate::pages::events::summary;
use crate::values::{count, items, number};
use crate::view::{Refused, View};

pub(super) const PAGE: Page = Page {
    id: "preview",
    title: "New replay",
    group: Group::Events,
    permission: Permission::Reader,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[Act::post("create", "Create", "/v1/replays", "A replay is created. It sends nothing until it is started.").leads("replays", "id", "session_id").fields(&[
        Field::new("filter.event_types", "Types", "a,b", Kind::List).optional(),
        Field::new("filter.exclude_event_types", "Without types", "a,b", Kind::List).optional(),
        Field::new("filter.aggregate_id", "Aggregate id", "", Kind::Text).optional(),
        Field::new("filter.execution_id", "Execution", "", Kind::Text).optional(),
        Field::new("filter.user_id", "User", "", Kind::Text).optional(),
        Field::new("filter.service_name", "Service", "", Kind::Text).optional(),
        Field::new("filter.event_ids", "Event ids", "a,b", Kind::List).optional(),
        Field::new("filter.start_time", "From", "2026-03-01T12:00:00Z", Kind::Text).optional(),
        Field::new("filter.end_time", "To", "2026-03-02T12:00:00Z", Kind::Text).optional(),
        Field::choice("target.kind", "Target", TARGETS),
        Field::new("target.name", "Name of the target", "a handler, topic or file", Kind::Text).optional(),
        Field::choice("order", "Order", &["timestamp", "sequence_number"]).optional(),
        Field::new("speed", "Speed", "0.1 to 100; as fast as possible", Kind::Decimal).optional(),
        Field::new("rate", "Events per second", "no limit", Kind::Decimal).optional(),
        Field::new("batch_size", "Batch", "100", Kind::Number).optional(),
        Field::new("max_events", "At most", "all", Kind::Number).optional(),
        Field::choice("on_error", "After an error", &["skip", "stop"]).optional(),
        Field::new("retry_attempts", "Retries of an event", "0 to 10", Kind::Number).optional(),
    ])],
};

const TARGETS: &[&str] = &["test", "handler", "topic", "file"];
/// The fields of the act that a preview uses.
const ASKED: [&str; 12] = [
    "filter.event_types",
    "filter.exclude_event_types",
    "filter.aggregate_id",
    "filter.execution_id",
    "filter.user_id",
    "filter.service_name",
    "filter.event_ids",
    "filter.start_time",
    "filter.end_time",
    "target.kind",
    "target.name",
    "max_events",
];

#[derive(Template)]
#[template(path = "preview.html")]
struct Preview {
    search: Search,
    problem: Option<Notice>,
    found: Option<Found>,
}

struct Found {
    said: String,
    create: Option<Link>,
    target: Facts,
    first: Table,
}

async fn render(view: &View) -> Result<String, Refused> {
    let given: Vec<(&str, String)> = ASKED.iter().map(|name| (*name, view.value(name))).filter(|(_, value)| !value.is_empty()).collect();
    let mut preview = Preview { search: form(view), problem: None, found: None };
    if given.is_empty() {
        // A tenant that the caller does not see is refused here as on every page.
        view.get("/v1").await?;
        return Ok(preview.render()?);
    }
    match look(view, &given).await {
        Ok(found) => preview.found = Some(found),
        // The form keeps what was entered.
        Err(refused) if refused.status != axum::http::StatusCode::NOT_FOUND => preview.problem = Some(refused.notice()),
        Err(refused) => return Err(refused),
    }
    Ok(preview.render()?)
}

fn fields() -> impl Iterator<Item = &'static Field> {
    let all: &'static [Field] = PAGE.acts[0].fields;
    all.iter().filter(|field| ASKED.contains(&field.name))
}

async fn look(view: &View, given: &[(&str, String)]) -> Result<Found, Refused> {
    let mut body = Map::from_iter([("filter".to_owned(), Map::new().into())]);
    for field in fields() {
        let Some((_, value)) = given.iter().find(|(name, _)| *name == field.name) else { continue };
        let value = field.kind.read(value).map_err(|why| {
            Refused::new(axum::http::StatusCode::UNPROCESSABLE_ENTITY, "This filter is invalid.", format!("{}: {why}", field.label))
        })?;
        put(&mut body, field.name, value);
    }
    let preview = view.send(Method::POST, "/v1/replays/preview", Some(&body.into())).await?;
    let parameters: Vec<(&str, &str)> = given.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let total = number(&preview, "count");
    Ok(Found {
        said: format!("{} events would be sent", count(total)),
        create: view.act("create", &parameters),
        target: Facts::of(&preview["target"]),
        first: first(view, &preview),
    })
}

fn first(view: &View, preview: &Value) -> Table {
    Table {
        id: "first",
        title: "The first matching events".to_owned(),
        columns: vec!["time", "type", "number", "event"],
        rows: items(preview, "first").iter().map(|event| summary(view, event)).collect(),
        empty: "No event matches.",
        next: None,
    }
}

fn form(view: &View) -> Search {
    let input = |field: &'static Field| match field.choices {
        [] => Input::of(view, field.name, field.label, field.hint),
        choices => Input::choice(view, field.name, field.label, choices),
    };
    Search { action: view.address(), hidden: view.hidden(), inputs: fields().map(input).collect(), button: "Look" }
}
