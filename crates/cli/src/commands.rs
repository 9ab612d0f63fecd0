//! The commands, one file each. A command owns its flags, declares what it reaches, and runs. To add one, write its file and name it here
//! twice: as a module and in the list.

mod adopt;
mod aggregate;
mod audit;
mod backup;
mod check;
mod commit;
mod completions;
mod config;
mod consent;
mod credential;
mod dead_letter;
mod demo;
mod doctor;
mod events;
mod export;
mod filter;
mod group;
mod handler;
mod health;
mod held;
mod hold;
mod import;
mod key;
mod log;
mod man;
mod pack;
mod partner;
mod projection;
mod query;
mod queue;
mod record;
mod repair;
mod replay;
mod restore;
mod retention;
mod saga;
mod sequencer;
mod serve;
mod snapshot;
mod stats;
mod stream;
mod subscription;
mod topic;
mod transact;
mod r#type;

use std::pin::Pin;

use clap::Subcommand;

use crate::config::Layers;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};

/// A command. Its fields are its flags, and its doc comment is the summary in `--help`.
pub trait Run: clap::Args {
    /// What the command works on.
    const REACHES: Reaches;

    /// Returns what this invocation works on, for commands where a flag decides it.
    fn reaches(&self) -> Reaches {
        Self::REACHES
    }

    /// Applies the command's own flags to the configuration.
    fn configure(&self, _: &mut Layers) -> Result<(), Failure> {
        Ok(())
    }

    /// Runs the command.
    async fn run(&self, context: &Context) -> Result<(), Stop>;
}

macro_rules! commands {
    ($($module:ident::$command:ident),+ $(,)?) => {
        /// The command that was given.
        #[derive(Debug, Subcommand)]
        pub enum Command {
            $($command(Box<$module::$command>)),+
        }

        impl Command {
            /// Returns what this invocation works on.
            pub fn reaches(&self) -> Reaches {
                match self {
                    $(Self::$command(command) => command.reaches()),+
                }
            }

            /// Returns the command's name as it is typed.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$command(_) => typed(stringify!($module))),+
                }
            }

            /// Applies the command's own flags to the configuration.
            pub fn configure(&self, layers: &mut Layers) -> Result<(), Failure> {
                match self {
                    $(Self::$command(command) => command.configure(layers)),+
                }
            }

            /// Runs the command. The future is boxed because the runtime polls it from several call sites; unboxed, the code of all
            /// commands would be compiled again for each.
            pub fn run<'a>(&'a self, context: &'a Context) -> Pin<Box<dyn Future<Output = Result<(), Stop>> + 'a>> {
                match self {
                    $(Self::$command(command) => Box::pin(command.run(context))),+
                }
            }
        }

        /// Every command, with what it declares to reach.
        const DECLARED: &[(&str, Reaches)] = &[$((typed(stringify!($module)), <$module::$command as Run>::REACHES)),+];
    };
}

/// Returns the name of a module as the command is typed. Rust keywords are written `r#…` in the source, and names of two words have a
/// `_`.
const fn typed(module: &str) -> &str {
    match module.as_bytes() {
        [b'r', b'#', ..] => module.split_at(2).1,
        b"dead_letter" => "dead-letter",
        _ => module,
    }
}

// In the order of `annals --help`.
commands! {
    demo::Demo,
    serve::Serve,
    commit::Commit,
    transact::Transact,
    aggregate::Aggregate,
    log::Log,
    stream::Stream,
    record::Record,
    snapshot::Snapshot,
    query::Query,
    key::Key,
    filter::Filter,
    handler::Handler,
    projection::Projection,
    saga::Saga,
    consent::Consent,
    subscription::Subscription,
    partner::Partner,
    r#type::Type,
    topic::Topic,
    group::Group,
    dead_letter::DeadLetter,
    queue::Queue,
    events::Events,
    replay::Replay,
    retention::Retention,
    hold::Hold,
    import::Import,
    export::Export,
    stats::Stats,
    health::Health,
    doctor::Doctor,
    adopt::Adopt,
    check::Check,
    repair::Repair,
    pack::Pack,
    backup::Backup,
    restore::Restore,
    credential::Credential,
    audit::Audit,
    sequencer::Sequencer,
    held::Held,
    config::Config,
    completions::Completions,
    man::Man,
}

/// Returns the names of the commands that work through a server, as one enumeration.
pub fn through_a_server() -> String {
    let mut names: Vec<&str> =
        DECLARED.iter().filter(|(_, reaches)| *reaches == Reaches::ServerOrStore).map(|(name, _)| *name).collect();
    let last = names.pop().unwrap_or_default();
    format!("{} and {last}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_called_like_its_file() {
        let command = crate::cli::command();
        let called: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        let declared: Vec<_> = DECLARED.iter().map(|(name, _)| *name).collect();
        assert_eq!(called, declared);
    }
}
