//! The entry point for developers and CI: these commands are all that is needed to check a change.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for people at a terminal")]

mod bench;
mod command;
mod deny;
mod fuzz;
mod lint;
mod rivals;
mod services;
mod soak;
mod steps;
mod test;
mod tidy;

use std::process::{ExitCode, ExitStatus};

const USAGE: &str = "\
cargo xtask COMMAND

  test [--without-fuzz] [--without-services]
                         everything CI runs: tidy, lint, deny, all tests, documentation, a fixed number of fuzzed inputs
  services [mongodb] [kafka] [redis] [python] [--fetch]
                         starts the services that tests need (a mongod, a Kafka, a Redis) and prints their URLs; with --fetch only fetches
                         them
  lint                   rustfmt, clippy and the links of the documentation, warnings are errors
  tidy                   the repository's own rules: sizes, banned calls, dead files, links between documents
  deny                   licences, sources and bans of the dependencies as in deny.toml; advisories too, if cargo-deny is here
  fuzz [--seconds N] [--target NAME] [--reproduce FILE]
                         all targets in N seconds (60), or one of them; or one input again
  soak [--seconds N]     the model, fault and kill tests for N seconds each (600) instead of a few
  bench [OPTIONS]        library and server beside the bare disk, with --rivals beside Tephra and UmaDB; `cargo xtask bench
                         --help` lists the options
  bench PART [OPTIONS]   one of the parts mongodb, processing, workflow, partners, letters, browse, kafka and server, each with --help
  bench features [PARTS] all parts but mongodb, or those that are named, each with a limit of time; fills the page
                         docs/benchmarks-features.md
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if std::env::var_os(fuzz::WRAPPING).is_some() {
        return compiled(fuzz::compile(&arguments));
    }
    if std::env::var_os(test::compiler::WRAPPING).is_some() {
        return compiled(test::compiler::run(&arguments));
    }
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    let outcome = match command {
        "test" => test::run(rest),
        "lint" => lint::run(rest),
        "tidy" => tidy::run(rest),
        "deny" => deny::run(rest),
        "fuzz" => fuzz::run(rest),
        "services" => services::run(rest),
        "soak" => soak::run(rest),
        "bench" => bench::run(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        other => Err(format!("there is no command {other:?}\n\n{USAGE}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("\nxtask: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// Ends as the compiler did that this program stands before.
fn compiled(ran: Result<ExitStatus, String>) -> ExitCode {
    match ran {
        Ok(status) => u8::try_from(status.code().unwrap_or(1)).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(sentence) => {
            eprintln!("xtask: {sentence}");
            ExitCode::FAILURE
        }
    }
}
