//! `bench features`: measures every row of the page of features, one part after the other, each with a time limit. The page is written
//! after each part, so an aborted run keeps what it measured.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::build::Built;
use super::parts::Part;
use crate::command::{output, root};

/// The page. Each generated section is between a mark with its name and an end mark.
const PAGE: &str = "docs/benchmarks-features.md";
/// The name of the section with the date and the machine.
const MACHINE: &str = "machine";
const END: &str = "<!-- end -->";

/// Measures the named parts, or all of them.
pub fn fill(words: &[String]) -> Result<(), String> {
    if let Some(word) = words.iter().find(|word| Part::of_features().all(|part| part.name != word.as_str())) {
        let known: Vec<_> = Part::of_features().map(|part| part.name).collect();
        return Err(format!("{word:?} is no part of the page of features; the parts are {}", known.join(", ")));
    }
    let built = Built::build()?;
    // The files of a part that ran out of time are here, and a later run removes them first.
    let folder = root().join("target/bench");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    write(MACHINE, &described(&built, &folder)?)?;
    let mut failed = Vec::new();
    for part in Part::of_features().filter(|part| words.is_empty() || words.iter().any(|word| word == part.name)) {
        let mut rows = Vec::new();
        if let Err(error) = measure(part, &built, &folder, &mut rows) {
            println!("{}: {error}", part.name);
            failed.push(format!("{}: {error}", part.name));
        }
        if !rows.is_empty() {
            write(part.name, &table(&rows))?;
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Returns one line with the date and the machine.
fn described(built: &Built, folder: &Path) -> Result<String, String> {
    let date = output(Command::new("date").arg("+%F"))?;
    let machine = output(built.bench().arg(MACHINE).current_dir(folder))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
    Ok(format!("Measured on {}. Machine: {}.\n", text(date), text(machine)))
}

/// Runs a part within its time limit, and collects its rows.
fn measure(part: &Part, built: &Built, folder: &Path, rows: &mut Vec<String>) -> Result<(), String> {
    /// The exit code of the limiter when the time is up.
    const TIME_OVER: i32 = 124;
    let mut bench = built.limited(part.minutes_max);
    bench.arg(part.name).current_dir(folder).stdout(Stdio::piped());
    let services = part.prepare(&mut bench, built, &[])?;
    println!("\n=== {}, at most {} minutes", part.name, part.minutes_max);
    let mut running = bench.spawn().map_err(|error| format!("`timeout` could not be started: {error}"))?;
    let said = running.stdout.take().ok_or("the benchmark has no output")?;
    for line in BufReader::new(said).lines().map_while(Result::ok) {
        println!("{line}");
        if is_row(&line) {
            rows.push(line);
        }
    }
    let ended = running.wait().map_err(|error| error.to_string())?;
    services.stop();
    match ended.code() {
        Some(0) => Ok(()),
        Some(TIME_OVER) => {
            let minutes = part.minutes_max;
            rows.push(format!("what follows | not measured within {minutes} minutes of all rows | – | missed"));
            Err(format!("its time of {minutes} minutes is over"))
        }
        _ => Err(format!("the benchmark failed ({ended}); what it says is above")),
    }
}

/// Returns whether a line is `row | measured | target | met`, as `crates/bench/src/row.rs` prints it.
fn is_row(line: &str) -> bool {
    let cells: Vec<_> = line.split(" | ").collect();
    cells.len() == 4 && ["met", "missed", "–"].contains(&cells[3])
}

fn table(rows: &[String]) -> String {
    let lines = rows.iter().map(|row| format!("| {row} |\n"));
    format!("| row | measured | target | |\n|---|---|---|---|\n{}", lines.collect::<String>())
}

/// Writes the measurements to their section of the page.
fn write(name: &str, content: &str) -> Result<(), String> {
    let file = root().join(PAGE);
    let page = std::fs::read_to_string(&file).map_err(|error| format!("{PAGE}: {error}"))?;
    let page = filled(&page, name, content).ok_or_else(|| format!("{PAGE} has no place for {name:?}"))?;
    std::fs::write(&file, page).map_err(|error| format!("{PAGE}: {error}"))
}

/// Returns the page with this content in the section of this name; `None` if there is no such section.
fn filled(page: &str, name: &str, content: &str) -> Option<String> {
    let mark = format!("<!-- measured: {name} -->\n");
    let begin = page.find(&mark)? + mark.len();
    let end = begin + page[begin..].find(END)?;
    Some(format!("{}\n{content}\n{}", &page[..begin], &page[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_told_from_what_else_is_printed() {
        assert!(is_row("embedded: saga steps ÷ commits | 7,686 ÷ 136,253 per second = 0.06 | ≥ 0.3 | missed"));
        assert!(is_row("idle server, memory | 31.00 MiB | – | –"));
        assert!(!is_row("| row | measured | target | |"));
        assert!(!is_row("connected"));
    }

    #[test]
    fn a_place_on_the_page_is_filled_again_and_the_rest_stays() {
        let page =
            "# A\n\n<!-- measured: one -->\n\nold\n\n<!-- end -->\n\nB\n\n<!-- measured: two -->\n\n<!-- end -->\n";
        let expected =
            "# A\n\n<!-- measured: one -->\n\nnew\n\n<!-- end -->\n\nB\n\n<!-- measured: two -->\n\n<!-- end -->\n";
        assert_eq!(filled(page, "one", "new\n").as_deref(), Some(expected));
        assert_eq!(filled(expected, "one", "new\n").as_deref(), Some(expected));
        assert_eq!(filled(page, "three", "new\n"), None);
    }

    #[test]
    fn the_page_has_a_place_for_each_part() {
        let page = include_str!("../../../docs/benchmarks-features.md");
        for name in Part::of_features().map(|part| part.name).chain([MACHINE]) {
            assert!(filled(page, name, "").is_some(), "{name}");
        }
    }
}
