//! Topics: the topic of each event type, and the groups that read it.

use std::collections::BTreeMap;

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Facts, Link, Table};
use crate::page::{Act, Group, Page, Permission};
use crate::values::{items, list, number, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "topics",
    title: "Topics",
    group: Group::Processing,
    permission: Permission::Reader,
    live: true,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[Act::post("apply", "Apply", "/v1/topics/{name}/apply", "The configured partitions and retention are applied to the topic {name}.").shows(&["/v1/topics/{name}"])],
};

#[derive(Template)]
#[template(path = "topics.html")]
struct Topics {
    title: String,
    facts: Option<Facts>,
    acts: Vec<Link>,
    table: Table,
}

async fn render(view: &View) -> Result<String, Refused> {
    let topics = match view.parameter("name") {
        Some(name) => one(view, name).await?,
        None => all(view).await?,
    };
    Ok(topics.render()?)
}

async fn all(view: &View) -> Result<Topics, Refused> {
    let page = view.query("/v1/topics", &[("cursor", &view.value("cursor"))]).await?;
    // The list of topics does not include their readers, so they are taken from the groups.
    let groups = view.get("/v1/groups?limit=1000").await?;
    let lags = lags(&groups);
    let row = |topic: &Value| {
        let name = text(topic, "name");
        let (readers, lag) = lags.get(&name).cloned().unwrap_or_default();
        vec![
            Cell::link(&name, view.link("topics", &[("name", &name)])),
            Cell::text(text(topic, "event_type")),
            Cell::text(text(topic, "category")),
            Cell::number(number(topic, "partitions")),
            Cell::text(list(topic, "head")),
            Cell::text(readers.join(", ")),
            Cell::number(lag),
            Cell::fault(items(topic, "differences").len() as u64),
        ]
    };
    let table = Table {
        id: "topics",
        title: "Topics".to_owned(),
        columns: vec!["name", "event type", "category", "partitions", "heads", "groups", "longest lag", "differences"],
        rows: items(&page, "items").iter().map(row).collect(),
        empty: "No topic exists. Registering a type or defining a group creates one.",
        next: view.next("More", "cursor", &page["cursor"]),
    };
    Ok(Topics { title: "Topics".to_owned(), facts: None, acts: Vec::new(), table })
}

/// Returns the groups of each topic, and the longest lag of any of them.
fn lags(groups: &Value) -> BTreeMap<String, (Vec<String>, u64)> {
    let mut lags: BTreeMap<String, (Vec<String>, u64)> = BTreeMap::new();
    for group in items(groups, "items") {
        for topic in items(group, "topics") {
            let (readers, longest) = lags.entry(text(topic, "topic")).or_default();
            readers.push(text(group, "name"));
            *longest = number(topic, "lag").max(*longest);
        }
    }
    lags
}

async fn one(view: &View, name: &str) -> Result<Topics, Refused> {
    let topic = view.get(&format!("/v1/topics/{}", escape(name))).await?;
    let row = |group: &Value| {
        let name = text(group, "group");
        vec![Cell::link(&name, view.link("groups", &[("name", &name)])), Cell::number(number(group, "lag"))]
    };
    let table = Table {
        id: "readers",
        title: "Groups that read it".to_owned(),
        columns: vec!["group", "lag"],
        rows: items(&topic, "groups").iter().map(row).collect(),
        empty: "No group reads it.",
        next: None,
    };
    let acts = if items(&topic, "differences").is_empty() { Vec::new() } else { view.acts(&["apply"], &[("name", name)]) };
    Ok(Topics { title: format!("Topic {name}"), facts: Some(Facts::of(&topic)), acts, table })
}
