//! The checks and grants that the claims of a token imply.

use annals_core::Timestamp;
use annals_core::credentials::{EVERY, Grant, Role};
use serde_json::{Map, Value};

use super::issuers::Issuer;

/// Returns the time in a claim, which is in seconds, in milliseconds.
fn time(claims: &Map<String, Value>, claim: &str) -> Option<i64> {
    claims.get(claim)?.as_f64().map(|seconds| (seconds * 1_000.0) as i64)
}

/// Checks the audience and the validity of a token. Returns when it expires.
pub(super) fn check(issuer: &Issuer, claims: &Map<String, Value>, now: Timestamp) -> Result<Timestamp, &'static str> {
    let audience = match claims.get("aud") {
        Some(Value::String(one)) => *one == issuer.audience,
        Some(Value::Array(many)) => many.iter().any(|one| one.as_str() == Some(&issuer.audience)),
        _ => false,
    };
    if !audience {
        return Err("the token has another audience");
    }
    let leeway = i64::try_from(issuer.leeway.as_millis()).unwrap_or(i64::MAX);
    let now = now.as_millis();
    let Some(expires) = time(claims, "exp") else { return Err("the token has no expiry time (exp)") };
    let ends = expires.saturating_add(leeway);
    if ends <= now {
        return Err("the token has expired");
    }
    if time(claims, "nbf").is_some_and(|from| from.saturating_sub(leeway) > now) {
        return Err("the token is not valid yet");
    }
    Ok(Timestamp::from_millis(ends))
}

/// Returns the grant of a token. Returns `None` if it names no role or no tenant, or if a claim that the issuer's settings require is
/// missing or invalid.
pub(super) fn grant(issuer: &Issuer, claims: &Map<String, Value>) -> Option<Grant> {
    let named = texts(claims, &issuer.roles_claim);
    let mut roles: Vec<Role> = named.iter().filter_map(|name| role(issuer, name)).collect();
    roles.sort_unstable();
    roles.dedup();
    let tenants = match issuer.tenants.is_empty() {
        true => texts(claims, &issuer.tenants_claim),
        false => issuer.tenants.clone(),
    };
    // A configured claim limits every token. A token without it names nothing, and no grant may be empty.
    let limits =
        |claim: &Option<String>| claim.as_ref().map_or_else(|| vec![EVERY.to_owned()], |claim| texts(claims, claim));
    let (scopes, event_types) = (limits(&issuer.scopes_claim), limits(&issuer.event_types_claim));
    let grant = Grant { roles, tenants, scopes, event_types, streams: limits(&issuer.streams_claim) };
    grant.validate().is_ok().then_some(grant)
}

/// Returns the role that a value of the claim means: by the configured mapping, or by its name if there is none.
fn role(issuer: &Issuer, name: &str) -> Option<Role> {
    if issuer.roles.is_empty() { name.parse().ok() } else { issuer.roles.get(name).copied() }
}

