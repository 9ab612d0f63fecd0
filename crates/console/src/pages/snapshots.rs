//! Snapshots of aggregates.

use axum::http::{Method, StatusCode};

use askama::Template;
use serde_json::{Value, json};

use crate::components::{Cell, Facts, Input, Json, Notice, Search, Table};
use crate::page::{Group, Page, Permission};
use crate::values::{items, number, shown, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "snapshots",
    title: "Snapshots",
    group: Group::Data,
    permission: Permission::Reader,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[],
};

#[derive(Template)]
#[template(path = "snapshots.html")]
struct Snapshots {
    search: Search,
    facts: Option<Facts>,
    state: Option<Json>,
    problem: Option<Notice>,
    table: Option<Table>,
}

async fn render(view: &View) -> Result<String, Refused> {
    let input = |name, label, hint| Input::of(view, name, label, hint);
    let search = Search {
        action: view.address(),
        hidden: view.hidden(),
        inputs: vec![input("name", "Aggregate", "order"), input("id", "Id", "o-1")],
        button: "Show",
    };
    let (mut facts, mut state) = (None, None);
    let (table, problem) = match (view.parameter("name"), view.parameter("id")) {
        (None, _) => (Some(names(view).await?), None),
        (Some(name), None) => of_name(view, name).await?,
        (Some(name), Some(id)) => {
            let mut snapshot = view.get(&format!("/v1/snapshots/{}/{}", escape(name), escape(id))).await?;
            state = Some(Json::new("State", &snapshot["state"].take(), true));
            let link = view.link("aggregates", &[("name", name), ("id", id), ("version", &text(&snapshot, "version"))]);
            facts = Some(Facts::of(&snapshot).with("aggregate", Cell::link("history", link)));
            of_name(view, name).await?
        }
    };
    Ok(Snapshots { search, facts, state, problem, table }.render()?)
}

async fn names(view: &View) -> Result<Table, Refused> {
    let page = view.query("/v1/aggregates", &[("after", &view.value("after"))]).await?;
    let rows = items(&page, "names").iter().map(|name| {
        let name = shown(name);
        vec![Cell::link(&name, view.link("snapshots", &[("name", &name)]))]
    });
    Ok(Table {
        id: "names",
        title: "Aggregates".to_owned(),
        columns: vec!["name"],
        rows: rows.collect(),
        empty: "No aggregate has a commit yet.",
        next: if items(&page, "names").len() < 100 { None } else { view.next("More", "after", &page["next"]) },
    })
}

/// Lists the snapshots of a name. Returns a notice if they cannot be read; an unknown tenant is refused as on every page.
async fn of_name(view: &View, name: &str) -> Result<(Option<Table>, Option<Notice>), Refused> {
    let query = json!({ "condition": {}, "limit": 100 });
    let path = format!("/v1/query/{}/snapshots/list", escape(name));
    match view.send(Method::POST, &path, Some(&query)).await {
        Ok(list) => Ok((Some(table(view, name, &list)), None)),
        Err(refused) if refused.status != StatusCode::NOT_FOUND => Ok((None, Some(refused.notice()))),
        Err(refused) => Err(refused),
    }
}

fn table(view: &View, name: &str, list: &Value) -> Table {
    let list = if list.is_array() { list } else { &list["items"] };
    let rows = list.as_array().into_iter().flatten().map(|snapshot| {
        let id = text(snapshot, "aggregateId");
        vec![
            Cell::link(&id, view.link("snapshots", &[("name", name), ("id", &id)])),
            Cell::number(number(snapshot, "version")),
            Cell::text(text(snapshot, "tenantId")),
            Cell::code(&text(snapshot, "state")),
        ]
    });
    Table {
        id: "snapshots",
        title: format!("Snapshots of {name}"),
        columns: vec!["id", "version", "tenantId", "state"],
        rows: rows.collect(),
        empty: "No aggregate of this name has a snapshot.",
        next: None,
    }
}
