//! The UUIDs that represent names, for layouts of the Dolittle Runtime that require UUIDs.

use uuid::Uuid;

/// The namespace of all UUIDs that represent names. It must never change, because they are stored.
const NAMESPACE: Uuid = Uuid::from_u128(0x5b0c_9f60_3f0e_4a52_9d3c_61c2_8f9e_7a14);

/// A prefix that makes the name of a stream that of a public one.
const PUBLIC: &str = "public-stream-";
/// A prefix that makes the name of a stream that of a private one.
const PRIVATE: &str = "stream-";

/// Returns the UUID that represents a name: the name itself if it is a UUID, otherwise the UUIDv5 of the kind, a colon and the name.
pub fn uuid_of(kind: &str, name: &str) -> Uuid {
    Uuid::try_parse(name).unwrap_or_else(|_| Uuid::new_v5(&NAMESPACE, format!("{kind}:{name}").as_bytes()))
}

/// Returns whether the name alone makes a stream public: it begins with `public-stream-`.
pub fn is_public_stream(name: &str) -> bool {
    name.starts_with(PUBLIC)
}

/// Returns whether the name alone makes a stream private: it begins with `stream-`.
pub fn is_private_stream(name: &str) -> bool {
    name.starts_with(PRIVATE)
}

/// Returns the UUID of a stream: the one that its name consists of, with or without the prefix `stream-` or `public-stream-`, otherwise one
/// that is derived from the name.
pub fn stream_uuid(name: &str) -> Uuid {
    let id = name.strip_prefix(PUBLIC).or_else(|| name.strip_prefix(PRIVATE)).unwrap_or(name);
    // A UUID in another form is another name, so it must get another id.
    let as_it_is = Uuid::try_parse(id).ok().filter(|uuid| uuid.to_string() == id);
    as_it_is.unwrap_or_else(|| Uuid::new_v5(&NAMESPACE, format!("stream:{name}").as_bytes()))
}

/// Returns the name of a scope's collection in the Dolittle Runtime's layout: that of the default scope with the prefix `x-<scope>-`.
pub fn of_scope(scope: Uuid, collection: &str) -> String {
    format!("x-{}-{collection}", scope.hyphenated())
}
