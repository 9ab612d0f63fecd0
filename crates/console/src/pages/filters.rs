//! Filters: how far each has evaluated the log, and why it fails.

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Facts, Json, Link, Table};
use crate::page::{Act, Group, Page, Permission};
use crate::pages::handlers::{done, facts};
use crate::values::{items, number, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "filters",
    title: "Filters",
    group: Group::Processing,
    permission: Permission::Reader,
    live: true,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[Act::delete("delete", "Delete", "/v1/filters/{name}", "The filter of the stream {name} is deleted: no more events are added to the stream. Its entries are kept.").shows(&["/v1/filters/{name}"])],
};

#[derive(Template)]
#[template(path = "filters.html")]
struct Filters {
    title: String,
    list: Option<Table>,
    one: Option<One>,
}

struct One {
    facts: Facts,
    acts: Vec<Link>,
    definition: Json,
    done: Table,
}

async fn render(view: &View) -> Result<String, Refused> {
    let filters = match view.parameter("name") {
        Some(name) => Filters { title: format!("Filter {name}"), list: None, one: Some(one(view, name).await?) },
        None => Filters { title: "Filters".to_owned(), list: Some(list(view).await?), one: None },
    };
    Ok(filters.render()?)
}

async fn list(view: &View) -> Result<Table, Refused> {
    let page = view.query("/v1/filters", &[("cursor", &view.value("cursor"))]).await?;
    let row = |filter: &Value| {
        let name = text(filter, "stream");
        vec![
            Cell::link(&name, view.link("filters", &[("name", &name)])),
            Cell::text(text(filter, "scope")),
            Cell::state(&text(filter, "state")),
            Cell::number(number(filter, "position")),
            Cell::number(number(filter, "lag")),
            Cell::number(number(filter, "entries")),
            Cell { class: "bad", ..Cell::text(text(filter, "last_reason")) },
        ]
    };
    Ok(Table {
        id: "filters",
        title: "Filters".to_owned(),
        columns: vec!["stream", "scope", "state", "evaluated up to", "lag", "entries", "last reason"],
        rows: items(&page, "items").iter().map(row).collect(),
        empty: "No filter is defined.",
        next: view.next("More", "cursor", &page["cursor"]),
    })
}

async fn one(view: &View, name: &str) -> Result<One, Refused> {
    let path = format!("/v1/filters/{}", escape(name));
    let filter = view.get(&path).await?;
    let acts = view.get(&format!("{path}/acts")).await?;
    let stream = view.link("streams", &[("name", name)]);
    Ok(One {
        facts: facts(&filter).with("entries", Cell::link(text(&filter, "entries"), stream)),
        acts: view.acts(&["delete"], &[("name", name)]),
        definition: Json::new("Definition", &filter["definition"], true),
        done: done(&acts),
    })
}
