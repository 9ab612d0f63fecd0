//! What a caller may do, and where.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::commit::valid_name;
use crate::{Code, Invalid};

/// The name that stands for every tenant, scope, event type or stream.
pub const EVERY: &str = "*";
/// The maximum number of tenants, and of scopes, of a grant.
const NAMES_MAX: usize = 1_000;
const NAME_BYTES_MAX: usize = 100;
/// The maximum number of event types of a grant. Each read of a restricted caller filters by all of them.
const EVENT_TYPES_MAX: usize = 100;
/// The maximum number of streams of a grant. A restricted caller that lists streams looks at each of them.
const STREAMS_MAX: usize = 100;

/// A role. Every role may read; a caller with several roles may do what any of them allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads events, records, snapshots and states.
    Reader,
    /// Also commits, writes records, and processes deliveries of handlers.
    Writer,
    /// Also defines handlers, filters and projections, and decides what happens after failures.
    Operator,
    /// May do everything. With every tenant, this includes operations on the whole store: backups, credentials and the audit log.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Reader, Self::Writer, Self::Operator, Self::Admin];

    /// Returns its name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Writer => "writer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| format!("{text:?} is not a role; the roles are reader, writer, operator and admin"))
    }
}

/// A caller's rights: its roles in these tenants and scopes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The roles.
    pub roles: Vec<Role>,
    /// The tenants; `*` stands for every declared tenant and must be the only entry.
    pub tenants: Vec<String>,
    /// The scopes that may be read; `*` stands for every scope and must be the only entry.
    pub scopes: Vec<String>,
    /// The event types that may be committed and read; `*` stands for every type and must be the only entry.
    #[serde(default = "every")]
    pub event_types: Vec<String>,
    /// The streams that may be read; `*` stands for every stream and must be the only entry. A grant of some streams allows nothing else.
    #[serde(default = "every")]
    pub streams: Vec<String>,
}

/// Returns the list that stands for every tenant, scope, event type or stream.
pub(super) fn every() -> Vec<String> {
    vec![EVERY.to_owned()]
}

impl Grant {
    /// Creates a grant of one role in every scope of these tenants.
    pub fn new(role: Role, tenants: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let tenants = tenants.into_iter().map(Into::into).collect();
        Self { roles: vec![role], tenants, scopes: every(), event_types: every(), streams: every() }
    }

    /// Checks that it names at least one role and one tenant, and that all names are valid.
    ///
    /// # Errors
    /// `invalid_credential`, with the field that breaks a rule.
    pub fn validate(&self) -> Result<(), Invalid> {
        if self.roles.is_empty() {
            return Err(invalid("roles", "is empty; give reader, writer, operator or admin"));
        }
        names("tenants", &self.tenants)?;
        names("scopes", &self.scopes)?;
        self.validate_event_types()?;
        self.validate_streams()
    }

    fn validate_event_types(&self) -> Result<(), Invalid> {
        let count = self.event_types.len();
        if count > EVENT_TYPES_MAX {
            return Err(invalid("event_types", &format!("has {count} names; at most {EVENT_TYPES_MAX} are allowed")));
        }
        names("event_types", &self.event_types)?;
        if self.covers_every_event_type() {
            return Ok(());
        }
        for (n, name) in self.event_types.iter().enumerate() {
            if let Err(fault) = valid_name("event_types", name) {
                return Err(invalid(&format!("event_types[{n}]"), &fault.message));
            }
        }
        // Operators' decisions concern events of any type.
        match self.roles.iter().all(|role| matches!(role, Role::Reader | Role::Writer)) {
            true => Ok(()),
            false => Err(invalid(
                "event_types",
                "restrict the roles reader and writer only; leave out event_types, or grant only these roles",
            )),
        }
    }

