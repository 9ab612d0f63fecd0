//! Conversion between an aggregate's events and their stored form: a type name, a generation and data.
//!
//! A variant is the event type and its fields are the data, so serde does all of the work. `OrderPaid { cents: 5 }` of an enum with
//! `rename_all = "snake_case"` is the type `order_paid` with the data `{"cents": 5}`. A variant without fields has the data `{}`.

use std::cell::OnceCell;
use std::fmt;

use bytestring::ByteString;
use serde::Serialize;
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::{Data, RecordedEvent};

/// An event as the log stores it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredEvent {
    /// Its type.
    pub event_type: ByteString,
    /// The generation of the type's schema.
    pub generation: u32,
    /// Its content.
    pub data: Data,
}

/// An event of an aggregate, decoded if the aggregate type knows its type.
#[derive(Debug, Clone, PartialEq)]
pub enum Known<E> {
    /// It is one of the type's events.
    Event(E),
    /// The aggregate type does not know the event's type; the event is kept as it was recorded.
    Unknown(StoredEvent),
}

impl From<&RecordedEvent> for StoredEvent {
    fn from(event: &RecordedEvent) -> Self {
        Self { event_type: event.event_type.clone(), generation: event.generation, data: event.data.clone() }
    }
}

impl StoredEvent {
    /// Creates an event of generation 1 from data in its JSON form.
    ///
    /// # Errors
    /// A sentence, if the data is not an object or cannot be represented in BSON.
    pub fn new(event_type: impl Into<ByteString>, data: &impl Serialize) -> Result<Self, String> {
        Ok(Self { event_type: event_type.into(), generation: 1, data: Data::from_value(data)? })
    }

    /// Converts a variant of an event enum.
    ///
    /// # Errors
    /// A sentence, if the value is not a variant of an externally tagged enum, or its fields cannot be event data.
    pub fn of(event: &impl Serialize, generation: impl FnOnce(&str) -> u32) -> Result<Self, String> {
        let json = serde_json::to_string(event).map_err(|error| error.to_string())?;
        if let Some((path, number)) = crate::json::wide_integer(json.as_bytes()) {
            return Err(format!("{path} is {number}, which does not fit in a signed 64-bit integer"));
        }
        let Named(event_type, data) = serde_json::from_str(&json).map_err(|error| error.to_string())?;
        let generation = generation(&event_type);
        Ok(Self { event_type, generation, data })
    }

    /// Decodes it as a variant of an event enum.
    ///
    /// # Errors
    /// A sentence that names the field, if the type is known and the data does not fit it.
    pub fn known<E: DeserializeOwned>(self) -> Result<Known<E>, String> {
        let json = OnceCell::new();
        match E::deserialize(EventReader { event: &self, json: &json }) {
            Ok(event) => Ok(Known::Event(event)),
            Err(Fault::UnknownType) => Ok(Known::Unknown(self)),
            Err(Fault::Other(message)) => Err(message),
        }
    }
}

/// The serde form of a variant: `"name"`, or `{"name": {…}}`.
struct Named(ByteString, Data);

impl<'de> de::Deserialize<'de> for Named {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NamedVisitor)
    }
}

struct NamedVisitor;

