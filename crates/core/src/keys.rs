//! Prepare keys that change with a commit: names that only one aggregate at a time may hold, such as a user name or an e-mail address.

use std::collections::BTreeMap;

use bytestring::ByteString;
use highway::HighwayHash;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, IntoDeserializer, MapAccess};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::commit::{valid_id, valid_name, valid_time};
use crate::data::documents_equal;
use crate::{Code, CommitError, Data, Invalid, NewCommit, Timestamp, limits};

/// The changes that a commit makes to prepare keys, atomically with its events: first all releases, then all reservations, each in order.
/// If one of them is refused, the whole commit is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KeyChanges {
    /// Keys that the commit gives back. Each must be held.
    pub release: Vec<Release>,
    /// Keys that the commit takes. Each must be free or expired.
    pub reserve: Vec<Reserve>,
}

/// A key that a commit takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with key, name, value and ttl_at")]
pub struct Reserve {
    /// The name of this kind of key, for example `user_name`.
    pub name: ByteString,
    /// The key itself, an id.
    pub key: ByteString,
    /// The value that is stored with it, usually the id of its holder.
    pub value: KeyValue,
    /// The time after which others may take it over; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_at: Option<Timestamp>,
}

/// A key that a commit gives back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with key, name and value")]
pub struct Release {
    /// The name of this kind of key.
    pub name: ByteString,
    /// The key itself.
    pub key: ByteString,
    /// The value that it must have, in which case an expired key can be given back too. Any value if absent.
    #[serde(default, deserialize_with = "given_value", skip_serializing_if = "Option::is_none")]
    pub value: Option<KeyValue>,
}

/// The holder of a prepare key, according to its reservation.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyHolder {
    /// The value that is stored with the key.
    pub value: KeyValue,
    /// The time after which others may take it over; never if absent.
    pub ttl_at: Option<Timestamp>,
}

impl KeyHolder {
    /// Returns whether others cannot take the key over: at `ttl_at` itself it is still held.
    pub fn lives(&self, now: Timestamp) -> bool {
        self.ttl_at.is_none_or(|ttl_at| ttl_at >= now)
    }

    /// Returns whether a release can give the key back: if it states the value, even after the key has expired.
    pub fn gives_back(&self, value: Option<&KeyValue>, now: Timestamp) -> bool {
        value.map_or_else(|| self.lives(now), |value| *value == self.value)
    }
}

impl From<Reserve> for KeyHolder {
    fn from(reserve: Reserve) -> Self {
        Self { value: reserve.value, ttl_at: reserve.ttl_at }
    }
}

impl Reserve {
    /// Returns a reservation that lasts until the key is released.
    pub fn new(name: impl Into<ByteString>, key: impl Into<ByteString>, value: KeyValue) -> Self {
        Self { name: name.into(), key: key.into(), value, ttl_at: None }
    }

    /// Sets the time after which others may take the key over.
    #[must_use]
    pub fn until(mut self, ttl_at: Timestamp) -> Self {
        self.ttl_at = Some(ttl_at);
        self
    }
}

impl Release {
    /// Returns a release of a key, whatever its value.
    pub fn new(name: impl Into<ByteString>, key: impl Into<ByteString>) -> Self {
        Self { name: name.into(), key: key.into(), value: None }
    }

    /// Sets the value that the key must have.
    #[must_use]
    pub fn of_value(mut self, value: KeyValue) -> Self {
        self.value = Some(value);
        self
    }
}

impl NewCommit {
    /// Adds a key that the commit takes.
    #[must_use]
    pub fn reserve(mut self, key: Reserve) -> Self {
        self.keys.reserve.push(key);
        self
    }

    /// Adds a key that the commit gives back.
    #[must_use]
    pub fn release(mut self, key: Release) -> Self {
        self.keys.release.push(key);
        self
    }
}

/// The value of a prepare key: any JSON or BSON value. Values are compared as BSON: 7 equals 7.0, and documents with their fields in
/// another order are different.
#[derive(Debug, Clone)]
pub struct KeyValue(Data);

impl PartialEq for KeyValue {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || documents_equal(self.0.as_raw(), other.0.as_raw())
    }
}

/// The field that holds the value in its document.
const FIELD: &str = "value";

impl KeyValue {
    /// Converts a value of your own type.
    ///
    /// # Errors
    /// A sentence, if BSON cannot represent it.
    pub fn new(value: impl Serialize) -> Result<Self, String> {
        Data::from_value(&BTreeMap::from([(FIELD, value)])).map(Self)
    }

    /// Returns the document `{"value": …}` that holds it.
    pub fn data(&self) -> &Data {
        &self.0
    }