    fn validate_streams(&self) -> Result<(), Invalid> {
        let count = self.streams.len();
        if count > STREAMS_MAX {
            return Err(invalid("streams", &format!("has {count} names; at most {STREAMS_MAX} are allowed")));
        }
        names("streams", &self.streams)?;
        if self.covers_every_stream() {
            return Ok(());
        }
        for (n, name) in self.streams.iter().enumerate() {
            if let Err(fault) = valid_name("streams", name) {
                return Err(invalid(&format!("streams[{n}]"), &fault.message));
            }
        }
        if !self.covers_every_event_type() {
            return Err(invalid("streams", "restrict event_types or streams, but not both"));
        }
        // A writer could append verdicts that put any event of the log into its stream, and then read it there.
        match self.roles.iter().all(|role| *role == Role::Reader) {
            true => Ok(()),
            false => {
                Err(invalid("streams", "restrict the role reader only; leave out streams, or grant only this role"))
            }
        }
    }

    /// Returns whether it includes a role; `admin` includes every role.
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role) || self.roles.contains(&Role::Admin)
    }

    /// Returns whether it covers every tenant.
    pub fn covers_every_tenant(&self) -> bool {
        self.tenants.iter().any(|tenant| tenant == EVERY)
    }

    /// Returns whether it allows operations on the whole store.
    pub fn administers_the_store(&self) -> bool {
        self.has(Role::Admin) && self.covers_every_tenant()
    }

    /// Returns whether it covers a tenant.
    pub fn covers_tenant(&self, tenant: &str) -> bool {
        self.tenants.iter().any(|known| known == EVERY || known == tenant)
    }

    /// Returns whether it covers a scope.
    pub fn covers_scope(&self, scope: &str) -> bool {
        self.scopes.iter().any(|known| known == EVERY || known == scope)
    }

    /// Returns whether it covers events of every type.
    pub fn covers_every_event_type(&self) -> bool {
        self.event_types.iter().any(|known| known == EVERY)
    }

    /// Returns whether it covers events of a type.
    pub fn covers_event_type(&self, event_type: &str) -> bool {
        self.event_types.iter().any(|known| known == EVERY || known == event_type)
    }

    /// Returns whether it covers every stream, and what is no stream.
    pub fn covers_every_stream(&self) -> bool {
        self.streams.iter().any(|known| known == EVERY)
    }

    /// Returns whether it covers a stream.
    pub fn covers_stream(&self, stream: &str) -> bool {
        self.streams.iter().any(|known| known == EVERY || known == stream)
    }

    /// Returns the tenant of a request that names none: the grant's tenant, if it names exactly one.
    pub fn only_tenant(&self) -> Option<&str> {
        match &*self.tenants {
            [only] if only != EVERY => Some(only),
            _ => None,
        }
    }
}

fn names(path: &str, names: &[String]) -> Result<(), Invalid> {
    if names.is_empty() {
        return Err(invalid(path, "is empty; name at least one, or * for all"));
    }
    if names.len() > NAMES_MAX {
        return Err(invalid(path, &format!("has {} names; at most {NAMES_MAX} are allowed", names.len())));
    }
    for (n, name) in names.iter().enumerate() {
        let plain = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
        if !plain || (name.contains('*') && name != EVERY) {
            return Err(invalid(&format!("{path}[{n}]"), &format!("{name:?} is not a name; use * alone for all")));
        }
        if name == EVERY && names.len() > 1 {
            return Err(invalid(&format!("{path}[{n}]"), "* already stands for all; give it alone"));
        }
    }
    Ok(())
}

