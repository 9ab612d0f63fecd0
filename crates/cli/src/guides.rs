//! Checks the configurations and commands that the guides show without running them: other snippets run in the tests of the command line.

use std::path::PathBuf;

use crate::config::{Config, Layers};
use crate::packaging::{parsed, root};

/// A fenced block of a guide.
struct Block {
    /// The file and the line of its fence, from 1.
    place: String,
    language: String,
    text: String,
}

fn blocks() -> Vec<Block> {
    let mut pages: Vec<PathBuf> = vec![root().join("README.md")];
    for entry in std::fs::read_dir(root().join("docs")).expect("the guides") {
        pages.push(entry.expect("an entry").path());
    }
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    let mut found = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        let mut open: Option<Block> = None;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim_start();
            match (open.take(), line.strip_prefix("```")) {
                (None, Some(language)) => {
                    let place = format!("{}:{}", page.display(), index + 1);
                    open = Some(Block { place, language: language.to_owned(), text: String::new() });
                }
                (None, None) => {}
                (Some(block), Some(_)) => found.push(block),
                (Some(mut block), None) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                    open = Some(block);
                }
            }
        }
        assert!(open.is_none(), "{}: a block has no end", page.display());
    }
    found
}

#[test]
fn every_configuration_that_a_guide_shows_is_read_and_has_valid_grants_and_issuers() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("annals.toml");
    let mut read = 0;
    for block in blocks().into_iter().filter(|block| block.language == "toml") {
        std::fs::write(&file, &block.text).expect("written");
        let mut layers = Layers::new(&Config::default()).expect("the defaults");
        let config = layers.file(&file).and_then(|()| layers.finish());
        let (config, _) = config.unwrap_or_else(|refused| panic!("{}: {refused}", block.place));
        let security = config.security.options(&config.client);
        assert!(security.is_ok(), "{}: {security:?}", block.place);
        read += 1;
    }
    assert!(read >= 7, "{read}");
}

#[test]
fn every_command_that_a_guide_shows_without_running_it_is_one_of_the_program() {
    let mut known = 0;
    for block in blocks().into_iter().filter(|block| matches!(&*block.language, "" | "text")) {
        for line in block.text.lines().filter_map(|line| line.strip_prefix("annals ")) {
            let command = line.split_once(" #").map_or(line, |(command, _)| command);
            let words: Vec<String> =
                command.split_whitespace().map(|word| word.trim_matches('\'').to_owned()).collect();
            parsed(&words);
            known += 1;
        }
    }
    assert!(known >= 10, "{known}");
}