    /// Decodes the value into a type of your own.
    ///
    /// # Errors
    /// A sentence that says what does not fit.
    pub fn decode<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        /// The document around it.
        #[derive(Deserialize)]
        struct Holding<T> {
            value: T,
        }
        self.0.decode().map(|Holding { value }| value)
    }

    /// Restores a value from a document that [`data`](Self::data) returned.
    pub fn from_data(data: Data) -> Self {
        Self(data)
    }
}

impl Serialize for KeyValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The text of the document's only field, which keeps the order of its fields; a tree of values would sort them.
        let document = serde_json::to_string(&self.0).map_err(serde::ser::Error::custom)?;
        let value = document.split_once(':').and_then(|(_, rest)| rest.strip_suffix('}')).unwrap_or("null");
        serde_json::value::RawValue::from_string(value.to_owned())
            .map_err(serde::ser::Error::custom)?
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for KeyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Data::deserialize(MapAccessDeserializer::new(Only { named: false, value: Some(deserializer) })).map(Self)
    }
}

/// Reads a value that is present: `null` is a value, and differs from an absent one.
fn given_value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<KeyValue>, D::Error> {
    KeyValue::deserialize(deserializer).map(Some)
}

/// A map with one entry, whose value has not been read yet.
struct Only<D> {
    named: bool,
    value: Option<D>,
}

impl<'de, D: Deserializer<'de>> MapAccess<'de> for Only<D> {
    type Error = D::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, D::Error> {
        match std::mem::replace(&mut self.named, true) {
            true => Ok(None),
            false => seed.deserialize(FIELD.into_deserializer()).map(Some),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, D::Error> {
        let value = self.value.take().ok_or_else(|| serde::de::Error::custom("the value is read already"))?;
        seed.deserialize(value)
    }
}

impl KeyChanges {
    /// Returns whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.release.is_empty() && self.reserve.is_empty()
    }

    /// Returns the name and key of every change.
    pub fn names(&self) -> impl Iterator<Item = (&ByteString, &ByteString)> {
        let release = self.release.iter().map(|it| (&it.name, &it.key));
        release.chain(self.reserve.iter().map(|it| (&it.name, &it.key)))
    }

    /// Evaluates the changes against the current holders, which `of` returns. Returns the new holder of each key that they name, or none.
    ///
    /// # Errors
    /// `key_taken` or `key_not_held` at the first refused change.
    pub fn judge(
        &self,
        of: impl Fn(&str, &str) -> Option<KeyHolder>,
        now: Timestamp,
    ) -> Result<BTreeMap<(&str, &str), Option<KeyHolder>>, CommitError> {
        let mut made: BTreeMap<(&str, &str), Option<KeyHolder>> = BTreeMap::new();
        for Release { name, key, value } in &self.release {
            if !of(name, key).is_some_and(|holder| holder.gives_back(value.as_ref(), now)) {
                return Err(CommitError::KeyNotHeld { name: name.to_string(), key: key.to_string() });
            }
            made.insert((name, key), None);
        }
        for reserve in &self.reserve {
            let (name, key): (&str, &str) = (&reserve.name, &reserve.key);
            let holder = made.get(&(name, key)).cloned().unwrap_or_else(|| of(name, key));
            if holder.is_some_and(|holder| holder.lives(now)) {
                return Err(CommitError::KeyTaken { name: name.to_owned(), key: key.to_owned() });
            }
            made.insert((name, key), Some(reserve.clone().into()));
        }
        Ok(made)
    }

    /// Returns the size that counts against [`limits::COMMIT_BYTES_MAX`]: bytes of names, keys and values as BSON.
    pub(crate) fn content_bytes(&self) -> usize {
        let released = self.release.iter().filter_map(|it| it.value.as_ref());
        let values = released.chain(self.reserve.iter().map(|it| &it.value));
        let names = self.names().map(|(name, key)| name.len() + key.len());
        names.chain(values.map(|value| value.data().as_bytes().len())).sum()
    }

    /// Adds the changes to the digest of a commit's content, and nothing if there are none.
    pub(crate) fn digest(&self, hasher: &mut impl HighwayHash) {
        let mut text = |kind: u8, bytes: &[u8]| {
            hasher.append(&[kind]);
            hasher.append(&(bytes.len() as u32).to_le_bytes());
            hasher.append(bytes);
        };
        for Release { name, key, value } in &self.release {
            text(1, name.as_bytes());
            text(2, key.as_bytes());
            value.iter().for_each(|value| text(3, value.data().as_bytes()));
        }
        for Reserve { name, key, value, ttl_at } in &self.reserve {
            text(4, name.as_bytes());
            text(5, key.as_bytes());
            text(6, value.data().as_bytes());
            ttl_at.iter().for_each(|ttl_at| text(7, &ttl_at.as_millis().to_le_bytes()));
        }
    }

    /// Checks names, keys and values.
    ///
    /// # Errors
    /// `invalid_keys` at the first key that breaks a rule.
    pub fn validate(&self) -> Result<(), Invalid> {
        let release = self.release.iter().map(|it| (&it.name, &it.key, it.value.as_ref())).collect();
        let reserve = self.reserve.iter().map(|it| (&it.name, &it.key, Some(&it.value))).collect();
        validate("release", release)?;
        validate("reserve", reserve)?;
        for (place, reserve) in self.reserve.iter().enumerate() {
            let valid = reserve.ttl_at.map_or(Ok(()), |ttl_at| valid_time(&format!("reserve[{place}].ttl_at"), ttl_at));
            valid.map_err(|fault| Invalid { code: Code::InvalidKeys, ..fault })?;
        }
        Ok(())
    }
}

