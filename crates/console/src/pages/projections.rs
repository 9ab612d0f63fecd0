//! Projections: their progress, their builds, and their records.

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Facts, Json, Link, Table};
use crate::page::{Act, Group, Page, Permission};
use crate::pages::handlers::{done, facts};
use crate::values::{items, number, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "projections",
    title: "Projections",
    group: Group::Processing,
    permission: Permission::Reader,
    live: true,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[
        Act::post("pause", "Pause", "/v1/projections/{name}/pause", "The projection {name} stops following the log. Its records remain unchanged and readable.").shows(NOW),
        Act::post("resume", "Resume", "/v1/projections/{name}/resume", "The projection {name} follows the log again from its position.").shows(NOW),
        Act::post("rebuild", "Rebuild", "/v1/projections/{name}/rebuild", "The records of the projection {name} are rebuilt from the whole log beside the live ones, which they replace once they have caught up.").shows(NOW),
        Act::delete("delete", "Delete", "/v1/projections/{name}", "The projection {name} and its records are deleted. The events are kept.").shows(NOW),
    ],
};

const NOW: &[&str] = &["/v1/projections/{name}"];

#[derive(Template)]
#[template(path = "projections.html")]
struct Projections {
    title: String,
    list: Option<Table>,
    one: Option<One>,
}

struct One {
    facts: Facts,
    acts: Vec<Link>,
    records: Table,
    definition: Json,
    done: Table,
}

async fn render(view: &View) -> Result<String, Refused> {
    let projections = match view.parameter("name") {
        Some(name) => Projections { title: format!("Projection {name}"), list: None, one: Some(one(view, name).await?) },
        None => Projections { title: "Projections".to_owned(), list: Some(list(view).await?), one: None },
    };
    Ok(projections.render()?)
}

async fn list(view: &View) -> Result<Table, Refused> {
    let page = view.query("/v1/projections", &[("cursor", &view.value("cursor"))]).await?;
    let row = |projection: &Value| {
        let name = text(projection, "name");
        vec![
            Cell::link(&name, view.link("projections", &[("name", &name)])),
            Cell::state(&text(projection, "state")),
            Cell::number(number(projection, "build")),
            Cell::number(number(projection, "position")),
            Cell::number(number(projection, "lag")),
            Cell::text(text(projection, "building.progress")),
            Cell { class: "bad", ..Cell::text(text(projection, "last_reason")) },
        ]
    };
    Ok(Table {
        id: "projections",
        title: "Projections".to_owned(),
        columns: vec!["name", "state", "build", "position", "lag", "next build", "last reason"],
        rows: items(&page, "items").iter().map(row).collect(),
        empty: "No projection is defined.",
        next: view.next("More", "cursor", &page["cursor"]),
    })
}

async fn one(view: &View, name: &str) -> Result<One, Refused> {
    let path = format!("/v1/projections/{}", escape(name));
    let projection = view.get(&path).await?;
    let acts = view.get(&format!("{path}/acts")).await?;
    let page = view.query(&format!("{path}/records"), &[("limit", "50"), ("cursor", &view.value("cursor"))]).await;
    let (rows, next, empty) = match page {
        Ok(page) => {
            let row = |record: &Value| vec![Cell::text(text(record, "_id")), Cell::code(&record.to_string())];
            let next = view.next("More", "cursor", &page["cursor"]);
            (items(&page, "items").iter().map(row).collect(), next, "It has no records.")
        }
        Err(_) => (Vec::new(), None, "Its records cannot be read at the moment."),
    };
    let records = Table { id: "records", title: "Records".to_owned(), columns: vec!["key", "record"], rows, empty, next };
    let toggle = if text(&projection, "state") == "paused" { "resume" } else { "pause" };
    Ok(One {
        facts: facts(&projection)
            .with("build", Cell::text(text(&projection, "build")))
            .with("collection", Cell::text(text(&projection, "collection")))
            .with("building", Cell::text(text(&projection, "building"))),
        acts: view.acts(&[toggle, "rebuild", "delete"], &[("name", name)]),
        records,
        definition: Json::new("Definition", &projection["definition"], false),
        done: done(&acts),
    })
}
