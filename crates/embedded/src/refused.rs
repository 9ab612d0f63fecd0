//! Errors for stores that cannot be opened or written, derived from I/O errors.

use std::io;

use annals_core::{Code, OpenError, StoreError};

use crate::format::FORMAT;

pub(crate) fn newer_format(name: &str, found: u32) -> OpenError {
    let message = format!(
        "{name} has format {found}, and this version reads up to {}; use the version that wrote it or a later one",
        FORMAT
    );
    OpenError::new(Code::NewerFormat, message)
}

pub(crate) fn cannot_open(what: &str, error: &io::Error) -> OpenError {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => OpenError::new(
            Code::StoreReadOnly,
            format!("{what} cannot be written ({error}); give this process write access to the data folder"),
        ),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => OpenError::new(
            Code::DiskFull,
            format!("there is no room to open {what} ({error}); free some space and open it again"),
        ),
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => OpenError::new(
            Code::NotAStore,
            format!("{what} is not a folder ({error}); name an empty or new folder, or the folder of a store"),
        ),
        _ if is_out_of_files(error) => OpenError::new(
            Code::TooManyFiles,
            format!("{what} cannot be opened: {error}; raise the limit of open files and open it again"),
        ),
        _ => OpenError::new(Code::ReadFailed, format!("{what} cannot be opened: {error}")),
    }
}

/// Returns whether the disk has no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns whether the process or the machine has no file descriptor left.
pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Returns the error for a write of which nothing was written, so that a retry may succeed.
pub(crate) fn not_begun(what: &str, error: &io::Error) -> StoreError {
    let why = format!("{what}: {error}");
    match error {
        full if is_full(full) => StoreError::DiskFull(why),
        short if is_out_of_files(short) => StoreError::other(
            Code::TooManyFiles,
            format!(
                "no file can be opened, and nothing was stored ({why}); retry in a moment, or raise the limit of open files"
            ),
        ),
        _ => StoreError::other(
            Code::StoreFailed,
            format!("nothing was stored, because there is nowhere to store it ({why}); check the disk and retry"),
        ),
    }
}
