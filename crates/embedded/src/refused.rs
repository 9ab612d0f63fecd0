//! Why a store cannot be opened, from what the disk said.

use std::io;

use annals_core::{Code, OpenError};

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
        _ => OpenError::new(Code::ReadFailed, format!("{what} cannot be opened: {error}")),
    }
}
