//! Searches for secrets in what a test run leaves behind: the output of the programs, and the logs of the servers that they start and of
//! services.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Error, ErrorKind};
use std::path::{Path, PathBuf};

use super::executables::BESIDE_OTHERS;

/// The variable that names the folder in which tests keep the logs of the servers that they start.
pub const LOGS: &str = "ANNALS_TEST_LOGS";
/// The passwords of tests. A test that needs a password uses one of these, because a password has no recognisable form.
const PASSWORDS: [&str; 3] = ["s3cr3t", "s3cret", "hunter2"];
/// Hexadecimal digits of an API key's id and of its secret.
const KEY_DIGITS: (usize, usize) = (16, 64);
/// The least number of characters of a partner's signing secret, and of a text that counts as a token.
const SIGNING_MIN: usize = 24;
const TOKEN_MIN: usize = 60;

/// Removes from this folder what the previous run left. Returns the folder for the logs of this run.
///
/// # Errors
/// A sentence that names the folder.
pub fn begin(outputs: &Path) -> Result<PathBuf, String> {
    let logs = outputs.join("servers");
    let refused = |error: Error| format!("{}: {error}", outputs.display());
    match fs::remove_dir_all(outputs) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(refused(error)),
        _ => {}
    }
    fs::create_dir_all(&logs).map_err(refused)?;
    Ok(logs)
}

/// A check of a line, which returns the kind of secret that it holds, if any.
type Recognises = fn(&str) -> Option<&'static str>;

/// Reads all files of the folder `outputs`, and these logs of services.
///
/// # Errors
/// The lines that hold a secret, by number. The secret itself is not printed again.
pub fn search(outputs: &Path, logs: impl IntoIterator<Item = PathBuf>) -> Result<(), String> {
    let mut left: Vec<(PathBuf, Recognises)> = vec![(outputs.to_path_buf(), secret as Recognises)];
    // A database logs slow writes verbatim, and the credentials of subscriptions are stored verbatim.
    left.extend(logs.into_iter().map(|log| (log, formed as Recognises)));
    let mut found = Vec::new();
    let mut files = 0;
    while let Some((place, recognises)) = left.pop() {
        let refused = |error: Error| format!("{}: {error}", place.display());
        if place.is_dir() {
            for entry in fs::read_dir(&place).map_err(refused)? {
                left.push((entry.map_err(refused)?.path(), recognises));
            }
            continue;
        }
        // A failed test prints what it compared, which may be a key.
        if place.to_string_lossy().ends_with(BESIDE_OTHERS) {
            continue;
        }
        let mut text = BufReader::new(File::open(&place).map_err(refused)?);
        let (mut line, mut number) = (Vec::new(), 0);
        while text.read_until(b'\n', &mut line).map_err(refused)? > 0 {
            number += 1;
            if let Some(what) = recognises(&String::from_utf8_lossy(&line)) {
                found.push(format!("{}:{number} holds {what}", place.display()));
            }
            line.clear();
        }
        files += 1;
    }
    println!("{files} files");
    if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
}

/// Returns the kind of any secret in a line.
fn secret(line: &str) -> Option<&'static str> {
    let has_password = PASSWORDS.iter().any(|password| line.contains(password));
    if has_password { Some("a password of a test") } else { formed(line) }
}

/// Returns the kind of a secret that is recognised by its form.
fn formed(line: &str) -> Option<&'static str> {
    let follows = |prefix: &str, is_secret: fn(&str) -> bool| {
        line.match_indices(prefix).any(|(at, _)| is_secret(&line[at + prefix.len()..]))
    };
    if follows("ann_", is_key) {
        Some("an API key")
    } else if follows("whsec_", |rest| length(rest, "+/=") >= SIGNING_MIN) {
        Some("the signing secret of a partner")
    } else if follows("eyJ", is_token) {
        Some("a JSON Web Token")
    } else if line.contains("PRIVATE KEY-----") {
        Some("a private key")
    } else {
        None
    }
}

fn is_key(rest: &str) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_hexdigit).count();
    let (id, secret) = rest.split_once('_').unwrap_or_default();
    id.len() == KEY_DIGITS.0 && digits(id) == id.len() && digits(secret) >= KEY_DIGITS.1
}

fn is_token(rest: &str) -> bool {
    let token = &rest[..length(rest, "-_.")];
    token.len() >= TOKEN_MIN && token.matches('.').count() == 2
}

/// Returns how many letters, digits and characters of `others` a text begins with. All of them are ASCII.
fn length(text: &str, others: &str) -> usize {
    text.chars().take_while(|c| c.is_ascii_alphanumeric() || others.contains(*c)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> String {
        format!("ann_0123456789abcdef_{}", "5e".repeat(32))
    }

    #[test]
    fn secrets_are_recognised_by_their_forms_and_passwords_by_the_list() {
        let token = format!("bearer eyJhbGciOiJSUzI1NiJ9.eyJ{}.{}", "a".repeat(30), "b-_".repeat(20));
        for (line, what) in [
            (format!("the key {} was refused", key()), "an API key"),
            (format!("[whsec_{}=]", "Zm9v".repeat(6)), "the signing secret of a partner"),
            (token, "a JSON Web Token"),
            ("mongodb://eva:s3cr3t@localhost".to_owned(), "a password of a test"),
            ("-----BEGIN EC PRIVATE KEY-----".to_owned(), "a private key"),
        ] {
            assert_eq!(secret(&line), Some(what), "{line}");
        }
        for line in
            ["ann_0123456789abcdef_… was refused", "ann_", "begins with whsec_ and 24 to 64 bytes", "eyJ", "müller"]
        {
            assert_eq!(secret(line), None, "{line}");
        }
    }

    #[test]
    fn a_log_with_a_key_is_named_without_it_and_the_output_of_a_failed_test_is_not_read() {
        let outputs = std::env::temp_dir().join(format!("annals-secrets-{}", std::process::id()));
        let logs = begin(&outputs).expect("made");
        fs::write(outputs.join("a.txt"), "test b ... ok\n").expect("written");
        fs::write(outputs.join(format!("b{BESIDE_OTHERS}")), key()).expect("written");
        let log = outputs.join("mongod.log");
        fs::write(&log, "Slow query: s3cret\n").expect("written");
        let of_service = (search(&logs, [log.clone()]), search(&log, []));
        fs::remove_file(&log).expect("removed");
        let whole = search(&outputs, []);
        fs::write(logs.join("server-1.log"), format!("started\nthe key is {}\n", key())).expect("written");
        let found = search(&outputs, []);
        begin(&outputs).expect("emptied");
        let emptied = search(&outputs, []);
        fs::remove_dir_all(&outputs).expect("removed");
        assert_eq!((whole, emptied, of_service.0), (Ok(()), Ok(()), Ok(())));
        assert!(of_service.1.is_err_and(|found| found.ends_with("mongod.log:1 holds a password of a test")));
        let found = found.expect_err("there is a key");
        assert!(found.ends_with("server-1.log:2 holds an API key") && !found.contains(&key()), "{found}");
    }
}
