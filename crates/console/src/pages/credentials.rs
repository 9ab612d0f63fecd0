//! Credentials: keys of the API, created and revoked. A key is shown once.

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Link, Notice, Table};
use crate::page::{Act, Field, Group, Kind, Page, Permission};
use crate::values::{items, list, text};
use crate::view::{Refused, View};

pub(super) const PAGE: Page = Page {
    id: "credentials",
    title: "Credentials",
    group: Group::Server,
    permission: Permission::Admin,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[
        Act {
            permission: Permission::Admin,
            answers: true,
            ..Act::post("create", "Create a key", "/v1/credentials", "A new key is created and shown once. Its holder may do what the roles allow in the tenants.")
        }
        .fields(&[
            Field::new("name", "Name", "web", Kind::Text),
            Field::new("roles", "Roles", "reader, writer, operator, admin", Kind::List),
            Field::new("tenants", "Tenants", "default, or * for all", Kind::List),
            Field::new("scopes", "Scopes", "all, or names such as default, inbox", Kind::List).optional(),
            Field::new("event_types", "Event types", "all, or types such as a, b for readers and writers", Kind::List).optional(),
            Field::new("streams", "Streams", "everything, or for readers nothing but streams such as public-orders", Kind::List).optional(),
            Field::new("expires_at", "Expires", "never, or a time such as 2027-01-01T00:00:00Z", Kind::Text).optional(),
        ]),
        Act {
            permission: Permission::Admin,
            ..Act::delete("revoke", "Revoke", "/v1/credentials/{id}", "The key {id} is refused within seconds, and the streams and sessions of its holder end. This cannot be undone.")
        }
        .shows(&["/v1/credentials/{id}"]),
    ],
};

#[derive(Template)]
#[template(path = "credentials.html")]
struct Credentials {
    problem: Option<Notice>,
    acts: Vec<Link>,
    table: Option<Table>,
}

async fn render(view: &View) -> Result<String, Refused> {
    view.get("/v1").await?;
    let page = match view.query("/v1/credentials", &[("cursor", &view.value("cursor"))]).await {
        Ok(page) => page,
        // A server without credentials has none to list.
        Err(refused) if refused.status == axum::http::StatusCode::NOT_IMPLEMENTED => {
            return Ok(Credentials { problem: Some(refused.notice()), acts: Vec::new(), table: None }.render()?);
        }
        Err(refused) => return Err(refused),
    };
    let row = |credential: &Value| {
        let (id, state) = (text(credential, "id"), text(credential, "state"));
        let acts = if state == "revoked" { Vec::new() } else { view.acts(&["revoke"], &[("id", &id)]) };
        vec![
            Cell::text(id),
            Cell::text(text(credential, "name")),
            Cell::state(&state),
            Cell::text(list(credential, "roles")),
            Cell::text(list(credential, "tenants")),
            Cell::text(list(credential, "scopes")),
            Cell::text(list(credential, "event_types")),
            Cell::text(list(credential, "streams")),
            Cell::text(text(credential, "created_at")),
            Cell::text(text(credential, "expires_at")),
            Cell::text(text(credential, "revoked_because")),
            Cell::links(acts),
        ]
    };
    let table = Table {
        id: "credentials",
        title: "Credentials".to_owned(),
        columns: vec![
            "id",
            "name",
            "state",
            "roles",
            "tenants",
            "scopes",
            "event types",
            "streams",
            "created",
            "expires",
            "reason for revocation",
            "acts",
        ],
        rows: items(&page, "items").iter().map(row).collect(),
        empty: "No credential exists.",
        next: view.next("More", "cursor", &page["cursor"]),
    };
    Ok(Credentials { problem: None, acts: view.acts(&["create"], &[]), table: Some(table) }.render()?)
}
