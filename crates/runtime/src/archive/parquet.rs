//! Rows of the archive as Parquet, which DuckDB, Arrow and Spark can read: one row per event, with columns for filtering and the rest of
//! the document as JSON.

use std::fmt::Display;
use std::sync::Arc;

use annals_core::DocumentView;
use annals_core::browse::{browse_id, number_of};
use annals_core::bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use annals_core::bson::{Bson, DateTime, Document};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::record::{Field, Row, RowAccessor};
use parquet::schema::parser::parse_message_type;

/// The columns that [`written`] writes.
const SCHEMA: &str = "message event {
    required binary event_id (UTF8);
    required binary event_type (UTF8);
    optional binary event_version (UTF8);
    required int64 timestamp (TIMESTAMP(MILLIS,true));
    required int64 stored_at (TIMESTAMP(MILLIS,true));
    optional binary aggregate_id (UTF8);
    optional binary aggregate (UTF8);
    optional int64 sequence_number;
    optional binary execution_id (UTF8);
    optional binary user_id (UTF8);
    optional binary service_name (UTF8);
    required binary document (UTF8);
}";
/// A field of a document that belongs to the store itself.
const OF_THE_STORE: &str = "_annals";
/// The columns of the sequence number and of the document.
const SEQUENCE_NUMBER: usize = 7;
const DOCUMENT: usize = 11;
/// The encodings of columns whose values ascend or are all different. A dictionary would be as long as the values.
const ENCODINGS: [(&str, Encoding); 7] = [
    ("event_id", Encoding::DELTA_BYTE_ARRAY),
    ("timestamp", Encoding::DELTA_BINARY_PACKED),
    ("stored_at", Encoding::DELTA_BINARY_PACKED),
    ("aggregate_id", Encoding::DELTA_BYTE_ARRAY),
    ("sequence_number", Encoding::DELTA_BINARY_PACKED),
    ("execution_id", Encoding::DELTA_BYTE_ARRAY),
    ("document", Encoding::PLAIN),
];

/// Returns the sequence number of a document's event; `None` for a document that other software wrote.
pub(super) fn number(document: &RawDocument) -> Option<u64> {
    number_of(&Bson::ObjectId(document.get_object_id("_id").ok()?))
}

fn text(document: &RawDocument, path: &[&str]) -> Option<ByteArray> {
    let (last, groups) = path.split_last()?;
    let inner = groups.iter().try_fold(document, |document, name| document.get_document(name).ok())?;
    inner.get_str(last).ok().map(|text| ByteArray::from(text.as_bytes().to_vec()))
}

fn millis(document: &RawDocument, name: &str) -> i64 {
    document.get_datetime(name).map_or(0, |at| at.timestamp_millis())
}

fn unfit(error: &dyn Display) -> ParquetError {
    ParquetError::General(format!("a document cannot be written as JSON: {error}"))
}

/// Returns the JSON that a row holds beside its columns. For an event of the log it is the rest of the document, as relaxed Extended JSON
/// for people. A document of other software is stored whole and canonical, so that every type is restored.
fn json(document: &RawDocument) -> Result<String, ParquetError> {
    let Some(number) = number(document) else {
        let mut document = Document::try_from(document).map_err(|error| unfit(&error))?;
        document.remove(OF_THE_STORE);
        return Ok(Bson::Document(document).into_canonical_extjson().to_string());
    };
    let rest = without_columns(document, "", number)?;
    serde_json::to_string(&DocumentView(&rest)).map_err(|error| unfit(&error))
}

/// Returns the document of an event, or its group of this name, without the values in the columns.
fn without_columns(document: &RawDocument, group: &str, number: u64) -> Result<RawDocumentBuf, ParquetError> {
    let mut rest = RawDocumentBuf::new();
    for element in document.iter() {
        let (name, value) = element.map_err(|error| unfit(&error))?;
        match value {
            RawBsonRef::Document(inner) if group.is_empty() && matches!(name.as_str(), "metadata" | "annals") => {
                let left = without_columns(inner, name.as_str(), number)?;
                if inner.is_empty() || !left.is_empty() {
                    rest.append(name, left);
                }
            }
            value if is_in_a_column(group, name.as_str(), value, number) => {}
            value => rest.append(name, value),
        }
    }
    Ok(rest)
}

