//! Credentials: who may access a server, and what they may do.

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

/// The default tenant whose records hold the credentials and whose log holds the administrative acts.
pub const SYSTEM_TENANT: &str = "system";

/// The credentials of a store.
///
/// A credential is an API key with a [`Grant`]. Its secret consists of 256 random bits, which are returned once, when it is created. Only
/// their SHA-256 is stored. A revoked credential remains in the list.
#[async_trait]
pub trait Credentials: Send + Sync + 'static {
    /// Creates a credential and returns it with its key, which cannot be read again.
    ///
    /// # Errors
    /// `invalid_credential` for an invalid name, role, tenant or time; otherwise see [`CredentialError`].
    async fn create(&self, new: NewCredential) -> Result<CreatedCredential, CredentialError>;

    /// Lists credentials by id: at most `limit` of those after `after`.
    ///
    /// # Errors
    /// See [`CredentialError`].
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<CredentialPage, CredentialError>;

    /// Returns one credential, without its key.
    ///
    /// # Errors
    /// See [`CredentialError`].
    async fn get(&self, id: &str) -> Result<Credential, CredentialError>;

    /// Revokes a credential. Revoking it again changes nothing. Every process that uses the store refuses its key within seconds.
    ///
    /// # Errors
    /// See [`CredentialError`].
    async fn revoke(&self, id: &str, reason: RevokeBody) -> Result<Credential, CredentialError>;
}
