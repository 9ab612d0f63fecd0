//! Checked records: a transaction that depends on a record without changing it must not commit concurrently with one that changes it.
//!
//! Snapshot isolation permits write skew, since the server compares writes only: two transactions that each read what the other writes may
//! both commit. So a transaction writes the records that it checked:
//!
//! - For an existing record, `_annals.checks` is incremented. (An update that changes nothing would not conflict.) Its revision stays.
//! - For an absent record, a document with its `_id` is inserted and deleted again. No reader ever sees it, because both happen in one
//!   transaction. A transaction that inserts this `_id` at the same time conflicts with it, and a plain insert waits for it. The document
//!   has a unique value at every path of a declared unique index, so it collides with no record. A change stream shows it as an insert and
//!   a delete.
//!
//! So two batches that check the same record conflict too, and one of them is retried. Nothing is written if the batch changes the record
//! itself, or changes nothing at all. A delete is a check if it finds its record absent.

use std::collections::HashSet;

use annals_core::bson::{Bson, Document, RawDocumentBuf};
use annals_core::{Collection, Index};

use super::judge::{Judge, Key, Op, encoded};

/// Returns the writes by which the transaction conflicts with changes of the records that it checked.
pub(super) fn touches(judge: &Judge<'_>) -> Vec<(usize, usize, Op)> {
    let mut written: HashSet<Key> = judge.ops.iter().map(|(_, _, op)| op.key()).collect();
    let mut touches = Vec::new();
    for checked in &judge.checked {
        let key = (checked.collection.clone(), encoded(&checked.id));
        let (collection, id) = (checked.collection.clone(), checked.id.clone());
        let place = (checked.job, checked.change);
        if !written.insert(key.clone()) {
            continue;
        }
        if checked.there {
            touches.push((place.0, place.1, Op::Touch { collection, id }));
            continue;
        }
        let Some(declared) = judge.collections.get(&collection) else { continue };
        let Ok(document) = RawDocumentBuf::try_from(&stand_in(declared, &id, &key.1)) else { continue };
        touches.push((place.0, place.1, Op::Insert { collection: collection.clone(), document }));
        touches.push((place.0, place.1, Op::Delete { collection, id }));
    }
    touches
}

/// Returns a document with this `_id` that has no record's key in any unique index.
fn stand_in(declared: &Collection, id: &Bson, encoded: &[u8]) -> Document {
    let own: String = encoded.iter().map(|byte| format!("{byte:02x}")).collect();
    let own = format!("annals: absent {own}");
    let unique = declared.indexes.iter().filter(|index| index.is_unique());
    let mut paths: Vec<&str> = unique.flat_map(Index::fields).map(|(path, _)| path).collect();
    // The longest path first: a path that leads to others is then a document, which is just as unique.
    paths.sort_unstable_by_key(|path| std::cmp::Reverse(path.len()));
    let mut document = Document::new();
    document.insert("_id", id.clone());
    for path in paths {
        let mut steps = path.split('.').peekable();
        let mut at = &mut document;
        while let Some(step) = steps.next() {
            if steps.peek().is_none() {
                at.entry(step.to_owned()).or_insert_with(|| own.clone().into());
                break;
            }
            match at.entry(step.to_owned()).or_insert_with(|| Document::new().into()) {
                Bson::Document(inner) => at = inner,
                _ => break,
            }
        }
    }
    document
}

#[cfg(test)]
mod tests {
    use annals_core::bson::doc;
    use annals_core::order::Direction;

    use super::*;

    #[test]
    fn a_stand_in_has_a_value_of_its_own_on_every_unique_path() {
        let by =
            |paths: &[&'static str]| Index::ordered(paths.iter().map(|path| (*path, Direction::Ascending))).unique();
        let declared = Collection::new("c").index(by(&["a"])).index(by(&["a.b", "_id"])).index(Index::on("n"));
        let own = "annals: absent 0a";
        assert_eq!(stand_in(&declared, &7.into(), &[10]), doc! { "_id": 7, "a": { "b": own } });
    }
}
