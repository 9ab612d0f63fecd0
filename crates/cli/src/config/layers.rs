//! Merges the sources of the configuration, value by value. A key that the defaults do not have is an error in every source.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::Config;
use crate::failure::Failure;

/// The prefix of environment variables that configure. Two underscores also separate section and key.
const PREFIX: &str = "ANNALS__";
/// A variable with a short name, and the key that it sets. It takes precedence over the long name.
const SHORT: (&str, &str) = ("ANNALS_SERVER", "server.url");

/// The origin of each key's value, by the key's dotted name.
pub type Origins = BTreeMap<String, String>;

pub struct Layers {
    /// Every section with every key. Only values change.
    values: Table,
    origins: Origins,
    /// The line of each value that a file set, as `annals.toml:7`.
    lines: BTreeMap<String, String>,
}

impl Layers {
    pub fn new(defaults: &Config) -> Result<Self, Failure> {
        let values = Table::try_from(defaults)
            .map_err(|error| Failure::internal(format!("the defaults are not a configuration: {error}")))?;
        let keys = values.iter().flat_map(|(section, keys)| {
            keys.as_table().into_iter().flatten().map(move |(key, _)| format!("{section}.{key}"))
        });
        let origins = keys.map(|key| (key, "default".to_owned())).collect();
        Ok(Self { values, origins, lines: BTreeMap::new() })
    }

    pub fn file(&mut self, path: &Path) -> Result<(), Failure> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| Failure::config(format!("{shown}: {error}")))?;
        let table: Table = text.parse().map_err(|error| Failure::config(format!("{shown}: {error}")))?;
        let lines = lines(&text);
        let place = |key: &str| lines.get(key).map_or_else(|| shown.clone(), |line| format!("{shown}:{line}"));
        for (section, keys) in table {
            let Value::Table(keys) = keys else {
                return Err(self.unknown(&section, &place(&section)));
            };
            if !self.values.contains_key(&section) {
                return Err(self.unknown(&section, &place(&section)));
            }
            for (key, value) in keys {
                let key = format!("{section}.{key}");
                self.set(&key, &place(&key), value)?;
                self.origins.insert(key.clone(), shown.clone());
                self.lines.insert(key.clone(), place(&key));
            }
        }
        Ok(())
    }

    pub fn environment(&mut self, variables: impl Iterator<Item = (OsString, OsString)>) -> Result<(), Failure> {
        let mut short = None;
        for (name, value) in variables {
            if name == SHORT.0 {
                short = Some(value);
                continue;
            }
            let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
            let origin = format!("environment {name}");
            let key = name[PREFIX.len()..].to_lowercase().replacen("__", ".", 1);
            let Some(value) = value.to_str() else {
                return Err(Failure::config(format!("{origin}: its value is not UTF-8")));
            };
            let Some(current) = self.find(&key) else { return Err(self.unknown(&key, &origin)) };
            let value = match current {
                Value::Boolean(_) => value
                    .parse()
                    .map(Value::Boolean)
                    .map_err(|_| Failure::config(format!("{key} ({origin}): {value:?} is neither true nor false")))?,
                Value::Integer(_) => value
                    .parse()
                    .map(Value::Integer)
                    .map_err(|_| Failure::config(format!("{key} ({origin}): {value:?} is not a whole number")))?,
                Value::Array(_) => {
                    let items = value.split(',').map(str::trim).filter(|item| !item.is_empty());
                    Value::Array(items.map(|item| Value::String(item.to_owned())).collect())
                }
                Value::Table(_) => {
                    let written: Result<Table, _> = format!("value = {value}").parse();
                    let value = written.ok().and_then(|mut table| table.remove("value"));
                    let wanted = "is not an inline table; write { name = { key = \"value\" } }";
                    value.ok_or_else(|| Failure::config(format!("{key} ({origin}): it {wanted}")))?
                }
                _ => Value::String(value.to_owned()),
            };
            self.set(&key, &origin, value)?;
        }
        let Some(value) = short else { return Ok(()) };
        let origin = format!("environment {}", SHORT.0);
        let Some(value) = value.to_str() else {
            return Err(Failure::config(format!("{origin}: its value is not UTF-8")));
        };
        self.set(SHORT.1, &origin, Value::String(value.to_owned()))
    }

    /// Returns whether a key still has its default value.
    pub fn is_default(&self, key: &str) -> bool {
        self.origins.get(key).is_none_or(|origin| origin == "default")
    }

    /// Sets a key to the value of a flag.
    pub fn flag(&mut self, key: &str, flag: &str, value: Value) -> Result<(), Failure> {
        self.set(key, flag, value)
    }

    pub fn finish(self) -> Result<(Config, Origins), Failure> {
        let Self { values, origins, lines } = self;
        let config = serde_path_to_error::deserialize(values).map_err(|error| {
            let key = error.path().to_string();
            let origin = lines.get(&key).or(origins.get(&key)).map(String::as_str).unwrap_or("configuration");
            Failure::config(format!("{key} ({origin}): {}", error.inner().to_string().trim()))
        })?;
        Ok((config, origins))
    }

    fn find(&mut self, key: &str) -> Option<&mut Value> {
        let (section, key) = key.split_once('.')?;
        self.values.get_mut(section)?.as_table_mut()?.get_mut(key)
    }

    fn set(&mut self, key: &str, origin: &str, value: Value) -> Result<(), Failure> {
        let Some(current) = self.find(key) else { return Err(self.unknown(key, origin)) };
        if !current.same_type(&value) {
            let (wanted, given) = (current.type_str(), value.type_str());
            return Err(Failure::config(format!("{key} ({origin}): the value must be of type {wanted}, not {given}")));
        }
        *current = value;
        self.lines.remove(key);
        self.origins.insert(key.to_owned(), origin.to_owned());
        Ok(())
    }

    fn unknown(&self, key: &str, origin: &str) -> Failure {
        let known: Vec<&str> = self.origins.keys().map(String::as_str).collect();
        Failure::config(format!("{origin}: the key {key:?} is unknown; the keys are {}", known.join(", ")))
    }
}

