//! Archive files as objects of a bucket, on S3 or on a server with an S3-compatible API.
//!
//! ```text
//!  put, at most 8 MiB ─▶ one request: the object is there whole or not at all
//!  put, longer        ─▶ begin ─▶ parts ─▶ complete; aborted where one of them fails
//!  rename             ─▶ copy ─▶ is the copy as long as the original? ─▶ delete
//! ```

use std::sync::Arc;
use std::time::Duration;

use annals_core::archive::{ArchiveFiles, FileError};
use annals_core::{Code, OpenError};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, GetOptions, MultipartUpload, ObjectStore, PutMultipartOptions, PutOptions, RetryConfig,
};

use super::bucket_line::Connector;

/// Longer files are uploaded in parts of this size.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// The longest key that S3 accepts, in bytes.
const KEY_BYTES_MAX: usize = 1_024;
/// The number of retries of a request, and the time limit for all of them. After that, the archive itself retries.
const RETRIES: (usize, Duration) = (3, Duration::from_secs(30));

/// A bucket, or a prefix in one, that holds archive files.
pub(crate) struct BucketFiles {
    objects: Arc<dyn ObjectStore>,
    prefix: String,
    place: String,
}

impl BucketFiles {
    /// Opens the files below `s3://BUCKET/PREFIX`. Credentials and the region come from the environment: from variables such as
    /// `AWS_ACCESS_KEY_ID` and `AWS_REGION`, from a web identity (`AWS_WEB_IDENTITY_TOKEN_FILE`), or from the instance or container.
    /// Neither `~/.aws` nor `AWS_PROFILE` is read. Sends nothing yet.
    ///
    /// # Errors
    /// `invalid_config` if the URL does not have this form, or if variables contradict each other.
    pub fn open(url: &str) -> Result<Self, OpenError> {
        let wrong = |why: &str| {
            let shown = crate::shown_url(url);
            // What follows may contain a secret.
            let shown = shown.split(['?', '#']).next().unwrap_or_default();
            let message = format!("{shown:?} is not a place for archive files: {why}; write s3://BUCKET/PREFIX");
            OpenError::new(Code::InvalidConfig, message)
        };
        let rest = url.strip_prefix("s3://").ok_or_else(|| wrong("it does not begin with s3://"))?;
        // The location of a file is visible to every reader of the tenant, so it must not contain settings.
        if rest.contains(['?', '#']) {
            return Err(wrong("it has a query or a fragment"));
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() || bucket.contains(['@', ':']) {
            return Err(wrong("it has no bucket"));
        }
        let prefix = prefix.trim_matches('/');
        Path::parse(prefix).map_err(|error| wrong(&error.to_string()))?;
        let settings = AmazonS3Builder::from_env().with_bucket_name(bucket);
        let objects = reached(settings).map_err(|error| wrong(&error.to_string()))?;
        Ok(Self::of(objects, prefix, url.trim_end_matches('/')))
    }

    fn of(objects: Arc<dyn ObjectStore>, prefix: &str, place: &str) -> Self {
        Self { objects, prefix: prefix.to_owned(), place: place.to_owned() }
    }

    /// Returns the error for a file. It is visible to every reader of the tenant.
    fn failed(&self, path: &str, error: &dyn std::error::Error) -> FileError {
        tracing::debug!(path, %error, "a request to the archive's bucket failed");
        FileError::new(format!("{}/{path}", self.place), shown_reason(&error.to_string()))
    }

    /// Returns the object key of a file.
    fn key(&self, path: &str) -> Result<Path, FileError> {
        let key = if self.prefix.is_empty() { path.to_owned() } else { format!("{}/{path}", self.prefix) };
        // Not encoded again: event type names in it are percent-encoded already.
        Path::parse(key).map_err(|error| self.failed(path, &error))
    }

    /// Returns the length of a file in bytes.
    async fn length(&self, path: &str) -> Result<u64, FileError> {
        let options = GetOptions::new().with_head(true);
        let found = self.objects.get_opts(&self.key(path)?, options).await;
        found.map(|found| found.meta.size).map_err(|error| self.failed(path, &error))
    }

    async fn put_in_parts(&self, path: &str, content: &Bytes, part: usize) -> Result<(), FileError> {
        let begun = self.objects.put_multipart_opts(&self.key(path)?, PutMultipartOptions::default()).await;
        let mut upload = begun.map_err(|error| self.failed(path, &error))?;
        uploaded(&mut *upload, content, part).await.map_err(|error| self.failed(path, &error))
    }
}

/// Returns the part of an error that readers may see. The error ends with the body of the response, which names accounts, users and
/// servers. Of the body, only the S3 error code is shown, such as `AccessDenied`.
fn shown_reason(error: &str) -> &str {
    let code = error.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    match (code, error.split_once('<')) {
        (Some((code, _)), _) => code,
        (None, Some((before, _))) => before.trim_end_matches([' ', ':']),
        (None, None) => error,
    }
}

/// Builds the client of a bucket with these settings.
fn reached(settings: AmazonS3Builder) -> object_store::Result<Arc<dyn ObjectStore>> {
    let retries = RetryConfig { max_retries: RETRIES.0, retry_timeout: RETRIES.1, ..RetryConfig::default() };
    let settings = settings.with_http_connector(Connector).with_retry(retries);
    // Some servers do not support bulk deletes, and only one object at a time is deleted here.
    Ok(Arc::new(settings.with_disable_bulk_delete(true).build()?))
}

/// Uploads a file in parts. If one part fails, the uploaded parts are removed.
async fn uploaded(upload: &mut dyn MultipartUpload, content: &Bytes, part: usize) -> object_store::Result<()> {
    let sent = sent_in_parts(&mut *upload, content, part).await;
    if sent.is_err()
        && let Err(error) = upload.abort().await
    {
        tracing::warn!(%error, "parts of an upload stay in the bucket until its rules remove them");
    }
    sent
}

async fn sent_in_parts(upload: &mut dyn MultipartUpload, content: &Bytes, part: usize) -> object_store::Result<()> {
    let mut from = 0;
    while from < content.len() {
        let until = content.len().min(from + part);
        upload.put_part(content.slice(from..until).into()).await?;
        from = until;
    }
    upload.complete().await.map(|_| ())
}

#[async_trait]
impl ArchiveFiles for BucketFiles {
    fn place(&self) -> String {
        self.place.clone()
    }

