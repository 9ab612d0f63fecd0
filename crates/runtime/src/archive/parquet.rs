//! Rows of the archive as Parquet, which DuckDB, Arrow and Spark read: one row for each event, the whole document as JSON beside the
//! columns that people filter by.

use std::sync::Arc;

use annals_core::DocumentView;
use annals_core::browse::number_of;
use annals_core::bson::{Bson, Document, RawDocumentBuf};
use bytes::Bytes;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::record::RowAccessor;
use parquet::schema::parser::parse_message_type;

/// The columns, as [`written`] writes them.
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
/// The columns that a look for one event needs.
const FOUND: &str = "message event {
    required binary event_id (UTF8);
    required binary document (UTF8);
}";

fn value<'d>(document: &'d Document, path: &[&str]) -> Option<&'d Bson> {
    let (last, groups) = path.split_last()?;
    let inner = groups.iter().try_fold(document, |document, name| document.get_document(name).ok())?;
    inner.get(last)
}

fn text(document: &Document, path: &[&str]) -> Option<ByteArray> {
    value(document, path)?.as_str().map(|text| ByteArray::from(text.as_bytes().to_vec()))
}

fn millis(document: &Document, name: &str) -> i64 {
    document.get_datetime(name).map_or(0, |at| at.timestamp_millis())
}

/// A document as JSON. One of the log's own is relaxed, for people; its event is in the log. Another one is canonical, so that every type
/// comes back.
fn json(document: &Document) -> String {
    if document.get("_id").and_then(number_of).is_none() {
        return Bson::Document(document.clone()).into_canonical_extjson().to_string();
    }
    let raw = RawDocumentBuf::try_from(document).ok();
    raw.and_then(|raw| serde_json::to_string(&DocumentView(&raw)).ok()).unwrap_or_default()
}

/// Writes documents as one file.
pub(super) fn written(documents: &[Document]) -> Result<Vec<u8>, ParquetError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_created_by(concat!("annals ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    let texts = |path: &[&str]| documents.iter().map(|document| text(document, path)).collect::<Vec<_>>();
    let times = |name: &str| documents.iter().map(|document| Some(millis(document, name))).collect::<Vec<_>>();
    let numbers = documents.iter().map(|it| it.get("_id").and_then(number_of).map(u64::cast_signed)).collect();
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
    let whole = documents.iter().map(|document| Some(ByteArray::from(json(document).into_bytes()))).collect();
    required::<ByteArrayType>(&mut group, whole)?;
    group.close()?;
    writer.into_inner()
}

/// Texts, of which those that are missing are empty. The default of the library's type is no value, and cannot be written.
fn or_empty(texts: Vec<Option<ByteArray>>) -> Vec<Option<ByteArray>> {
    texts.into_iter().map(|text| text.or_else(|| Some(ByteArray::from(Vec::new())))).collect()
}

/// Writes a column whose missing values are empty.
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
    let missing = || ParquetError::General("the schema has fewer columns than are written".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

/// Finds the document of an event in a file with this content.
pub(super) fn found(content: Bytes, place: &str, event_id: &str) -> Result<Option<Document>, String> {
    let said = |error: &dyn std::fmt::Display| format!("{place}: {error}");
    let reader = SerializedFileReader::new(content).map_err(|error| said(&error))?;
    let wanted = parse_message_type(FOUND).map_err(|error| said(&error))?;
    for row in reader.get_row_iter(Some(wanted)).map_err(|error| said(&error))? {
        let row = row.map_err(|error| said(&error))?;
        if row.get_string(0).is_ok_and(|id| id == event_id) {
            let text = row.get_string(1).map_err(|error| said(&error))?;
            let value: serde_json::Value = serde_json::from_str(text).map_err(|error| said(&error))?;
            let document = Bson::try_from(value).ok().and_then(|value| value.as_document().cloned());
            return document.map(Some).ok_or_else(|| said(&"the document of the event is none"));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use annals_core::browse::browse_id;
    use annals_core::bson::{DateTime, doc, oid::ObjectId};

    use super::*;

    #[test]
    fn every_field_of_a_document_comes_back_from_a_file() {
        let own = doc! {
            "_id": browse_id(7), "event_id": "e-1", "event_type": "placed", "timestamp": DateTime::from_millis(1),
            "stored_at": DateTime::from_millis(2), "aggregate_id": "o-1", "total": 7_i64, "deep": {"list": [1_i64, "ü"]},
            "metadata": {"user_id": "ada", "service_name": "shop"}, "annals": {"sequence_number": 7_i64, "aggregate": "order"},
        };
        let foreign = doc! {"_id": ObjectId::from_bytes([9; 12]), "event_id": "e-2", "small": 1_i32, "big": 1_i64};
        let content = Bytes::from(written(&[own.clone(), foreign.clone()]).expect("written"));
        let found = |id: &str| found(content.clone(), "a.parquet", id);
        assert_eq!(found("e-2"), Ok(Some(foreign)));
        let read = found("e-1").expect("read").expect("found");
        assert_eq!(read.get("_id"), own.get("_id"));
        assert_eq!(read.get_document("deep").ok().and_then(|deep| deep.get_array("list").ok()).map(Vec::len), Some(2));
        assert_eq!(found("e-3"), Ok(None));
    }
}
