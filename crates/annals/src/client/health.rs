//! Whether a server is ready.

use annals_core::ReadError;

use super::Client;

impl Client {
    /// Asks whether every log takes commits and every processor advances: the answer of `GET /health/ready`, which needs no credential.
    ///
    /// # Errors
    /// `not_ready` with the reason; `unreachable`.
    pub async fn ready(&self) -> Result<serde_json::Value, ReadError> {
        self.get("/health/ready".to_owned()).await
    }
}
