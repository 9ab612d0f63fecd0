//! A new map, made of a file of entries.

use std::sync::Arc;

use redb::Database;

use super::dump::{DumpFault, Entries};
use super::open::{self, FORMAT_KEY, MAP, MAP_FORMAT};
use crate::Options;
use crate::disk::Disk;
use crate::options::SeededBug;

/// Bytes of keys and values that are put in by one commit.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Makes the map of a folder that has none, of a file of entries; answers how many. It is durable then, and was closed.
///
/// # Errors
/// What is wrong with the file; [`DumpFault::Io`] when the map cannot be written. What is there then is no whole map.
pub(crate) fn make(
    disk: &Arc<dyn Disk>,
    dir: &str,
    mut entries: Entries<'_>,
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
    database.close().map_err(|error| DumpFault::Io(open::io_error(error)))?;
    Ok(count)
}

fn check_format(key: &[u8], value: &[u8]) -> Result<(), DumpFault> {
    match (key == FORMAT_KEY, value.try_into().map(u32::from_be_bytes)) {
        (false, _) | (true, Ok(1..=MAP_FORMAT)) => Ok(()),
        (true, Ok(newer)) if newer > MAP_FORMAT => Err(DumpFault::Newer(newer)),
        (true, _) => Err(DumpFault::Damaged("it holds no format")),
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
