//! Credentials: who may reach a server, and what for.

mod error;
mod grant;
mod key;
mod rate;
mod stored;
mod wire;

use async_trait::async_trait;

pub use error::CredentialError;
pub use grant::{EVERY, Grant, Role};
pub use key::{ApiKey, same_bytes};
pub use rate::{Bucket, Rate};
pub use stored::{CREDENTIALS, CredentialRecord};
pub use wire::{CreatedCredential, Credential, CredentialPage, CredentialState, NewCredential, RevokeBody};

/// The tenant whose records hold the credentials and whose log holds the administrative acts, unless another one is configured.
pub const SYSTEM_TENANT: &str = "system";

/// The credentials of a store.
///
/// A credential is an API key with a [`Grant`]. Its secret is 256 random bits, which are returned once, when it is created; what is stored
/// is their SHA-256. A revoked credential stays listed.
#[async_trait]
pub trait Credentials: Send + Sync + 'static {
    /// Creates a credential and returns it with its key. The key cannot be read again.
    ///
    /// # Errors
    /// `invalid_credential` for a name, role, tenant or time that is not allowed; else see [`CredentialError`].
    async fn create(&self, new: NewCredential) -> Result<CreatedCredential, CredentialError>;

    /// Lists credentials by id: those after `after`, at most `limit`.
    ///
    /// # Errors
    /// See [`CredentialError`].
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<CredentialPage, CredentialError>;

    /// Returns one credential, without its key.
    ///
    /// # Errors
    /// See [`CredentialError`].
    async fn get(&self, id: &str) -> Result<Credential, CredentialError>;

    /// Revokes a credential. Revoking it again changes nothing. Every process on the store refuses its key within seconds.
    ///
    /// # Errors
    /// See [`CredentialError`].
    async fn revoke(&self, id: &str, reason: RevokeBody) -> Result<Credential, CredentialError>;
}
