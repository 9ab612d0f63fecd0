//! Creates a new map from a file of entries.

use std::sync::Arc;

use redb::Database;

use super::dump::{DumpFault, Entries};
use super::moves;
use super::open::{self, FORMAT_KEY, MAP, MAP_FORMAT};
use crate::Options;
use crate::disk::Disk;
use crate::options::SeededBug;

/// The number of bytes of keys and values inserted by one commit.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Creates the map of a folder that has none from a file of entries, with its owner's mark, and closes it. The map is then durable.
/// Returns the number of entries.
///
/// # Errors
/// What is wrong with the file; [`DumpFault::Io`] if the map cannot be written. Whatever was created by then is not a complete map.
pub(crate) fn make(
    disk: &Arc<dyn Disk>,
    dir: &str,
    mut entries: Entries<'_>,
    owner: Option<u64>,
    options: &Options,
) -> Result<u64, DumpFault> {
    let database = open::new(disk, dir, &Arc::default()).map_err(DumpFault::Io)?;
    let (mut count, mut batch, mut more) = (0, Vec::new(), true);
    while more {
        let mut bytes = 0;
        while bytes < BATCH_BYTES {
            let Some((key, value)) = entries.next()? else {
                more = false;
                break;
            };
            check_format(&key, &value)?;
            bytes += key.len() + value.len();
            batch.push((key, value));
        }
        if more || !options.has(SeededBug::ForgetLastEntriesOfRestore) {
            put(&database, &batch).map_err(|error| DumpFault::Io(open::io_error(error)))?;
        }
        count += batch.len() as u64;
        batch.clear();
    }
    moves::own(&database, owner).map_err(|error| DumpFault::Io(open::io_error(error)))?;
    database.close().map_err(|error| DumpFault::Io(open::io_error(error)))?;
    Ok(count)
}

fn check_format(key: &[u8], value: &[u8]) -> Result<(), DumpFault> {
    match (key == FORMAT_KEY, value.try_into().map(u32::from_be_bytes)) {
        (false, _) | (true, Ok(1..=MAP_FORMAT)) => Ok(()),
        (true, Ok(newer)) if newer > MAP_FORMAT => Err(DumpFault::Newer(newer)),
        (true, _) => Err(DumpFault::Damaged("it does not state its format")),
    }
}

fn put(database: &Database, batch: &[(Vec<u8>, Vec<u8>)]) -> Result<(), redb::Error> {
    let mut write = database.begin_write()?;
    write.set_two_phase_commit(true);
    {
        let mut map = write.open_table(MAP)?;
        for (key, value) in batch {
            map.insert(&key[..], &value[..])?;
        }
    }
    write.commit()?;
    Ok(())
}
