//! The configuration of the process, without its secrets.

use askama::Template;

use crate::components::{Cell, Table};
use crate::page::{Group, Page, Permission};
use crate::view::{Refused, View};

pub(super) const PAGE: Page = Page {
    id: "configuration",
    title: "Configuration",
    group: Group::Server,
    permission: Permission::Admin,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[],
};

#[derive(Template)]
#[template(path = "configuration.html")]
struct Configuration {
    table: Table,
}

async fn render(view: &View) -> Result<String, Refused> {
    view.get("/v1").await?;
    let rows = view.settings.configuration.iter().map(|(key, value, origin)| {
        vec![Cell::text(key), Cell { class: "code", ..Cell::text(value) }, Cell::text(origin)]
    });
    let table = Table {
        id: "configuration",
        title: "In force".to_owned(),
        columns: vec!["key", "value", "from"],
        rows: rows.collect(),
        empty: "The serving program does not show its configuration.",
        next: None,
    };
    Ok(Configuration { table }.render()?)
}