fn validate(list: &str, keys: Vec<(&ByteString, &ByteString, Option<&KeyValue>)>) -> Result<(), Invalid> {
    let invalid = |path: String, message: String| Err(Invalid::new(Code::InvalidKeys, path, message));
    if keys.len() > limits::KEYS_MAX {
        return invalid(
            list.to_owned(),
            format!("holds {} entries; at most {} are allowed", keys.len(), limits::KEYS_MAX),
        );
    }
    let mut seen = std::collections::BTreeSet::new();
    for (place, (name, key, value)) in keys.into_iter().enumerate() {
        let path = |field: &str| format!("{list}[{place}].{field}");
        let valid = valid_name(&path("name"), name).and_then(|()| valid_id(&path("key"), key));
        if let Err(fault) = valid {
            return invalid(fault.path, fault.message);
        }
        let bytes = value.map_or(0, |value| value.data().as_bytes().len());
        if bytes > limits::KEY_VALUE_BYTES_MAX {
            let message = format!("{bytes} bytes as BSON; at most {} are allowed", limits::KEY_VALUE_BYTES_MAX);
            return invalid(path("value"), message);
        }
        if !seen.insert((name, key)) {
            return invalid(path("key"), format!("{name} {key:?} is named twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserve(name: &str, key: &str) -> Reserve {
        let value = KeyValue::new("u-1").expect("a value");
        Reserve { name: name.into(), key: key.into(), value, ttl_at: None }
    }

    #[test]
    fn each_broken_rule_is_refused_with_its_path() {
        let refused = |reserve: Vec<Reserve>| {
            let invalid = KeyChanges { reserve, ..KeyChanges::default() }.validate().expect_err("must be refused");
            assert_eq!(invalid.code, Code::InvalidKeys);
            invalid.path
        };
        assert_eq!(refused(vec![reserve("user name", "a")]), "reserve[0].name");
        assert_eq!(refused(vec![reserve("n", "a"), reserve("n", "")]), "reserve[1].key");
        assert_eq!(refused(vec![reserve("n", "a"), reserve("n", "a")]), "reserve[1].key");
        assert_eq!(refused((0..65).map(|n| reserve("n", &n.to_string())).collect()), "reserve");
        let value = KeyValue::new("x".repeat(limits::KEY_VALUE_BYTES_MAX)).expect("a value");
        assert_eq!(refused(vec![Reserve { value, ..reserve("n", "a") }]), "reserve[0].value");
        let release = |key: &str| Release { name: "n".into(), key: key.into(), value: None };
        let swap = KeyChanges { release: vec![release("a")], reserve: vec![reserve("n", "a")] };
        assert_eq!(swap.validate(), Ok(()));
    }

    #[test]
    fn a_release_of_the_value_null_is_not_one_of_any_value() {
        for (json, value) in [
            (r#"{"name":"n","key":"k"}"#, None),
            (r#"{"name":"n","key":"k","value":null}"#, Some(KeyValue::new(()).expect("a value"))),
        ] {
            let release: Release = serde_json::from_str(json).expect("a release");
            assert_eq!(release.value, value);
            assert_eq!(serde_json::to_string(&release).expect("json"), json);
        }
    }

    #[test]
    fn any_json_is_a_value_and_comes_back() {
        for json in ["null", "true", "-7", "1.5", "\"text\"", "[1,[2]]", r#"{"b":1,"a":{"c":null}}"#] {
            let value: KeyValue = serde_json::from_str(json).expect("a value");
            assert_eq!(serde_json::to_string(&value).expect("json"), json);
            assert_eq!(KeyValue::from_data(value.data().clone()), value);
        }
    }
}
