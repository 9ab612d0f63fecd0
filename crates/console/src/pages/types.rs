//! Event types: the contents of the registry.

use askama::Template;

use crate::components::{Cell, Facts, Json, Table};
use crate::page::{Group, Page, Permission};
use crate::values::{items, number, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "types",
    title: "Event types",
    group: Group::Events,
    permission: Permission::Reader,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[],
};

#[derive(Template)]
#[template(path = "types.html")]
struct Types {
    title: String,
    facts: Facts,
    schema: Option<Json>,
    table: Table,
}

async fn render(view: &View) -> Result<String, Refused> {
    let types = match view.parameter("name") {
        Some(name) => one(view, name).await?,
        None => list(view).await?,
    };
    Ok(types.render()?)
}

async fn list(view: &View) -> Result<Types, Refused> {
    let page = view.query("/v1/types", &[("cursor", &view.value("cursor"))]).await?;
    let rows = items(&page, "items").iter().map(|kind| {
        let name = text(kind, "name");
        vec![
            Cell::link(&name, view.link("types", &[("name", &name)])),
            Cell::number(number(kind, "generation")),
            Cell::text(text(kind, "category")),
            Cell::text(text(kind, "policy")),
            Cell::link("events", view.link("log", &[("types", &name)])),
        ]
    });
    let table = Table {
        id: "types",
        title: "Registered types".to_owned(),
        columns: vec!["name", "generation", "category", "policy", "log"],
        rows: rows.collect(),
        empty: "No event type is registered.",
        next: view.next("More", "cursor", &page["cursor"]),
    };
    let facts = Facts::default().with("unregistered types", Cell::text(text(&page, "unknown")));
    Ok(Types { title: "Event types".to_owned(), facts, schema: None, table })
}

async fn one(view: &View, name: &str) -> Result<Types, Refused> {
    let kind = view.get(&format!("/v1/types/{}", escape(name))).await?;
    let rows = items(&kind, "generations").iter().map(|generation| {
        vec![
            Cell::number(number(generation, "generation")),
            Cell::text(text(generation, "registered")),
            Cell::code(&text(generation, "schema")),
        ]
    });
    let table = Table {
        id: "generations",
        title: "Generations".to_owned(),
        columns: vec!["generation", "registered", "schema"],
        rows: rows.collect(),
        empty: "None.",
        next: None,
    };
    let facts = Facts::default()
        .with("id", Cell::text(text(&kind, "id")))
        .with("generation", Cell::text(text(&kind, "generation")))
        .with("category", Cell::text(text(&kind, "category")))
        .with("policy", Cell::text(text(&kind, "policy")))
        .with("log", Cell::link("events of this type", view.link("log", &[("types", name)])));
    let schema = Some(Json::new("Schema", &kind["schema"], true));
    Ok(Types { title: name.to_owned(), facts, schema, table })
}
