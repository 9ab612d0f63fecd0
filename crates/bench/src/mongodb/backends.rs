//! The two backends of a comparison: the embedded store on a disk beside the program, and the store on the mongod.

use std::sync::Arc;

use annals_core::Store;
use annals_embedded::disk::RealDisk;
use annals_embedded::{EmbeddedStore, Options};
use tempfile::TempDir;

use super::{Opened, Place, text};

/// The place of a store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    Embedded,
    MongoDb,
}

impl Backend {
    /// Returns both, in an order that alternates with the round.
    pub fn in_turn(round: usize) -> [Self; 2] {
        if round.is_multiple_of(2) { [Self::Embedded, Self::MongoDb] } else { [Self::MongoDb, Self::Embedded] }
    }

    /// Returns the prefix of its figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::MongoDb => "MongoDB",
        }
    }

    /// Opens a new, empty store.
    pub async fn open(self, place: &Place) -> Result<Backed, String> {
        match self {
            Self::Embedded => {
                let program = std::env::current_exe().map_err(text)?;
                let folder = program.parent().ok_or("the program is in no folder")?;
                let folder = tempfile::tempdir_in(folder).map_err(text)?;
                let disk = Arc::new(RealDisk::new(folder.path().join("store")));
                Ok(Backed::Embedded(EmbeddedStore::open(disk, Options::default()).map_err(text)?, folder))
            }
            Self::MongoDb => Ok(Backed::MongoDb(place.store("annals_bench_both").await?)),
        }
    }
}

/// An open store of either kind.
pub enum Backed {
    Embedded(EmbeddedStore, TempDir),
    MongoDb(Opened),
}

impl Backed {
    pub fn store(&self) -> &dyn Store {
        match self {
            Self::Embedded(store, _) => store,
            Self::MongoDb(opened) => &opened.store,
        }
    }

    /// Closes the store and removes all its data.
    pub async fn close(self, place: &Place) -> Result<(), String> {
        match self {
            Self::Embedded(store, folder) => {
                store.close().await;
                folder.close().map_err(text)
            }
            Self::MongoDb(opened) => place.close(opened).await,
        }
    }
}
