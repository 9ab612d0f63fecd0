//! The port to the place where files of the archive are stored: a folder, or a bucket of an object store.

use std::fmt::Display;

use async_trait::async_trait;
use bytes::Bytes;

/// Why a file of the archive cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct FileError {
    /// The file or the folder, as people find it.
    pub place: String,
    /// What happened.
    pub reason: String,
}

impl FileError {
    /// An error about a file or a folder.
    pub fn new(place: impl Into<String>, reason: impl Display) -> Self {
        Self { place: place.into(), reason: reason.to_string() }
    }
}

/// Where files of the archive are stored. Paths are relative, with `/` between their parts.
///
/// - **A file is there whole or not at all.** A file that could not be written to its end is not listed, or its content is not what was
///   put; the archive reads it back before it relies on it.
/// - **What was answered stays.** A file that was put or renamed is there after a power loss.
#[async_trait]
pub trait ArchiveFiles: Send + Sync + 'static {
    /// Returns where the files are, for people.
    fn place(&self) -> String;

    /// Stores a file, in place of one with the same path. What a failed attempt leaves behind is removed if that is possible.
    ///
    /// # Errors
    /// See [`FileError`].
    async fn put(&self, path: &str, content: Bytes) -> Result<(), FileError>;

    /// Returns the paths of all files below a folder, in ascending order; none if there is no such folder.
    ///
    /// # Errors
    /// See [`FileError`].
    async fn list(&self, folder: &str) -> Result<Vec<String>, FileError>;

    /// Returns the content of a file.
    ///
    /// # Errors
    /// See [`FileError`]; also if there is no such file.
    async fn read(&self, path: &str) -> Result<Bytes, FileError>;

    /// Deletes a file. One that does not exist is deleted already.
    ///
    /// # Errors
    /// See [`FileError`].
    async fn delete(&self, path: &str) -> Result<(), FileError>;

    /// Makes sure that a file can be renamed to this path, as far as that can be known before.
    ///
    /// # Errors
    /// See [`FileError`].
    async fn prepare(&self, path: &str) -> Result<(), FileError>;

    /// Gives a file another path. If that fails or is interrupted, the file has its earlier path, or both; renaming it again completes it.
    ///
    /// # Errors
    /// See [`FileError`].
    async fn rename(&self, from: &str, to: &str) -> Result<(), FileError>;
}
