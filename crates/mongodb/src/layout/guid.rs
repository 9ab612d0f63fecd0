//! UUIDs as other software writes them: subtype 4 in standard byte order, or subtype 3 in the byte order of older .NET drivers, whose
//! first three groups are little-endian.

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, RawBsonRef, RawDocument};
use uuid::Uuid;

/// Returns a UUID in any of its forms, including text.
pub(crate) fn uuid(document: &RawDocument, key: &str) -> Option<Uuid> {
    match document.get(key).ok()?? {
        RawBsonRef::Binary(binary) => match binary.subtype {
            BinarySubtype::Uuid => Uuid::from_slice(binary.bytes).ok(),
            BinarySubtype::UuidOld => Some(Uuid::from_bytes_le(binary.bytes.try_into().ok()?)),
            _ => None,
        },
        RawBsonRef::String(text) => Uuid::try_parse(text).ok(),
        _ => None,
    }
}

/// Returns a string, or a UUID as text: the Runtime's event sources used to be UUIDs.
pub(crate) fn text_or_uuid(document: &RawDocument, key: &str) -> Option<String> {
    match document.get(key).ok()?? {
        RawBsonRef::String(text) => Some(text.to_owned()),
        RawBsonRef::Binary(_) => uuid(document, key).map(|uuid| uuid.hyphenated().to_string()),
        _ => None,
    }
}

/// Returns both binary forms, for filters.
pub(crate) fn forms(uuid: Uuid) -> Vec<Bson> {
    let binary = |subtype, bytes: Vec<u8>| Bson::Binary(Binary { subtype, bytes });
    vec![
        binary(BinarySubtype::Uuid, uuid.as_bytes().to_vec()),
        binary(BinarySubtype::UuidOld, uuid.to_bytes_le().to_vec()),
    ]
}

/// Returns the string, and both binary forms if it is a UUID.
pub(crate) fn source_forms(text: &str) -> Vec<Bson> {
    let mut all = vec![Bson::from(text)];
    all.extend(Uuid::try_parse(text).map(forms).unwrap_or_default());
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::{RawDocumentBuf, doc};

    #[test]
    fn a_uuid_is_the_same_in_every_form() {
        let wanted = Uuid::from_u128(0x00112233_4455_6677_8899_aabbccddeeff);
        let [standard, old] = forms(wanted).try_into().expect("two forms");
        let Bson::Binary(bytes) = &old else { unreachable!("a binary") };
        assert_eq!(bytes.bytes[..8], [0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66]);
        let document = doc! { "standard": standard, "old": old, "text": wanted.to_string(), "other": "x", "n": 1 };
        let document = RawDocumentBuf::try_from(&document).expect("encodes");
        for key in ["standard", "old", "text"] {
            assert_eq!(uuid(&document, key), Some(wanted), "{key}");
            assert_eq!(text_or_uuid(&document, key), Some(wanted.to_string()), "{key}");
        }
        assert_eq!((uuid(&document, "other"), uuid(&document, "n")), (None, None));
        assert_eq!(text_or_uuid(&document, "other").as_deref(), Some("x"));
    }
}
