//! Writes a BSON document field by field in the given order, because the layouts guarantee their field order.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Binary, RawDocumentBuf, spec::BinarySubtype};
use uuid::Uuid;

/// A document being written. Keys must not contain NUL, which the callers' rules ensure.
pub(crate) struct Writer {
    out: Vec<u8>,
}

impl Writer {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let mut out = Vec::with_capacity(bytes);
        out.extend_from_slice(&[0; 4]);
        Self { out }
    }

    fn key(&mut self, kind: u8, key: &str) {
        self.out.push(kind);
        self.out.extend_from_slice(key.as_bytes());
        self.out.push(0);
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) {
        self.key(0x02, key);
        self.out.extend_from_slice(&(value.len() as u32 + 1).to_le_bytes());
        self.out.extend_from_slice(value.as_bytes());
        self.out.push(0);
    }

    pub(crate) fn int32(&mut self, key: &str, value: i32) {
        self.key(0x10, key);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn int64(&mut self, key: &str, value: i64) {
        self.key(0x12, key);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn boolean(&mut self, key: &str, value: bool) {
        self.key(0x08, key);
        self.out.push(u8::from(value));
    }

    /// Appends a date, in milliseconds since 1970-01-01 UTC.
    pub(crate) fn date(&mut self, key: &str, millis: i64) {
        self.key(0x09, key);
        self.out.extend_from_slice(&millis.to_le_bytes());
    }

    /// Appends a whole number as Decimal128.
    pub(crate) fn decimal(&mut self, key: &str, value: u64) {
        self.key(0x13, key);
        self.out.extend_from_slice(&decimal_bytes(value));
    }

    pub(crate) fn uuid(&mut self, key: &str, value: Uuid) {
        self.binary(key, 0x04, value.as_bytes());
    }

    pub(crate) fn object_id(&mut self, key: &str, value: ObjectId) {
        self.key(0x07, key);
        self.out.extend_from_slice(&value.bytes());
    }

    pub(crate) fn binary(&mut self, key: &str, subtype: u8, bytes: &[u8]) {
        self.key(0x05, key);
        self.out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.out.push(subtype);
        self.out.extend_from_slice(bytes);
    }

    /// Appends an encoded document.
    pub(crate) fn whole(&mut self, key: &str, document: &[u8]) {
        self.key(0x03, key);
        self.out.extend_from_slice(document);
    }

    /// Appends the value of the only field of a document under another name; null if the document has no field.
    pub(crate) fn only(&mut self, key: &str, document: &[u8]) {
        match document[4..document.len() - 1].split_first() {
            Some((kind, rest)) => {
                let named = rest.iter().position(|byte| *byte == 0).unwrap_or_default();
                self.key(*kind, key);
                self.out.extend_from_slice(&rest[named + 1..]);
            }
            None => self.key(0x0A, key),
        }
    }

    pub(crate) fn document(&mut self, key: &str, fields: impl FnOnce(&mut Self)) {
        self.nested(0x03, key, fields);
    }

    /// Appends an array, whose fields must be named `0`, `1`, `2` ….
    pub(crate) fn array(&mut self, key: &str, fields: impl FnOnce(&mut Self)) {
        self.nested(0x04, key, fields);
    }

    pub(crate) fn texts<'a>(&mut self, key: &str, values: impl Iterator<Item = &'a str>) {
        self.array(key, |array| {
            for (place, value) in values.enumerate() {
                array.text(&place.to_string(), value);
            }
        });
    }

    fn nested(&mut self, kind: u8, key: &str, fields: impl FnOnce(&mut Self)) {
        self.key(kind, key);
        let start = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        fields(self);
        self.end(start);
    }

    fn end(&mut self, start: usize) {
        self.out.push(0);
        let length = (self.out.len() - start) as u32;
        self.out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.end(0);
        self.out
    }

    /// Returns the document for the driver.
    pub(crate) fn raw(self) -> Result<RawDocumentBuf, mongodb::bson::error::Error> {
        RawDocumentBuf::from_bytes(self.finish())
    }
}

/// Upper half of a Decimal128 with exponent 0; the coefficient is the number itself.
const DECIMAL_EXPONENT_0: u64 = 0x3040 << 48;

fn decimal_bytes(value: u64) -> [u8; 16] {
    (u128::from(DECIMAL_EXPONENT_0) << 64 | u128::from(value)).to_le_bytes()
}

/// Returns a whole number as Decimal128, for filters and updates.
pub(crate) fn decimal(value: u64) -> mongodb::bson::Decimal128 {
    mongodb::bson::Decimal128::from_bytes(decimal_bytes(value))
}

/// Returns a UUID with subtype 4, for filters and updates.
pub(crate) fn uuid_value(value: Uuid) -> Binary {
    Binary { subtype: BinarySubtype::Uuid, bytes: value.as_bytes().to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::{Bson, Decimal128, Document, doc};

    #[test]
    fn what_is_written_reads_back() {
        let mut writer = Writer::with_capacity(0);
        writer.text("text", "ä");
        writer.int32("int", -1);
        writer.int64("long", i64::MAX);
        writer.decimal("decimal", u64::MAX);
        writer.uuid("uuid", Uuid::from_u128(7));
        writer.document("inner", |inner| inner.boolean("yes", true));
        writer.texts("texts", ["a", "b"].into_iter());
        writer.only("only", &mongodb::bson::serialize_to_vec(&doc! { "other": [1, 2] }).expect("encodes"));
        writer.only("none", &mongodb::bson::serialize_to_vec(&doc! {}).expect("encodes"));
        let read = Document::try_from(&*writer.raw().expect("a document")).expect("valid");
        let decimal: Decimal128 = u64::MAX.to_string().parse().expect("a decimal");
        let expected = doc! {
            "text": "ä", "int": -1, "long": i64::MAX, "decimal": decimal, "uuid": uuid_value(Uuid::from_u128(7)),
            "inner": { "yes": true }, "texts": ["a", "b"], "only": [1, 2], "none": null,
        };
        assert_eq!(Bson::from(read), Bson::from(expected));
    }
}
