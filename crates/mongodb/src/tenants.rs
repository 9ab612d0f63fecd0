//! The names of the tenants' databases. No two tenants share a database, so all content of one belongs to one tenant.

use std::collections::{BTreeMap, BTreeSet};

use annals_core::{DEFAULT_TENANT, limits};

use crate::options::{Options, Tenant};
use crate::refused::{Code, OpenError};

/// The names of a tenant's databases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Databases {
    pub(crate) events: String,
    pub(crate) snapshots: String,
    pub(crate) keys: String,
}

/// Returns the database of the lease: that of the tenant `default`, or of the first one.
pub(crate) fn lease_database(databases: &BTreeMap<String, Databases>) -> &str {
    let first = databases.get(DEFAULT_TENANT).or_else(|| databases.values().next());
    first.map_or("", |names| &names.events)
}

/// Returns the databases of every tenant.
///
/// # Errors
/// `invalid_config`, with what to write.
pub(crate) fn databases(options: &Options, of_url: Option<&str>) -> Result<BTreeMap<String, Databases>, OpenError> {
    let invalid = |message: String| OpenError::new(Code::InvalidConfig, message);
    let mut databases = BTreeMap::new();
    let mut taken: BTreeMap<String, String> = BTreeMap::new();
    for tenant in &options.tenants {
        check_name(&tenant.name).map_err(invalid)?;
        let names = of_tenant(options, tenant, of_url).map_err(invalid)?;
        for name in BTreeSet::from([&names.events, &names.snapshots, &names.keys]) {
            valid_database(name).map_err(|why| invalid(format!("tenant {:?}: {why}", tenant.name)))?;
            // On some systems, names that differ only in case denote the same database.
            if let Some(other) = taken.insert(name.to_lowercase(), tenant.name.clone()) {
                let message =
                    format!("tenants {other:?} and {:?} would share database {name:?}; give each its own", tenant.name);
                return Err(invalid(message));
            }
        }
        databases.insert(tenant.name.clone(), names);
    }
    if databases.is_empty() {
        return Err(invalid("no tenant is declared; declare at least one under [tenants]".to_owned()));
    }
    Ok(databases)
}

fn check_name(name: &str) -> Result<(), String> {
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let rest = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    if !first || !rest || name.len() > limits::NAME_BYTES_MAX {
        let rule = "1 to 100 bytes of A-Z a-z 0-9 _ . - and begins with a letter or digit";
        return Err(format!("tenant {name:?} is not a name; a name has {rule}"));
    }
    Ok(())
}

/// Determines a tenant's databases: those it names itself, else those derived from the store's own; for snapshots and keys, finally the
/// database of its commits.
fn of_tenant(options: &Options, tenant: &Tenant, of_url: Option<&str>) -> Result<Databases, String> {
    let name = &tenant.name;
    let following = |base: &str| match &**name {
        DEFAULT_TENANT => base.to_owned(),
        // The name of a database cannot contain a dot.
        other => format!("{base}_{}", other.replace('.', "-")),
    };
    let own = tenant.event_stream_database.clone();
    let events = own.or_else(|| options.event_stream_database.as_deref().or(of_url).map(following)).ok_or_else(|| {
        format!(
            "the event stream database of tenant {name:?} has no name; write it behind the last slash of the MongoDB URL"
        )
    })?;
    let beside = |named: &Option<String>, of_store: &Option<String>| {
        let of_url = of_url.filter(|_| tenant.event_stream_database.is_none());
        let follows = || of_store.as_deref().or(of_url).map(following);
        named.clone().or_else(follows).unwrap_or_else(|| events.clone())
    };
    Ok(Databases {
        snapshots: beside(&tenant.snapshot_database, &options.snapshot_database),
        keys: beside(&tenant.prepare_database, &options.prepare_database),
        events,
    })
}

fn valid_database(name: &str) -> Result<(), String> {
    let forbidden = |c: char| c.is_control() || r#"/\. "$*<>:|?"#.contains(c);
    if matches!(name, "admin" | "local" | "config") || name.is_empty() || name.len() > 63 || name.contains(forbidden) {
        let rule = r#"1 to 63 bytes without / \ . " $ * < > : | ? and spaces, and not admin, local or config"#;
        return Err(format!("{name:?} cannot be the name of a database; use {rule}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(options: &Options, url: Option<&str>) -> Result<Vec<String>, String> {
        let found = databases(options, url).map_err(|error| error.message)?;
        Ok(found.values().map(|names| format!("{} {} {}", names.events, names.snapshots, names.keys)).collect())
    }

    fn tenants(names: &[&str]) -> Options {
        Options { tenants: names.iter().copied().map(Tenant::new).collect(), ..Options::default() }
    }

    #[test]
    fn databases_follow_from_the_url_and_the_tenant() {
        assert_eq!(names(&tenants(&["default"]), Some("shop")), Ok(vec!["shop shop shop".to_owned()]));
        let two = names(&tenants(&["default", "eu.west"]), Some("shop")).expect("named");
        assert_eq!(two[1], "shop_eu-west shop_eu-west shop_eu-west");
        let mut three = tenants(&["default"]);
        three.tenants[0].snapshot_database = Some("views".to_owned());
        three.tenants[0].prepare_database = Some("keys".to_owned());
        assert_eq!(names(&three, Some("shop")), Ok(vec!["shop views keys".to_owned()]));
    }

    #[test]
    fn the_store_s_own_three_go_before_the_url_s() {
        let mut options = tenants(&["default", "acme"]);
        options.event_stream_database = Some("events".to_owned());
        options.snapshot_database = Some("views".to_owned());
        let shown = |url| names(&options, url).expect("named");
        assert_eq!(shown(Some("shop")), ["events_acme views_acme shop_acme", "events views shop"]);
        assert_eq!(shown(None), ["events_acme views_acme events_acme", "events views events"]);
    }

    #[test]
    fn a_tenant_that_names_where_its_commits_are_has_the_rest_there_too() {
        let mut options = tenants(&["445f8ea8-1a6f-40d7-b2fc-796dba92dc44"]);
        options.tenants[0].event_stream_database = Some("event_store_a".to_owned());
        for url in [None, Some("shop")] {
            assert_eq!(names(&options, url), Ok(vec!["event_store_a event_store_a event_store_a".to_owned()]));
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_to_write() {
        let refused = |options: &Options, url| names(options, url).expect_err("refused");
        assert!(refused(&tenants(&["default"]), None).contains("last slash"));
        assert!(refused(&tenants(&["default"]), Some("admin")).contains("cannot be the name"));
        assert!(refused(&tenants(&["a", "A"]), Some("shop")).contains("share"));
        let mut same = tenants(&["default", "other"]);
        same.tenants[1].event_stream_database = Some("shop".to_owned());
        assert!(refused(&same, Some("shop")).contains("share"));
        assert!(refused(&tenants(&[]), Some("shop")).contains("[tenants]"));
        assert!(refused(&tenants(&["../x"]), Some("shop")).contains("not a name"));
    }
}
