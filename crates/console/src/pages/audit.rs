//! The audit log: the acts of administrators and operators, with their reasons and origins.

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Notice, Table};
use crate::page::{Group, Page, Permission};
use crate::values::{items, text, tone};
use crate::view::{Refused, View};

pub(super) const PAGE: Page = Page {
    id: "audit",
    title: "Audit",
    group: Group::Server,
    permission: Permission::Admin,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[],
};

const COLUMNS: [&str; 8] = ["at", "who", "name", "what", "path", "why", "from", "outcome"];

#[derive(Template)]
#[template(path = "audit.html")]
struct Audit {
    problem: Option<Notice>,
    table: Option<Table>,
}

async fn render(view: &View) -> Result<String, Refused> {
    view.get("/v1").await?;
    let page = match view.query("/v1/audit", &[("cursor", &view.value("cursor"))]).await {
        Ok(page) => page,
        Err(refused) if refused.status == axum::http::StatusCode::NOT_IMPLEMENTED => {
            return Ok(Audit { problem: Some(refused.notice()), table: None }.render()?);
        }
        Err(refused) => return Err(refused),
    };
    let row = |entry: &Value| {
        let cell = |name: &&str| match *name {
            "outcome" => Cell { class: tone(&text(entry, "outcome")), ..Cell::text(format!("{} {}", text(entry, "outcome"), text(entry, "code"))) },
            other => Cell::text(text(entry, other)),
        };
        COLUMNS.iter().map(cell).collect()
    };
    let table = Table {
        id: "audit",
        title: "Acts".to_owned(),
        columns: COLUMNS.to_vec(),
        rows: items(&page, "items").iter().map(row).collect(),
        empty: "No act has been recorded yet.",
        next: view.next("More", "cursor", &page["cursor"]),
    };
    Ok(Audit { problem: None, table: Some(table) }.render()?)
}
