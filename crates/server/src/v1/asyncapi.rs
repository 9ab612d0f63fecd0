//! `GET /asyncapi.json`: the registered event types as an AsyncAPI 3.0 document, with a channel for each topic.

use std::sync::Arc;

use annals_core::limits;
use annals_core::types::TypeStatus;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::types::types;
use crate::answer::json as answer;
use crate::caller::Caller;
use crate::payload::{Document, Payload};
use crate::problem::Problem;
use crate::route::{Feature, Permission, get};
use crate::state::Server;

/// Returns the operation that describes the events.
pub(crate) fn feature() -> Feature {
    let document = get("/asyncapi.json", Permission::Reader, document).described(
        "asyncapi",
        "Returns the registered event types as an AsyncAPI 3.0 document.",
        Payload::json::<Document>(),
    );
    Feature::new("Event types", [document])
}

async fn document(State(server): State<Arc<Server>>, caller: Caller) -> Result<Response, Problem> {
    let registry = types(&server, &caller)?;
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let page = registry.list(after.as_deref(), limits::PAGE_MAX).await?;
        all.extend(page.items);
        after = page.cursor;
        if after.is_none() {
            break;
        }
    }
    answer(StatusCode::OK, &describe(&caller.tenant, &all))
}

/// Describes each type with one channel, one message and one operation.
fn describe(tenant: &str, types: &[TypeStatus]) -> Value {
    let (mut channels, mut messages, mut operations) = (Map::new(), Map::new(), Map::new());
    for it in types {
        let name = &*it.name;
        let message = json!({"$ref": format!("#/components/messages/{name}")});
        channels.insert(name.to_owned(), json!({"address": name, "messages": {name: message}}));
        let of_channel = json!({"$ref": format!("#/channels/{name}")});
        let listed = json!([{"$ref": format!("#/channels/{name}/messages/{name}")}]);
        operations
            .insert(format!("receive_{name}"), json!({"action": "receive", "channel": of_channel, "messages": listed}));
        messages.insert(
            name.to_owned(),
            json!({
                "name": name,
                "contentType": "application/json",
                "x-generation": it.generation,
                "x-category": &*it.category,
                "x-id": it.id,
                "payload": it.schema,
            }),
        );
    }
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": format!("Events of tenant {tenant}"),
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The registered event types. A channel is the topic of its type; the payload is the data of an event.",
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages},
    })
}
