//! Text indexes as the server creates them. Without a language, words match as they are written; with one, the server compares their
//! stems.

use annals_core::TextIndex;
use annals_core::bson::{Bson, Document, doc};

/// The name of the field in which the server looks for a document's language. It can be changed, but not switched off.
const NO_FIELD: &str = "no field has a language";

/// Returns the index to create.
pub(super) fn physical(index: &TextIndex) -> Document {
    let key: Document = index.paths.iter().map(|path| (path.clone(), Bson::from("text"))).collect();
    let field = index.language_override.as_deref().unwrap_or(NO_FIELD);
    doc! {
        "key": key, "name": &index.name, "default_language": index.language.name(), "language_override": field,
        "textIndexVersion": 3,
    }
}

/// Returns whether an index to create is a text index.
pub(super) fn is_text(due: &Document) -> bool {
    due.contains_key("textIndexVersion")
}

/// Returns whether two indexes are the same to the server, apart from their names. An existing one has its fields as weights, in order of
/// name.
pub(super) fn same(found: &Document, due: &Document) -> bool {
    const OPTIONS: [&str; 2] = ["default_language", "language_override"];
    let option = |name: &&str| found.get_str(name).ok() == due.get_str(name).ok();
    let version = number(found.get("textIndexVersion")) == Some(3);
    let plain = !found.contains_key("partialFilterExpression") && !found.contains_key("collation");
    fields(found) == fields(due) && version && plain && OPTIONS.iter().all(option)
}

/// Returns the fields of a text index whose weights are all 1 and which has no other keys; `None` for any other index.
fn fields(index: &Document) -> Option<Vec<&str>> {
    let key = index.get_document("key").ok()?;
    let mut fields: Vec<&str> = match index.get_document("weights") {
        Ok(weights) => {
            let is_one = |weight| number(Some(weight)) == Some(1);
            let of_words = key.len() == 2 && key.contains_key("_fts") && weights.values().all(is_one);
            of_words.then(|| weights.keys().map(String::as_str).collect())?
        }
        Err(_) => key.keys().map(String::as_str).collect(),
    };
    fields.sort_unstable();
    (is_text(index)).then_some(fields)
}

fn number(value: Option<&Bson>) -> Option<i64> {
    match value? {
        Bson::Int32(number) => Some((*number).into()),
        Bson::Int64(number) => Some(*number),
        Bson::Double(number) => Some(*number as i64),
        _ => None,
    }
}
