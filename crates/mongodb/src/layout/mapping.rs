//! Maps the UUIDs of an adopted log to names: the Dolittle Runtime knows event types and aggregates by UUID only. Commits under such a
//! name are written with its UUID again, so that software that reads the log by UUIDs finds them.
//!
//! ```text
//! annals-names: {_id: "event:{uuid}" or "aggregate:{uuid}", name}     written by `annals adopt`, never changed
//! ```
//!
//! INVARIANT: no two UUIDs of one kind have the same name, and a name that is a UUID denotes that UUID.

use std::collections::HashMap;

use annals_core::{ByteString, Code, Invalid};
use mongodb::Database;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use uuid::Uuid;

use super::fields::text;
use super::names::uuid_of;

/// The collection of names.
pub(crate) const NAMES: &str = "annals-names";

/// The kind of thing that a UUID identifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Event,
    Aggregate,
}

impl Kind {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Aggregate => "aggregate",
        }
    }
}

/// The names and UUIDs of a store. A name without a UUID of its own has the one derived from it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Mapping {
    names: HashMap<(Kind, Uuid), ByteString>,
    uuids: HashMap<(Kind, ByteString), Uuid>,
}

impl Mapping {
    /// Reads the stored names.
    ///
    /// # Errors
    /// Errors of the driver. An invalid document is an error too, because without its name events cannot be read.
    pub(crate) async fn read(database: &Database) -> mongodb::error::Result<Self> {
        let mut mapping = Self::default();
        let mut found = database.collection::<RawDocumentBuf>(NAMES).find(doc! {}).await?;
        while found.advance().await? {
            let document = found.current();
            let id = text(document, "_id").and_then(|id| id.split_once(':'));
            let kind = id.and_then(|(kind, _)| [Kind::Event, Kind::Aggregate].into_iter().find(|it| it.word() == kind));
            let uuid = id.and_then(|(_, uuid)| Uuid::try_parse(uuid).ok());
            let (Some(kind), Some(uuid), Some(name)) = (kind, uuid, text(document, "name")) else {
                return Err(mongodb::error::Error::custom(format!("{NAMES}: {document:?} is no name of a UUID")));
            };
            mapping.add(kind, uuid, name.into());
        }
        Ok(mapping)
    }

    pub(crate) fn add(&mut self, kind: Kind, uuid: Uuid, name: ByteString) {
        self.uuids.insert((kind, name.clone()), uuid);
        self.names.insert((kind, uuid), name);
    }

    /// Returns the name that was assigned to a UUID.
    pub(crate) fn given(&self, kind: Kind, uuid: Uuid) -> Option<&ByteString> {
        self.names.get(&(kind, uuid))
    }

    /// Returns the UUID to which a name was assigned.
    pub(crate) fn given_uuid(&self, kind: Kind, name: &str) -> Option<Uuid> {
        self.uuids.get(&(kind, ByteString::from(name))).copied()
    }

    /// Returns the name of a UUID; without an assigned name, the UUID as text.
    pub(crate) fn name(&self, kind: Kind, uuid: Uuid) -> ByteString {
        self.given(kind, uuid).cloned().unwrap_or_else(|| uuid.hyphenated().to_string().into())
    }

    /// Returns the UUID of a name.
    pub(crate) fn uuid(&self, kind: Kind, name: &str) -> Uuid {
        let given = if self.uuids.is_empty() { None } else { self.given_uuid(kind, name) };
        given.unwrap_or_else(|| uuid_of(kind.word(), name))
    }

    /// Checks that an aggregate type has only one name: `event-log` identifies it by UUID, so two names of one UUID would mix up the
    /// versions of their aggregates. A name that is a UUID must be in canonical form, and is refused if the UUID has another name.
    ///
    /// # Errors
    /// `invalid_name`, with the name to use.
    pub(crate) fn only_name(&self, name: &str) -> Result<(), Invalid> {
        let Ok(uuid) = Uuid::try_parse(name) else { return Ok(()) };
        let only = self.name(Kind::Aggregate, uuid);
        if *only == *name {
            return Ok(());
        }
        let message = format!("{name:?} is the UUID of the aggregates that are called {only:?} here; use that name");
        Err(Invalid::new(Code::InvalidName, "aggregate.name", message))
    }

    /// Returns the document that stores a name.
    pub(crate) fn document(kind: Kind, uuid: Uuid, name: &str) -> Document {
        doc! { "_id": format!("{}:{}", kind.word(), uuid.hyphenated()), "name": name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aggregate_type_has_one_name() {
        let id = "0a1b2c3d-0000-4000-8000-00000000abcd";
        let mut mapping = Mapping::default();
        for name in ["order", id] {
            assert_eq!(mapping.only_name(name), Ok(()), "{name}");
        }
        for other in [id.to_uppercase(), id.replace('-', "")] {
            let refused = mapping.only_name(&other).expect_err("another spelling");
            assert!(refused.code == Code::InvalidName && refused.message.contains(id), "{refused}");
        }
        mapping.add(Kind::Aggregate, Uuid::try_parse(id).expect("a UUID"), "order".into());
        assert_eq!(mapping.only_name("order"), Ok(()));
        assert!(mapping.only_name(id).expect_err("it is called otherwise").message.contains("\"order\""));
    }
}
