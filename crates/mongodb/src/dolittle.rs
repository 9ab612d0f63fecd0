//! Reads the tenants of a Dolittle microservice from its own configuration.
//!
//! ```text
//! .dolittle/runtime.yml      {tenants: {<id>: {resources: {eventStore: {servers | connectionString, database}, …}}}}  (.yaml, .json)
//! .dolittle/resources.json   {<id>: {eventStore: {servers: […], database}, readModels: {host, database}, …}}            the older one
//! ```
//!
//! As in the Runtime, `resources.json` replaces the tenants of `runtime.yml` if both exist, and keys are case-insensitive.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use uuid::Uuid;
use yaml_rust2::{Yaml, YamlLoader};

use crate::options::Tenant;
use crate::refused::{Code, OpenError};

/// The declarations of a `.dolittle` folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DolittleTenants {
    /// The tenants, each with the database of its event store, in order of id.
    pub tenants: Vec<Tenant>,
    /// `host:port` of the servers of their event stores. A store of Annals is on the cluster of its URL.
    pub servers: BTreeSet<String>,
}

const RUNTIME: [&str; 3] = ["runtime.yml", "runtime.yaml", "runtime.json"];
const RESOURCES: &str = "resources.json";

/// Reads the tenants of the `.dolittle` folder at `folder`.
///
/// # Errors
/// `invalid_config`, naming the file and what is wrong in it. It is also returned if two resources share a database, which would lose
/// data.
pub fn dolittle_tenants(folder: &Path) -> Result<DolittleTenants, OpenError> {
    let there = |name: &&str| folder.join(name).exists();
    let file = Some(RESOURCES).filter(there).or_else(|| RUNTIME.into_iter().find(|name| there(name)));
    let Some(file) = file.map(|name| folder.join(name)) else {
        let names = "runtime.yml, runtime.yaml, runtime.json or resources.json";
        return Err(invalid(folder, &format!("there is no {names} in this folder; name the .dolittle folder")));
    };
    let text = std::fs::read_to_string(&file).map_err(|error| invalid(&file, &error.to_string()))?;
    read(&file, &text)
}

fn invalid(file: &Path, what: &str) -> OpenError {
    OpenError::new(Code::InvalidConfig, format!("{}: {what}", file.display()))
}

/// Parses both forms: JSON is YAML.
fn read(file: &Path, text: &str) -> Result<DolittleTenants, OpenError> {
    let refused = |what: String| invalid(file, &what);
    let text = text.trim_start_matches('\u{feff}');
    let root = YamlLoader::load_from_str(text).map_err(|error| refused(error.to_string()))?;
    let root = root.into_iter().next().unwrap_or(Yaml::Null);
    let of_runtime = PathBuf::from(RESOURCES).file_name() != file.file_name();
    let tenants = if of_runtime { get(&root, "tenants") } else { Some(&root) };
    let Some(Yaml::Hash(tenants)) = tenants else {
        return Err(refused("it declares no tenants".to_owned()));
    };
    let mut found = BTreeMap::new();
    let mut servers = BTreeSet::new();
    let mut databases: BTreeMap<String, String> = BTreeMap::new();
    for (id, declared) in tenants {
        let id = text_of(id).unwrap_or_default();
        let id = Uuid::try_parse(&id).map_err(|_| refused(format!("tenant {id:?} is no UUID")))?.to_string();
        let resources = if of_runtime { get(declared, "resources") } else { Some(declared) };
        let Some(Yaml::Hash(resources)) = resources else {
            return Err(refused(format!("tenant {id} has no resources")));
        };
        let mut tenant = Tenant::new(&*id);
        for (kind, resource) in resources {
            let kind = text_of(kind).unwrap_or_default();
            let database = get(resource, "database").and_then(text_of).filter(|name| !name.is_empty());
            let is_event_store = kind.eq_ignore_ascii_case("eventStore");
            if let Some(name) = &database {
                let whose = format!("{kind} of tenant {id}");
                if let Some(other) = databases.insert(name.to_lowercase(), whose.clone()) {
                    let what = format!("{other} and {whose} share database {name:?}; give each its own");
                    return Err(refused(what));
                }
            }
            if is_event_store {
                tenant.event_stream_database = database;
                servers.extend(servers_of(resource));
            }
        }
        if tenant.event_stream_database.is_none() {
            return Err(refused(format!("the eventStore of tenant {id} names no database")));
        }
        if found.insert(id.clone(), tenant).is_some() {
            return Err(refused(format!("tenant {id} is declared twice")));
        }
    }
    if found.is_empty() {
        return Err(refused("it declares no tenants".to_owned()));
    }
    Ok(DolittleTenants { tenants: found.into_values().collect(), servers })
}

fn get<'a>(value: &'a Yaml, key: &str) -> Option<&'a Yaml> {
    let fields = value.as_hash()?;
    fields.iter().find(|(name, _)| name.as_str().is_some_and(|name| name.eq_ignore_ascii_case(key))).map(|it| it.1)
}

