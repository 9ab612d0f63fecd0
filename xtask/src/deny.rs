//! Checks dependencies against deny.toml.
//!
//! Licences, bans and sources are checked here, from cargo's own metadata, which takes a second and requires no installation. Advisories
//! need cargo-deny and the advisory database from the network, so they are checked only where both are available.

mod licence;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use serde_json::Value;
use toml::Table;

use crate::command::{cargo, only, output, root};
use crate::steps::{Step, Steps};

pub fn run(arguments: &[String]) -> Result<(), String> {
    only(arguments, &[], &[])?;
    let mut steps = Steps::default();
    steps.run("licences, sources and bans of dependencies", check)?;
    steps.run_if_possible("advisories on dependencies", advisories)?;
    steps.summarise();
    Ok(())
}

/// Checks every package of the product's dependency graph, on all platforms and including dev-dependencies.
pub fn check() -> Result<(), String> {
    let metadata = output(cargo().args(["metadata", "--locked", "--all-features", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_slice(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let text = std::fs::read_to_string(root().join("deny.toml")).map_err(|error| format!("deny.toml: {error}"))?;
    let rules = Rules::parse(&text)?;
    let packages = packages(&metadata)?;
    let faults: Vec<String> = packages.iter().flat_map(|package| rules.faults(package)).collect();
    let doubles = doubles(&packages);
    println!("{} packages; in more than one version: {}", packages.len(), or_none(&doubles));
    if faults.is_empty() { Ok(()) } else { Err(format!("{} faults\n{}", faults.len(), faults.join("\n"))) }
}

/// The output of cargo-deny if it could not reach the database.
const NO_DATABASE: &str = "failed to fetch advisory database";

/// Runs cargo-deny's advisory check, if cargo-deny is installed.
pub fn advisories() -> Result<Step, String> {
    let mut version = Command::new("cargo-deny");
    let installed = version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !installed.is_ok_and(|status| status.success()) {
        let why = "cargo-deny is not here: `cargo install --locked cargo-deny` (some minutes), \
                   then `cargo xtask deny` with a network that reaches the advisory database";
        return Ok(Step::NotRun(why.to_owned()));
    }
    let mut advisories = cargo();
    advisories.args(["deny", "--all-features", "check", "advisories"]);
    match output(&mut advisories) {
        Ok(_) => Ok(Step::Passed),
        Err(said) if said.contains(NO_DATABASE) => {
            println!("{said}");
            Ok(Step::NotRun("cargo-deny could not fetch the advisory database; it needs the network".to_owned()))
        }
        Err(said) => Err(said),
    }
}

fn or_none(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// A package in cargo's metadata.
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
    source: Option<String>,
    wildcards: Vec<String>,
    /// The packages that depend on it.
    parents: BTreeSet<String>,
}

fn packages(metadata: &Value) -> Result<Vec<Package>, String> {
    let list = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let parents = parents(metadata, list);
    let package = |package: &Value| Package {
        name: text(&package["name"]).unwrap_or_default(),
        version: text(&package["version"]).unwrap_or_default(),
        licence: text(&package["license"]),
        source: text(&package["source"]),
        wildcards: wildcards(package),
        parents: package["id"].as_str().and_then(|id| parents.get(id)).cloned().unwrap_or_default(),
    };
    Ok(list.iter().map(package).collect())
}

/// Returns, by the id of a package, the names of the packages that depend on it.
fn parents(metadata: &Value, list: &[Value]) -> BTreeMap<String, BTreeSet<String>> {
    let name_of: BTreeMap<&str, &str> =
        list.iter().filter_map(|package| Some((package["id"].as_str()?, package["name"].as_str()?))).collect();
    let mut parents: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array().into_iter().flatten() {
        let Some(name) = node["id"].as_str().and_then(|id| name_of.get(id)) else { continue };
        let dependencies = node["dependencies"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for dependency in dependencies {
            parents.entry(dependency.to_owned()).or_default().insert((*name).to_owned());
        }
    }
    parents
}

/// Returns the dependencies that a package accepts in any version. A path of this repository does not count.
fn wildcards(package: &Value) -> Vec<String> {
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    dependencies
        .filter(|dependency| dependency["req"] == "*" && dependency["path"].is_null())
        .filter_map(|dependency| dependency["name"].as_str().map(str::to_owned))
        .collect()
}

fn doubles(packages: &[Package]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    let doubled = versions.into_iter().filter(|(_, versions)| versions.len() > 1);
    doubled
        .map(|(name, versions)| format!("{name} ({})", versions.into_iter().collect::<Vec<_>>().join(", ")))
        .collect()
}

/// The rules of deny.toml that are checked here.
struct Rules {
    licences: BTreeSet<String>,
    banned: BTreeMap<String, Ban>,
}

/// Why a crate is banned, and the parents below which it is still allowed.
struct Ban {
    reason: String,
    wrappers: BTreeSet<String>,
}

impl Rules {
    fn parse(text: &str) -> Result<Self, String> {
        let table: Table = text.parse().map_err(|error| format!("deny.toml: {error}"))?;
        let list = |section: &str, key: &str| {
            let found = table.get(section).and_then(|section| section.get(key)).and_then(toml::Value::as_array);
            found.cloned().ok_or_else(|| format!("deny.toml has no list {section}.{key}"))
        };
        let field = |entry: &toml::Value, key: &str| entry.get(key).and_then(toml::Value::as_str).map(str::to_owned);
        let licences = list("licenses", "allow")?;
        let banned = list("bans", "deny")?;
        let wrappers = |entry: &toml::Value| {
            let names = entry.get("wrappers").and_then(toml::Value::as_array).into_iter().flatten();
            names.filter_map(toml::Value::as_str).map(str::to_owned).collect()
        };
        let ban = |entry: &toml::Value| Some(Ban { reason: field(entry, "reason")?, wrappers: wrappers(entry) });
        let banned = banned.iter().filter_map(|entry| Some((field(entry, "crate")?, ban(entry)?)));
        Ok(Self {
            licences: licences.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect(),
            banned: banned.collect(),
        })
    }

    fn faults(&self, package: &Package) -> Vec<String> {
        let Package { name, version, licence, source, wildcards, parents } = package;
        let mut faults = Vec::new();
        match licence {
            None => faults.push(format!("{name} {version} names no licence")),
            Some(licence) if !licence::allowed(licence, &self.licences) => {
                faults.push(format!("{name} {version} is under {licence:?}, which deny.toml does not allow"));
            }
            Some(_) => {}
        }
        if let Some(Ban { reason, wrappers }) = self.banned.get(name)
            && (wrappers.is_empty() || !parents.is_subset(wrappers))
        {
            faults.push(format!("{name} {version} is banned: {reason}"));
        }
        if source.as_ref().is_some_and(|source| !source.ends_with("crates.io-index")) {
            faults.push(format!("{name} {version} comes from elsewhere than the registry: {source:?}"));
        }
        // Only our own manifests are ours to correct.
        if source.is_none() {
            faults.extend(wildcards.iter().map(|other| format!("{name} takes {other} in any version")));
        }
        faults
    }
}
