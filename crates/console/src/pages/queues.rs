//! Work queues: pending items by priority, active items, and the acts on a queue and its items.

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Facts, Input, Link, Search, Table};
use crate::page::{Act, Field, Group, Page, Permission, Verb};
use crate::values::{items, number, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "queues",
    title: "Queues",
    group: Group::Processing,
    permission: Permission::Reader,
    live: true,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[
        Act::post("priority", "Change priority", "/v1/queues/{name}/items/{id}", "The item {id} of the queue {name} gets another priority. Its age is kept.").by(Verb::Patch).shows(ITEM).fields(&[Field::choice("priority", "Priority", &PRIORITIES)]),
        Act::post("release", "Release", "/v1/queues/{name}/items/{id}/release", "The item {id} is taken from its worker and becomes pending again, at the place that its age determines. The worker learns of it when it renews its lease; work that it has already done may be done twice.").shows(ITEM),
        Act::delete("cancel", "Cancel", "/v1/queues/{name}/items/{id}", "The item {id} is removed from the queue {name}. If a worker has it, the worker learns of the removal when it renews its lease.").shows(ITEM).back(&["name"]),
        Act::delete("delete", "Delete", "/v1/queues/{name}", "The queue {name} is deleted with all of its items, the pending and the active ones.").shows(&["/v1/queues/{name}"]),
    ],
};

const ITEM: &[&str] = &["/v1/queues/{name}/items/{id}"];
const PRIORITIES: [&str; 5] = ["critical", "high", "normal", "low", "background"];

#[derive(Template)]
#[template(path = "queues.html")]
struct Queues {
    title: String,
    list: Option<Table>,
    one: Option<One>,
}

struct One {
    acts: Vec<Link>,
    counts: Table,
    facts: Facts,
    search: Search,
    items: Table,
}

async fn render(view: &View) -> Result<String, Refused> {
    let queues = match view.parameter("name") {
        Some(name) => Queues { title: format!("Queue {name}"), list: None, one: Some(one(view, name).await?) },
        None => Queues { title: "Queues".to_owned(), list: Some(list(view).await?), one: None },
    };
    Ok(queues.render()?)
}

fn pending(queue: &Value) -> impl Iterator<Item = Cell> {
    PRIORITIES.iter().map(|priority| Cell::number(number(queue, &format!("pending.{priority}"))))
}

async fn list(view: &View) -> Result<Table, Refused> {
    let page = view.query("/v1/queues", &[("cursor", &view.value("cursor"))]).await?;
    let row = |queue: &Value| {
        let name = text(queue, "name");
        let mut row = vec![
            Cell::link(&name, view.link("queues", &[("name", &name)])),
            Cell::text(format!("{} of {}", number(queue, "active"), number(queue, "cap"))),
        ];
        row.extend(pending(queue));
        row.push(Cell::text(format!("{} s", number(queue, "oldest_seconds"))));
        row.push(Cell::fault(number(queue, "lost_total")));
        row
    };
    let columns = ["name", "active"].into_iter().chain(PRIORITIES).chain(["oldest", "lost"]);
    Ok(Table {
        id: "queues",
        title: "Work queues".to_owned(),
        columns: columns.collect(),
        rows: items(&page, "items").iter().map(row).collect(),
        empty: "No queue is defined.",
        next: view.next("More", "cursor", &page["cursor"]),
    })
}

async fn one(view: &View, name: &str) -> Result<One, Refused> {
    let path = format!("/v1/queues/{}", escape(name));
    let queue = view.get(&path).await?;
    let parameters = [("state", &*view.value("state")), ("user", &*view.value("user")), ("cursor", &*view.value("cursor")), ("limit", "50")];
    let page = view.query(&format!("{path}/items"), &parameters).await?;
    let counts = Table {
        id: "pending",
        title: "Pending by priority".to_owned(),
        columns: PRIORITIES.to_vec(),
        rows: vec![pending(&queue).collect()],
        empty: "None.",
        next: None,
    };
    let mut facts = Facts::default().with("active", Cell::text(format!("{} of {}", number(&queue, "active"), number(&queue, "cap"))));
    for (name, path) in [
        ("users with pending items", "users"),
        ("oldest", "oldest"),
        ("age of the oldest, s", "oldest_seconds"),
        ("enqueued", "enqueued_total"),
        ("handed out", "taken_total"),
        ("done", "done_total"),
        ("leases that ended", "expired_total"),
        ("released", "released_total"),
        ("cancelled", "cancelled_total"),
        ("lost", "lost_total"),
        ("fair", "fair"),
        ("ageing, ms", "ageing_ms"),
        ("lease, ms", "lease_ms"),
        ("most pending", "pending_max"),
        ("most pending of a user", "pending_max_per_user"),
    ] {
        facts = facts.with(name, Cell::text(text(&queue, path)));
    }
    let hidden = view.hidden().into_iter().chain([("name".to_owned(), name.to_owned())]).collect();
    let inputs = vec![Input::choice(view, "state", "State", &["pending", "active"]), Input::of(view, "user", "User", "")];
    Ok(One {
        acts: view.acts(&["delete"], &[("name", name)]),
        counts,
        facts,
        search: Search { action: view.address(), hidden, inputs, button: "Show" },
        items: table(view, name, &page),
    })
}

fn table(view: &View, name: &str, page: &Value) -> Table {
    let row = |item: &Value| {
        let (id, state) = (text(item, "id"), text(item, "state"));
        let acts: &[&str] = if state == "active" { &["priority", "release", "cancel"] } else { &["priority", "cancel"] };
        vec![
            Cell::text(&id),
            Cell::state(&state),
            Cell::text(text(item, "priority")),
            Cell::text(text(item, "user")),
            Cell::text(text(item, "enqueued_at")),
            Cell::number(number(item, "attempt")),
            Cell::text(text(item, "worker")),
            Cell::text(text(item, "lease_until")),
            Cell::links(view.acts(acts, &[("name", name), ("id", &id)])),
        ]
    };
    Table {
        id: "items",
        title: "Items, oldest first".to_owned(),
        columns: vec!["id", "state", "priority", "user", "enqueued", "handed out", "worker", "lease until", "acts"],
        rows: items(page, "items").iter().map(row).collect(),
        empty: "No item matches.",
        next: view.next("More", "cursor", &page["cursor"]),
    }
}
