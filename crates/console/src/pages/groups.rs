//! Consumer groups: their progress in their topics, their failing keys, and the acts of an operator.

use askama::Template;

use crate::components::{Cell, Facts, Json, Link, Table};
use crate::page::{Act, Field, Group, Page, Permission};
use crate::pages::handlers::{STATUS, facts, failing, status, workers};
use crate::values::{items, number, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "groups",
    title: "Groups",
    group: Group::Processing,
    permission: Permission::Reader,
    live: true,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[
        Act::post("pause", "Pause", "/v1/groups/{name}/pause", "No more messages of the group {name} are handed out until it is resumed.").shows(NOW),
        Act::post("resume", "Resume", "/v1/groups/{name}/resume", "Messages of the group {name} are handed out again from its position.").shows(NOW),
        Act::delete("delete", "Delete", "/v1/groups/{name}", "The group {name}, its position and its failing keys are deleted.").shows(NOW),
        Act::post("retry", "Retry", "/v1/groups/{name}/partitions/{partition}/retry", "The failing message of the key {partition} is handed out again immediately.").shows(EVENT),
        Act::post("skip", "Skip", "/v1/groups/{name}/partitions/{partition}/skip", "The failing message of the key {partition} is skipped: the group {name} never processes it.").shows(EVENT).fields(&[Field::given("position")]),
        Act::post("park", "Park", "/v1/groups/{name}/partitions/{partition}/park", "The failing message of the key {partition} becomes a dead letter: the group {name} continues with the next message of the key.").shows(EVENT).fields(&[Field::given("position")]),
    ],
};

const NOW: &[&str] = &["/v1/groups/{name}"];
const EVENT: &[&str] = &["/v1/log/{sequence_number}", "/v1/groups/{name}"];

#[derive(Template)]
#[template(path = "groups.html")]
struct Groups {
    title: String,
    list: Option<Table>,
    one: Option<One>,
}

struct One {
    facts: Facts,
    acts: Vec<Link>,
    topics: Table,
    failing: Table,
    workers: Table,
    definition: Json,
}

async fn render(view: &View) -> Result<String, Refused> {
    let groups = match view.parameter("name") {
        Some(name) => Groups { title: format!("Group {name}"), list: None, one: Some(one(view, name).await?) },
        None => Groups { title: "Groups".to_owned(), list: Some(list(view).await?), one: None },
    };
    Ok(groups.render()?)
}

async fn list(view: &View) -> Result<Table, Refused> {
    let page = view.query("/v1/groups", &[("cursor", &view.value("cursor"))]).await?;
    Ok(Table {
        id: "groups",
        title: "Consumer groups".to_owned(),
        columns: STATUS.to_vec(),
        rows: items(&page, "items").iter().map(|item| status(view, "groups", item)).collect(),
        empty: "No consumer group is defined.",
        next: view.next("More", "cursor", &page["cursor"]),
    })
}

async fn one(view: &View, name: &str) -> Result<One, Refused> {
    let path = format!("/v1/groups/{}", escape(name));
    let group = view.get(&path).await?;
    let partitions = view.query(&format!("{path}/partitions"), &[("cursor", &view.value("cursor"))]).await?;
    let toggle = if text(&group, "state") == "paused" { "resume" } else { "pause" };
    let rows = items(&group, "topics").iter().map(|topic| {
        let name = text(topic, "topic");
        vec![Cell::link(&name, view.link("topics", &[("name", &name)])), Cell::number(number(topic, "lag"))]
    });
    let topics = Table {
        id: "topics",
        title: "Topics".to_owned(),
        columns: vec!["topic", "lag"],
        rows: rows.collect(),
        empty: "None.",
        next: None,
    };
    Ok(One {
        facts: facts(&group),
        acts: view.acts(&[toggle, "delete"], &[("name", name)]),
        topics,
        failing: failing(view, name, &partitions),
        workers: workers(&group),
        definition: Json::new("Definition", &group["definition"], false),
    })
}
