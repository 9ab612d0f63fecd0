//! Traversal of all values that a path leads to.

use bson::RawBsonRef;
use bson::raw::{RawArray, RawDocument};

/// Visits a value, or `None` if the path leads to nothing; returns true to end the walk.
pub(super) type Visit<'v> = dyn FnMut(Option<RawBsonRef<'_>>) -> bool + 'v;

/// What to do with an array at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AtArray {
    /// Visit each element, then the array.
    Elements,
    /// Visit the array alone.
    Whole,
}

/// Visits every value that the path leads to, until a visit returns true. Returns whether one did.
pub(super) fn walk(document: &RawDocument, path: &[String], at_array: AtArray, visit: &mut Visit<'_>) -> bool {
    let Some((name, rest)) = path.split_first() else { return false };
    match document.get(name).ok().flatten() {
        Some(value) if rest.is_empty() => end(value, at_array, visit),
        Some(RawBsonRef::Document(inner)) => walk(inner, rest, at_array, visit),
        Some(RawBsonRef::Array(array)) => through(array, rest, at_array, visit),
        _ => visit(None),
    }
}

fn end(value: RawBsonRef<'_>, at_array: AtArray, visit: &mut Visit<'_>) -> bool {
    match value {
        RawBsonRef::Array(array) if at_array == AtArray::Elements => {
            array.into_iter().flatten().any(|element| visit(Some(element))) || visit(Some(value))
        }
        _ => visit(Some(value)),
    }
}

/// Follows each element that is a document; a number also selects the element at that index.
fn through(array: &RawArray, path: &[String], at_array: AtArray, visit: &mut Visit<'_>) -> bool {
    let Some((name, rest)) = path.split_first() else { return false };
    for (place, element) in array.into_iter().flatten().enumerate() {
        if let RawBsonRef::Document(document) = element
            && walk(document, path, at_array, visit)
        {
            return true;
        }
        if is_place(name, place) && at_place(element, rest, at_array, visit) {
            return true;
        }
    }
    false
}

fn at_place(element: RawBsonRef<'_>, rest: &[String], at_array: AtArray, visit: &mut Visit<'_>) -> bool {
    match element {
        // An array that is selected by a number is one value; its elements are not visited.
        _ if rest.is_empty() => visit(Some(element)),
        RawBsonRef::Document(document) => walk(document, rest, at_array, visit),
        RawBsonRef::Array(array) => through(array, rest, at_array, visit),
        _ => false,
    }
}

fn is_place(name: &str, place: usize) -> bool {
    name.as_bytes().first().is_some_and(u8::is_ascii_digit) && name == place.to_string()
}
