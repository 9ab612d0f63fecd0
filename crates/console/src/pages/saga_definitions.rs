//! The definitions of sagas, each drawn as a diagram of its steps.

use askama::Template;
use serde_json::Value;

use crate::components::{Cell, Facts, Json, Link, Table};
use crate::diagram::Diagram;
use crate::page::{Act, Group, Page, Permission};
use crate::pages::sagas;
use crate::values::{items, list as words, number, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "saga-definitions",
    title: "Saga definitions",
    group: Group::Processing,
    permission: Permission::Reader,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[Act::delete("delete", "Delete", "/v1/saga-definitions/{name}", "The definition {name} is deleted: its events start no more sagas. The deletion is refused until all of its sagas have ended. Ended sagas are kept.").shows(&["/v1/saga-definitions/{name}"])],
};

#[derive(Template)]
#[template(path = "saga_definitions.html")]
struct Definitions {
    title: String,
    list: Option<Table>,
    one: Option<One>,
}

struct One {
    acts: Vec<Link>,
    diagram: Diagram,
    facts: Facts,
    sagas: Table,
    definition: Json,
}

async fn render(view: &View) -> Result<String, Refused> {
    let definitions = match view.parameter("name") {
        Some(name) => Definitions { title: format!("Saga {name}"), list: None, one: Some(one(view, name).await?) },
        None => Definitions { title: "Saga definitions".to_owned(), list: Some(list(view).await?), one: None },
    };
    Ok(definitions.render()?)
}

async fn list(view: &View) -> Result<Table, Refused> {
    let page = view.query("/v1/saga-definitions", &[("cursor", &view.value("cursor"))]).await?;
    let row = |definition: &Value| {
        let name = text(definition, "name");
        vec![
            Cell::link(&name, view.link("saga-definitions", &[("name", &name)])),
            Cell::number(number(definition, "version")),
            Cell::text(words(definition, "definition.start.on")),
            Cell::number(items(definition, "definition.steps").len() as u64),
            Cell::number(number(definition, "active")),
            Cell::fault(number(definition, "parked")),
            Cell::number(number(definition, "lag")),
            Cell::text(text(definition, "owner")),
        ]
    };
    Ok(Table {
        id: "definitions",
        title: "Definitions".to_owned(),
        columns: vec!["name", "version", "started by", "steps", "active", "need an operator", "lag", "owner"],
        rows: items(&page, "items").iter().map(row).collect(),
        empty: "No saga is defined.",
        next: view.next("More", "cursor", &page["cursor"]),
    })
}

async fn one(view: &View, name: &str) -> Result<One, Refused> {
    let definition = view.get(&format!("/v1/saga-definitions/{}", escape(name))).await?;
    let page = view.query("/v1/sagas", &[("name", name), ("limit", "20")]).await?;
    let mut facts = Facts::default().with("versions", Cell::text(words(&definition, "versions")));
    for field in ["position", "head", "lag", "active", "owner"] {
        facts = facts.with(field, Cell::text(text(&definition, field)));
    }
    let parked = number(&definition, "parked");
    facts = facts.with("need an operator", if parked > 0 { Cell::bad(parked.to_string()) } else { Cell::text("0") });
    Ok(One {
        acts: view.acts(&["delete"], &[("name", name)]),
        diagram: Diagram::of(name, &definition["definition"]),
        facts,
        sagas: Table { next: None, ..sagas::table(view, &page) },
        definition: Json::new("Definition", &definition["definition"], false),
    })
}
