//! The callers: owners of executions, and administrators.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use annals::Code;
use annals::server::Problem;
use axum::http::{HeaderMap, header};
use serde::Deserialize;

/// The user of requests that name none.
const NOBODY_NAMED: &str = "demo";
/// The user who may see everything if users name themselves.
const ADMIN: &str = "admin";
/// The header in which users name themselves.
const USER_HEADER: &str = "x-user";
const BYTES_MAX: usize = 256;

/// The users of the service. By default every caller on this machine is trusted, and names itself in the header `X-User`; with tokens,
/// a caller sends `Authorization: Bearer TOKEN`.
#[derive(Debug, Clone, Default)]
pub struct Users {
    by_token: Option<BTreeMap<String, Caller>>,
}

/// A user in a file of users.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
    token: String,
    #[serde(default)]
    admin: bool,
}

impl Users {
    /// Reads users from a file: a JSON array of `{"name", "token", "admin"?}`.
    ///
    /// # Errors
    /// The file cannot be read, or has another form.
    pub fn read(path: &Path) -> io::Result<Self> {
        let named: Vec<Named> = serde_json::from_slice(&std::fs::read(path)?)?;
        Ok(Self::known(named.into_iter().map(|it| (it.name, it.token, it.admin))))
    }

    /// Returns users by name and token. The third value says whether the user is an administrator.
    pub fn known(users: impl IntoIterator<Item = (String, String, bool)>) -> Self {
        let by_token = users.into_iter().map(|(user, token, admin)| (token, Caller { user, admin })).collect();
        Self { by_token: Some(by_token) }
    }

    /// Returns the caller of a request.
    ///
    /// # Errors
    /// 401 without a known token; 422 for an invalid name.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let Some(by_token) = &self.by_token else {
            let user = text(USER_HEADER).unwrap_or(NOBODY_NAMED);
            if user.is_empty() || user.len() > BYTES_MAX {
                return Err(Problem::query(
                    "X-User",
                    format!("has {} bytes; 1 to {BYTES_MAX} are allowed", user.len()),
                ));
            }
            return Ok(Caller { user: user.to_owned(), admin: user == ADMIN });
        };
        let token = text(header::AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
        token.and_then(|token| by_token.get(token)).cloned().ok_or_else(|| {
            let advice = "Send the token of a user as `Authorization: Bearer TOKEN`.";
            Problem::new(Code::Unauthenticated, "no user has this token").advise(advice)
        })
    }
}

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) user: String,
    pub(crate) admin: bool,
}

impl Caller {
    /// Refuses access to what belongs to another user. What has no owner is open to everybody.
    pub(crate) fn may_see(&self, owner: &str) -> Result<(), Problem> {
        if self.admin || owner.is_empty() || owner == self.user {
            return Ok(());
        }
        Err(forbidden(format!("{:?} may not see the executions of another user", self.user)))
    }

    /// Refuses everybody but administrators.
    pub(crate) fn must_be_admin(&self) -> Result<(), Problem> {
        if self.admin {
            return Ok(());
        }
        Err(forbidden(format!("{:?} is not an administrator", self.user)))
    }
}

fn forbidden(message: String) -> Problem {
    Problem::new(Code::Forbidden, message).advise("Call as the owner, or as an administrator.")
}
