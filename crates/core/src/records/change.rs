//! Changes of records, and their preconditions.

use bson::raw::{RawArray, RawDocument, RawDocumentBuf};
use bson::{Bson, RawBsonRef};

use super::Revision;
use super::set::valid_fields;
use crate::{Code, Condition, Invalid, limits};

/// One change of one record.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordChange {
    /// Inserts a record that does not exist yet.
    Insert {
        /// Its collection.
        collection: String,
        /// The document, with its `_id`.
        document: RawDocumentBuf,
    },
    /// Replaces the document with the same `_id`.
    Replace {
        /// Its collection.
        collection: String,
        /// The document, with its `_id`.
        document: RawDocumentBuf,
        /// What the record must be now.
        expected: Expected,
    },
    /// Deletes a record.
    Delete {
        /// Its collection.
        collection: String,
        /// Its `_id`.
        id: Bson,
        /// What the record must be now.
        expected: Expected,
    },
    /// Changes the named fields and leaves all others as they are. If the record is absent, and may be, it is inserted with these fields.
    Set {
        /// Its collection.
        collection: String,
        /// Its `_id`.
        id: Bson,
        /// Paths and their new values. Missing documents on a path are created.
        fields: Vec<(String, Bson)>,
        /// Paths of fields that are removed if they exist.
        unset: Vec<String>,
        /// What the record must be now.
        expected: Expected,
    },
    /// Changes nothing. The batch is applied only if the record is as expected at that moment, even if its other changes affect other
    /// records. It returns the record's revision, or 0 if there is none.
    Check {
        /// Its collection.
        collection: String,
        /// Its `_id`.
        id: Bson,
        /// What the record must be now.
        expected: Expected,
    },
}

/// The precondition of a change.
#[derive(Debug, Clone, PartialEq)]
pub enum Expected {
    /// The record exists, whatever its content.
    Present,
    /// The record does not exist. A replacement is then an insertion, and a deletion does nothing.
    Absent,
    /// The record exists as this write left it.
    Revision(Revision),
    /// The record exists and matches the condition.
    Matching(Condition),
    /// The record does not exist, or it matches the condition. If it does not exist, a replacement is an insertion, and a deletion does
    /// nothing.
    AbsentOr(Condition),
}

impl RecordChange {
    /// Inserts a record that does not exist yet.
    pub fn insert(collection: impl Into<String>, document: RawDocumentBuf) -> Self {
        Self::Insert { collection: collection.into(), document }
    }

    /// Replaces a record, if it is as expected.
    pub fn replace_if(collection: impl Into<String>, document: RawDocumentBuf, expected: Expected) -> Self {
        Self::Replace { collection: collection.into(), document, expected }
    }

    /// Inserts or replaces a record, whatever its current content.
    pub fn put(collection: impl Into<String>, document: RawDocumentBuf) -> Self {
        Self::replace_if(collection, document, Expected::AbsentOr(Condition::All))
    }

    /// Deletes a record, if it is as expected.
    pub fn delete_if(collection: impl Into<String>, id: impl Into<Bson>, expected: Expected) -> Self {
        Self::Delete { collection: collection.into(), id: id.into(), expected }
    }

    /// Changes fields, if the record is as expected.
    pub fn set_if<'a>(
        collection: impl Into<String>,
        id: impl Into<Bson>,
        fields: impl IntoIterator<Item = (&'a str, Bson)>,
        expected: Expected,
    ) -> Self {
        let fields = fields.into_iter().map(|(path, value)| (path.to_owned(), value)).collect();
        Self::Set { collection: collection.into(), id: id.into(), fields, unset: Vec::new(), expected }
    }

    /// Removes these fields as well. Has no effect on a change other than [`Self::Set`].
    pub fn unset<'a>(mut self, paths: impl IntoIterator<Item = &'a str>) -> Self {
        if let Self::Set { unset, .. } = &mut self {
            unset.extend(paths.into_iter().map(str::to_owned));
        }
        self
    }

    /// Makes the batch depend on a record that it does not change.
    pub fn check(collection: impl Into<String>, id: impl Into<Bson>, expected: Expected) -> Self {
        Self::Check { collection: collection.into(), id: id.into(), expected }
    }

    /// Returns the collection of the record.
    pub fn collection(&self) -> &str {
        match self {
            Self::Insert { collection, .. }
            | Self::Replace { collection, .. }
            | Self::Delete { collection, .. }
            | Self::Set { collection, .. }
            | Self::Check { collection, .. } => collection,
        }
    }

    /// Returns the condition that the record must match, if there is one.
    pub fn condition(&self) -> Option<&Condition> {
        match self {
            Self::Insert { .. } => None,
            Self::Replace { expected, .. }
            | Self::Delete { expected, .. }
            | Self::Set { expected, .. }
            | Self::Check { expected, .. } => match expected {
                Expected::Matching(condition) | Expected::AbsentOr(condition) => Some(condition),
                Expected::Present | Expected::Absent | Expected::Revision(_) => None,
            },
        }
    }

    /// Returns the number of bytes of the documents and values that it contains.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Insert { document, .. } | Self::Replace { document, .. } => document.as_bytes().len(),
            Self::Set { fields, .. } => {
                let size = |(path, value): &(String, Bson)| {
                    let value = bson::doc! { "": value.clone() }.to_vec();
                    path.len() + value.map_or(0, |bytes| bytes.len())
                };
                fields.iter().map(size).sum()
            }
            Self::Delete { .. } | Self::Check { .. } => 0,
        }
    }

    /// Checks everything that can be checked without a store.
    ///
    /// # Errors
    /// `invalid_record` or `invalid_condition`.
    pub fn validate(&self) -> Result<(), Invalid> {
        match self {
            Self::Insert { document, .. } => valid_document(document),
            Self::Replace { document, expected, .. } => valid_document(document).and_then(|()| expected.validate()),
            Self::Set { id, fields, unset, expected, .. } => {
                valid_id_value(id).and_then(|()| valid_fields(fields, unset)).and_then(|()| expected.validate())
            }
            Self::Delete { id, expected, .. } | Self::Check { id, expected, .. } => {
                valid_id_value(id).and_then(|()| expected.validate())
            }
        }
    }
}

