//! The declared scopes, and the UUIDs that represent them in the names of collections.
//!
//! A scope whose name is a UUID has one canonical name, whatever the spelling: [`canonical`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use annals_core::{DEFAULT_SCOPE, limits};
use uuid::Uuid;

use crate::layout::names::scope_uuid;
use crate::options::Options;
use crate::refused::{Code, OpenError};

/// Returns every declared scope except the default one, by name.
///
/// # Errors
/// `invalid_config` for an invalid name, for the UUID of the default scope, and for two names of one scope.
pub(crate) fn scopes(options: &Options) -> Result<BTreeMap<String, Uuid>, OpenError> {
    let invalid = |message: String| OpenError::new(Code::InvalidConfig, message);
    let mut scopes: BTreeMap<String, Uuid> = BTreeMap::new();
    for name in options.scopes.iter().filter(|name| *name != DEFAULT_SCOPE) {
        check_name(name).map_err(invalid)?;
        let name = canonical(name).into_owned();
        let scope = scope_uuid(&name);
        if scope.is_nil() {
            let message = format!("scope {name:?} is the default scope of a Dolittle Runtime; leave it out");
            return Err(invalid(message));
        }
        let same = scopes.iter().find(|(other, uuid)| **uuid == scope && **other != name);
        if let Some((other, _)) = same {
            let message = format!("scopes {other:?} and {name:?} are one scope, {scope}; declare it once");
            return Err(invalid(message));
        }
        scopes.insert(name, scope);
    }
    Ok(scopes)
}

/// Returns the canonical name of a scope: a UUID in lower case with hyphens, or any other name unchanged.
pub(crate) fn canonical(name: &str) -> Cow<'_, str> {
    match Uuid::try_parse(name) {
        Ok(uuid) => Cow::Owned(uuid.hyphenated().to_string()),
        Err(_) => Cow::Borrowed(name),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let rest = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    if !first || !rest || name.len() > limits::NAME_BYTES_MAX {
        let rule = "1 to 100 bytes of A-Z a-z 0-9 _ . - and begins with a letter or digit";
        return Err(format!("scope {name:?} is not a name; a name has {rule}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Result<Vec<String>, String> {
        let scopes = names.iter().map(|name| (*name).to_owned()).collect();
        let found = scopes_of(scopes).map_err(|error| error.message)?;
        Ok(found.into_values().map(|scope| scope.to_string()).collect())
    }

    fn scopes_of(scopes: Vec<String>) -> Result<BTreeMap<String, Uuid>, OpenError> {
        super::scopes(&Options { scopes, ..Options::default() })
    }

    #[test]
    fn a_scope_that_is_a_uuid_is_that_one_and_others_follow_from_their_names() {
        let id = "0a1b2c3d-0000-4000-8000-00000000abcd";
        for same in [id, &id.to_uppercase(), &id.replace('-', "")] {
            assert_eq!(of(&["default", same, id]), Ok(vec![id.to_owned()]));
            assert_eq!(canonical(same), id);
        }
        assert_eq!(of(&["inbox"]), Ok(vec![scope_uuid("inbox").to_string()]));
    }

    #[test]
    fn what_is_no_scope_or_is_one_twice_is_refused() {
        let refused = |names: &[&str]| of(names).expect_err("refused");
        assert!(refused(&["a b"]).contains("not a name"));
        assert!(refused(&[""]).contains("not a name"));
        assert!(refused(&["00000000-0000-0000-0000-000000000000"]).contains("default scope"));
        assert!(refused(&["inbox", &scope_uuid("inbox").to_string()]).contains("one scope"));
    }
}