/// Returns a scalar as it was written, since a name may look like a number.
fn text_of(value: &Yaml) -> Option<String> {
    match value {
        Yaml::String(text) | Yaml::Real(text) => Some(text.clone()),
        Yaml::Integer(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the servers of an event store, with MongoDB's default port if none is given, and without the credentials of a connection
/// string.
fn servers_of(event_store: &Yaml) -> Vec<String> {
    let with_port = |server: &str| if server.contains(':') { server.to_owned() } else { format!("{server}:27017") };
    if let Some(Yaml::Array(servers)) = get(event_store, "servers") {
        return servers.iter().filter_map(text_of).map(|server| with_port(&server)).collect();
    }
    let url = get(event_store, "connectionString").and_then(text_of).unwrap_or_default();
    let Some((_, rest)) = url.split_once("://") else { return Vec::new() };
    let place = rest.split(['/', '?']).next().unwrap_or_default();
    let hosts = place.rsplit_once('@').map_or(place, |(_, hosts)| hosts);
    hosts.split(',').filter(|host| !host.is_empty()).map(with_port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "445f8ea8-1a6f-40d7-b2fc-796dba92dc44";
    const B: &str = "900893e7-c4cc-4873-8032-884e965e4b97";

    fn of(file: &str, text: &str) -> Result<DolittleTenants, String> {
        read(Path::new(file), text).map_err(|error| error.message)
    }

    fn shown(found: &DolittleTenants) -> Vec<String> {
        let database = |tenant: &Tenant| tenant.event_stream_database.clone().unwrap_or_default();
        found.tenants.iter().map(|tenant| format!("{} {}", tenant.name, database(tenant))).collect()
    }

    #[test]
    fn the_older_file_declares_tenants_at_its_root() {
        let text = format!(
            r#"{{"{}": {{
                "eventStore": {{"servers": ["mongo", "b:27018"], "database": "event_store_a", "maxConnectionPoolSize": 1000}},
                "projections": {{"servers": ["mongo"], "database": "projections_a"}},
                "readModels": {{"host": "mongodb://mongo:27017", "database": "read_models_a", "useSSL": false}}
            }}, "{B}": {{"EventStore": {{"servers": ["mongo"], "database": "event_store_b"}}}}}}"#,
            A.to_uppercase()
        );
        let found = of("resources.json", &text).expect("read");
        assert_eq!(shown(&found), [format!("{A} event_store_a"), format!("{B} event_store_b")]);
        assert_eq!(Vec::from_iter(found.servers), ["b:27018", "mongo:27017"]);
    }

    #[test]
    fn the_newer_file_has_them_below_tenants() {
        let text = format!(
            "platform:\n  microserviceName: shop\ntenants:\n  {A}:\n    resources:\n      eventStore:\n        \
             connectionString: mongodb://eva:s3cr3t@db-1,db-2:27018/?replicaSet=rs0\n        database: event_store_a\n      \
             readModels:\n        host: mongodb://db-1:27017\n        database: read_models_a\n    eventHorizons: {{}}\n"
        );
        let found = of(".dolittle/runtime.yml", &text).expect("read");
        assert_eq!(shown(&found), [format!("{A} event_store_a")]);
        assert_eq!(Vec::from_iter(found.servers), ["db-1:27017", "db-2:27018"]);
    }

    #[test]
    fn what_would_lose_data_or_says_nothing_is_refused() {
        let store = |name: &str| format!(r#"{{"eventStore": {{"database": "{name}"}}}}"#);
        for (text, says) in [
            (format!(r#"{{"{A}": {}, "{B}": {}}}"#, store("x"), store("X")), "share database"),
            (
                format!(r#"{{"{A}": {{"eventStore": {{"database": "x"}}, "readModels": {{"database": "x"}}}}}}"#),
                "share database",
            ),
            (format!(r#"{{"{A}": {{"readModels": {{"database": "x"}}}}}}"#), "names no database"),
            (format!(r#"{{"acme": {}}}"#, store("x")), "no UUID"),
            ("{}".to_owned(), "no tenants"),
            ("".to_owned(), "no tenants"),
            ("{".to_owned(), "resources.json"),
        ] {
            let refused = of("resources.json", &text).expect_err(&text);
            assert!(refused.contains(says), "{text}: {refused}");
        }
    }

    #[test]
    fn the_older_file_replaces_the_newer_one_s_tenants() {
        let folder = std::env::temp_dir().join(format!("annals-dolittle-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        assert!(dolittle_tenants(&folder).expect_err("nothing is there").message.contains("resources.json"));
        let runtime = format!("tenants:\n  {A}:\n    resources:\n      eventStore:\n        database: a\n");
        std::fs::write(folder.join("runtime.yml"), runtime).expect("written");
        assert_eq!(shown(&dolittle_tenants(&folder).expect("read")), [format!("{A} a")]);
        let resources = format!(r#"{{"{B}": {{"eventStore": {{"database": "b"}}}}}}"#);
        std::fs::write(folder.join("resources.json"), resources).expect("written");
        assert_eq!(shown(&dolittle_tenants(&folder).expect("read")), [format!("{B} b")]);
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
