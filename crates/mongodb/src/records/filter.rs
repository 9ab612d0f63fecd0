//! Converts conditions to MongoDB filters with the same meaning.
//!
//! Some cannot be converted: those that the server would refuse because of their depth, their size or the content of a list. All documents
//! are then requested, and evaluated here.

use annals_core::bson::{Bson, Document, Regex, doc};
use annals_core::{Condition, Deletion, Fragment, Invalid, Matcher, Test};

use super::document::OWN;

/// Maximum depth of a filter that is sent. The server accepts about three times as much.
const DEPTH_MAX: usize = 30;
/// Maximum nesting of documents that are sent. The server accepts 200.
const NESTING_MAX: usize = 150;
/// Maximum size of a filter in bytes; a command has at most 16 MiB.
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// The filter to send, and how to evaluate the results.
pub(super) struct Filter {
    pub(super) ask: Document,
    /// The condition that original documents must additionally match; `None` if the server evaluates everything.
    pub(super) rest: Option<Matcher>,
}

impl Filter {
    /// # Errors
    /// `invalid_condition` if the server would refuse the condition and it cannot be evaluated here either.
    pub(super) fn of(condition: &Condition) -> Result<Self, Invalid> {
        match filter_of(condition) {
            Some(ask) => Ok(Self { ask, rest: None }),
            None => {
                // Only the server can search for words, by its text index.
                let ask = condition.text_search().map_or_else(Document::new, text);
                let rest = condition.without_text_search();
                rest.judgeable()?;
                Ok(Self { ask, rest: Some(Matcher::new(&rest)) })
            }
        }
    }
}

/// Returns the filter that a store on MongoDB sends for a condition that is [`resolved`](Condition::resolved). Returns `None` if the
/// server would refuse it, because of its depth, its size or the content of a list; the store then reads every document and evaluates the
/// condition itself.
pub fn filter_of(condition: &Condition) -> Option<Document> {
    compile(condition).filter(fits)
}

/// Returns the filter with the same meaning; `None` if there is none that the server accepts.
pub(super) fn compile(condition: &Condition) -> Option<Document> {
    part(condition, 0, &visible)
}

/// Converts a part of a condition; `name` converts its paths.
fn part(condition: &Condition, depth: usize, name: &dyn Fn(&str) -> String) -> Option<Document> {
    if depth > DEPTH_MAX {
        return None;
    }
    let all = |children: &[Condition]| -> Option<Bson> {
        let children = children.iter().map(|child| part(child, depth + 1, name).map(Bson::Document));
        children.collect::<Option<Vec<_>>>().map(Bson::Array)
    };
    match condition {
        Condition::All => Some(Document::new()),
        Condition::And(children) => Some(doc! { "$and": all(children)? }),
        Condition::Or(children) => Some(doc! { "$or": all(children)? }),
        Condition::Nor(children) => Some(doc! { "$nor": all(children)? }),
        Condition::Field { path, test } => field(&name(path), test, depth),
        Condition::Deleted(Deletion::All) => Some(Document::new()),
        Condition::Deleted(which) => Some(doc! { "deleted": *which == Deletion::Deleted }),
        Condition::Match(words) => Some(text(words)),
        Condition::Raw(filter) => Some(filter.clone()),
        _ => None,
    }
}

fn text(words: &str) -> Document {
    doc! { "$text": { "$search": words } }
}

