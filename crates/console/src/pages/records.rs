//! Records: collections, and the documents of a collection that match a condition.

use askama::Template;
use serde_json::{Value, json};

use axum::http::Method;

use crate::components::{Cell, Facts, Input, Json, Notice, Search, Table};
use crate::page::{Group, Page, Permission};
use crate::values::{items, shown, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "records",
    title: "Records",
    group: Group::Data,
    permission: Permission::Reader,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[],
};

#[derive(Template)]
#[template(path = "records.html")]
struct Records {
    title: String,
    search: Option<Search>,
    problem: Option<Notice>,
    facts: Option<Facts>,
    record: Option<Json>,
    table: Option<Table>,
}

async fn render(view: &View) -> Result<String, Refused> {
    let records = match view.parameter("collection") {
        Some(collection) => one(view, collection).await?,
        None => list(view).await?,
    };
    Ok(records.render()?)
}

async fn list(view: &View) -> Result<Records, Refused> {
    let page = view.query("/v1/records/collections", &[("after", &view.value("after"))]).await?;
    let row = |collection: &Value| {
        let name = text(collection, "name");
        let indexes: Vec<String> = items(collection, "indexes").iter().map(|index| text(index, "name")).collect();
        vec![
            Cell::link(&name, view.link("records", &[("collection", &name)])),
            Cell::text(indexes.join(", ")),
            Cell::text(if collection["feed"] == true { "yes" } else { "" }),
        ]
    };
    let table = Table {
        id: "collections",
        title: "Collections".to_owned(),
        columns: vec!["name", "indexes", "feed"],
        rows: items(&page, "collections").iter().map(row).collect(),
        empty: "No collection is declared.",
        next: if items(&page, "collections").len() < 100 { None } else { view.next("More", "after", &page["next"]) },
    };
    let title = "Records".to_owned();
    Ok(Records { title, search: None, problem: None, facts: None, record: None, table: Some(table) })
}

/// Builds the query of a find. Returns a refusal if the input is not JSON.
fn find(view: &View) -> Result<Value, Refused> {
    let mut query = json!({ "limit": 50 });
    for name in ["condition", "sort"] {
        if let Some(written) = view.parameter(name) {
            query[name] = serde_json::from_str(written).map_err(|error| {
                let status = axum::http::StatusCode::UNPROCESSABLE_ENTITY;
                Refused::new(status, "This is not JSON.", format!("{name}: {error}"))
            })?;
        }
    }
    if let Some(after) = view.parameter("after") {
        query["after"] = after.into();
    }
    Ok(query)
}

async fn one(view: &View, collection: &str) -> Result<Records, Refused> {
    let path = format!("/v1/records/collections/{}", escape(collection));
    let declared = view.get(&path).await?;
    let search = Search {
        action: view.address(),
        hidden: view.hidden().into_iter().chain([("collection".to_owned(), collection.to_owned())]).collect(),
        inputs: vec![
            Input::of(view, "condition", "Condition", r#"{"field":"state","operator":"EQ","value":"open"}"#),
            Input::of(view, "sort", "Sort", r#"[{"field":"state"}]"#),
        ],
        button: "Find",
    };
    let record = match view.parameter("id") {
        Some(id) => {
            // The id as the list shows it: a text as it is, anything else as Extended JSON.
            let id: Value = serde_json::from_str(id).unwrap_or_else(|_| id.into());
            let found = view.send(Method::POST, &format!("{path}/get"), Some(&json!({ "id": id }))).await?;
            Some(Json::new("Record", &found, true))
        }
        None => None,
    };
    let found = match find(view) {
        Ok(query) => view.send(Method::POST, &format!("{path}/find"), Some(&query)).await,
        Err(refused) => Err(refused),
    };
    let (table, problem) = match found {
        Ok(page) => (Some(table(view, collection, &page)), None),
        Err(refused) => (None, Some(refused.notice())),
    };
    let facts = Facts::default().with("indexes", Cell { class: "code", ..Cell::text(text(&declared, "indexes")) });
    Ok(Records { title: collection.to_owned(), search: Some(search), problem, facts: Some(facts), record, table })
}

fn table(view: &View, collection: &str, page: &Value) -> Table {
    let row = |record: &Value| {
        let id = &record["document"]["_id"];
        // A text that could be parsed as JSON keeps its quotes, so that it is not mistaken for that value.
        let plain = shown(id);
        let named = if id.is_string() && serde_json::from_str::<Value>(&plain).is_err() { plain.clone() } else { id.to_string() };
        vec![
            Cell::link(plain, view.link("records", &[("collection", collection), ("id", &named)])),
            Cell::text(text(record, "revision")),
            Cell::code(&text(record, "document")),
        ]
    };
    Table {
        id: "records",
        title: "Records".to_owned(),
        columns: vec!["id", "revision", "document"],
        rows: items(page, "records").iter().map(row).collect(),
        empty: "No record matches.",
        next: view.next("More", "after", &page["next"]),
    }
}
