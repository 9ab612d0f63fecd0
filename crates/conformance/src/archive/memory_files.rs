//! Archive files in memory, which a case can damage.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annals_core::archive::{ArchiveFiles, FileError};
use async_trait::async_trait;
use bytes::Bytes;

use crate::ManualClock;

/// Files in memory. All holders of a reference see the same files, as processes see those of one bucket.
#[derive(Default)]
pub(crate) struct MemoryFiles {
    files: Mutex<BTreeMap<String, Bytes>>,
    loses_the_end: AtomicBool,
    refuses_renames: AtomicBool,
    /// The clock that the next listing advances before it fails.
    outage: Mutex<Option<Arc<ManualClock>>>,
}

impl MemoryFiles {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Sets whether files are stored without their last byte, as after an interrupted upload.
    pub fn lose_the_end(&self, loses: bool) {
        self.loses_the_end.store(loses, Ordering::SeqCst);
    }

    /// Sets whether renames fail, as in a bucket whose credentials do not allow copies.
    pub fn refuse_renames(&self, refuses: bool) {
        self.refuses_renames.store(refuses, Ordering::SeqCst);
    }

    /// Makes the next listing fail, after a minute of this clock.
    pub fn fail_after_a_minute(&self, clock: Arc<ManualClock>) {
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner) = Some(clock);
    }

    /// Changes one byte of every file.
    pub fn damage(&self) {
        for content in self.held().values_mut() {
            let mut bytes = content.to_vec();
            if let Some(first) = bytes.first_mut() {
                *first ^= 1;
            }
            *content = bytes.into();
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ArchiveFiles for MemoryFiles {
    fn place(&self) -> String {
        "memory".to_owned()
    }

    async fn put(&self, path: &str, content: Bytes) -> Result<(), FileError> {
        let lost = usize::from(self.loses_the_end.load(Ordering::SeqCst));
        let stored = content.slice(..content.len().saturating_sub(lost));
        self.held().insert(path.to_owned(), stored);
        Ok(())
    }

    async fn list(&self, folder: &str) -> Result<Vec<String>, FileError> {
        let outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(clock) = outage {
            clock.advance_millis(60_000);
            return Err(FileError::new(folder, "no answer"));
        }
        let beginning = format!("{folder}/");
        Ok(self.held().keys().filter(|path| path.starts_with(&beginning)).cloned().collect())
    }

    async fn read(&self, path: &str) -> Result<Bytes, FileError> {
        self.held().get(path).cloned().ok_or_else(|| FileError::new(path, "there is no such file"))
    }

    async fn delete(&self, path: &str) -> Result<(), FileError> {
        self.held().remove(path);
        Ok(())
    }

    async fn prepare(&self, _: &str) -> Result<(), FileError> {
        Ok(())
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        if self.refuses_renames.load(Ordering::SeqCst) {
            return Err(FileError::new(to, "access denied"));
        }
        let mut files = self.held();
        let content = files.remove(from).ok_or_else(|| FileError::new(from, "there is no such file"))?;
        files.insert(to.to_owned(), content);
        Ok(())
    }
}