fn field(path: &str, test: &Test, depth: usize) -> Option<Document> {
    let one = |operator: &str, value: &Bson| Some(doc! { path: { operator: value.clone() } });
    let find = |fragment: &Fragment, before, behind| {
        let pattern = fragment.pattern(before, behind).try_into().ok()?;
        let options = fragment.options().to_owned().try_into().ok()?;
        Some(doc! { path: Regex { pattern, options } })
    };
    let list = |operator: &str, values: &[Bson]| {
        // The server interprets a dollar in a list as an operator.
        let dollar =
            |value: &Bson| value.as_document().is_some_and(|inner| inner.keys().any(|name| name.starts_with('$')));
        (!values.iter().any(dollar)).then(|| doc! { path: { operator: values.to_vec() } })
    };
    match test {
        // A value that may be mistaken for operators needs the explicit form.
        Test::Eq(value @ (Bson::Document(_) | Bson::Array(_))) => one("$eq", value),
        Test::Eq(value) => Some(doc! { path: value.clone() }),
        Test::Ne(value) => one("$ne", value),
        Test::Gt(value) => Some(bound(path, "$gt", value)),
        Test::Gte(value) => Some(bound(path, "$gte", value)),
        Test::Lt(value) => Some(bound(path, "$lt", value)),
        Test::Lte(value) => Some(bound(path, "$lte", value)),
        Test::In(values) => list("$in", values),
        Test::NotIn(values) => list("$nin", values),
        Test::Between(low, high) => Some(doc! { "$and": [bound(path, "$gte", low), bound(path, "$lte", high)] }),
        Test::Exists(there) => Some(doc! { path: { "$exists": *there } }),
        Test::AllIn(values) => list("$all", values),
        Test::ElemMatch(inner) => Some(doc! { path: { "$elemMatch": part(inner, depth + 1, &str::to_owned)? } }),
        Test::Contains(fragment) => find(fragment, "", ""),
        Test::StartsWith(fragment) => find(fragment, "^", ""),
        Test::EndsWith(fragment) => find(fragment, "", "$"),
        _ => None,
    }
}

/// Returns one bound of a range. If a missing field is within the range, the server would omit records that a sparse index on the field
/// lacks, unless the filter also asks for null.
fn bound(path: &str, operator: &str, value: &Bson) -> Document {
    let plain = doc! { path: { operator: value.clone() } };
    match (operator, value) {
        ("$gte" | "$lte", Bson::Null) => doc! { path: Bson::Null },
        ("$gt" | "$gte", Bson::MinKey) | ("$lt" | "$lte", Bson::MaxKey) => {
            doc! { "$or": [plain, { path: Bson::Null }] }
        }
        _ => plain,
    }
}

/// Returns the path to use in a filter. The original documents do not have our own field, so a path to it must lead to nothing.
pub(super) fn visible(path: &str) -> String {
    match path.strip_prefix(OWN) {
        Some(rest) if rest.is_empty() || rest.starts_with('.') => format!("{OWN}.nothing{rest}"),
        _ => path.to_owned(),
    }
}

fn fits(filter: &Document) -> bool {
    nested(filter, 0) && filter.to_vec().is_ok_and(|bytes| bytes.len() <= BYTES_MAX)
}

fn nested(document: &Document, depth: usize) -> bool {
    depth < NESTING_MAX && document.values().all(|value| nested_value(value, depth + 1))
}

fn nested_value(value: &Bson, depth: usize) -> bool {
    match value {
        Bson::Document(inner) => nested(inner, depth),
        Bson::Array(values) => depth < NESTING_MAX && values.iter().all(|value| nested_value(value, depth + 1)),
        Bson::JavaScriptCodeWithScope(code) => nested(&code.scope, depth),
        _ => true,
    }
}

#[cfg(test)]
mod table;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_would_not_take_is_judged_here() {
        let deep = (0..80).fold(Condition::eq("a", 1), |inner, _| Condition::Nor(vec![inner]));
        let dollar = Condition::is_in("a", [Bson::Document(doc! { "$x": 1 })]);
        let large = Condition::eq("a", "x".repeat(BYTES_MAX));
        for condition in [&deep, &dollar, &large] {
            assert!(Filter::of(condition).expect("it is judged here").rest.is_some());
        }
        let words = Condition::And(vec![deep, Condition::matching_text("x")]);
        let filter = Filter::of(&words).expect("it is judged here");
        assert_eq!((filter.ask, filter.rest.is_some()), (doc! { "$text": { "$search": "x" } }, true));
        let filter = Filter::of(&Condition::between("a", 1, 2)).expect("a filter");
        assert_eq!(filter.ask, doc! { "$and": [{ "a": { "$gte": 1 } }, { "a": { "$lte": 2 } }] });
        assert!(filter.rest.is_none());
    }

    #[test]
    fn our_own_field_is_not_found() {
        assert_eq!(visible("_annals"), "_annals.nothing");
        assert_eq!(visible("_annals.revision"), "_annals.nothing.revision");
        assert_eq!(visible("_annalsx"), "_annalsx");
        assert_eq!(visible("a._annals"), "a._annals");
    }
}
