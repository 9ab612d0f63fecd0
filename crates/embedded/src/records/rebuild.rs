//! Rebuilds indexes from the records. An index is derived from its records, so nothing is lost.

use annals_core::RecordError;

use super::catalog::Catalog;
use super::{declare, keys};
use crate::engine::{Change, Engine, Range, View};

/// The number of entries held in memory at once while an index is emptied.
const PIECE: usize = 1_000;

/// Empties every index of a map and refills it from the existing records. Each index is rebuilt by one write, so a crash leaves it either
/// unchanged or rebuilt. Returns the number of indexes. Blocks.
///
/// # Errors
/// [`RecordError::DuplicateKey`] if two records have the same entry of a unique index,
/// [`StoreError::RecordsDamaged`](annals_core::StoreError::RecordsDamaged) if a record is damaged. That index and the following ones are
/// left unchanged.
pub(crate) fn rebuild(engine: &Engine) -> Result<u64, RecordError> {
    let catalog = engine.read(|view| Catalog::load(view))?;
    let mut count = 0;
    for (name, collection) in catalog.collections() {
        for known in &collection.indexes {
            let (name, index) = (name.clone(), known.index.name().to_owned());
            engine.write_blocking(move |map| one(map, &name, &index))?;
            count += 1;
        }
    }
    engine.write_blocking(strangers)?;
    Ok(count)
}

fn one(map: &mut Change, name: &str, index: &str) -> Result<(), RecordError> {
    let mut catalog = Catalog::load(&*map)?;
    let collection = catalog.collection(name)?;
    let Some(known) = collection.index(index).cloned() else { return Ok(()) };
    empty(map, &keys::entries(known.id))?;
    if declare::fill(map, name, collection.id, &known)? && catalog.note_several_entries(&[known.id]) {
        catalog.store(map)?;
    }
    Ok(())
}

/// Removes the entries of unknown indexes.
fn strangers(map: &mut Change) -> Result<(), RecordError> {
    let catalog = Catalog::load(&*map)?;
    let known: Vec<u32> = catalog.collections().flat_map(|(_, it)| it.indexes.iter().map(|it| it.id)).collect();
    let mut found = Vec::new();
    super::check::strangers(&*map, keys::entries, &known, |number| found.push(number))?;
    Ok(found.into_iter().try_for_each(|number| empty(map, &keys::entries(number)))?)
}

fn empty(map: &mut Change, prefix: &[u8]) -> Result<(), annals_core::StoreError> {
    loop {
        // Read in pieces, because the map cannot be changed while it is being read.
        let piece: Vec<_> = map.ascending(&Range::prefix(prefix))?.take(PIECE).collect::<Result<_, _>>()?;
        if piece.is_empty() {
            return Ok(());
        }
        piece.iter().for_each(|(key, _)| map.remove(key));
    }
}
