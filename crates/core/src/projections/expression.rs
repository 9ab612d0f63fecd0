//! Values in the rules of a projection: constants, paths of the event, and documents and arrays of both.

use bson::raw::RawDocument;
use bson::{Binary, Bson, DateTime, Document, RawBsonRef, spec::BinarySubtype};
use serde_json::Value;

use crate::condition::valid_path;
use crate::wire::records::extended_value;
use crate::{RecordedEvent, limits};

/// An expression that yields a value for an event.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    /// A value that is the same for every event.
    Constant(Bson),
    /// The value of the event at a path.
    Path(EventPath),
    /// A document of expressions; fields whose path leads to nothing are left out.
    Document(Vec<(String, Expression)>),
    /// An array of expressions; elements whose path leads to nothing are null.
    Array(Vec<Expression>),
}

/// A field of an event, by its name in the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EventPath {
    /// A path in the data; empty for all of it.
    Data(Vec<String>),
    /// A path in the metadata; empty for all of it.
    Metadata(Vec<String>),
    /// A key of the commit's header.
    Header(String),
    /// A field that every event or commit may have.
    Field(EventField),
}

/// Fields of an event apart from its data, metadata and header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventField {
    SequenceNumber,
    Id,
    Type,
    Generation,
    Tags,
    AggregateName,
    AggregateId,
    Version,
    Ordinal,
    CommitId,
    Time,
    Public,
    TenantId,
    OwnerId,
    SpaceId,
    RequestId,
    CommandId,
    CorrelationId,
    CausationId,
}

const FIELDS: [(&str, EventField); 19] = [
    ("sequence_number", EventField::SequenceNumber),
    ("id", EventField::Id),
    ("type", EventField::Type),
    ("generation", EventField::Generation),
    ("tags", EventField::Tags),
    ("aggregate.name", EventField::AggregateName),
    ("aggregate.id", EventField::AggregateId),
    ("version", EventField::Version),
    ("ordinal", EventField::Ordinal),
    ("commit_id", EventField::CommitId),
    ("time", EventField::Time),
    ("public", EventField::Public),
    ("tenant_id", EventField::TenantId),
    ("owner_id", EventField::OwnerId),
    ("space_id", EventField::SpaceId),
    ("request_id", EventField::RequestId),
    ("command_id", EventField::CommandId),
    ("correlation_id", EventField::CorrelationId),
    ("causation_id", EventField::CausationId),
];

impl Expression {
    /// Parses an expression. Strings that begin with `$` are paths; `{"$literal": …}` stands for its value without interpretation.
    pub fn read(value: &Value) -> Result<Self, String> {
        Self::read_at(value, 0)
    }

    fn read_at(value: &Value, depth: usize) -> Result<Self, String> {
        if depth >= limits::DATA_DEPTH_MAX {
            return Err(format!("is nested deeper than {}", limits::DATA_DEPTH_MAX));
        }
        match value {
            Value::String(text) if text.starts_with('$') => Ok(Self::Path(EventPath::read(&text[1..])?)),
            Value::Object(fields) => match fields.get("$literal") {
                Some(literal) if fields.len() == 1 => Ok(Self::Constant(constant(literal)?)),
                Some(_) => Err("has other fields beside $literal".to_owned()),
                None if fields.keys().any(|name| name.starts_with('$')) => {
                    let message = "has a field that begins with $ and is neither $literal nor Extended JSON, such as {\"$date\": …}";
                    match constant(value) {
                        Ok(Bson::Document(_)) | Err(_) => Err(message.to_owned()),
                        Ok(value) => Ok(Self::Constant(value)),
                    }
                }
                None => {
                    let read = |(name, value): (&String, &Value)| Ok((name.clone(), Self::read_at(value, depth + 1)?));
                    Ok(Self::Document(fields.iter().map(read).collect::<Result<_, String>>()?))
                }
            },
            Value::Array(values) => {
                let read = values.iter().map(|value| Self::read_at(value, depth + 1));
                Ok(Self::Array(read.collect::<Result<_, String>>()?))
            }
            other => Ok(Self::Constant(constant(other)?)),
        }
    }

    /// Returns its value for an event; `None` if its path leads to nothing.
    pub fn value(&self, event: &RecordedEvent) -> Option<Bson> {
        match self {
            Self::Constant(value) => Some(value.clone()),
            Self::Path(path) => path.value(event),
            Self::Document(fields) => {
                let field = |(name, field): &(String, Self)| Some((name.clone(), field.value(event)?));
                Some(Bson::Document(fields.iter().filter_map(field).collect::<Document>()))
            }
            Self::Array(values) => {
                Some(Bson::Array(values.iter().map(|value| value.value(event).unwrap_or(Bson::Null)).collect()))
            }
        }
    }

    /// Returns whether none of its parts is missing. Constants and paths have no parts, so they are always whole.
    pub fn is_whole(&self, event: &RecordedEvent) -> bool {
        matches!(self, Self::Constant(_) | Self::Path(_)) || self.missing(event).is_none()
    }

