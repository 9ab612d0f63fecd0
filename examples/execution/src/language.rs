//! The languages of programs and their interpreters on this machine: the five languages of Integr8sCode, and sh.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::process::Command;

/// A language that programs can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Language {
    Python,
    Node,
    Ruby,
    Go,
    Bash,
    Sh,
}

/// The properties of a language.
struct Facts {
    name: &'static str,
    file_name: &'static str,
    /// The interpreter and its arguments, in a request and on the worker.
    command: &'static [&'static str],
    /// Prints the interpreter's path and version. An entry in PATH may be a script that needs an environment that programs do not get, so
    /// the interpreter itself reports its path.
    ask: &'static [&'static str],
    install: &'static str,
    /// Whether memory is limited by address space. Node.js and Go reserve far more of it than they use, so their resident memory is
    /// limited.
    limits_address_space: bool,
}

impl Language {
    pub(crate) const ALL: [Self; 6] = [Self::Python, Self::Node, Self::Ruby, Self::Go, Self::Bash, Self::Sh];

    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|language| language.name() == name);
        found.ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|language| language.name()).collect();
            format!("language is {name:?}; it must be one of {}", known.join(", "))
        })
    }

    fn facts(self) -> Facts {
        // Python ignores the user's settings and does not buffer output, so that what it wrote before it was killed is kept.
        const PYTHON: &[&str] = &["python3", "-I", "-u", "-B", "-X", "utf8", "main.py"];
        const ASK_PYTHON: &str = "import platform, sys; print(sys.executable); print(platform.python_version())";
        let (name, file_name, command, ask, install): (_, _, &'static [&'static str], &'static [&'static str], _) =
            match self {
                Self::Python => ("python", "main.py", PYTHON, &["python3", "-I", "-c", ASK_PYTHON], "Python 3"),
                Self::Node => (
                    "node",
                    "main.js",
                    &["node", "main.js"],
                    &["node", "-p", "process.execPath + '\\n' + process.versions.node"],
                    "Node.js",
                ),
                Self::Ruby => (
                    "ruby",
                    "main.rb",
                    &["ruby", "main.rb"],
                    &["ruby", "-e", "require 'rbconfig'; puts RbConfig.ruby, RUBY_VERSION"],
                    "Ruby",
                ),
                Self::Go => ("go", "main.go", &["go", "run", "main.go"], &["go", "env", "GOROOT", "GOVERSION"], "Go"),
                Self::Bash => (
                    "bash",
                    "main.sh",
                    &["bash", "main.sh"],
                    &["bash", "-c", "echo \"$BASH\"; echo \"${BASH_VERSION%%(*}\""],
                    "bash",
                ),
                Self::Sh => {
                    ("sh", "main.sh", &["/bin/sh", "main.sh"], &["/bin/sh", "-c", "echo /bin/sh; echo"], "/bin/sh")
                }
            };
        let limits_address_space = !matches!(self, Self::Node | Self::Go);
        Facts { name, file_name, command, ask, install, limits_address_space }
    }

    pub(crate) fn name(self) -> &'static str {
        self.facts().name
    }

    /// Returns the name of the file that holds the script.
    pub(crate) fn file_name(self) -> &'static str {
        self.facts().file_name
    }

    /// Returns the interpreter and its arguments, as a request states them.
    pub(crate) fn command(self) -> Vec<String> {
        self.facts().command.iter().map(|part| (*part).to_owned()).collect()
    }

    /// Returns whether the memory limit is one of address space.
    pub(crate) fn limits_address_space(self) -> bool {
        self.facts().limits_address_space
    }
}

/// The interpreter of a language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interpreter {
    pub(crate) path: PathBuf,
    /// A version such as `3.11.7`; empty if the interpreter reports none.
    pub(crate) version: String,
}

/// The interpreters of this machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interpreters(BTreeMap<Language, Result<Interpreter, String>>);

impl Interpreters {
    /// Searches for all interpreters concurrently.
    pub(crate) async fn find() -> Self {
        let found = join_all(Language::ALL.map(|language| async move { (language, find(language).await) })).await;
        Self(found.into_iter().collect())
    }

    /// Returns the interpreter, or a sentence that says why it is not available.
    pub(crate) fn of(&self, language: Language) -> Result<&Interpreter, &str> {
        match self.0.get(&language) {
            Some(found) => found.as_ref().map_err(String::as_str),
            None => Err("this process does not run programs"),
        }
    }

    /// Returns the available interpreters with their versions.
    pub(crate) fn listed(&self) -> Vec<String> {
        let there = self.0.iter().filter_map(|(language, found)| Some((language.name(), found.as_ref().ok()?)));
        there.map(|(name, found)| format!("{name} {}", found.version).trim_end().to_owned()).collect()
    }
}

async fn find(language: Language) -> Result<Interpreter, String> {
    const ANSWER_WITHIN: Duration = Duration::from_secs(20);
    let facts = language.facts();
    let [program, arguments @ ..] = facts.ask else { return Err("it has no interpreter".to_owned()) };
    let install =
        format!("install {} to run programs in {}, or write them in another language", facts.install, facts.name);
    let asked = Command::new(program).args(arguments).kill_on_drop(true).output();
    let output = match tokio::time::timeout(ANSWER_WITHIN, asked).await {
        Ok(Ok(output)) if output.status.success() => output,
        Ok(Ok(output)) => return Err(format!("{program} does not work here ({}); {install}", output.status)),
        Ok(Err(error)) => return Err(format!("{program} was not found ({error}); {install}")),
        Err(_) => return Err(format!("{program} did not answer within {} s; {install}", ANSWER_WITHIN.as_secs())),
    };
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = answer.lines();
    let path = lines.next().map(Path::new).filter(|path| path.is_absolute());
    let Some(path) = path else { return Err(format!("{program} did not report its path; {install}")) };
    let path = if language == Language::Go { path.join("bin/go") } else { path.to_owned() };
    Ok(Interpreter { path, version: lines.next().unwrap_or_default().trim().trim_start_matches("go").to_owned() })
}