/// Returns the texts of a claim whose name is a path through objects, such as `realm_access.roles`. A text with spaces counts as several,
/// as in `scope`.
fn texts(claims: &Map<String, Value>, path: &str) -> Vec<String> {
    // Some issuers use claim names that contain dots.
    let found = claims.get(path).or_else(|| {
        let mut parts = path.split('.');
        let first = claims.get(parts.next()?)?;
        parts.try_fold(first, |value, part| value.get(part))
    });
    match found {
        Some(Value::String(text)) => text.split_whitespace().map(str::to_owned).collect(),
        Some(Value::Array(many)) => many.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(value: Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    #[test]
    fn claims_become_roles_and_tenants_as_they_are_configured() {
        let mut issuer = Issuer::new("https://id.example", "annals");
        let plain = claims(json!({"roles": ["writer", "cook"], "tenants": ["acme"]}));
        assert_eq!(grant(&issuer, &plain), Some(Grant::new(Role::Writer, ["acme"])));
        issuer.roles_claim = "realm_access.roles".to_owned();
        issuer.roles.insert("annals-ops".to_owned(), Role::Operator);
        issuer.tenants = vec!["north".to_owned()];
        let nested = claims(json!({"realm_access": {"roles": ["annals-ops", "admin"]}, "tenants": ["*"]}));
        assert_eq!(grant(&issuer, &nested), Some(Grant::new(Role::Operator, ["north"])));
        assert_eq!(grant(&issuer, &plain), None);
    }

    #[test]
    fn claims_limit_scopes_and_event_types_where_they_are_configured() {
        let mut issuer = Issuer::new("https://id.example", "annals");
        let limited = claims(json!({
            "roles": ["writer"], "tenants": ["acme"], "scopes": "default inbox", "may": {"types": ["paid"]}
        }));
        let plain = Grant::new(Role::Writer, ["acme"]);
        assert_eq!(grant(&issuer, &limited), Some(plain.clone()));
        issuer.scopes_claim = Some("scopes".to_owned());
        let scopes = vec!["default".to_owned(), "inbox".to_owned()];
        assert_eq!(grant(&issuer, &limited), Some(Grant { scopes: scopes.clone(), ..plain.clone() }));
        issuer.event_types_claim = Some("may.types".to_owned());
        assert_eq!(
            grant(&issuer, &limited),
            Some(Grant { scopes, event_types: vec!["paid".to_owned()], ..plain.clone() })
        );
        let every = claims(json!({"roles": ["writer"], "tenants": ["acme"], "scopes": "*", "may": {"types": "*"}}));
        assert_eq!(grant(&issuer, &every), Some(plain));
        for lacks in [
            json!({"roles": ["writer"], "tenants": ["acme"], "scopes": "*"}),
            json!({"roles": ["writer"], "tenants": ["acme"], "scopes": "*", "may": {"types": []}}),
            json!({"roles": ["writer"], "tenants": ["acme"], "scopes": "*", "may": {"types": 7}}),
            json!({"roles": ["writer"], "tenants": ["acme"], "may": {"types": ["paid"]}}),
            json!({"roles": ["writer", "operator"], "tenants": ["acme"], "scopes": "*", "may": {"types": ["paid"]}}),
        ] {
            assert_eq!(grant(&issuer, &claims(lacks.clone())), None, "{lacks}");
        }
    }

    #[test]
    fn a_claim_limits_streams_where_it_is_configured() {
        let mut issuer = Issuer::new("https://id.example", "annals");
        let limited = claims(json!({"roles": ["reader"], "tenants": ["acme"], "streams": "public-orders"}));
        let plain = Grant::new(Role::Reader, ["acme"]);
        assert_eq!(grant(&issuer, &limited), Some(plain.clone()));
        issuer.streams_claim = Some("streams".to_owned());
        let streams = vec!["public-orders".to_owned()];
        assert_eq!(grant(&issuer, &limited), Some(Grant { streams, ..plain.clone() }));
        let every = claims(json!({"roles": ["admin"], "tenants": ["acme"], "streams": ["*"]}));
        assert_eq!(grant(&issuer, &every), Some(Grant::new(Role::Admin, ["acme"])));
        for lacks in [
            json!({"roles": ["reader"], "tenants": ["acme"]}),
            json!({"roles": ["reader", "writer"], "tenants": ["acme"], "streams": "public-orders"}),
        ] {
            assert_eq!(grant(&issuer, &claims(lacks.clone())), None, "{lacks}");
        }
    }

    #[test]
    fn a_token_is_valid_for_its_audience_and_its_time_with_some_leeway() {
        let issuer = Issuer::new("https://id.example", "annals");
        let now = Timestamp::from_millis(1_000_000_000);
        let at = |value| check(&issuer, &claims(value), now);
        assert!(at(json!({"aud": "annals", "exp": 1_000_001})).is_ok());
        assert!(at(json!({"aud": ["x", "annals"], "exp": 999_990, "nbf": 1_000_010})).is_ok());
        for bad in [
            json!({"aud": "other", "exp": 1_000_001}),
            json!({"exp": 1_000_001}),
            json!({"aud": "annals"}),
            json!({"aud": "annals", "exp": 999_900}),
            json!({"aud": "annals", "exp": "1000001"}),
            json!({"aud": "annals", "exp": 1_000_001, "nbf": 1_000_100}),
        ] {
            assert!(at(bad.clone()).is_err(), "{bad}");
        }
    }
}
