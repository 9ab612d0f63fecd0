//! Events in the browse view: filters that its indexes support, search for words, statistics, exports, and one event with others of its
//! aggregate.

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Facts, Input, Json, Link, Notice, Search, Table};
use crate::page::{Act, Field, File, Group, Kind, Page, Permission, Verb};
use crate::values::{count, items, number, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "events",
    title: "Events",
    group: Group::Events,
    permission: Permission::Reader,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[File { id: "export", title: "Export", permission: Permission::Reader, path: "/v1/events/export" }],
    acts: &[
        Act::post("rebuild", "Rebuild the view", "/v1/events/view/rebuild", "The view is rebuilt from the log. Until the new view has caught up, readers see the present one.").shows(VIEW),
        Act::post("settings", "Change the view", "/v1/events/view", "The view is switched on or off, or its retention changes. Events expire from the view only; the log keeps every event.").by(Verb::Put).shows(VIEW).fields(&[
            Field::choice("state", "State", &["auto", "on", "off"]).optional(),
            Field::new("retention_days", "Days of retention", "90, or null to keep events forever", Kind::Json).optional(),
        ]),
        Act::delete("archive", "Archive now", "/v1/events/{event}", "The event {event} is moved from the view into the archive, regardless of its retention. It stays there when the view is rebuilt, until it is restored. The log keeps it.").shows(EVENT),
    ],
};

const VIEW: &[&str] = &["/v1/events/view"];
const EVENT: &[&str] = &["/v1/events/{event}"];
/// The number of events on a page, and how far their total is counted. Counting everything in a large store would take longer than all
/// the rest.
const PAGE_EVENTS: &str = "50";
const COUNTED_UP_TO: &str = "1000";
/// The filters that the form, the next page and exports share.
pub(super) const FILTERS: [(&str, &str, &str); 10] = [
    ("search", "Words", "of type, service, user or execution"),
    ("event_types", "Types", "a,b"),
    ("exclude_event_types", "Without types", "a,b"),
    ("aggregate_id", "Aggregate id", ""),
    ("execution_id", "Execution", ""),
    ("user_id", "User", ""),
    ("service_name", "Service", ""),
    ("event_ids", "Event ids", "a,b"),
    ("start_time", "From", "2026-03-01T12:00:00Z"),
    ("end_time", "To", "2026-03-02T12:00:00Z"),
];
pub(super) const SORTS: &[&str] = &["-timestamp", "timestamp", "-sequence_number", "sequence_number", "event_type", "aggregate_id", "stored_at"];

#[derive(Template)]
#[template(path = "events.html")]
struct Events {
    title: String,
    list: Option<List>,
    one: Option<One>,
}

struct List {
    search: Search,
    problem: Option<Notice>,
    said: String,
    links: Vec<Link>,
    statistics: Option<Statistics>,
    table: Option<Table>,
    view: Option<Facts>,
    acts: Vec<Link>,
}

struct Statistics {
    facts: Facts,
    tables: Vec<Table>,
}

struct One {
    acts: Vec<Link>,
    facts: Facts,
    timeline: Table,
    related: Table,
    whole: Json,
}

async fn render(view: &View) -> Result<String, Refused> {
    let events = match view.parameter("event") {
        Some(id) => {
            let (title, one) = one(view, id).await?;
            Events { title, list: None, one: Some(one) }
        }
        None => Events { title: "Events".to_owned(), list: Some(list(view).await?), one: None },
    };
    Ok(events.render()?)
}

async fn list(view: &View) -> Result<List, Refused> {
    let values: Vec<(&str, String)> = FILTERS.iter().map(|(name, ..)| (*name, view.value(name))).collect();
    let filters: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (sort, cursor) = (view.value("sort"), view.value("cursor"));
    let paging = [("limit", PAGE_EVENTS), ("count_up_to", COUNTED_UP_TO), ("sort", &*sort), ("cursor", &*cursor)];
    // A tenant that the caller does not see is refused here as on every page.
    let state = view.get("/v1/events/view").await?;
    let (page, problem) = match view.query("/v1/events", &[&filters[..], &paging].concat()).await {
        Ok(page) => (Some(page), None),
        Err(refused) => (None, Some(refused.notice())),
    };
    let formats = [("csv", "Export as CSV"), ("jsonl", "Export as JSON lines")];
    let export = |(format, title): (&str, &str)| view.file("export", title, &[&filters[..], &[("format", format)]].concat());
    let mut links: Vec<Link> = formats.into_iter().filter_map(export).collect();
    links.push(Link::new("Statistics of a day", view.link("events", &[("hours", "24")])));
    links.push(Link::new("of a week", view.link("events", &[("hours", "168")])));
    links.push(Link::new("Archived events", view.link("archive", &[])));
    links.extend(hold(view, &filters));
    Ok(List {
        search: form(view),
        said: page.as_ref().map(said).unwrap_or_default(),
        problem,
        links,
        statistics: statistics(view).await?,
        table: page.as_ref().map(|page| table(view, page)),
        view: Some(Facts::of(&state)),
        acts: view.acts(&["rebuild", "settings"], &[]),
    })
}

/// Returns a link to a hold on the events of the list. The filter of a hold has no words, so a search for words has no link.
fn hold(view: &View, filters: &[(&str, &str)]) -> Option<Link> {
    let is_searched = view.parameter("search").is_some();
    let selects = filters.iter().any(|(name, value)| *name != "exclude_event_types" && !value.is_empty());
    let act = view.act_of(&super::archive::PAGE, "hold", filters).filter(|_| selects && !is_searched)?;
    Some(Link::new("Hold these events", act.href))
}

