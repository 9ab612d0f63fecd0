//! Retention and the archive: rules, holds, the state of the archive, archived events, and the acts of an operator.

use askama::Template;
use axum::http::StatusCode;
use serde_json::Value;

use crate::components::{Cell, Facts, Input, Json, Link, Notice, Search, Table};
use crate::page::{Act, Field, Group, Kind, Page, Permission, Verb};
use crate::pages::events::{FILTERS, SORTS, aggregate};
use crate::values::{bytes, count, cut, items, number, shown, text};
use crate::view::{Refused, View};

pub(super) const PAGE: Page = Page {
    id: "archive",
    title: "Retention and archive",
    group: Group::Events,
    permission: Permission::Reader,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[
        Act::post("rule", "Set a rule", "/v1/retention/{name}", "The browse view keeps events of this category or type for this number of days, including those already in the view. With an archive, an event expires only after it has been copied there; with none, it expires without a copy. The log keeps every event. A dry run counts the events that the rule would remove from the view now.").by(Verb::Put).dry_run().back(LIST).shows(RULES).fields(&[
            Field::new("name", "Category or type", "order_placed", Kind::Text),
            Field::new("ttl_days", "Days", "30, or null to keep events forever", Kind::Json),
            Field::choice("archive", "Archive", &["none", "collection", "files"]),
        ]),
        Act::delete("rule-remove", "Remove rule", "/v1/retention/{name}", "The rule of {name} is removed. Its events, including those already in the view, follow the rule of their category, or otherwise the retention of the view. Archived events stay in the archive.").shows(RULES),
        Act::post("hold", "Set a hold", "/v1/holds/{name}", "Events that match every field below do not expire, are not archived and cannot be deleted until the hold is lifted. A hold of the same name is replaced. While there is a hold, the view cannot be switched off.").by(Verb::Put).back(LIST).shows(HOLD).fields(&[
            Field::new("name", "Name", "case-7", Kind::Text),
            Field::new("event_types", "Types", "a,b", Kind::List).optional(),
            Field::new("exclude_event_types", "Without types", "a,b", Kind::List).optional(),
            Field::new("aggregate_id", "Aggregate id", "", Kind::Text).optional(),
            Field::new("execution_id", "Execution", "", Kind::Text).optional(),
            Field::new("user_id", "User", "", Kind::Text).optional(),
            Field::new("service_name", "Service", "", Kind::Text).optional(),
            Field::new("event_ids", "Event ids", "a,b", Kind::List).optional(),
            Field::new("start_time", "From", "2026-03-01T12:00:00Z", Kind::Text).optional(),
            Field::new("end_time", "To", "2026-03-02T12:00:00Z", Kind::Text).optional(),
        ]),
        Act::delete("lift", "Lift hold", "/v1/holds/{name}", "The hold {name} is removed. Events that no other hold selects expire or are archived according to their rules. Those that are already due follow within seconds.").shows(HOLD),
        Act::post("restore", "Restore", "/v1/events/{event}/restore", "The event is put back into the browse view, where its retention begins again. It is removed from the collection of archived events; its row in a file of the archive stays.").back(LIST).shows(EVENT).fields(&[
            Field::new("event", "Event id", "", Kind::Text),
        ]),
    ],
};

const LIST: &[&str] = &[];
/// The API returns rules as a list only.
const RULES: &[&str] = &["/v1/retention"];
const HOLD: &[&str] = &["/v1/holds/{name}"];
const EVENT: &[&str] = &["/v1/events/archive?event_ids={event}"];
/// The length of each list of the page.
const PAGE_ITEMS: &str = "50";

#[derive(Template)]
#[template(path = "archive.html")]
struct Archive {
    title: &'static str,
    list: Option<List>,
    one: Option<One>,
}

struct List {
    notices: Vec<Notice>,
    acts: Vec<Link>,
    state: Facts,
    rules: Table,
    holds: Table,
    search: Search,
    /// The number of archived events that match and one page of them, or the reason why they cannot be listed.
    archived: Result<(String, Table), Notice>,
    files: Table,
}

struct One {
    acts: Vec<Link>,
    facts: Facts,
    whole: Json,
}

async fn render(view: &View) -> Result<String, Refused> {
    let archive = match view.parameter("event") {
        Some(id) => Archive { title: "Archived event", list: None, one: Some(one(view, id).await?) },
        None => Archive { title: PAGE.title, list: Some(list(view).await?), one: None },
    };
    Ok(archive.render()?)
}

async fn list(view: &View) -> Result<List, Refused> {
    // A tenant that the caller does not see is refused here as on every page.
    let retention = part(view, "/v1/retention", "rules").await?;
    let reading = view.get("/v1/events/view").await?;
    let holds = part(view, "/v1/holds", "holds").await?;
    let files = part(view, "/v1/events/archive/files", "files").await?;
    Ok(List {
        notices: notices(&retention["archive"]),
        acts: view.acts(&["rule", "hold", "restore"], &[]),
        state: state(&retention, &reading),
        rules: rules(view, &retention),
        holds: held(view, &holds),
        search: form(view),
        archived: archived(view).await,
        files: filed(view, &files),
    })
}

