//! The credentials and the audit log of a server, over HTTP, behind the same port as credentials in this process.

use annals_core::audit::AuditPage;
use annals_core::credentials::{
    CreatedCredential, Credential, CredentialError, CredentialPage, Credentials, NewCredential, RevokeBody,
};
use annals_core::{Code, Invalid, ReadError, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::Method;
use serde::de::DeserializeOwned;

use super::answers::{self, problem, unknown};
use super::http::Answer;
use super::{Client, Path};

/// The credentials of a server. It keeps the contract of [`Credentials`]. The client needs a credential with the role `admin` for every
/// tenant.
#[derive(Clone)]
pub struct CredentialsClient(Client);

impl Client {
    /// Returns the credentials of the server, over the same connections.
    pub fn credentials(&self) -> CredentialsClient {
        CredentialsClient(self.clone())
    }
}

impl CredentialsClient {
    async fn ask<T: DeserializeOwned>(&self, method: Method, path: Path, body: String) -> Result<T, CredentialError> {
        let json = "application/json";
        let answer = self.0.http.ask(method, &path.done(), Bytes::from(body), json, json).await;
        let answer = answer.map_err(StoreError::Unreachable)?;
        if !answer.status.is_success() {
            return Err(refused(&answer));
        }
        // The message does not quote a malformed answer, because it may contain a key.
        serde_json::from_slice(&answer.body).map_err(|error| {
            unknown(&format!("{}, line {} column {}", answer.status, error.line(), error.column())).into()
        })
    }

    /// Lists administrative acts, newest first: those before the cursor of an earlier page, at most `limit`.
    ///
    /// # Errors
    /// See [`CredentialError`].
    pub async fn audit(&self, cursor: Option<&str>, limit: usize) -> Result<AuditPage, CredentialError> {
        let path = Path::below(&["audit"]).maybe("cursor", cursor).number("limit", limit);
        self.ask(Method::GET, path, String::new()).await
    }
}

fn json(value: &impl serde::Serialize) -> String {
    // Strings and numbers always serialise to JSON.
    serde_json::to_string(value).unwrap_or_default()
}

fn refused(answer: &Answer) -> CredentialError {
    let (code, problem) = match problem(answer) {
        Ok(problem) => problem,
        Err(unknown) => return unknown.into(),
    };
    match code {
        Code::UnknownCredential => CredentialError::Unknown(problem.name.unwrap_or_default().into()),
        Code::Unauthenticated | Code::Forbidden | Code::RateLimited => {
            CredentialError::Refused { code, message: problem.into_reason() }
        }
        code => match answers::other::<ReadError>(code, problem) {
            ReadError::Store(error) => error.into(),
            ReadError::Invalid(invalid) => invalid.into(),
            other => Invalid::new(code, "", other.to_string()).into(),
        },
    }
}

#[async_trait]
impl Credentials for CredentialsClient {
    async fn create(&self, new: NewCredential) -> Result<CreatedCredential, CredentialError> {
        new.validate()?;
        self.ask(Method::POST, Path::below(&["credentials"]), json(&new)).await
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<CredentialPage, CredentialError> {
        let path = Path::below(&["credentials"]).maybe("cursor", after).number("limit", limit);
        self.ask(Method::GET, path, String::new()).await
    }

    async fn get(&self, id: &str) -> Result<Credential, CredentialError> {
        self.ask(Method::GET, Path::below(&["credentials", id]), String::new()).await
    }

    async fn revoke(&self, id: &str, reason: RevokeBody) -> Result<Credential, CredentialError> {
        self.ask(Method::DELETE, Path::below(&["credentials", id]), json(&reason)).await
    }
}
