//! `annals man`.

use std::path::PathBuf;

use annals::Code;
use clap::Args;
use clap_mangen::Man as Page;

use super::Run;
use crate::cli;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop, written};

/// Print the manual page of this command line, or write a page for every command
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  annals man > annals.1\n  annals man --folder /usr/local/share/man/man1")]
pub struct Man {
    /// Write annals.1 and a page for every command into this folder
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

impl Run for Man {
    const REACHES: Reaches = Reaches::Nothing;

    async fn run(&self, _: &Context) -> Result<(), Stop> {
        let Some(folder) = &self.folder else {
            let page = rendered().map_err(|error| Failure::internal(error.to_string()))?;
            let mut out = std::io::stdout().lock();
            return written(std::io::Write::write_all(&mut out, &page).and_then(|()| std::io::Write::flush(&mut out)));
        };
        let refused =
            |error: std::io::Error| Failure::new(Code::UnwritableOutput, format!("{}: {error}", folder.display()));
        std::fs::create_dir_all(folder).map_err(refused)?;
        Ok(clap_mangen::generate_to(cli::command(), folder).map_err(refused)?)
    }
}

/// Renders the page of the program as a whole, in roff.
fn rendered() -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Page::new(cli::command()).render(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_page_names_every_command_and_the_exit_codes() {
        let page = String::from_utf8(rendered().expect("rendered")).expect("text");
        assert!(page.contains(".TH annals 1"), "{}", &page[..200]);
        for command in cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = format!("annals\\-{}(1)", command.get_name().replace('-', "\\-"));
            assert!(page.contains(&name), "{name}");
        }
        assert!(page.contains("Exit codes"));
    }

    #[test]
    fn every_command_has_a_page_of_its_own_in_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        clap_mangen::generate_to(cli::command(), folder.path()).expect("written");
        for page in ["annals.1", "annals-serve.1", "annals-queue-take.1"] {
            assert!(folder.path().join(page).exists(), "{page}");
        }
    }
}