/// Reads one page of a list. The parameter with this name has its cursor.
async fn part(view: &View, path: &str, cursor: &str) -> Result<Value, Refused> {
    view.query(path, &[("cursor", &view.value(cursor)), ("limit", PAGE_ITEMS)]).await
}

/// Returns notices of what needs attention.
fn notices(archive: &Value) -> Vec<Notice> {
    let notice = |class, title: String, text: String| Notice { class, title, text, link: None };
    let mut notices = Vec::new();
    if !archive["failing"].is_null() {
        let (reason, since) = (text(archive, "failing.reason"), text(archive, "failing.since"));
        let waiting = count(number(archive, "waiting"));
        let text = format!("{reason}, since {since}. {waiting} events are pending; they stay in the view and do not expire. Annals retries automatically.");
        notices.push(notice("bad", "The archive cannot be written.".to_owned(), text));
    }
    let refused = number(archive, "refused");
    if refused > 0 {
        let text = "They stay in the view, because their id is taken or they are too large. The log of the server names them.";
        notices.push(notice("bad", format!("The archive refused {} events.", count(refused)), text.to_owned()));
    }
    if archive["settled"] == false {
        let text = "Until then, some events in the view may still expire according to earlier rules.";
        notices.push(notice("warn", "The rules are being applied to the view.".to_owned(), text.to_owned()));
    }
    notices
}

/// Returns the state of the archive and of the view that it follows.
fn state(retention: &Value, reading: &Value) -> Facts {
    let archive = &retention["archive"];
    let state = match (archive["failing"].is_null(), number(archive, "refused"), archive["settled"] == true) {
        (false, ..) => "failing",
        (true, 1.., _) => "refused",
        (true, 0, false) => "catching_up",
        (true, 0, true) => "ready",
    };
    let (position, head) = (number(reading, "position"), number(reading, "head"));
    Facts::default()
        .with("state", Cell::state(state))
        .with("pending events", Cell::fault(number(archive, "waiting")))
        .with("reason", Cell::bad(text(archive, "failing.reason")))
        .with("failing since", Cell::bad(text(archive, "failing.since")))
        .with("of which refused", Cell::fault(number(archive, "refused")))
        .with("archived by retention", Cell::number(number(archive, "archived")))
        .with("last archived", Cell::text(text(archive, "last_archived")))
        .with("position of the view", Cell::text(format!("{} of {}", count(position), count(head))))
        .with("lag of the view", Cell::number(head.saturating_sub(position)))
        .with("events without a rule", Cell::text(format!("kept {}", days(&retention["default"]["ttl_days"]))))
}

/// Returns how long events are kept.
fn days(days: &Value) -> String {
    if days.is_null() { "forever".to_owned() } else { format!("{} days", shown(days)) }
}

fn rules(view: &View, page: &Value) -> Table {
    let row = |rule: &Value| {
        let (name, archive) = (text(rule, "name"), text(rule, "archive"));
        let days_of = rule["ttl_days"].to_string();
        let mut acts = view.acts(&["rule"], &[("name", &name), ("ttl_days", &days_of), ("archive", &archive)]);
        acts.extend(view.act("rule-remove", &[("name", &name)]));
        vec![
            Cell::text(name),
            Cell::text(text(rule, "kind")),
            Cell::text(days(&rule["ttl_days"])),
            Cell::text(archive),
            Cell::text(text(rule, "reason")),
            Cell::text(text(rule, "by")),
            Cell::text(text(rule, "at")),
            Cell::links(acts),
        ]
    };
    Table {
        id: "rules",
        title: "Rules".to_owned(),
        columns: vec!["name", "of a", "kept", "archive", "reason", "by", "since", "acts"],
        rows: items(page, "items").iter().map(row).collect(),
        empty: "No category or type has a rule.",
        next: view.next("More rules", "rules", &page["cursor"]),
    }
}

fn held(view: &View, page: &Value) -> Table {
    let row = |hold: &Value| {
        let (name, filter) = (text(hold, "name"), selected(&hold["filter"]));
        let filter: Vec<(&str, &str)> = filter.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut acts = view.acts(&["hold"], &[&filter[..], &[("name", &*name)]].concat());
        acts.extend(view.act("lift", &[("name", &name)]));
        let in_force = hold["in_force"] == true;
        vec![
            Cell::text(name),
            Cell { class: if in_force { "good" } else { "warn" }, ..Cell::text(if in_force { "yes" } else { "not yet" }) },
            Cell::link(cut(&hold["filter"].to_string()), view.link("events", &filter)),
            Cell::text(text(hold, "reason")),
            Cell::text(text(hold, "by")),
            Cell::text(text(hold, "at")),
            Cell::links(acts),
        ]
    };
    Table {
        id: "holds",
        title: "Holds".to_owned(),
        columns: vec!["name", "in force", "filter", "reason", "by", "since", "acts"],
        rows: items(page, "items").iter().map(row).collect(),
        empty: "No hold is set.",
        next: view.next("More holds", "holds", &page["cursor"]),
    }
}

