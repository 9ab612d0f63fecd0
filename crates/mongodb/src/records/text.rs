//! Text indexes as the server makes them. Without a language, words are what stands in a text; with one, the server compares their stems.

use annals_core::TextIndex;
use annals_core::bson::{Bson, Document, doc};

/// The field of a document in which the server would look for its language. It can be told another one, and not that there is none.
const NO_FIELD: &str = "no field has a language";

/// The index as it is to be made.
pub(super) fn physical(index: &TextIndex) -> Document {
    let key: Document = index.paths.iter().map(|path| (path.clone(), Bson::from("text"))).collect();
    let field = index.language_override.as_deref().unwrap_or(NO_FIELD);
    doc! {
        "key": key, "name": &index.name, "default_language": index.language.name(), "language_override": field,
        "textIndexVersion": 3,
    }
}

/// Whether an index to be made is one of texts.
pub(super) fn is_text(due: &Document) -> bool {
    due.contains_key("textIndexVersion")
}

/// Whether two are the same to the server, apart from their names. One that is there has its fields as
/// weights, in the order of their names.
pub(super) fn same(found: &Document, due: &Document) -> bool {
    const OPTIONS: [&str; 2] = ["default_language", "language_override"];
    let option = |name: &&str| found.get_str(name).ok() == due.get_str(name).ok();
    let version = number(found.get("textIndexVersion")) == Some(3);
    let plain = !found.contains_key("partialFilterExpression") && !found.contains_key("collation");
    fields(found) == fields(due) && version && plain && OPTIONS.iter().all(option)
}

/// The fields of a text index that all weigh the same and have nothing beside them; none of another.
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
