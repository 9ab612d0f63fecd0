//! Readiness of a server.

use annals_core::ReadError;

use super::Client;

impl Client {
    /// Checks whether every log accepts commits and every processor advances. Returns the answer of `GET /health/ready`, which needs no
    /// credential.
    ///
    /// # Errors
    /// `not_ready` with the reason; `unreachable`.
    pub async fn ready(&self) -> Result<serde_json::Value, ReadError> {
        self.get("/health/ready".to_owned()).await
    }
}
