//! Streams: the entries that filters have appended to each.

use askama::Template;

use crate::components::{Cell, Facts, Table};
use crate::page::{Group, Page, Permission};
use crate::values::{items, number, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "streams",
    title: "Streams",
    group: Group::Events,
    permission: Permission::Reader,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[],
};

#[derive(Template)]
#[template(path = "streams.html")]
struct Streams {
    title: String,
    facts: Option<Facts>,
    table: Table,
}

async fn render(view: &View) -> Result<String, Refused> {
    let streams = match view.parameter("name") {
        Some(name) => one(view, name).await?,
        None => list(view).await?,
    };
    Ok(streams.render()?)
}

async fn list(view: &View) -> Result<Streams, Refused> {
    let page = view.query("/v1/streams", &[("after", &view.value("after"))]).await?;
    let rows = items(&page, "streams").iter().map(|stream| {
        let name = text(stream, "name");
        vec![
            Cell::link(&name, view.link("streams", &[("name", &name)])),
            Cell::number(number(stream, "head")),
            Cell::number(number(stream, "progress")),
            Cell::link("filter", view.link("filters", &[("name", &name)])),
        ]
    });
    let table = Table {
        id: "streams",
        title: "Streams".to_owned(),
        columns: vec!["name", "entries", "evaluated up to", "filled by"],
        rows: rows.collect(),
        empty: "No stream exists. A filter creates one.",
        next: if items(&page, "streams").len() < 100 { None } else { view.next("More", "after", &page["next"]) },
    };
    Ok(Streams { title: "Streams".to_owned(), facts: None, table })
}

async fn one(view: &View, name: &str) -> Result<Streams, Refused> {
    let path = format!("/v1/streams/{}", escape(name));
    let state = view.get(&format!("{path}/state")).await?;
    let page = view.query(&path, &[("from", &view.value("from")), ("limit", "50")]).await?;
    let rows = items(&page, "events").iter().map(|entry| {
        let mut row = vec![Cell::number(number(entry, "position")), Cell::text(text(entry, "partition"))];
        row.extend(super::log::row(view, &entry["event"]));
        row
    });
    let table = Table {
        id: "entries",
        title: "Entries".to_owned(),
        columns: vec!["position", "partition", "number", "time", "type", "aggregate", "version", "tags", "data"],
        rows: rows.collect(),
        empty: "There are no entries at or after this position.",
        next: if items(&page, "events").is_empty() { None } else { view.next("Later entries", "from", &page["next"]) },
    };
    Ok(Streams { title: name.to_owned(), facts: Some(Facts::of(&state)), table })
}
