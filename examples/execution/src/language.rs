//! The languages of programs, and what runs them on this machine: the five of Integr8sCode, and sh.

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

/// What is particular to a language.
struct Facts {
    name: &'static str,
    file_name: &'static str,
    /// The interpreter as it is called in a request, and what follows it there and on the worker.
    command: &'static [&'static str],
    /// Prints the interpreter's path and version. What is found in PATH may be a script that needs the environment which programs do not
    /// get, so the interpreter itself says where it is.
    ask: &'static [&'static str],
    install: &'static str,
    /// Whether memory is limited by address space. Node.js and Go reserve far more of it than they use; there the resident memory counts.
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
        // Python is isolated from the user's settings, and does not hold output back, so that what it wrote before it was killed is there.
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

    /// The name of the file that holds the script.
    pub(crate) fn file_name(self) -> &'static str {
        self.facts().file_name
    }

    /// The interpreter and its arguments, as a request says them.
    pub(crate) fn command(self) -> Vec<String> {
        self.facts().command.iter().map(|part| (*part).to_owned()).collect()
    }

    /// Whether the limit of memory is one of address space.
    pub(crate) fn limits_address_space(self) -> bool {
        self.facts().limits_address_space
    }
}

/// What runs programs of a language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interpreter {
    pub(crate) path: PathBuf,
    /// Such as `3.11.7`; empty where it has none to tell.
    pub(crate) version: String,
}

/// What this machine has.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interpreters(BTreeMap<Language, Result<Interpreter, String>>);

impl Interpreters {
    /// Looks for them, all at once.
    pub(crate) async fn find() -> Self {
        let found = join_all(Language::ALL.map(|language| async move { (language, find(language).await) })).await;
        Self(found.into_iter().collect())
    }

    /// The interpreter, or a sentence that says why there is none.
    pub(crate) fn of(&self, language: Language) -> Result<&Interpreter, &str> {
        match self.0.get(&language) {
            Some(found) => found.as_ref().map_err(String::as_str),
            None => Err("this process does not run programs"),
        }
    }

    /// Those that are there, with their versions.
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