/// Returns the line of each section and of each dotted key of a valid file.
fn lines(text: &str) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    let line = |at: usize| text[..at].matches('\n').count() + 1;
    let Ok(sections) = DeTable::parse(text) else { return lines };
    for (section, keys) in sections.get_ref() {
        lines.insert(section.get_ref().to_string(), line(section.span().start));
        let DeValue::Table(keys) = keys.get_ref() else { continue };
        for key in keys.keys() {
            lines.insert(format!("{}.{}", section.get_ref(), key.get_ref()), line(key.span().start));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers() -> Layers {
        Layers::new(&Config::default()).expect("defaults")
    }

    fn environment(name: &str, value: &str) -> Result<(Config, Origins), Failure> {
        let mut layers = layers();
        layers.environment([(name.into(), value.into())].into_iter())?;
        layers.finish()
    }

    #[test]
    fn later_layers_win_and_are_remembered() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.toml");
        std::fs::write(&file, "[store]\nurl = \"memory:\"\n[log]\nlevel = \"debug\"\n").expect("written");
        let mut layers = layers();
        layers.file(&file).expect("a good file");
        layers.environment([("ANNALS__LOG__LEVEL".into(), "trace".into())].into_iter()).expect("a good variable");
        layers.flag("server.dev", "--dev", true.into()).expect("a good flag");
        let (config, origins) = layers.finish().expect("a configuration");
        assert_eq!(config.store.url, "memory:");
        assert_eq!(config.log.level, "trace");
        assert!(config.server.dev);
        assert_eq!(origins["store.url"], file.display().to_string());
        assert_eq!(origins["log.level"], "environment ANNALS__LOG__LEVEL");
        assert_eq!(origins["server.dev"], "--dev");
        assert_eq!(origins["server.listen"], "default");
    }

    #[test]
    fn variables_are_read_by_the_type_of_their_key() {
        let (config, _) = environment("ANNALS__TENANTS__NAMES", "a, b").expect("a list");
        assert_eq!(config.tenants.names, ["a", "b"]);
        let (config, _) = environment("ANNALS__SERVER__DEV", "true").expect("a boolean");
        assert!(config.server.dev);
        let (config, _) = environment("ANNALS__STORE__MIN_FREE_DISK_BYTES", "7").expect("a number");
        assert_eq!(config.store.min_free_disk_bytes, 7);
        assert!(environment("ANNALS__STORE__MIN_FREE_DISK_BYTES", "much").is_err());
        let databases = r#"{ acme = { event_stream = "acme_events" } }"#;
        let (config, _) = environment("ANNALS__MONGODB__DATABASES", databases).expect("a table");
        assert_eq!(config.mongodb.databases["acme"].event_stream.as_deref(), Some("acme_events"));
        for bad in ["acme", "{ acme = 1 }", "{ acme = { events = \"x\" } }"] {
            let refused = environment("ANNALS__MONGODB__DATABASES", bad).expect_err(bad);
            assert!(refused.message.contains("mongodb.databases"), "{bad}: {refused}");
        }
        assert!(environment("ANNALS__SERVER__DEV", "yes").expect_err("refused").message.contains("server.dev"));
        assert!(environment("ANNALS__LOG__FORMAT", "xml").expect_err("refused").message.contains("log.format"));
    }

    #[test]
    fn an_unknown_key_is_refused_by_name_wherever_it_stands() {
        let refused = environment("ANNALS__STORE__URLL", "x").expect_err("refused");
        assert!(refused.message.contains("store.urll"), "{refused}");
        assert!(environment("ANNALS__COLOUR", "x").is_err());
        let folder = tempfile::tempdir().expect("a folder");
        for (text, says) in [
            ("[store]\nurll = \"x\"", "store.urll"),
            ("[stor]\nurl = \"x\"", "stor"),
            ("store = 1", "store"),
            ("[server]\ndev = \"yes\"", "server.dev"),
            ("[server", "a.toml"),
        ] {
            let file = folder.path().join("a.toml");
            std::fs::write(&file, text).expect("written");
            let refused = layers().file(&file).expect_err(text);
            assert!(refused.message.contains(says), "{text}: {refused}");
        }
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named_with_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.toml");
        for (text, line) in [
            ("# comment\n[store]\nurll = \"x\"", 3),
            ("\n[stor]\nurl = \"x\"", 2),
            ("[log]\n\n[server]\ndev = \"yes\"", 4),
            ("[log]\nlevel = \"info\"\nformat = \"xml\"", 3),
        ] {
            std::fs::write(&file, text).expect("written");
            let mut layers = layers();
            let refused = layers.file(&file).and_then(|()| layers.finish().map(drop)).expect_err(text);
            let place = format!("{}:{line}", file.display());
            assert!(refused.message.contains(&place), "{text}: {refused}");
        }
        std::fs::write(&file, "[log]\nformat = \"json\"\n").expect("written");
        let mut layers = layers();
        layers.file(&file).expect("a good file");
        layers.environment([("ANNALS__LOG__FORMAT".into(), "xml".into())].into_iter()).expect("a known key");
        let refused = layers.finish().expect_err("refused");
        assert!(refused.message.contains("(environment ANNALS__LOG__FORMAT)"), "{refused}");
    }

    #[test]
    fn other_variables_are_left_alone() {
        assert!(environment("ANNALS_TEST_MONGODB", "x").is_ok());
    }
}
