//! The archive files of a process that is killed at one of its writes.

use std::sync::Arc;

use annals_core::archive::{ArchiveFiles, FileError};
use async_trait::async_trait;
use bytes::Bytes;

use crate::mortal::Life;

/// Files whose changes are steps of a life.
pub(crate) struct MortalFiles {
    pub files: Arc<dyn ArchiveFiles>,
    pub life: Arc<Life>,
    /// Whether a rename is one step, as in a folder. An object store copies the file and then deletes the original.
    pub renames_at_once: bool,
}

fn dead(path: &str) -> FileError {
    FileError::new(path, "the process is dead")
}

impl MortalFiles {
    async fn step(&self, path: &str, change: impl Future<Output = Result<(), FileError>>) -> Result<(), FileError> {
        self.life.step(change).await.unwrap_or_else(|| Err(dead(path)))
    }

    fn lives(&self, path: &str) -> Result<(), FileError> {
        if self.life.is_over() { Err(dead(path)) } else { Ok(()) }
    }
}

#[async_trait]
impl ArchiveFiles for MortalFiles {
    fn place(&self) -> String {
        self.files.place()
    }

    async fn put(&self, path: &str, content: Bytes) -> Result<(), FileError> {
        self.step(path, self.files.put(path, content)).await
    }

    async fn list(&self, folder: &str) -> Result<Vec<String>, FileError> {
        self.lives(folder)?;
        self.files.list(folder).await
    }

    async fn read(&self, path: &str) -> Result<Bytes, FileError> {
        self.lives(path)?;
        self.files.read(path).await
    }

    async fn delete(&self, path: &str) -> Result<(), FileError> {
        self.step(path, self.files.delete(path)).await
    }

    async fn prepare(&self, path: &str) -> Result<(), FileError> {
        self.lives(path)?;
        self.files.prepare(path).await
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        if self.renames_at_once {
            return self.step(to, self.files.rename(from, to)).await;
        }
        let content = self.read(from).await?;
        self.put(to, content).await?;
        self.delete(from).await
    }
}
