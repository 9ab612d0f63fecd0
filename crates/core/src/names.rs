//! The UUIDs that represent names where the Dolittle Runtime's layouts require UUIDs.

use uuid::Uuid;

/// The namespace of all UUIDs that represent names. It must never change, because they are stored.
const NAMESPACE: Uuid = Uuid::from_u128(0x5b0c_9f60_3f0e_4a52_9d3c_61c2_8f9e_7a14);

/// What the name of a public stream may begin with.
const PUBLIC: &str = "public-stream-";
/// What the name of any other stream may begin with.
const PRIVATE: &str = "stream-";

/// Returns the UUID that represents a name: the name itself if it is one, otherwise UUIDv5 of the name with its kind before it.
pub fn uuid_of(kind: &str, name: &str) -> Uuid {
    Uuid::try_parse(name).unwrap_or_else(|_| Uuid::new_v5(&NAMESPACE, format!("{kind}:{name}").as_bytes()))
}

/// Returns whether a stream of this name is public by its name alone: it begins with `public-stream-`.
pub fn is_public_stream(name: &str) -> bool {
    name.starts_with(PUBLIC)
}

/// Returns whether a stream of this name is private by its name alone: it begins with `stream-`.
pub fn is_private_stream(name: &str) -> bool {
    name.starts_with(PRIVATE)
}

/// Returns the UUID of a stream: the one that its name consists of, with or without `stream-` or `public-stream-` before it, otherwise
/// one that follows from the name.
pub fn stream_uuid(name: &str) -> Uuid {
    let id = name.strip_prefix(PUBLIC).or_else(|| name.strip_prefix(PRIVATE)).unwrap_or(name);
    // A UUID in another form is another name, so it must become another id.
    let as_it_is = Uuid::try_parse(id).ok().filter(|uuid| uuid.to_string() == id);
    as_it_is.unwrap_or_else(|| Uuid::new_v5(&NAMESPACE, format!("stream:{name}").as_bytes()))
}

/// Returns the name of a scope's collection in the Dolittle Runtime's layout: that of the default scope with `x-<scope>-` before it.
pub fn of_scope(scope: Uuid, collection: &str) -> String {
    format!("x-{}-{collection}", scope.hyphenated())
}
