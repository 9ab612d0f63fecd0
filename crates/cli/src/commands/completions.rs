//! `annals completions`.

use clap::Args;
use clap_complete::{Shell, generate};

use super::Run;
use crate::cli;
use crate::context::{Context, Reaches};
use crate::failure::{Stop, written};

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  annals completions bash > ~/.local/share/bash-completion/completions/annals\n  annals completions zsh > \
                  \"${fpath[1]}/_annals\"\n  annals completions fish > ~/.config/fish/completions/annals.fish"
)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Run for Completions {
    const REACHES: Reaches = Reaches::Nothing;

    async fn run(&self, _: &Context) -> Result<(), Stop> {
        // Generate into memory: the generator panics when the reader of standard output has gone.
        let mut script = Vec::new();
        generate(self.shell, &mut cli::command(), "annals", &mut script);
        let mut out = std::io::stdout().lock();
        written(std::io::Write::write_all(&mut out, &script).and_then(|()| std::io::Write::flush(&mut out)))
    }
}
