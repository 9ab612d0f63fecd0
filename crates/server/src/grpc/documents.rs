//! Documents in messages: commits and transactions that callers send, and events that they get. Their forms are those of the HTTP API.

use annals_core::wire::{self, EventView, binary};
use annals_core::{Code, Invalid, NewCommit, NewTransaction, RecordedEvent};

use super::frames::invalid;
use super::generated::document::Encoding as Encoded;
use super::generated::{self, Document, Encoding};
use crate::answer::not_written;
use crate::problem::Problem;

/// How the server writes documents for a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Bson,
}

impl Form {
    /// Reads the form from a field of a message.
    pub fn of(encoding: i32) -> Result<Self, Problem> {
        match Encoding::try_from(encoding) {
            Ok(Encoding::Unspecified | Encoding::Json) => Ok(Self::Json),
            Ok(Encoding::Bson) => Ok(Self::Bson),
            Err(_) => {
                let message = format!("{encoding} is not an encoding of this server");
                Err(Invalid::new(Code::InvalidBody, "encoding", message).into())
            }
        }
    }

    /// Writes an event of a scope of a tenant.
    pub fn event(self, event: &RecordedEvent, tenant: &str, scope: &str) -> Result<generated::Event, Problem> {
        let encoded = match self {
            Self::Json => {
                let view = EventView { event, tenant, scope };
                Encoded::Json(serde_json::to_vec(&view).map_err(not_written)?.into())
            }
            Self::Bson => {
                let mut writer = binary::FoundWriter::default();
                event.lend(|event| writer.event(&event));
                Encoded::Bson(writer.into_documents().into())
            }
        };
        Ok(generated::Event {
            sequence_number: event.sequence_number,
            r#type: event.event_type.to_string(),
            document: Some(Document { encoding: Some(encoded) }),
        })
    }
}

/// Parses a commit.
pub(super) fn commit(document: Option<Document>) -> Result<NewCommit, Problem> {
    match encoded("commit", document)? {
        Encoded::Json(json) => Ok(wire::parse_commit(&json)?),
        Encoded::Bson(bytes) => match binary::split_document(&bytes) {
            Ok(Some((document, []))) => Ok(binary::read_commit(document)?),
            Ok(_) => Err(invalid("the commit is not one whole BSON document")),
            Err(message) => Err(invalid(&message)),
        },
    }
}

/// Parses a transaction.
pub(super) fn transaction(document: Option<Document>) -> Result<NewTransaction, Problem> {
    match encoded("transaction", document)? {
        Encoded::Json(json) => Ok(wire::parse_transaction(&json)?),
        Encoded::Bson(_) => Err(Invalid::new(Code::InvalidBody, "transaction", "is BSON; send it as JSON").into()),
    }
}

fn encoded(path: &str, document: Option<Document>) -> Result<Encoded, Problem> {
    let encoded = document.and_then(|document| document.encoding);
    encoded.ok_or_else(|| Invalid::new(Code::InvalidBody, path, "is missing").into())
}