    /// Returns the first path in it that leads to nothing, as it was written.
    pub fn missing(&self, event: &RecordedEvent) -> Option<String> {
        match self {
            Self::Constant(_) => None,
            Self::Path(path) => path.value(event).is_none().then(|| format!("${}", path.text())),
            Self::Document(fields) => fields.iter().find_map(|(_, field)| field.missing(event)),
            Self::Array(values) => values.iter().find_map(|value| value.missing(event)),
        }
    }
}

fn constant(value: &Value) -> Result<Bson, String> {
    extended_value(&value.to_string())
}

impl EventPath {
    fn read(text: &str) -> Result<Self, String> {
        valid_path(text).map_err(|why| format!("\"${text}\" {why}"))?;
        if let Some((_, field)) = FIELDS.iter().find(|(name, _)| *name == text) {
            return Ok(Self::Field(*field));
        }
        let (root, rest) = text.split_once('.').map_or((text, None), |(root, rest)| (root, Some(rest)));
        let names = || rest.map(|rest| rest.split('.').map(str::to_owned).collect()).unwrap_or_default();
        match (root, rest) {
            ("data", _) => Ok(Self::Data(names())),
            ("metadata", _) => Ok(Self::Metadata(names())),
            ("header", Some(key)) => Ok(Self::Header(key.to_owned())),
            _ => {
                let known = FIELDS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
                Err(format!(
                    "\"${text}\" is not a field of an event; the fields are data, metadata, header.KEY, {known}"
                ))
            }
        }
    }

    fn text(&self) -> String {
        let joined =
            |root: &str, names: &[String]| names.iter().fold(root.to_owned(), |path, name| format!("{path}.{name}"));
        match self {
            Self::Data(names) => joined("data", names),
            Self::Metadata(names) => joined("metadata", names),
            Self::Header(key) => format!("header.{key}"),
            Self::Field(field) => {
                FIELDS.iter().find(|(_, known)| known == field).map_or_else(String::new, |(name, _)| (*name).to_owned())
            }
        }
    }

    fn value(&self, event: &RecordedEvent) -> Option<Bson> {
        match self {
            Self::Data(names) => at(event.data.as_raw(), names),
            Self::Metadata(names) => at(event.metadata.as_ref()?.data().as_raw(), names),
            Self::Header(key) => {
                let found = event.commit.header.iter().find(|(name, _)| **name == **key);
                found.map(|(_, value)| Bson::String(value.to_string()))
            }
            Self::Field(field) => field.value(event),
        }
    }
}

impl EventField {
    fn value(self, event: &RecordedEvent) -> Option<Bson> {
        let commit = &*event.commit;
        let text = |text: &str| Some(Bson::String(text.to_owned()));
        let given = |value: &str| (!value.is_empty()).then(|| Bson::String(value.to_owned()));
        let maybe = |value: &Option<crate::ByteString>| value.as_deref().map(|value| Bson::String(value.to_owned()));
        match self {
            Self::SequenceNumber => Some(Bson::Int64(event.sequence_number.cast_signed())),
            Self::Id => text(&event.id.hyphenated().to_string()),
            Self::Type => text(&event.event_type),
            Self::Generation => Some(Bson::Int64(event.generation.into())),
            Self::Tags => Some(Bson::Array(event.tags.iter().map(|tag| Bson::String(tag.to_string())).collect())),
            Self::AggregateName => given(&commit.aggregate.name),
            // For events that other software recorded outside of any aggregate, this is their event source.
            Self::AggregateId => text(&commit.aggregate.id),
            Self::Version => Some(Bson::Int64(commit.version.cast_signed())),
            Self::Ordinal => Some(Bson::Int64(event.ordinal.into())),
            Self::CommitId => text(&commit.commit_id.hyphenated().to_string()),
            Self::Time => Some(Bson::DateTime(DateTime::from_millis(event.time.as_millis()))),
            Self::Public => Some(Bson::Boolean(event.public)),
            Self::TenantId => text(&commit.tenant_id),
            Self::OwnerId => given(&commit.owner_id),
            Self::SpaceId => given(&commit.space_id),
            Self::RequestId => maybe(&commit.request_id),
            Self::CommandId => maybe(&commit.command_id),
            Self::CorrelationId => maybe(&commit.correlation_id),
            Self::CausationId => maybe(&commit.causation_id),
        }
    }
}

/// Returns the value at a path that leads through documents only.
fn at(document: &RawDocument, names: &[String]) -> Option<Bson> {
    let Some((last, way)) = names.split_last() else {
        return Document::try_from(document).ok().map(Bson::Document);
    };
    let mut document = document;
    for name in way {
        document = match document.get(name).ok()?? {
            RawBsonRef::Document(inner) => inner,
            _ => return None,
        };
    }
    match document.get(last).ok()?? {
        RawBsonRef::String(text) => Some(Bson::String(text.to_owned())),
        RawBsonRef::Int64(number) => Some(Bson::Int64(number)),
        RawBsonRef::Binary(binary) if binary.subtype != BinarySubtype::BinaryOld => {
            Some(Bson::Binary(Binary { subtype: binary.subtype, bytes: binary.bytes.to_vec() }))
        }
        other => Bson::try_from(other).ok(),
    }
}
