//! The tenants that the caller may see, and the contents of the chosen tenant's store.

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Facts, Table};
use crate::page::{Group, Page, Permission};
use crate::values::{at, bytes, items, number, text};
use crate::view::{Refused, View, with};

pub(super) const PAGE: Page = Page {
    id: "tenants",
    title: "Tenants",
    group: Group::Server,
    permission: Permission::Reader,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[],
};

#[derive(Template)]
#[template(path = "tenants.html")]
struct Tenants {
    tenant: String,
    facts: Facts,
    types: Table,
    aggregates: Table,
    tenants: Table,
}

async fn render(view: &View) -> Result<String, Refused> {
    let identity = view.get("/v1").await?;
    let stats = view.query("/v1/stats", &[("scope", &view.value("scope"))]).await?;
    let ready = view.get("/health/ready").await?;
    let rows = view.who.tenants.iter().map(|tenant| {
        let logs = items(&ready, "logs").iter().filter(|log| text(log, "tenant") == *tenant);
        let (mut scopes, mut head, mut size) = (Vec::new(), 0, 0);
        for log in logs {
            scopes.push(text(log, "scope"));
            head += number(log, "head");
            size += number(log, "bytes");
        }
        vec![
            Cell::link(tenant, with("/console/tenants", &[("tenant", tenant)])),
            Cell::text(scopes.join(", ")),
            Cell::number(head),
            Cell::text(bytes(size)),
        ]
    });
    let tenants = Table {
        id: "tenants",
        title: "Tenants".to_owned(),
        columns: vec!["name", "scopes", "events", "bytes"],
        rows: rows.collect(),
        empty: "None.",
        next: None,
    };
    let facts = Facts::default()
        .with("store", Cell::text(text(&identity, "store_id")))
        .with("incarnation", Cell::text(text(&identity, "incarnation")))
        .with("events", Cell::number(number(&stats, "events")))
        .with("commits", Cell::number(number(&stats, "commits")))
        .with("aggregates", Cell::number(number(&stats, "aggregates")))
        .with("bytes", Cell::text(bytes(number(&stats, "bytes"))))
        .with("oldest event", Cell::text(text(&stats, "oldest")))
        .with("newest event", Cell::text(text(&stats, "newest")));
    let counted = |id, title: &str, list: &str, page: &str, parameter: &str| Table {
        id,
        title: title.to_owned(),
        columns: vec!["name", "count"],
        rows: counts(at(&stats, list), |name| view.link(page, &[(parameter, name)])),
        empty: "None.",
        next: None,
    };
    let tenants = Tenants {
        tenant: view.tenant.clone(),
        facts,
        types: counted("by-type", "Events by type", "events_by_type", "log", "types"),
        aggregates: counted("by-name", "Aggregates by name", "aggregates_by_name", "aggregates", "name"),
        tenants,
    };
    Ok(tenants.render()?)
}

/// Returns a row for each name, the most frequent first.
fn counts(of: &Value, link: impl Fn(&str) -> String) -> Vec<Vec<Cell>> {
    let mut counted: Vec<(&String, u64)> =
        of.as_object().into_iter().flatten().map(|(name, count)| (name, count.as_u64().unwrap_or(0))).collect();
    counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counted.into_iter().take(100).map(|(name, count)| vec![Cell::link(name, link(name)), Cell::number(count)]).collect()
}
