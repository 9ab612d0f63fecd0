//! Manages indexes by exact name: compares the expected indexes with the existing ones, and creates missing ones in order. INVARIANT: no
//! index is ever dropped or changed.

use mongodb::Database;
use mongodb::bson::{Bson, Document, doc};
use uuid::Uuid;

use super::creation::{self, CONFLICTS, DUPLICATE_KEY, create_indexes, list_indexes, send, send_again};
use crate::refused::{Code, OpenError, asking, code_of, message_of};

/// An expected index.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    pub(crate) name: &'static str,
    /// The fields in order, each with 1, -1 or "hashed".
    pub(crate) keys: Vec<(&'static str, Bson)>,
    pub(crate) unique: bool,
    /// The filter of a partial index.
    pub(crate) partial: Option<Document>,
    /// Seconds after the date in the field at which the server deletes a document.
    pub(crate) expires_after: Option<i32>,
}

impl Index {
    pub(crate) fn ascending(name: &'static str, fields: &[&'static str]) -> Self {
        let keys = fields.iter().map(|field| (*field, Bson::Int32(1))).collect();
        Self { name, keys, unique: false, partial: None, expires_after: None }
    }

    pub(crate) fn hashed(name: &'static str, field: &'static str) -> Self {
        Self { name, keys: vec![(field, Bson::from("hashed"))], unique: false, partial: None, expires_after: None }
    }

    pub(crate) fn unique(name: &'static str, fields: &[&'static str]) -> Self {
        Self { unique: true, ..Self::ascending(name, fields) }
    }

    fn keys(&self) -> Document {
        self.keys.iter().map(|(field, kind)| ((*field).to_owned(), kind.clone())).collect()
    }

    fn declaration(&self) -> Document {
        let mut declaration = doc! { "key": self.keys(), "name": self.name };
        if self.unique {
            declaration.insert("unique", true);
        }
        if let Some(condition) = &self.partial {
            declaration.insert("partialFilterExpression", condition.clone());
        }
        if let Some(seconds) = self.expires_after {
            declaration.insert("expireAfterSeconds", seconds);
        }
        declaration
    }

    /// Returns what is wrong with an existing index that has this name or these keys; `None` if it matches or is unrelated.
    fn fault(&self, found: &Document) -> Option<String> {
        let name = found.get_str("name").unwrap_or_default();
        let same_keys = found.get_document("key").is_ok_and(|keys| same_keys(keys, &self.keys()));
        if name != self.name {
            return same_keys.then(|| format!("index {name} has the keys of {}", self.name));
        }
        let unique = found.get_bool("unique").unwrap_or(false);
        let partial = found.get_document("partialFilterExpression").ok();
        let expires = found.get("expireAfterSeconds").map(number);
        let expires_as_due = expires == self.expires_after.map(|seconds| Bson::Int64(seconds.into()));
        let options = ["sparse", "collation", "hidden"];
        let set = |key: &&&str| found.get(**key).is_some_and(|value| *value != Bson::Boolean(false));
        let more: Vec<_> = options.iter().filter(set).collect();
        let as_due =
            same_keys && unique == self.unique && more.is_empty() && expires_as_due && partial == self.partial.as_ref();
        (!as_due).then(|| format!("expected {}, found {found}", self.declaration()))
    }
}

/// Normalises a number, because shells write 1 as a double.
fn number(value: &Bson) -> Bson {
    match value {
        Bson::Int32(n) => Bson::Int64((*n).into()),
        Bson::Double(n) => Bson::Int64(*n as i64),
        other => other.clone(),
    }
}

/// Returns whether the fields, their order and their kinds are equal.
fn same_keys(found: &Document, expected: &Document) -> bool {
    found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| a.0 == b.0 && number(a.1) == number(b.1))
}

/// Fields that must not have a unique index, because the other mode of the layout depends on it.
pub(crate) type Forbidden = &'static [&'static str];