/// Returns whether [`with_columns`] restores a field exactly.
fn is_in_a_column(group: &str, name: &str, value: RawBsonRef<'_>, number: u64) -> bool {
    match (group, name, value) {
        ("", "_id" | OF_THE_STORE, _) => true,
        (
            "",
            "event_id" | "event_type" | "event_version" | "aggregate_id" | "execution_id",
            RawBsonRef::String(text),
        )
        | ("metadata", "user_id" | "service_name", RawBsonRef::String(text))
        | ("annals", "aggregate", RawBsonRef::String(text)) => !text.is_empty(),
        ("", "timestamp" | "stored_at", RawBsonRef::DateTime(at)) => at.timestamp_millis() != 0,
        ("annals", "sequence_number", RawBsonRef::Int64(value)) => value.cast_unsigned() == number,
        _ => false,
    }
}

/// Adds the values in a row's columns to the document of an event. Files of earlier versions of Annals have them in the document as well.
fn with_columns(mut document: Document, row: &Row) -> Document {
    let Ok(number) = row.get_long(SEQUENCE_NUMBER) else { return document };
    add(&mut document, "", "_id", browse_id(number.cast_unsigned()).into());
    for (name, field) in row.get_column_iter() {
        let group = match name.as_str() {
            "document" => continue,
            "user_id" | "service_name" => "metadata",
            "aggregate" | "sequence_number" => "annals",
            _ => "",
        };
        match field {
            Field::Str(text) if !text.is_empty() => add(&mut document, group, name, Bson::from(text.as_str())),
            Field::TimestampMillis(at) if *at != 0 => {
                add(&mut document, group, name, Bson::DateTime(DateTime::from_millis(*at)));
            }
            Field::Long(number) => add(&mut document, group, name, Bson::Int64(*number)),
            _ => {}
        }
    }
    document
}

/// Adds a field if it is missing.
fn add(document: &mut Document, group: &str, name: &str, value: Bson) {
    if group.is_empty() {
        document.entry(name.to_owned()).or_insert(value);
    } else if let Bson::Document(inner) =
        document.entry(group.to_owned()).or_insert_with(|| Bson::Document(Document::new()))
    {
        inner.entry(name.to_owned()).or_insert(value);
    }
}

/// Writes documents as one file.
pub(super) fn written(documents: &[RawDocumentBuf]) -> Result<Vec<u8>, ParquetError> {
    written_with(documents, json)
}

fn written_with(
    documents: &[RawDocumentBuf],
    json: fn(&RawDocument) -> Result<String, ParquetError>,
) -> Result<Vec<u8>, ParquetError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_created_by(concat!("annals ", env!("CARGO_PKG_VERSION")).to_owned());
    let properties = ENCODINGS.into_iter().fold(properties, |properties, (column, encoding)| {
        properties.set_column_dictionary_enabled(column.into(), false).set_column_encoding(column.into(), encoding)
    });
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build()))?;
    let mut group = writer.next_row_group()?;
    let texts = |path: &[&str]| documents.iter().map(|document| text(document, path)).collect::<Vec<_>>();
    let times = |name: &str| documents.iter().map(|document| Some(millis(document, name))).collect::<Vec<_>>();
    let numbers = documents.iter().map(|document| number(document).map(u64::cast_signed)).collect();
    required::<ByteArrayType>(&mut group, or_empty(texts(&["event_id"])))?;
    required::<ByteArrayType>(&mut group, or_empty(texts(&["event_type"])))?;
    optional::<ByteArrayType>(&mut group, texts(&["event_version"]))?;
    required::<Int64Type>(&mut group, times("timestamp"))?;
    required::<Int64Type>(&mut group, times("stored_at"))?;
    optional::<ByteArrayType>(&mut group, texts(&["aggregate_id"]))?;
    optional::<ByteArrayType>(&mut group, texts(&["annals", "aggregate"]))?;
    optional::<Int64Type>(&mut group, numbers)?;
    optional::<ByteArrayType>(&mut group, texts(&["execution_id"]))?;
    optional::<ByteArrayType>(&mut group, texts(&["metadata", "user_id"]))?;
    optional::<ByteArrayType>(&mut group, texts(&["metadata", "service_name"]))?;
    let mut rest = Vec::with_capacity(documents.len());
    for document in documents {
        rest.push(Some(ByteArray::from(json(document)?.into_bytes())));
    }
    required::<ByteArrayType>(&mut group, rest)?;
    group.close()?;
    writer.into_inner()
}

/// Replaces missing texts with empty ones. The default of the library's type has no value and cannot be written.
fn or_empty(texts: Vec<Option<ByteArray>>) -> Vec<Option<ByteArray>> {
    texts.into_iter().map(|text| text.or_else(|| Some(ByteArray::from(Vec::new())))).collect()
}

