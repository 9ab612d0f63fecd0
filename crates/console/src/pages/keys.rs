//! Prepare keys: the keys that are held under a name.

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Input, Search, Table};
use crate::page::{Group, Page, Permission};
use crate::values::{items, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "keys",
    title: "Prepare keys",
    group: Group::Data,
    permission: Permission::Reader,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[],
};

#[derive(Template)]
#[template(path = "keys.html")]
struct Keys {
    search: Search,
    table: Option<Table>,
}

async fn render(view: &View) -> Result<String, Refused> {
    let input = |name, label, hint| Input::of(view, name, label, hint);
    let search = Search {
        action: view.address(),
        hidden: view.hidden(),
        inputs: vec![input("name", "Name", "user"), input("after", "After the key", "")],
        button: "Show",
    };
    let table = match view.parameter("name") {
        Some(name) => Some(keys(view, name).await?),
        None => {
            view.get("/v1").await?;
            None
        }
    };
    Ok(Keys { search, table }.render()?)
}

async fn keys(view: &View, name: &str) -> Result<Table, Refused> {
    let page = view.query(&format!("/v1/keys/{}", escape(name)), &[("after", &view.value("after"))]).await?;
    let row = |key: &Value| {
        vec![
            Cell::text(text(key, "key")),
            Cell::code(&text(key, "value")),
            Cell::text(text(key, "ttl_at")),
            Cell::text(if key["expired"] == true { "expired" } else { "held" }),
        ]
    };
    Ok(Table {
        id: "keys",
        title: format!("Keys of {name}"),
        columns: vec!["key", "value", "until", "state"],
        rows: items(&page, "keys").iter().map(row).collect(),
        empty: "No key of this name is held.",
        next: view.next("More", "after", &page["next"]),
    })
}
