//! Provides what `bench --rivals` needs besides crates: the protobuf compiler in exactly the version that Tephra requires, and the
//! servers of the rivals. Everything is installed once, under `target/rivals`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{cargo, root, run as run_command};

/// The Maven coordinates of the protobuf compiler 36.2.
const PROTOC: &str = "com.google.protobuf:protoc:4.36.2:exe:linux-x86_64";
const PROTOC_FILE: &str = "protoc-4.36.2-linux-x86_64.exe";
/// Package, version and the program that it installs.
const SERVERS: [(&str, &str, &str); 2] = [("tephra-server", "0.4.4", "tephra-server"), ("umadb", "0.7.8", "umadb")];

/// The installed tools for the rivals.
pub struct Rivals {
    /// The protobuf compiler, to which builds of their crates refer by the variable `PROTOC`.
    pub protoc: PathBuf,
    /// The folder of the servers' programs.
    pub programs: PathBuf,
}

/// Installs what is missing.
pub fn prepare() -> Result<Rivals, String> {
    let folder = root().join("target/rivals");
    let protoc = match std::env::var_os("PROTOC") {
        Some(given) => given.into(),
        None => protoc(&folder.join("protoc"))?,
    };
    for (package, version, program) in SERVERS {
        if !folder.join("bin").join(program).exists() {
            install(&folder, &protoc, package, version)?;
        }
    }
    Ok(Rivals { protoc, programs: folder.join("bin") })
}

fn protoc(folder: &Path) -> Result<PathBuf, String> {
    use std::os::unix::fs::PermissionsExt;
    let program = folder.join(PROTOC_FILE);
    if !program.exists() {
        let mut maven = Command::new("mvn");
        maven.args(["--quiet", "--batch-mode", "dependency:copy", &format!("-Dartifact={PROTOC}")]);
        maven.arg(format!("-DoutputDirectory={}", folder.display())).current_dir(root());
        run_command(&mut maven).map_err(|error| {
            format!(
                "{error}; Tephra is built with protoc 36.2, which comes from Maven as {PROTOC} for Linux on x86-64: install \
                 Maven, or set PROTOC to the path of a protoc 36.2, or leave --rivals out"
            )
        })?;
    }
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, executable).map_err(|error| format!("{}: {error}", program.display()))?;
    Ok(program)
}

fn install(folder: &Path, protoc: &Path, package: &str, version: &str) -> Result<(), String> {
    let mut install = cargo();
    // A permanent build folder, so that an interrupted build resumes.
    install.args(["install", "--locked", "--version", version, "--root"]).arg(folder).arg("--target-dir");
    install.arg(folder.join("build")).arg(package).env("PROTOC", protoc);
    run_command(&mut install).map_err(|error| {
        format!("{error}; the server of {package} {version} could not be installed into {}", folder.display())
    })
}
