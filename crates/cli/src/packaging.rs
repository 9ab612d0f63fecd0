//! Checks that everything exists that the files for containers, systemd and manuals name.

use std::path::Path;

use clap::FromArgMatches;

use crate::cli::{self, Cli};
use crate::config::Config;

const DOCKERFILE: &str = include_str!("../../../Dockerfile");
const SERVICE: &str = include_str!("../../../deploy/annals.service");
const COMPOSE: [(&str, &str); 2] = [
    ("compose.annals.yaml", include_str!("../../../deploy/compose.annals.yaml")),
    ("compose.full.yaml", include_str!("../../../deploy/compose.full.yaml")),
];
const MANIFEST: &str = include_str!("../Cargo.toml");
const WORKSPACE: &str = include_str!("../../../Cargo.toml");

pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Parses a command as the program does.
#[track_caller]
pub fn parsed(arguments: &[String]) -> Cli {
    let words = std::iter::once("annals").chain(arguments.iter().map(String::as_str));
    let matches = cli::command().try_get_matches_from(words).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

fn lines<'t>(text: &'t str, keyword: &str) -> Vec<&'t str> {
    text.lines().filter_map(|line| line.strip_prefix(keyword)).map(str::trim).collect()
}

/// Returns the words of a command in JSON form, without the program.
#[track_caller]
fn words(json: &str) -> Vec<String> {
    let words: Vec<String> = serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"));
    match words.first().map(String::as_str) {
        Some("annals") => words[1..].to_vec(),
        _ => words,
    }
}

/// Returns the commands that a comment tells people to run, from `annals` on.
fn told(text: &str) -> Vec<Vec<String>> {
    let commands = text.lines().filter_map(|line| line.strip_prefix('#')?.split_once(" annals ")).map(|(_, rest)| rest);
    commands
        .filter(|rest| rest.starts_with("credential ") || rest.starts_with("serve "))
        .map(|rest| rest.split_whitespace().map(|word| word.trim_matches('\'').to_owned()).collect())
        .collect()
}

#[test]
fn the_image_builds_a_package_with_features_that_exist_and_copies_what_was_built() {
    let builds = lines(DOCKERFILE, "RUN cargo build");
    let build = builds.first().expect("a build");
    assert!(build.contains("--locked") && build.contains("--package annals-cli"), "{build}");
    let features = build.split_once("--features ").expect("features").1;
    for feature in features.split(',') {
        assert!(MANIFEST.lines().any(|line| line.starts_with(&format!("{feature} = ["))), "{feature} is no feature");
    }
    let rust = env!("CARGO_PKG_RUST_VERSION");
    assert!(DOCKERFILE.contains(&format!("FROM rust:{rust}-")), "the image builds with another Rust than {rust}");
    let profile = build.split_once("--profile ").and_then(|(_, rest)| rest.split(' ').next()).expect("a profile");
    assert!(WORKSPACE.contains(&format!("[profile.{profile}]\n")), "{profile} is no profile");
    let target = build.split_once("--target ").and_then(|(_, rest)| rest.split_once(" --")).expect("a target").0;
    assert_eq!(lines(DOCKERFILE, "RUN rustup target add "), [target]);
    let target = target.trim_matches('"');
    assert!(DOCKERFILE.contains(&format!("strip -o /usr/local/bin/annals \"target/{target}/{profile}/annals\"")));
    assert!(DOCKERFILE.contains("COPY --from=build /usr/local/bin/annals /usr/local/bin/annals"));
    assert!(MANIFEST.contains("[[bin]]\nname = \"annals\""));
}

#[test]
fn the_image_is_not_root_and_its_port_and_commands_are_those_of_the_program() {
    assert_eq!(lines(DOCKERFILE, "USER "), ["65532:65532"]);
    let port = Config::default().server.listen.rsplit(':').next().expect("a port").to_owned();
    assert_eq!(lines(DOCKERFILE, "EXPOSE "), [&*port]);
    assert_eq!(lines(DOCKERFILE, "ENTRYPOINT "), ["[\"annals\"]"]);
    let command = lines(DOCKERFILE, "CMD ");
    let serve = words(command.first().expect("a command"));
    assert_eq!(parsed(&serve).command.name(), "serve");
    assert!(serve.contains(&format!("0.0.0.0:{port}")) && serve.contains(&"embedded:/data".to_owned()));
    let check = lines(DOCKERFILE, "HEALTHCHECK ")[0].split_once("CMD ").expect("a command").1;
    let check = words(check);
    assert_eq!(parsed(&check).command.name(), "health");
    assert!(check.contains(&format!("http://127.0.0.1:{port}")));
    for command in told(DOCKERFILE) {
        parsed(&command);
    }
    assert_eq!(told(DOCKERFILE).len(), 1);
}

#[test]
fn the_services_of_compose_run_commands_and_build_from_folders_that_exist() {
    for (name, text) in COMPOSE {
        assert!(root().join("deploy").join("..").join("Dockerfile").exists() && text.contains("build: .."), "{name}");
        let serve = match text.split_once("command: [\"serve\"") {
            Some((_, rest)) => words(&format!("[\"serve\"{}", rest.lines().next().unwrap_or_default())),
            None => {
                let list = text.split_once("command:\n      - serve\n").expect("a command").1;
                let rest = list.lines().map_while(|line| line.strip_prefix("      - ")).map(|it| it.trim_matches('"'));
                std::iter::once("serve").chain(rest).map(str::to_owned).collect()
            }
        };
        assert_eq!(parsed(&serve).command.name(), "serve", "{name}");
        assert!(!told(text).is_empty(), "{name}");
        told(text).iter().for_each(|command| drop(parsed(command)));
        assert!(text.contains("ANNALS__SERVER__NAMES: \"annals,annals:4000\""), "{name}");
    }
}

#[test]
fn the_unit_of_systemd_runs_a_command_of_the_program_and_waits_for_longer_than_it_stops() {
    let starts = lines(SERVICE, "ExecStart=");
    let start: Vec<String> = starts[0].split_whitespace().map(str::to_owned).collect();
    assert_eq!(start[0], "/usr/local/bin/annals");
    assert_eq!(parsed(&start[1..]).command.name(), "serve");
    let told = told(SERVICE);
    assert_eq!(told.len(), 1);
    parsed(&told[0]);
    assert!(lines(SERVICE, "TimeoutStopSec=")[0].parse::<u32>().is_ok_and(|seconds| seconds > 17));
    assert!(root().join("crates/cli/annals.example.toml").exists());
}
