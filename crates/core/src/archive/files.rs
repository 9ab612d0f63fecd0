//! The port to the storage of archive files: a folder, or a bucket of an object store.

use std::fmt::Display;

use async_trait::async_trait;
use bytes::Bytes;

/// Why an archive file cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct FileError {
    /// The file or the folder, as an operator would look for it.
    pub place: String,
    /// What happened.
    pub reason: String,
}

impl FileError {
    /// Creates an error about a file or a folder.
    pub fn new(place: impl Into<String>, reason: impl Display) -> Self {
        Self { place: place.into(), reason: reason.to_string() }
    }
}

/// The storage of archive files. Paths are relative, with `/` between their parts.
///
/// - **A file exists entirely or not at all.** A file whose write was interrupted is either not listed, or its content differs from what
///   was put. The archive reads each file back before it relies on it.
/// - **A completed call is durable.** A file that was put or renamed survives power loss.
#[async_trait]
pub trait ArchiveFiles: Send + Sync + 'static {
    /// Returns the location of the files, for people.
    fn place(&self) -> String;

    /// Stores a file and replaces one with the same path. After a failure, removes what was written, if possible.
    ///
    /// # Errors
    /// See [`FileError`].
    async fn put(&self, path: &str, content: Bytes) -> Result<(), FileError>;

    /// Returns the paths of all files below a folder, in ascending order; empty if the folder does not exist.
    ///
    /// # Errors
    /// See [`FileError`].
    async fn list(&self, folder: &str) -> Result<Vec<String>, FileError>;

    /// Returns the content of a file.
    ///
    /// # Errors
    /// See [`FileError`]; also if the file does not exist.
    async fn read(&self, path: &str) -> Result<Bytes, FileError>;

    /// Deletes a file. Succeeds if the file does not exist.
    ///
    /// # Errors
    /// See [`FileError`].
    async fn delete(&self, path: &str) -> Result<(), FileError>;

    /// Checks that a file can be renamed to this path, as far as that can be known in advance.
    ///
    /// # Errors
    /// See [`FileError`].
    async fn prepare(&self, path: &str) -> Result<(), FileError>;

    /// Renames a file. If that fails or is interrupted, the file has its earlier path, or both; repeating the call completes it.
    ///
    /// # Errors
    /// See [`FileError`].
    async fn rename(&self, from: &str, to: &str) -> Result<(), FileError>;
}
