//! `wow_database_metadata`: the context that owns the database. A database belongs to one context, because collection names do not include
//! the context.

use mongodb::Database;
use mongodb::bson::{Document, doc};
use mongodb::options::ReturnDocument;

use super::names::{OWNER, collections};
use crate::refused::{Code, OpenError, asking};

const ID: &str = "boundedContext";
const LAYOUT: i64 = 1;

/// The context of a database without a marker.
pub(crate) const DEFAULT: &str = "annals";

/// Returns the marker of a database, which names its context.
///
/// # Errors
/// Errors of the driver.
pub(crate) async fn marked(database: &Database) -> mongodb::error::Result<Option<Document>> {
    database.collection::<Document>(OWNER).find_one(doc! { "_id": ID }).await
}

/// Returns the configured context, else that of the marker of a database that Annals uses, else the default.
///
/// # Errors
/// `not_adopted` if the marker names another context and Annals has never used the database; `unreachable`.
pub(crate) async fn context(database: &Database, configured: Option<&str>, ours: bool) -> Result<String, OpenError> {
    if let Some(configured) = configured {
        return Ok(configured.to_owned());
    }
    let mark = marked(database).await.map_err(|error| asking(database.name(), &error))?;
    match mark.as_ref().and_then(|mark| mark.get_str("contextName").ok()) {
        Some(context) if ours || context == DEFAULT => Ok(context.to_owned()),
        Some(context) => {
            let name = database.name();
            let message = format!("database {name} belongs to context {context:?}, and Annals has not adopted it");
            Err(OpenError::new(Code::NotAdopted, message))
        }
        None => Ok(DEFAULT.to_owned()),
    }
}

/// Claims the database for `context`, or checks that it already belongs to it.
///
/// # Errors
/// `unsuitable_server` if its marker or its documents belong to another context; no marker is written then. `unreachable`.
pub(crate) async fn claim(database: &Database, context: &str) -> Result<(), OpenError> {
    if context.trim().is_empty() {
        return Err(OpenError::new(Code::InvalidConfig, "context_name is blank; give the name of your context"));
    }
    let place = database.name();
    let asked = |error: mongodb::error::Error| asking(place, &error);
    let marker = database.collection::<Document>(OWNER);
    if let Some(found) = marker.find_one(doc! { "_id": ID }).await.map_err(asked)? {
        return judge(place, context, &found);
    }
    if let Some((collection, other)) = foreign(database, context).await.map_err(asked)? {
        let sentence = format!("{collection} holds documents of context {other:?}, and this is {context:?}");
        return Err(refusal(place, &sentence));
    }
    let claimed = marker
        .find_one_and_update(
            doc! { "_id": ID },
            doc! { "$setOnInsert": { "contextName": context, "layoutVersion": LAYOUT as i32 } },
        )
        .upsert(true)
        .return_document(ReturnDocument::After)
        .await;
    match claimed.map_err(asked)? {
        Some(found) => judge(place, context, &found),
        None => Err(refusal(place, "its marker vanished")),
    }
}

pub(crate) fn judge(place: &str, context: &str, marker: &Document) -> Result<(), OpenError> {
    let layout = marker.get("layoutVersion").and_then(|v| v.as_i64().or_else(|| v.as_i32().map(i64::from)));
    if layout != Some(LAYOUT) {
        let found = marker.get("layoutVersion").map_or("none".to_owned(), ToString::to_string);
        let sentence = format!("{OWNER} says layoutVersion {found}, and this version knows {LAYOUT}");
        return Err(refusal(place, &sentence));
    }
    match marker.get_str("contextName") {
        Ok(owner) if owner == context => Ok(()),
        Ok(owner) => Err(refusal(place, &format!("it belongs to context {owner:?}, and this is {context:?}"))),
        Err(_) => Err(refusal(place, &format!("{OWNER} names no context"))),
    }
}

/// Returns a collection with a document of another context, and that context. All collections are checked, since any of them may be the
/// foreign one.
async fn foreign(database: &Database, context: &str) -> mongodb::error::Result<Option<(String, String)>> {
    for name in collections(database).await? {
        if !name.ends_with("_event_stream") && !name.ends_with("_snapshot") {
            continue;
        }
        let documents = database.collection::<Document>(&name);
        let other = doc! { "contextName": { "$exists": true, "$ne": context } };
        if let Some(found) = documents.find_one(other).projection(doc! { "contextName": 1 }).await? {
            let other = found.get("contextName").map_or(String::new(), |it| it.as_str().unwrap_or_default().to_owned());
            return Ok(Some((name, other)));
        }
    }
    Ok(None)
}

fn refusal(place: &str, sentence: &str) -> OpenError {
    let message = format!(
        "database {place}: {sentence}; use another database, configure the context_name that it has, or adopt \
         it with `annals adopt`"
    );
    OpenError::new(Code::UnsuitableServer, message)
}
