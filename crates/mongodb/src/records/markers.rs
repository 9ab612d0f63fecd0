//! Markers of records that expire, read and written inside the transaction that writes the records: see `expiry.rs`.

use std::collections::HashSet;

use annals_core::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::ClientSession;
use mongodb::error::Error;

use super::batch::{Place, parts};
use super::expiry::EXPIRIES;
use super::judge::{Judge, Marker, encoded};
use crate::layout::fields::{inner, text};

/// Reads which of these records have a marker.
pub(super) async fn marked(
    place: &Place,
    collection: &str,
    ids: &[Bson],
    session: &mut ClientSession,
    judge: &mut Judge<'_>,
) -> mongodb::error::Result<()> {
    let keys: Vec<Document> = ids.iter().map(|id| doc! { "c": collection, "id": id.clone() }).collect();
    let markers = place.database.collection::<RawDocumentBuf>(EXPIRIES);
    let mut found = markers.find(doc! { "_id": { "$in": keys } }).session(&mut *session).await?;
    while found.advance(&mut *session).await? {
        let key = inner(found.current(), "_id");
        let id = key.and_then(|key| Bson::try_from(key.get("id").ok()??).ok());
        if let (Some(id), Some(name)) = (id, key.and_then(|key| text(key, "c"))) {
            judge.marked.insert((name.to_owned(), encoded(&id)), 0);
        }
    }
    Ok(())
}

/// Writes markers, with one round trip per command.
pub(super) async fn mark(place: &Place, session: &mut ClientSession, markers: &[Marker]) -> mongodb::error::Result<()> {
    let (set, gone) = marks(markers);
    for (verb, list, entries) in [("update", "updates", set), ("delete", "deletes", gone)] {
        for part in parts(&entries) {
            let command = doc! { verb: EXPIRIES, list: part.to_vec(), "ordered": true };
            let answer = place.database.run_command(command).session(&mut *session).await?;
            if let Some(refused) = answer.get_array("writeErrors").ok().and_then(|errors| errors.first()) {
                return Err(Error::custom(format!("{EXPIRIES}: a marker was not taken: {refused}")));
            }
        }
    }
    Ok(())
}

/// Returns the updates and deletions of markers. If a record has several, the last one counts.
fn marks(markers: &[Marker]) -> (Vec<Document>, Vec<Document>) {
    let mut seen = HashSet::new();
    let (mut set, mut gone) = (Vec::new(), Vec::new());
    for marker in markers.iter().rev().filter(|marker| seen.insert((&marker.collection, encoded(&marker.id)))) {
        let key = doc! { "_id": { "$eq": { "c": &marker.collection, "id": marker.id.clone() } } };
        match marker.at {
            Some(at) => {
                let at = annals_core::bson::DateTime::from_millis(at);
                set.push(doc! { "q": key, "u": { "$set": { "at": at } }, "upsert": true });
            }
            None => gone.push(doc! { "q": key, "limit": 1 }),
        }
    }
    (set, gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_markers_of_a_record_the_last_counts() {
        let marker = |id: i32, at| Marker { collection: "c".to_owned(), id: id.into(), at };
        let (set, gone) = marks(&[marker(1, Some(5)), marker(2, None), marker(1, None), marker(2, Some(7))]);
        assert_eq!((set.len(), gone.len()), (1, 1));
        let id = |entry: &Document| entry.get_document("q").cloned().expect("a key").to_string();
        assert!(id(&set[0]).contains("2") && id(&gone[0]).contains("1"), "{set:?} {gone:?}");
    }
}
