//! Reads values of Rust types from documents, as `bson::deserialize_from_slice` does.
//!
//! `bson` hands the visitor of every type each kind of map that some BSON value may become, so that a type with a derived `Deserialize` is
//! compiled twelve times; that was a third of `annals-runtime`. Here a struct is read from a document or not at all, and is compiled once
//! (docs/decisions/0073). Values that only `bson` has types for are left to `bson`.

use bson::DateTime;
use bson::error::Error;
use bson::raw::{RawArrayIter, RawBsonRef, RawDocument, RawIter};
use bson::spec::BinarySubtype;
use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer, StringDeserializer};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, Unexpected, VariantAccess,
    Visitor,
};

type Result<T> = std::result::Result<T, Error>;

/// What the names of the newtypes begin with by which `bson` recognises its own types.
const OF_BSON: &str = "$__";

/// Reads a value of a type from a document.
pub(crate) fn decode<T: DeserializeOwned>(document: &RawDocument) -> Result<T> {
    T::deserialize(Value(RawBsonRef::Document(document)))
}

#[derive(Clone, Copy)]
struct Value<'de>(RawBsonRef<'de>);

impl<'de> Value<'de> {
    fn is_not_what<T>(self, visitor: &dyn de::Expected) -> Result<T> {
        let unexpected = match self.0 {
            RawBsonRef::Double(value) => Unexpected::Float(value),
            RawBsonRef::String(value) => Unexpected::Str(value),
            RawBsonRef::Array(_) => Unexpected::Seq,
            RawBsonRef::Boolean(value) => Unexpected::Bool(value),
            RawBsonRef::Null => Unexpected::Unit,
            RawBsonRef::Int32(value) => Unexpected::Signed(value.into()),
            RawBsonRef::Int64(value) => Unexpected::Signed(value),
            RawBsonRef::Binary(value) => Unexpected::Bytes(value.bytes),
            _ => Unexpected::Map,
        };
        Err(de::Error::invalid_type(unexpected, visitor))
    }

    /// Reads a number, a text, bytes, a Boolean or nothing.
    fn simple<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            RawBsonRef::Double(value) => visitor.visit_f64(value),
            RawBsonRef::String(value) => visitor.visit_borrowed_str(value),
            RawBsonRef::Boolean(value) => visitor.visit_bool(value),
            RawBsonRef::Null => visitor.visit_unit(),
            RawBsonRef::Int32(value) => visitor.visit_i32(value),
            RawBsonRef::Int64(value) => visitor.visit_i64(value),
            RawBsonRef::Binary(value) if value.subtype == BinarySubtype::Generic => {
                visitor.visit_borrowed_bytes(value.bytes)
            }
            _ => self.is_not_what(&visitor),
        }
    }

    fn by_bson(self) -> Result<bson::Deserializer> {
        Ok(bson::Deserializer::new(self.0.try_into()?))
    }
}

/// Reads what these methods are named after by another method.
macro_rules! read {
    ($as:ident: $($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            self.$as(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = Error;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            RawBsonRef::Document(document) => visitor.visit_map(Fields::of(document)),
            RawBsonRef::Array(array) => visitor.visit_seq(Items(array.into_iter())),
            RawBsonRef::DateTime(time) => visitor.visit_map(date(time)),
            RawBsonRef::Binary(binary) if binary.subtype != BinarySubtype::Generic => {
                self.by_bson()?.deserialize_any(visitor)
            }
            RawBsonRef::Binary(_)
            | RawBsonRef::Double(_)
            | RawBsonRef::String(_)
            | RawBsonRef::Boolean(_)
            | RawBsonRef::Null
            | RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_) => self.simple(visitor),
            _ => self.by_bson()?.deserialize_any(visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            RawBsonRef::Document(document) => visitor.visit_map(Fields::of(document)),
            _ => self.is_not_what(&visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_map(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            RawBsonRef::Array(array) => visitor.visit_seq(Items(array.into_iter())),
            RawBsonRef::Binary(binary) if binary.subtype == BinarySubtype::Generic => {
                visitor.visit_borrowed_bytes(binary.bytes)
            }
            _ => self.is_not_what(&visitor),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(self, _: &'static str, _: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            RawBsonRef::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        match self.0 {
            RawBsonRef::String(name) => visitor.visit_enum(BorrowedStrDeserializer::new(name)),
            RawBsonRef::Document(document) => match document.into_iter().next().transpose()? {
                Some((name, value)) => visitor.visit_enum(Variant { name: name.as_str(), value: Value(value) }),
                None => Err(de::Error::invalid_value(Unexpected::Other("empty document"), &"a variant")),
            },
            _ => self.is_not_what(&visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value> {
        match name.starts_with(OF_BSON) {
            true => self.by_bson()?.deserialize_newtype_struct(name, visitor),
            false => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            RawBsonRef::ObjectId(id) => visitor.visit_bytes(&id.bytes()),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        self.simple(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_unit()
    }

    read! { deserialize_any: deserialize_byte_buf }

    read! {
        simple: deserialize_bool deserialize_char deserialize_str deserialize_string deserialize_identifier deserialize_unit
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16 deserialize_u32
        deserialize_u64 deserialize_f32 deserialize_f64
    }
}

/// The fields of a document.
struct Fields<'de> {
    fields: RawIter<'de>,
    value: Option<Value<'de>>,
}

impl<'de> Fields<'de> {
    fn of(document: &'de RawDocument) -> Self {
        Self { fields: document.iter_elements(), value: None }
    }
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        let Some(field) = self.fields.next().transpose()? else { return Ok(None) };
        self.value = Some(Value(field.value()?));
        seed.deserialize(BorrowedStrDeserializer::new(field.key().as_str())).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value> {
        match self.value.take() {
            Some(value) => seed.deserialize(value),
            None => Err(de::Error::custom("a value was asked for before its name")),
        }
    }
}

/// The items of an array.
struct Items<'de>(RawArrayIter<'de>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        let Some(value) = self.0.next().transpose()? else { return Ok(None) };
        seed.deserialize(Value(value)).map(Some)
    }
}

/// A map of one field, as which `bson` expects its own types from any format.
struct Single<D>(Option<(&'static str, D)>);

impl<'de, D: Deserializer<'de, Error = Error>> MapAccess<'de> for Single<D> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        match &self.0 {
            Some((name, _)) => seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value> {
        match self.0.take() {
            Some((_, value)) => seed.deserialize(value),
            None => Err(de::Error::custom("there is one value")),
        }
    }
}

type Milliseconds = MapAccessDeserializer<Single<StringDeserializer<Error>>>;

/// Returns a time as extended JSON.
fn date(time: DateTime) -> Single<Milliseconds> {
    let millis = StringDeserializer::new(time.timestamp_millis().to_string());
    Single(Some(("$date", MapAccessDeserializer::new(Single(Some(("$numberLong", millis)))))))
}

/// A variant of an enum with its content: a document of one field.
struct Variant<'de> {
    name: &'de str,
    value: Value<'de>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Error;
    type Variant = Value<'de>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Value<'de>)> {
        Ok((seed.deserialize(BorrowedStrDeserializer::<Error>::new(self.name))?, self.value))
    }
}

impl<'de> VariantAccess<'de> for Value<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<()> {
        Err(de::Error::invalid_type(Unexpected::Map, &"the name of a variant"))
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value> {
        self.deserialize_map(visitor)
    }
}

#[cfg(test)]
mod tests;
