//! The languages of programs, and what runs them on this machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::process::Command;

/// A language that programs can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Language {
    Python,
    Sh,
}

impl Language {
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        match name {
            "python" => Ok(Self::Python),
            "sh" => Ok(Self::Sh),
            other => Err(format!("language is {other:?}; it must be \"python\" or \"sh\"")),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Sh => "sh",
        }
    }

    /// The name of the file that holds the script.
    pub(crate) fn file_name(self) -> &'static str {
        match self {
            Self::Python => "main.py",
            Self::Sh => "main.sh",
        }
    }

    /// What stands behind the interpreter. Python is isolated from the user's settings, and does not hold output back, so that what it
    /// wrote before it was killed is there.
    pub(crate) fn arguments(self) -> Vec<String> {
        let arguments: &[&str] = match self {
            Self::Python => &["-I", "-u", "-B", "-X", "utf8", "main.py"],
            Self::Sh => &["main.sh"],
        };
        arguments.iter().map(|argument| (*argument).to_owned()).collect()
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
#[derive(Debug, Clone)]
pub(crate) struct Interpreters {
    python: Result<Interpreter, String>,
    sh: Result<Interpreter, String>,
}

impl Interpreters {
    /// Looks for them.
    pub(crate) async fn find() -> Self {
        let shell = Path::new("/bin/sh");
        let sh = if shell.exists() {
            Ok(Interpreter { path: shell.into(), version: String::new() })
        } else {
            Err("this machine has no /bin/sh".to_owned())
        };
        Self { python: find_python().await, sh }
    }

    /// The interpreter, or a sentence that says why there is none.
    pub(crate) fn of(&self, language: Language) -> Result<&Interpreter, &str> {
        match language {
            Language::Python => self.python.as_ref(),
            Language::Sh => self.sh.as_ref(),
        }
        .map_err(String::as_str)
    }
}

/// Asks python3 itself where it is: what stands in PATH may be a script that needs the environment which programs do not get.
async fn find_python() -> Result<Interpreter, String> {
    const ASK: &str = "import platform, sys; print(sys.executable); print(platform.python_version())";
    const ANSWER_WITHIN: Duration = Duration::from_secs(10);
    const INSTALL: &str = "install Python 3 to run programs in Python (those in sh run without it)";
    let asked = Command::new("python3").args(["-I", "-c", ASK]).kill_on_drop(true).output();
    let output = match tokio::time::timeout(ANSWER_WITHIN, asked).await {
        Ok(Ok(output)) if output.status.success() => output,
        Ok(Ok(output)) => return Err(format!("python3 does not work here ({}); {INSTALL}", output.status)),
        Ok(Err(error)) => return Err(format!("python3 was not found ({error}); {INSTALL}")),
        Err(_) => return Err(format!("python3 did not answer within {} s; {INSTALL}", ANSWER_WITHIN.as_secs())),
    };
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    match answer.lines().collect::<Vec<_>>()[..] {
        [path, version] if Path::new(path).is_absolute() => {
            Ok(Interpreter { path: path.into(), version: version.to_owned() })
        }
        _ => Err(format!("python3 did not say where it is; {INSTALL}")),
    }
}
