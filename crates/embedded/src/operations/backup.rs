//! A backup: the durable part of every log of an open store, with a manifest to verify it.
//!
//! ```text
//! tenants/{tenant}/tenant-{incarnation}.json                         the tenant's identity and key
//! tenants/{tenant}/{scope}/{number}-{incarnation}-{bytes}.segment    the first bytes of a segment, up to the durable head
//! tenants/{tenant}/{scope}/{number}-{incarnation}-{bytes}.index      the index of a closed one
//! tenants/{tenant}/_engine/map-{hash}-{bytes}.entries                records and streams: the entries of the engine's map
//! manifest.json                                                      the heads, and each file's length and hash; written last
//! ```
//!
//! A backup is a tar archive (POSIX ustar, pax for long names), or the same files unpacked in a folder. File names contain the length. A
//! later backup into the same folder therefore adds what has grown beside the earlier files, and replaces the manifest once it is
//! complete.

mod archive;
mod leftovers;
mod manifest;
mod map;
mod receive;
mod restore;
mod take;

pub use leftovers::Leftovers;
pub use manifest::{LogManifest, Manifest, SegmentManifest, StoredFile, TenantManifest};
pub(crate) use map::MapImage;
pub use map::RestoredMap;
pub use receive::Receiver;
pub(crate) use restore::{INTERRUPTED, is_interrupted};
pub use restore::{Restore, Restored, RestoredLog, Source, restore};
pub(crate) use take::{Taking, TenantImage};

use annals_core::Code;

use super::OperationError;

fn invalid(message: impl Into<String>) -> OperationError {
    OperationError::new(Code::InvalidBackup, message)
}