pub(super) fn invalid(path: &str, message: &str) -> Invalid {
    Invalid::new(Code::InvalidCredential, path, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_covers_what_it_names_and_nothing_else() {
        let grant = Grant { scopes: vec!["default".to_owned()], ..Grant::new(Role::Writer, ["acme", "north"]) };
        assert!(grant.validate().is_ok() && grant.only_tenant().is_none());
        assert!(grant.covers_tenant("acme") && !grant.covers_tenant("south") && !grant.covers_every_tenant());
        assert!(grant.covers_scope("default") && !grant.covers_scope("inbox"));
        assert!(grant.has(Role::Writer) && !grant.has(Role::Operator) && !grant.has(Role::Admin));
        assert_eq!(Grant::new(Role::Reader, ["acme"]).only_tenant(), Some("acme"));
    }

    #[test]
    fn an_administrator_of_some_tenants_does_not_administer_the_store() {
        assert!(Grant::new(Role::Admin, [EVERY]).administers_the_store());
        assert!(!Grant::new(Role::Admin, ["acme"]).administers_the_store());
        assert!(!Grant::new(Role::Operator, [EVERY]).administers_the_store());
    }

    #[test]
    fn a_grant_of_event_types_covers_these_and_one_that_names_none_covers_all() {
        let paid = Grant { event_types: vec!["paid".to_owned()], ..Grant::new(Role::Writer, ["acme"]) };
        assert!(paid.validate().is_ok() && paid.covers_event_type("paid"));
        assert!(!paid.covers_event_type("shipped") && !paid.covers_every_event_type());
        let text = r#"{"roles": ["writer"], "tenants": ["acme"], "scopes": ["*"]}"#;
        let every: Grant = serde_json::from_str(text).expect("JSON");
        assert!(every.covers_event_type("shipped") && every.covers_every_event_type());
    }

    #[test]
    fn a_grant_of_streams_covers_these_and_one_that_names_none_covers_all() {
        let public = Grant { streams: vec!["public-orders".to_owned()], ..Grant::new(Role::Reader, ["acme"]) };
        assert!(public.validate().is_ok() && public.covers_stream("public-orders"));
        assert!(!public.covers_stream("orders") && !public.covers_every_stream());
        let text = r#"{"roles": ["writer"], "tenants": ["acme"], "scopes": ["*"], "event_types": ["*"]}"#;
        let every: Grant = serde_json::from_str(text).expect("JSON");
        assert!(every.covers_stream("orders") && every.covers_every_stream());
    }

    #[test]
    fn a_grant_without_roles_or_tenants_is_refused_at_its_field() {
        let valid = Grant::new(Role::Reader, ["acme"]);
        for (grant, path) in [
            (Grant { roles: Vec::new(), ..valid.clone() }, "roles"),
            (Grant { tenants: Vec::new(), ..valid.clone() }, "tenants"),
            (Grant { tenants: vec!["a*".to_owned()], ..valid.clone() }, "tenants[0]"),
            (Grant { tenants: vec!["a".to_owned(), EVERY.to_owned()], ..valid.clone() }, "tenants[1]"),
            (Grant { scopes: vec![String::new()], ..valid.clone() }, "scopes[0]"),
            (Grant { event_types: Vec::new(), ..valid.clone() }, "event_types"),
            (Grant { event_types: vec!["paid".to_owned(); 101], ..valid.clone() }, "event_types"),
            (Grant { event_types: vec!["paid".to_owned(), "a b".to_owned()], ..valid.clone() }, "event_types[1]"),
            (Grant { event_types: vec!["paid".to_owned()], ..Grant::new(Role::Operator, ["acme"]) }, "event_types"),
            (Grant { streams: Vec::new(), ..valid.clone() }, "streams"),
            (Grant { streams: vec!["orders".to_owned(); 101], ..valid.clone() }, "streams"),
            (Grant { streams: vec!["orders".to_owned(), "a b".to_owned()], ..valid.clone() }, "streams[1]"),
            (Grant { streams: vec!["orders".to_owned()], ..Grant::new(Role::Writer, ["acme"]) }, "streams"),
            (Grant { streams: vec!["orders".to_owned()], ..Grant::new(Role::Admin, ["acme"]) }, "streams"),
            (
                Grant {
                    event_types: vec!["paid".to_owned()],
                    streams: vec!["orders".to_owned()],
                    ..Grant::new(Role::Reader, ["acme"])
                },
                "streams",
            ),
        ] {
            let refused = grant.validate().expect_err(path);
            assert_eq!((refused.code, &*refused.path), (Code::InvalidCredential, path));
        }
    }
}