impl<'de> Visitor<'de> for NamedVisitor {
    type Value = Named;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a variant of an externally tagged enum with named fields, one object, or no data")
    }

    fn visit_str<E>(self, name: &str) -> Result<Named, E> {
        Ok(Named(name.into(), Data::empty()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named, A::Error> {
        let name: String = map.next_key()?.ok_or_else(|| de::Error::invalid_length(0, &self))?;
        let data = map.next_value()?;
        match map.next_key::<de::IgnoredAny>()? {
            None => Ok(Named(name.into(), data)),
            Some(_) => Err(de::Error::invalid_length(2, &self)),
        }
    }
}

/// Why an event could not be read.
#[derive(Debug)]
enum Fault {
    UnknownType,
    Other(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownType => f.write_str("its type is not known"),
            Self::Other(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Other(message.to_string())
    }

    /// This error type is used only to read the name of the event itself; errors inside the data come from the JSON reader.
    fn unknown_variant(_: &str, _: &'static [&'static str]) -> Self {
        Self::UnknownType
    }
}

/// An event as a serde enum. Its data is converted to JSON only once its type is known.
struct EventReader<'de> {
    event: &'de StoredEvent,
    json: &'de OnceCell<String>,
}

impl<'de> EventReader<'de> {
    fn data<T>(
        self,
        read: impl FnOnce(
            serde_path_to_error::Deserializer<'_, '_, &mut serde_json::Deserializer<serde_json::de::StrRead<'de>>>,
        ) -> Result<T, serde_json::Error>,
    ) -> Result<T, Fault> {
        let json = serde_json::to_string(&self.event.data).map_err(de::Error::custom)?;
        let json = self.json.get_or_init(|| json);
        let mut track = serde_path_to_error::Track::new();
        let mut reader = serde_json::Deserializer::from_str(json);
        let found = read(serde_path_to_error::Deserializer::new(&mut reader, &mut track));
        found.map_err(|error| Fault::Other(format!("{}: {error}", track.path())))
    }
}

const NOT_AN_ENUM: &str = "the events of an aggregate must be an externally tagged enum";

impl<'de> de::Deserializer<'de> for EventReader<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Fault> {
        Err(Fault::Other(NOT_AN_ENUM.to_owned()))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_enum(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

impl<'de> EnumAccess<'de> for EventReader<'de> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Fault> {
        let name: StrDeserializer<'de, Fault> = (*self.event.event_type).into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for EventReader<'de> {
    type Error = Fault;

    /// Ignores the data: a later version may have added fields.
    fn unit_variant(self) -> Result<(), Fault> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        self.data(|reader| seed.deserialize(reader))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Fault> {
        Err(Fault::Other("a variant with several unnamed fields cannot be event data; name the fields".to_owned()))
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        use de::Deserializer;
        self.data(|reader| reader.deserialize_struct("", fields, visitor))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Event {
        Opened,
        Renamed { to: String, size: Size },
        Measured(Size),
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Size {
        Small,
        Exact(u32),
    }

    fn stored(event_type: &str, data: serde_json::Value) -> StoredEvent {
        StoredEvent::new(event_type, &data).expect("an object")
    }

    #[test]
    fn a_variant_is_the_type_and_its_fields_are_the_data() {
        let event = Event::Renamed { to: "b".to_owned(), size: Size::Exact(3) };
        let data = Data::from_json(r#"{"to":"b","size":{"Exact":3}}"#).expect("an object");
        let taken = StoredEvent::of(&event, |_| 2).expect("taken apart");
        assert_eq!(taken, StoredEvent { event_type: "renamed".into(), generation: 2, data });
        assert_eq!(taken.known(), Ok(Known::Event(event)));
        let taken = StoredEvent::of(&Event::Opened, |_| 1).expect("taken apart");
        assert_eq!(taken, stored("opened", json!({})));
        assert_eq!(taken.known(), Ok(Known::Event(Event::Opened)));
    }

    #[test]
    fn fields_that_a_later_version_added_do_no_harm() {
        let read = stored("opened", json!({"by": "eva"})).known();
        assert_eq!(read, Ok(Known::Event(Event::Opened)));
        let read = stored("renamed", json!({"to": "b", "size": "Small", "by": "eva"})).known();
        assert_eq!(read, Ok(Known::Event(Event::Renamed { to: "b".to_owned(), size: Size::Small })));
    }

    #[test]
    fn an_unknown_type_is_kept_and_an_unknown_value_inside_is_refused() {
        let event = stored("painted", json!({"colour": "red"}));
        assert_eq!(event.clone().known::<Event>(), Ok(Known::Unknown(event)));
        let error = stored("renamed", json!({"to": "b", "size": "Large"})).known::<Event>().expect_err("refused");
        assert!(error.starts_with("size") && error.contains("Large"), "{error}");
    }

    #[test]
    fn what_cannot_be_event_data_is_refused_with_why() {
        let refused = |error: Result<StoredEvent, String>| error.expect_err("refused");
        assert!(refused(StoredEvent::of(&Event::Measured(Size::Small), |_| 1)).contains("object"));
        #[derive(Serialize)]
        enum Wide {
            Counted { n: u64 },
        }
        assert!(refused(StoredEvent::of(&Wide::Counted { n: u64::MAX }, |_| 1)).contains("64-bit"));
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "type")]
        enum Tagged {
            Opened { by: String },
        }
        assert!(refused(StoredEvent::of(&Tagged::Opened { by: "eva".to_owned() }, |_| 1)).contains("object"));
        assert_eq!(stored("Opened", json!({"by": "eva"})).known::<Tagged>(), Err(NOT_AN_ENUM.to_owned()));
    }
}
