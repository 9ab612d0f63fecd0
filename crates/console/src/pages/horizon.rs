//! The event horizon: subscriptions to other microservices, and consents that let others receive.

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Facts, Link, Table};
use crate::page::{Act, Group, Page, Permission};
use crate::values::{items, number, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "horizon",
    title: "Event horizon",
    group: Group::Processing,
    permission: Permission::Reader,
    live: true,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[
        Act::delete("unsubscribe", "Delete subscription", "/v1/subscriptions/{name}", "The subscription {name} is deleted: nothing more is received. The received events are kept.").shows(&["/v1/subscriptions/{name}"]),
        Act::delete("revoke", "Revoke consent", "/v1/consents/{consent}", "The consent {consent} is revoked: its consumer receives nothing more of the stream.").shows(&["/v1/consents/{consent}"]),
    ],
};

#[derive(Template)]
#[template(path = "horizon.html")]
struct Horizon {
    one: Option<(String, Facts)>,
    acts: Vec<Link>,
    subscriptions: Table,
    consents: Table,
}

async fn render(view: &View) -> Result<String, Refused> {
    let one = match view.parameter("name") {
        Some(name) => {
            let subscription = view.get(&format!("/v1/subscriptions/{}", escape(name))).await?;
            Some((name.to_owned(), Facts::of(&subscription)))
        }
        None => None,
    };
    let acts = one.as_ref().map_or_else(Vec::new, |(name, _)| view.acts(&["unsubscribe"], &[("name", name)]));
    let horizon = Horizon { one, acts, subscriptions: subscriptions(view).await?, consents: consents(view).await? };
    Ok(horizon.render()?)
}

async fn subscriptions(view: &View) -> Result<Table, Refused> {
    let page = view.query("/v1/subscriptions", &[("cursor", &view.value("cursor"))]).await?;
    let row = |item: &Value| {
        let name = text(item, "name");
        vec![
            Cell::link(&name, view.link("horizon", &[("name", &name)])),
            Cell::state(&text(item, "state")),
            Cell::text(text(item, "producer")),
            Cell::text(text(item, "stream")),
            Cell::text(text(item, "scope")),
            Cell::number(number(item, "position")),
            Cell::number(number(item, "lag")),
            Cell { class: "bad", ..Cell::text(text(item, "last_reason")) },
        ]
    };
    Ok(Table {
        id: "subscriptions",
        title: "Subscriptions".to_owned(),
        columns: vec!["name", "state", "producer", "stream", "scope", "position", "lag", "last reason"],
        rows: items(&page, "items").iter().map(row).collect(),
        empty: "This tenant has no subscription.",
        next: view.next("More", "cursor", &page["cursor"]),
    })
}

async fn consents(view: &View) -> Result<Table, Refused> {
    let page = view.query("/v1/consents", &[("cursor", &view.value("consents"))]).await?;
    let row = |item: &Value| {
        let id = text(item, "id");
        vec![
            Cell::text(&id),
            Cell::text(text(item, "microservice")),
            Cell::text(text(item, "tenant")),
            Cell::link(text(item, "stream"), view.link("streams", &[("name", &text(item, "stream"))])),
            Cell::text(text(item, "partition")),
            Cell::links(view.acts(&["revoke"], &[("consent", &id)])),
        ]
    };
    Ok(Table {
        id: "consents",
        title: "Consents".to_owned(),
        columns: vec!["id", "consumer", "its tenant", "stream", "partition", "acts"],
        rows: items(&page, "items").iter().map(row).collect(),
        empty: "No consumer may receive events of this tenant.",
        next: view.next("More", "consents", &page["cursor"]),
    })
}