/// Writes a column, with empty values for missing ones.
fn required<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: Vec<Option<T::T>>,
) -> Result<(), ParquetError> {
    let values: Vec<T::T> = values.into_iter().map(Option::unwrap_or_default).collect();
    column::<T>(group, &values, None)
}

fn optional<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: Vec<Option<T::T>>,
) -> Result<(), ParquetError> {
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    column::<T>(group, &values, Some(&levels))
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("the schema has fewer columns than the data".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

/// Finds the document of an event in the content of a file.
pub(super) fn found(content: Bytes, place: &str, event_id: &str) -> Result<Option<Document>, String> {
    let said = |error: &dyn Display| format!("{place}: {error}");
    let reader = SerializedFileReader::new(content).map_err(|error| said(&error))?;
    for row in reader.get_row_iter(None).map_err(|error| said(&error))? {
        let row = row.map_err(|error| said(&error))?;
        if row.get_string(0).is_ok_and(|id| id == event_id) {
            let text = row.get_string(DOCUMENT).map_err(|error| said(&error))?;
            let value: serde_json::Value = serde_json::from_str(text).map_err(|error| said(&error))?;
            let document = Bson::try_from(value).ok().and_then(|value| value.as_document().cloned());
            let document = document.ok_or_else(|| said(&"the stored document of the event is not a JSON object"))?;
            return Ok(Some(with_columns(document, &row)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use annals_core::bson::{doc, oid::ObjectId};

    use super::*;

    fn raw(document: &Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).expect("BSON")
    }

    fn own() -> Document {
        doc! {
            "_id": browse_id(7), "event_id": "e-1", "event_type": "placed", "event_version": "1.0",
            "timestamp": DateTime::from_millis(1), "stored_at": DateTime::from_millis(2), "aggregate_id": "o-1",
            "execution_id": "x-1", "user_id": "eve", "total": 1_i64 << 40, "deep": {"list": ["ü"]},
            "metadata": {"user_id": "ada", "service_name": "shop", "environment": "test"},
            "annals": {"sequence_number": 7_i64, "aggregate": "order"},
        }
    }

    /// The documents of a file, as they are in their column.
    fn documents_in(content: &[u8]) -> Vec<serde_json::Value> {
        let reader = SerializedFileReader::new(Bytes::from(content.to_vec())).expect("a file");
        let rows = reader.get_row_iter(None).expect("rows");
        let document = |row: Row| serde_json::from_str(row.get_string(DOCUMENT).expect("a text")).expect("JSON");
        rows.map(|row| document(row.expect("a row"))).collect()
    }

    #[test]
    fn every_field_of_a_document_comes_back_from_a_file() {
        let foreign = doc! {"_id": ObjectId::from_bytes([9; 12]), "event_id": "e-2", "small": 1_i32, "big": 1_i64};
        // What a column cannot give back stays in the document.
        let odd = doc! {
            "_id": browse_id(8), "event_id": "e-3", "event_type": "", "aggregate_id": 5_i32, "metadata": {},
            "annals": {"sequence_number": "8"},
        };
        let documents = [own(), foreign, odd];
        let content = Bytes::from(written(&documents.each_ref().map(raw)).expect("written"));
        let found = |id: &str| found(content.clone(), "a.parquet", id);
        for (id, document) in ["e-1", "e-2", "e-3"].into_iter().zip(documents) {
            assert_eq!(found(id), Ok(Some(document)));
        }
        assert_eq!(found("e-4"), Ok(None));
    }

    #[test]
    fn a_row_has_each_field_of_an_event_once() {
        let mut stored = own();
        stored.insert("_annals", 3_i64);
        let content = written(&[raw(&stored)]).expect("written");
        let rest = serde_json::json!({
            "user_id": "eve", "total": 1_i64 << 40, "deep": {"list": ["ü"]}, "metadata": {"environment": "test"},
        });
        assert_eq!(documents_in(&content), [rest]);
    }

    #[test]
    fn files_of_earlier_versions_have_the_whole_document() {
        let whole = |document: &RawDocument| Ok(serde_json::to_string(&DocumentView(document)).expect("JSON"));
        let content = Bytes::from(written_with(&[raw(&own())], whole).expect("written"));
        let read = found(content, "a.parquet", "e-1").expect("read").expect("found");
        assert_eq!((read.len(), read.get("_id")), (own().len(), own().get("_id")));
        assert_eq!(read.get("metadata"), own().get("metadata"));
    }
}