    async fn put(&self, path: &str, content: Bytes) -> Result<(), FileError> {
        if content.len() > PART_BYTES {
            return self.put_in_parts(path, &content, PART_BYTES).await;
        }
        let put = self.objects.put_opts(&self.key(path)?, content.into(), PutOptions::default()).await;
        put.map(|_| ()).map_err(|error| self.failed(path, &error))
    }

    async fn list(&self, folder: &str) -> Result<Vec<String>, FileError> {
        let key = self.key(folder)?;
        let mut objects = self.objects.list(Some(&key));
        let mut found = Vec::new();
        while let Some(object) = objects.try_next().await.map_err(|error| self.failed(folder, &error))? {
            let location: &str = object.location.as_ref();
            let path = location.strip_prefix(&self.prefix).unwrap_or(location);
            found.push(path.trim_start_matches('/').to_owned());
        }
        found.sort();
        Ok(found)
    }

    async fn read(&self, path: &str) -> Result<Bytes, FileError> {
        let found = self.objects.get_opts(&self.key(path)?, GetOptions::new()).await;
        let found = found.map_err(|error| self.failed(path, &error))?;
        found.bytes().await.map_err(|error| self.failed(path, &error))
    }

    async fn delete(&self, path: &str) -> Result<(), FileError> {
        let key = self.key(path)?;
        let mut deleted = self.objects.delete_stream(futures_util::stream::iter([Ok(key)]).boxed());
        loop {
            match deleted.try_next().await {
                Ok(Some(_)) => {}
                Ok(None) | Err(object_store::Error::NotFound { .. }) => return Ok(()),
                Err(error) => return Err(self.failed(path, &error)),
            }
        }
    }

    async fn prepare(&self, path: &str) -> Result<(), FileError> {
        let key = self.key(path)?;
        let key: &str = key.as_ref();
        if key.len() > KEY_BYTES_MAX {
            let reason = format!("its key has {} bytes, but a bucket allows at most {KEY_BYTES_MAX}", key.len());
            return Err(FileError::new(format!("{}/{path}", self.place), reason));
        }
        Ok(())
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        let length = self.length(from).await?;
        let options = CopyOptions::new().with_mode(CopyMode::Overwrite);
        let copied = self.objects.copy_opts(&self.key(from)?, &self.key(to)?, options).await;
        copied.map_err(|error| self.failed(to, &error))?;
        let copy = self.length(to).await?;
        if copy != length {
            let reason = format!("the copy has {copy} bytes, and the original {length}; the original is kept");
            return Err(FileError::new(format!("{}/{to}", self.place), reason));
        }
        self.delete(from).await
    }
}

#[cfg(test)]
mod tests;