/// Checks the indexes of a collection. If `create` is set, all of them exist afterwards, and a majority has them. If it is not, an index
/// that another process is still building counts as an existing one.
///
/// # Errors
/// `unsuitable_server` with what was expected, what was found and what to do. Nothing was changed then.
pub(crate) async fn reconcile(
    database: &Database,
    collection: &str,
    expected: &[Index],
    forbidden: &[Forbidden],
    create: bool,
) -> Result<(), OpenError> {
    let missing = missing(database, collection, expected, forbidden).await?;
    match (missing.is_empty(), create) {
        (_, true) => make(database, collection, expected).await,
        (true, false) => Ok(()),
        (false, false) => {
            let names: Vec<_> = missing.iter().map(|index| index.name).collect();
            let sentence = format!(
                "indexes {} are missing, and auto_init_schema is off; create them, or switch it on",
                names.join(", ")
            );
            Err(wrong(&format!("{}.{collection}", database.name()), &sentence))
        }
    }
}

/// Returns the expected indexes that a collection lacks. Writes nothing. An index that the server is still building is not missing.
///
/// # Errors
/// As for [`reconcile`], about existing indexes.
pub(crate) async fn missing<'a>(
    database: &Database,
    collection: &str,
    expected: &'a [Index],
    forbidden: &[Forbidden],
) -> Result<Vec<&'a Index>, OpenError> {
    let place = format!("{}.{collection}", database.name());
    let there = listed(database, collection).await.map_err(|error| match code_of(&error) {
        Some(NOT_ON_A_VIEW) => wrong(&place, "it is a view, but a collection of this name is needed; rename the view"),
        _ => asking(&place, &error),
    })?;
    for found in &there {
        for index in expected {
            if let Some(fault) = index.fault(found) {
                return Err(wrong(&place, &format!("{fault}; drop that index once nobody needs it, then start again")));
            }
        }
        if let Some(fields) = forbidden.iter().find(|fields| is_unique_on(found, fields)) {
            let name = found.get_str("name").unwrap_or_default();
            let sentence = format!(
                "unique index {name} on {} belongs to the other setting for the scope of request ids, and the two \
                 cannot be mixed; configure that setting, or drop the index after a migration",
                fields.join(", ")
            );
            return Err(wrong(&place, &sentence));
        }
    }
    let has = |index: &&Index| there.iter().any(|found| found.get_str("name").is_ok_and(|name| name == index.name));
    Ok(expected.iter().filter(|index| !has(index)).collect())
}

/// Returns the UUID of a collection, which distinguishes it from another one of the same name; `None` if there is no such collection.
///
/// # Errors
/// The driver's.
pub(crate) async fn uuid_of_collection(database: &Database, collection: &str) -> mongodb::error::Result<Option<Uuid>> {
    let mut found = database.list_collections().filter(doc! { "name": collection, "type": "collection" }).await?;
    while found.advance().await? {
        let info = found.deserialize_current()?.info;
        if let Some(uuid) = info.uuid {
            return Ok(Uuid::from_slice(&uuid.bytes).ok());
        }
    }
    Ok(None)
}

/// The server's error code for a command that views do not support.
const NOT_ON_A_VIEW: i32 = 166;

async fn listed(database: &Database, collection: &str) -> mongodb::error::Result<Vec<Document>> {
    let answer = send(database, list_indexes(collection)).await;
    creation::listed(answer).map(Option::unwrap_or_default)
}

fn is_unique_on(found: &Document, fields: &[&str]) -> bool {
    let Ok(keys) = found.get_document("key") else { return false };
    let unique = found.get_bool("unique").unwrap_or(false);
    unique && keys.len() == fields.len() && fields.iter().all(|field| keys.contains_key(field))
}

/// Creates the indexes, and waits for those that are being built (`creation.rs`). Their order is kept: the server reports the first index
/// that a document violates.
async fn make(database: &Database, collection: &str, expected: &[Index]) -> Result<(), OpenError> {
    let declarations = expected.iter().map(Index::declaration).collect();
    let place = format!("{}.{collection}", database.name());
    match send_again(database, create_indexes(collection, declarations)).await {
        Ok(_) => Ok(()),
        Err(error) if code_of(&error) == Some(DUPLICATE_KEY) => {
            let sentence =
                format!("an index cannot be created because documents violate it ({error}); migrate them first");
            Err(wrong(&place, &sentence))
        }
        Err(error) if code_of(&error).is_some_and(|code| CONFLICTS.contains(&code)) => {
            let why = message_of(&error);
            Err(wrong(&place, &format!("{why}; drop the index that exists once nobody needs it, then start again")))
        }
        Err(error) => Err(asking(&place, &error)),
    }
}

fn wrong(place: &str, sentence: &str) -> OpenError {
    OpenError::new(Code::UnsuitableServer, format!("{place}: {sentence}"))
}
