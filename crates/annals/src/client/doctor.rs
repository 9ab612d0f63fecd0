//! Diagnosis of a server.

use annals_core::ReadError;
use annals_core::doctor::Diagnosis;

use super::Client;

impl Client {
    /// Has the server examine its store, the disk or deployment below it, and everything that runs on it. Requires the role `admin`.
    ///
    /// # Errors
    /// `forbidden` for a credential without that role; `unreachable`.
    pub async fn diagnose(&self) -> Result<Diagnosis, ReadError> {
        self.get("/v1/doctor".to_owned()).await
    }
}