/// Converts a filter into parameters of the page of events, which are also fields of the act that sets a hold.
fn selected(filter: &Value) -> Vec<(&str, String)> {
    let fields = filter.as_object().into_iter().flatten();
    let value = |value: &Value| match value.as_array() {
        Some(all) => all.iter().map(shown).collect::<Vec<_>>().join(","),
        None => shown(value),
    };
    fields.map(|(name, of)| (name.as_str(), value(of))).collect()
}

/// Returns the filters of archived events. The archive has no index of words.
fn filters() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    FILTERS.into_iter().filter(|(name, ..)| *name != "search")
}

fn form(view: &View) -> Search {
    let mut inputs: Vec<Input> = filters().map(|(name, label, hint)| Input::of(view, name, label, hint)).collect();
    inputs.push(Input::choice(view, "sort", "Order", SORTS));
    Search { action: view.address(), hidden: view.hidden(), inputs, button: "Show archived events" }
}

async fn archived(view: &View) -> Result<(String, Table), Notice> {
    let names = filters().map(|(name, ..)| name).chain(["sort", "cursor"]);
    let values: Vec<(&str, String)> = names.map(|name| (name, view.value(name))).collect();
    let mut parameters: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
    parameters.push(("limit", PAGE_ITEMS));
    let page = view.query("/v1/events/archive", &parameters).await.map_err(|refused| refused.notice())?;
    let table = Table {
        id: "archived",
        title: "Archived events".to_owned(),
        columns: vec!["deleted", "by", "reason", "time", "type", "aggregate", "event", "acts"],
        rows: items(&page, "items").iter().map(|event| row(view, event)).collect(),
        empty: "No archived event matches.",
        next: view.next("More", "cursor", &page["cursor"]),
    };
    Ok((format!("{} archived events", count(number(&page, "total"))), table))
}

/// Returns the fields of an archived event. Those of a damaged event, or of one that other software wrote, are under `document`.
fn fields(event: &Value) -> &Value {
    if event["damaged"].is_null() { event } else { &event["document"] }
}

fn row(view: &View, event: &Value) -> Vec<Cell> {
    let of = fields(event);
    let id = text(of, "event_id");
    vec![
        Cell::text(text(of, "deleted_at")),
        Cell::text(text(of, "deleted_by")),
        Cell::text(text(of, "deletion_reason")),
        Cell::text(text(of, "timestamp")),
        Cell::text(text(of, "event_type")),
        aggregate(view, of),
        Cell::link(&id, view.link("archive", &[("event", &id)])),
        Cell::links(view.acts(&["restore"], &[("event", &id)])),
    ]
}

fn filed(view: &View, page: &Value) -> Table {
    let row = |file: &Value| {
        vec![
            Cell::text(text(file, "path")),
            Cell::text(text(file, "event_type")),
            Cell::text(text(file, "day")),
            Cell::number(number(file, "events")),
            Cell::text(bytes(number(file, "bytes"))),
            Cell::text(text(file, "written")),
        ]
    };
    Table {
        id: "files",
        title: "Files of the archive".to_owned(),
        columns: vec!["path", "type", "day", "events", "size", "written"],
        rows: items(page, "items").iter().map(row).collect(),
        empty: "The archive has no files.",
        next: view.next("More files", "files", &page["cursor"]),
    }
}

async fn one(view: &View, id: &str) -> Result<One, Refused> {
    let page = view.query("/v1/events/archive", &[("event_ids", id), ("limit", "1")]).await?;
    let Some(event) = items(&page, "items").first() else {
        let detail = format!("The collection of archived events has no event {id:?}. If a file of the archive has it, restore it by its id.");
        return Err(Refused::new(StatusCode::NOT_FOUND, "This archived event does not exist.", detail));
    };
    let of = fields(event);
    let mut facts = Facts::default()
        .with("event", Cell::text(text(of, "event_id")))
        .with("type", Cell::text(text(of, "event_type")))
        .with("damaged", Cell::bad(text(event, "damaged")))
        .with("aggregate", aggregate(view, of));
    for (name, path) in [
        ("deleted", "deleted_at"),
        ("deleted by", "deleted_by"),
        ("deletion reason", "deletion_reason"),
        ("time", "timestamp"),
        ("stored", "stored_at"),
        ("user", "metadata.user_id"),
        ("service", "metadata.service_name"),
        ("execution", "execution_id"),
    ] {
        facts = facts.with(name, Cell::text(text(of, path)));
    }
    let at = text(of, "annals.sequence_number");
    let facts = facts.with("number", Cell::link(&at, view.link("event", &[("number", &at)])));
    Ok(One { acts: view.acts(&["restore"], &[("event", id)]), facts, whole: Json::new("The document", event, true) })
}
