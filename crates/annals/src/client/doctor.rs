//! What is wrong with a server.

use annals_core::ReadError;
use annals_core::doctor::Diagnosis;

use super::Client;

impl Client {
    /// Has the server examine its store, what is below it and everything that runs on it. It needs the role of an administrator.
    ///
    /// # Errors
    /// `forbidden` for other credentials; `unreachable`.
    pub async fn diagnose(&self) -> Result<Diagnosis, ReadError> {
        self.get("/v1/doctor".to_owned()).await
    }
}
