//! Derives request ids for lines that have none: the same line of the same file always gets the same id.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use annals::Code;
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::lines::unreadable;

/// The source of request ids.
pub enum RequestIds {
    /// `PREFIX:<line>`, with a prefix from the command line.
    Prefix(String),
    /// The same, with a prefix derived from the digest of the file.
    OfFile(String),
    /// `import:<digest>:<line>`. The first line that needs an id reads the whole file for its digest.
    Digest(PathBuf),
    /// No ids can be derived, because the input can be read only once.
    None,
}

impl RequestIds {
    /// Returns the ids for an input. Without a prefix, only a regular file has any.
    pub fn new(path: &Path, prefix: Option<&str>) -> Self {
        match prefix {
            Some(prefix) => Self::Prefix(prefix.to_owned()),
            None if path.is_file() => Self::Digest(path.to_owned()),
            None => Self::None,
        }
    }

    /// Returns the prefix that was derived from the file, which changes when the file is changed.
    pub fn made_prefix(&self) -> Option<&str> {
        match self {
            Self::OfFile(prefix) => Some(prefix),
            _ => None,
        }
    }

    /// Returns the request id of a line.
    pub async fn of_line(&mut self, number: u64) -> Result<String, Failure> {
        if let Self::Digest(path) = self {
            let path = std::mem::take(path);
            let digest = tokio::task::spawn_blocking(move || digest(&path).map_err(|error| unreadable(&path, &error)))
                .await
                .map_err(|error| Failure::internal(format!("the digest of the file: {error}")))??;
            *self = Self::OfFile(format!("import:{digest}"));
        }
        match self {
            Self::Prefix(prefix) | Self::OfFile(prefix) => Ok(format!("{prefix}:{number}")),
            _ => {
                let message = "the line has no request_id, and none can be derived, because this input can be read only once; add --id-prefix, or import a file";
                Err(Failure::new(Code::InvalidBody, message))
            }
        }
    }
}

/// Returns the SHA-256 of a file, shortened to its first 64 bits, in hexadecimal.
fn digest(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => hasher.update(&buffer[..read]),
        }
    }
    Ok(hasher.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect())
}