/// Describes how many events match, and how far the view has read the log.
fn said(page: &Value) -> String {
    let total = count(number(page, "total"));
    let total = if page["total_is_bound"] == true { format!("at least {total} events") } else { format!("{total} events") };
    let (position, head) = (number(page, "view.position"), number(page, "view.head"));
    match position < head {
        true => format!("{total}; the view has read {} of {} events of the log", count(position), count(head)),
        false => total,
    }
}

fn table(view: &View, page: &Value) -> Table {
    Table {
        id: "events",
        title: "Events".to_owned(),
        columns: vec!["time", "type", "aggregate", "user", "service", "execution", "event"],
        rows: items(page, "items").iter().map(|event| row(view, event)).collect(),
        empty: "No event matches.",
        next: view.next("More", "cursor", &page["cursor"]),
    }
}

fn row(view: &View, event: &Value) -> Vec<Cell> {
    let damaged = text(event, "damaged");
    // The fields of a damaged event, or of one that other software wrote, are under `document`.
    let of = if damaged.is_empty() { event } else { &event["document"] };
    let id = text(of, "event_id");
    vec![
        Cell::text(text(of, "timestamp")),
        if damaged.is_empty() { Cell::text(text(of, "event_type")) } else { Cell::bad(format!("{} ({damaged})", text(of, "event_type"))) },
        aggregate(view, of),
        Cell::text(text(of, "metadata.user_id")),
        Cell::text(text(of, "metadata.service_name")),
        Cell::text(text(of, "execution_id")),
        Cell::link(&id, view.link("events", &[("event", &id)])),
    ]
}

/// Returns the aggregate of an event, with a link if its name is known.
pub(super) fn aggregate(view: &View, event: &Value) -> Cell {
    let (name, id) = (text(event, "annals.aggregate"), text(event, "aggregate_id"));
    match name.is_empty() {
        true => Cell::text(id),
        false => Cell::link(format!("{name}/{id}"), view.link("aggregates", &[("name", &name), ("id", &id)])),
    }
}

async fn one(view: &View, id: &str) -> Result<(String, One), Refused> {
    let detail = view.get(&format!("/v1/events/{}", escape(id))).await?;
    let event = &detail["event"];
    let at = text(event, "annals.sequence_number");
    let facts = Facts::default()
        .with("event", Cell::text(text(event, "event_id")))
        .with("damaged", Cell::bad(text(event, "damaged")))
        .with("time", Cell::text(text(event, "timestamp")))
        .with("stored", Cell::text(text(event, "stored_at")))
        .with("expires from the view", Cell::text(text(event, "ttl_expires_at")))
        .with("number", Cell::link(at.clone(), view.link("event", &[("number", &at)])))
        .with("aggregate", aggregate(view, event))
        .with("version", Cell::text(text(event, "event_version")))
        .with("user", Cell::text(text(event, "metadata.user_id")))
        .with("service", Cell::text(text(event, "metadata.service_name")))
        .with("environment", Cell::text(text(event, "metadata.environment")))
        .with("execution", Cell::text(text(event, "execution_id")));
    let of = |id: &'static str, title: &str, path: &str| Table {
        id,
        title: title.to_owned(),
        columns: vec!["time", "type", "number", "event"],
        rows: items(&detail, path).iter().map(|event| summary(view, event)).collect(),
        empty: "The aggregate has no other events.",
        next: None,
    };
    let one = One {
        acts: view.acts(&["archive"], &[("event", id)]),
        facts,
        timeline: of("timeline", "Timeline", "timeline"),
        related: of("related", "Related events", "related"),
        whole: Json::new("The document", event, true),
    };
    Ok((text(event, "event_type"), one))
}

/// Returns a short row for an event, for every page that lists some.
pub(super) fn summary(view: &View, event: &Value) -> Vec<Cell> {
    let (id, at) = (text(event, "event_id"), text(event, "sequence_number"));
    vec![
        Cell::text(text(event, "timestamp")),
        Cell::text(text(event, "event_type")),
        Cell::link(&at, view.link("event", &[("number", &at)])),
        Cell::link(&id, view.link("events", &[("event", &id)])),
    ]
}

/// Returns the statistics if they were requested, because they read every event of their period.
async fn statistics(view: &View) -> Result<Option<Statistics>, Refused> {
    let Some(hours) = view.parameter("hours") else { return Ok(None) };
    let counted = view.query("/v1/events/statistics", &[("hours", hours)]).await?;
    let facts = Facts::default()
        .with("since", Cell::text(text(&counted, "since")))
        .with("events", Cell::text(count(number(&counted, "total_events"))))
        .with("errors, %", Cell::text(text(&counted, "error_rate")))
        .with("average processing time", Cell::text(format!("{} s", text(&counted, "avg_processing_time"))));
    let of = |id: &'static str, title: &str, path: &'static str, name: &'static str| Table {
        id,
        title: title.to_owned(),
        columns: vec![name, "events"],
        rows: items(&counted, path).iter().map(|row| vec![Cell::text(text(row, name)), Cell::number(number(row, "count"))]).collect(),
        empty: "None.",
        next: None,
    };
    let tables = vec![
        of("by-type", "By type", "event_types", "event_type"),
        of("by-user", "By user", "top_users", "user_id"),
        of("by-hour", "By hour", "events_by_hour", "hour"),
    ];
    Ok(Some(Statistics { facts, tables }))
}

fn form(view: &View) -> Search {
    let mut inputs: Vec<Input> = FILTERS.iter().map(|(name, label, hint)| Input::of(view, name, label, hint)).collect();
    inputs.push(Input::choice(view, "sort", "Order", SORTS));
    Search { action: view.address(), hidden: view.hidden(), inputs, button: "Show" }
}
