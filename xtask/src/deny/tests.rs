use super::*;

const RULES: &str = r#"
[licenses]
allow = ["MIT", "Apache-2.0", "Unicode-3.0"]
[bans]
deny = [
    { crate = "left-pad", reason = "write it" },
    { crate = "c-library", wrappers = ["client"], reason = "only below the client" },
]
"#;

fn package(licence: &str) -> Package {
    Package {
        name: "p".into(),
        version: "1.0.0".into(),
        licence: Some(licence.into()),
        source: Some("registry+a/crates.io-index".into()),
        wildcards: Vec::new(),
        parents: BTreeSet::from(["client".to_owned()]),
    }
}

fn faults(package: &Package) -> Vec<String> {
    Rules::parse(RULES).expect("rules").faults(package)
}

#[test]
fn a_licence_is_allowed_when_what_must_hold_is_allowed() {
    for good in ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "(MIT OR Apache-2.0) AND Unicode-3.0", "MIT WITH x"] {
        assert_eq!(faults(&package(good)), Vec::<String>::new(), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND ISC", "", "MIT OR", "(MIT", "MIT)", "MIT MIT"] {
        assert_eq!(faults(&package(bad)).len(), 1, "{bad}");
    }
    assert_eq!(faults(&Package { licence: None, ..package("") }).len(), 1);
}

#[test]
fn a_banned_or_foreign_package_and_an_open_version_are_faults() {
    assert_eq!(faults(&Package { name: "left-pad".into(), ..package("MIT") }), ["left-pad 1.0.0 is banned: write it"]);
    assert_eq!(faults(&Package { source: Some("git+x".into()), ..package("MIT") }).len(), 1);
    let below = |parents: &[&str]| Package {
        name: "c-library".into(),
        parents: parents.iter().map(|name| (*name).to_owned()).collect(),
        ..package("MIT")
    };
    assert_eq!(faults(&below(&["client"])), Vec::<String>::new());
    assert_eq!(faults(&below(&["client", "server"])), ["c-library 1.0.0 is banned: only below the client"]);
    let open = Package { source: None, wildcards: vec!["x".into()], ..package("MIT") };
    assert_eq!(faults(&open), ["p takes x in any version"]);
    // What others write into their manifests is not ours to correct.
    assert_eq!(faults(&Package { wildcards: vec!["x".into()], ..package("MIT") }), Vec::<String>::new());
}

#[test]
fn the_rules_of_this_repository_can_be_read() {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let rules = Rules::parse(&text).expect("rules");
    assert!(rules.licences.contains("MIT") && !rules.banned.is_empty());
}