impl Expected {
    fn validate(&self) -> Result<(), Invalid> {
        match self {
            Self::Present | Self::Absent | Self::Revision(_) => Ok(()),
            Self::Matching(condition) | Self::AbsentOr(condition) => {
                condition.validate().and_then(|()| condition.judgeable())
            }
        }
    }
}

/// Checks that a batch can be written: each change is valid, and together they are within the limits.
///
/// # Errors
/// `invalid_record` or `invalid_condition`, with the index of the change.
pub fn valid_changes(changes: &[RecordChange]) -> Result<(), Invalid> {
    if changes.len() > limits::RECORD_CHANGES_MAX {
        let message =
            format!("have {} entries; at most {} are allowed at once", changes.len(), limits::RECORD_CHANGES_MAX);
        return Err(invalid("changes", message));
    }
    let mut bytes = 0;
    for (n, change) in changes.iter().enumerate() {
        change.validate().map_err(|error| Invalid { path: format!("changes[{n}].{}", error.path), ..error })?;
        bytes += change.bytes();
    }
    if bytes > limits::RECORD_CHANGES_BYTES_MAX {
        let message = format!("have {bytes} bytes; at most {} are allowed at once", limits::RECORD_CHANGES_BYTES_MAX);
        return Err(invalid("changes", message));
    }
    Ok(())
}

/// Checks that a document can be a record: it has an `_id`, is not too large or too deep, and every value in it can be read.
///
/// # Errors
/// `invalid_record`.
pub fn valid_document(document: &RawDocument) -> Result<(), Invalid> {
    let bytes = document.as_bytes().len();
    if bytes > limits::RECORD_BYTES_MAX {
        return Err(invalid(
            "document",
            format!("has {bytes} bytes; at most {} are allowed", limits::RECORD_BYTES_MAX),
        ));
    }
    readable(document, 0)?;
    match document.get("_id") {
        Ok(Some(RawBsonRef::Array(_) | RawBsonRef::RegularExpression(_) | RawBsonRef::Undefined)) => {
            Err(invalid("_id", "an array, a regular expression or undefined cannot be an _id".to_owned()))
        }
        Ok(Some(_)) => Ok(()),
        _ => Err(invalid("_id", "is missing; give the document an _id".to_owned())),
    }
}

pub(crate) fn valid_id_value(id: &Bson) -> Result<(), Invalid> {
    match bson::RawBson::try_from(id.clone()) {
        Ok(bson::RawBson::Array(_) | bson::RawBson::RegularExpression(_) | bson::RawBson::Undefined) => {
            Err(invalid("_id", "an array, a regular expression or undefined cannot be an _id".to_owned()))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(invalid("_id", format!("cannot be stored: {error}"))),
    }
}

fn invalid(path: &str, message: String) -> Invalid {
    Invalid::new(Code::InvalidRecord, path, message)
}

fn readable(document: &RawDocument, depth: usize) -> Result<(), Invalid> {
    let mut names = Vec::new();
    for element in document.iter() {
        let (name, value) = element.map_err(|error| invalid("document", format!("is not a BSON document: {error}")))?;
        names.push(name.as_str());
        readable_value(value, depth)?;
    }
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(invalid("document", format!("has the field {:?} twice", pair[0]))),
        None => Ok(()),
    }
}

fn readable_array(array: &RawArray, depth: usize) -> Result<(), Invalid> {
    for value in array {
        let value = value.map_err(|error| invalid("document", format!("is not a BSON document: {error}")))?;
        readable_value(value, depth)?;
    }
    Ok(())
}

/// Checks that every value can be read, that no document has a field twice, and that nothing is nested deeper than allowed.
pub(crate) fn readable_value(value: RawBsonRef<'_>, depth: usize) -> Result<(), Invalid> {
    if depth >= limits::DATA_DEPTH_MAX {
        return Err(invalid("document", format!("is nested deeper than {}", limits::DATA_DEPTH_MAX)));
    }
    match value {
        RawBsonRef::Document(inner) => readable(inner, depth + 1),
        RawBsonRef::Array(inner) => readable_array(inner, depth + 1),
        RawBsonRef::JavaScriptCodeWithScope(code) => readable(code.scope, depth + 1),
        _ => Ok(()),
    }
}
