//! Defines the command line as a whole: the global flags and the help around them.

use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, ValueEnum};

use crate::commands::{self, Command};

/// The `--help` section that lists the global flags.
const GLOBAL: &str = "Global options";

const AFTER_HELP: &str = "\
Exit codes:
  0  success
  1  a defect of Annals
  2  wrong usage or invalid input
  3  refused because of the content of the store, for example a version conflict
  4  not found, for example an unknown tenant
  5  temporary; retry later
  6  needs an operator, for example because the disk is full or another process has the store open
Errors go to standard error as `error[code]: …`, followed by a `help: …` line.

Configuration: defaults, then annals.toml or --config FILE, then the environment (ANNALS__SECTION__KEY, for example \
ANNALS__STORE__URL), then flags. `annals config show` prints every value and its origin.
Server or store: --server and --store decide. Without them the command talks to the configured server (server.url, or \
ANNALS_SERVER in the environment), and without a server it opens the configured store (store.url).

Example:
  annals commit --aggregate order/o-1 --type order_placed --data '{\"total\": 12.5}'
  annals log read --output json";

/// An event store in one program: commit events, read them in one total order, follow them
#[derive(Debug, Parser)]
#[command(name = "annals", version, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Args)]
pub struct Global {
    /// The store to open: embedded:PATH, memory: or mongodb://HOST/DATABASE; overrides a configured server [default: embedded:./data]
    #[arg(long, global = true, value_name = "URL", help_heading = GLOBAL)]
    pub store: Option<String>,
    // The help is generated, see `command`.
    #[arg(long, global = true, value_name = "URL", conflicts_with = "store", help_heading = GLOBAL)]
    pub server: Option<String>,
    /// A file with the key to send to the server [default: client.credential_file, or the key in ANNALS_CREDENTIAL]
    #[arg(long, global = true, value_name = "FILE", help_heading = GLOBAL)]
    pub credential_file: Option<String>,
    /// A PEM file with the authorities of the server's certificate [default: client.ca_file, or those of the system]
    #[arg(long, global = true, value_name = "FILE", help_heading = GLOBAL)]
    pub ca: Option<String>,
    /// The tenant to work on [default: default]
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub tenant: Option<String>,
    /// The output format: a table (the default on a terminal), or JSON with one document per line (the default elsewhere)
    #[arg(long, global = true, value_enum, help_heading = GLOBAL)]
    pub output: Option<Format>,
    /// The configuration file [default: annals.toml, if it exists]
    #[arg(long, global = true, value_name = "FILE", help_heading = GLOBAL)]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
}

/// The scope that a command reads.
#[derive(Debug, Args)]
pub struct Scope {
    /// The scope to read
    #[arg(long, default_value = annals::DEFAULT_SCOPE)]
    pub scope: String,
}

/// Returns the command line as a clap command, with the help that is generated from the commands' declarations.
pub fn command() -> clap::Command {
    let help = format!(
        "The server to use instead of opening a store, for example http://127.0.0.1:4000 [default: server.url or ANNALS_SERVER]; for {}",
        commands::through_a_server()
    );
    Cli::command().mut_arg("server", |server| server.help(help))
}

/// Parses the arguments of this process. On wrong usage it exits with code 2, as clap does.
pub fn parse() -> Cli {
    let mut command = command();
    let read = Cli::from_arg_matches(&command.get_matches_mut());
    read.unwrap_or_else(|error| error.format(&mut command).exit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    /// Clap stores both under one id, and panics when their types differ.
    #[test]
    fn no_command_has_an_option_of_its_own_with_the_name_of_a_global_one() {
        fn check(command: &clap::Command, globals: &[clap::Id]) {
            for own in command.get_arguments() {
                assert!(!globals.contains(own.get_id()), "{} declares {} again", command.get_name(), own.get_id());
            }
            command.get_subcommands().for_each(|command| check(command, globals));
        }
        let command = command();
        let globals = command.get_arguments().filter(|argument| argument.is_global_set());
        let globals: Vec<clap::Id> = globals.map(|argument| argument.get_id().clone()).collect();
        command.get_subcommands().for_each(|command| check(command, &globals));
    }

    #[test]
    fn every_command_has_a_summary_and_an_example() {
        fn check(command: &clap::Command) {
            let leaf = command.get_subcommands().next().is_none();
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(!leaf || help.contains("Example:\n  "), "{} has no example", command.get_name());
            assert!(command.get_about().is_some(), "{} has no summary", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&command());
    }

    #[test]
    fn the_help_of_server_lists_the_commands_that_declare_it() {
        let command = command();
        let server = command.get_arguments().find(|argument| argument.get_id() == "server").expect("the flag");
        let help = server.get_help().expect("help").to_string();
        for (name, listed) in [("commit", true), ("stats", true), ("held", true), ("check", false), ("restore", false)]
        {
            assert_eq!(help.contains(name), listed, "{name}: {help}");
        }
    }
}
