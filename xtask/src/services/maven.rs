//! Fetches the jars of Kafka with Maven, as its makers publish them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{output, run};

/// The version of the program.
const VERSION: &str = "4.1.1";
/// A jar that exists once all of them do.
const BROKER: &str = "kafka_2.13-4.1.1.jar";
/// The Debian packages of a Java that runs it, and of the program that fetches it.
const PACKAGES: [&str; 2] = ["openjdk-17-jre-headless", "maven"];

/// The broker, its tools, and a logger, without which it writes no log.
const POM: &str = r#"<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>annals</groupId>
  <artifactId>kafka-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.1.1</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>4.1.1</version></dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version>
    </dependency>
  </dependencies>
</project>
"#;

/// Returns the folder of Kafka's jars. Fetches them unless they are in `cache`.
pub fn kafka(cache: &Path) -> Result<PathBuf, String> {
    java()?;
    let folder = cache.join(format!("kafka-{VERSION}"));
    if folder.join(BROKER).exists() {
        return Ok(folder);
    }
    installed("mvn", "-version", PACKAGES[1])?;
    // Under a temporary name until it is complete: two runs may fetch at once, and one may be interrupted.
    let part = cache.join(format!("kafka-{VERSION}.part-{}", std::process::id()));
    fs::create_dir_all(&part).map_err(|error| format!("{}: {error}", part.display()))?;
    let fetched = fetch(&part, &folder);
    let _ = fs::remove_dir_all(&part);
    fetched.map(|()| folder)
}

/// Fails with what to install if there is no Java.
pub fn java() -> Result<(), String> {
    installed("java", "-version", PACKAGES[0])
}

fn fetch(part: &Path, folder: &Path) -> Result<(), String> {
    let (pom, jars) = (part.join("pom.xml"), part.join("jars"));
    fs::write(&pom, POM).map_err(|error| format!("{}: {error}", pom.display()))?;
    let mut copy = Command::new("mvn");
    copy.args(["--quiet", "--batch-mode", "--file"]).arg(&pom).arg("dependency:copy-dependencies");
    run(copy.arg(format!("-DoutputDirectory={}", jars.display())))?;
    match fs::rename(&jars, folder) {
        Err(error) if !folder.join(BROKER).exists() => Err(format!("{}: {error}", folder.display())),
        _ => Ok(()),
    }
}

/// Installs a missing program with apt if this user is allowed to. Fails with what to do if not.
fn installed(program: &str, version: &str, package: &str) -> Result<(), String> {
    if output(Command::new(program).arg(version)).is_ok() {
        return Ok(());
    }
    let missing = format!("Kafka needs {program}: install it (Debian: apt-get install {package})");
    let root = output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim_ascii() == b"0");
    if !root || output(Command::new("apt-get").arg("--version")).is_err() {
        return Err(missing);
    }
    let apt =
        |arguments: &[&str]| run(Command::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive"));
    apt(&["update", "-qq"]).map_err(|why| format!("{missing}; {why}"))?;
    apt(&["install", "-qq", "-y", "--no-install-recommends", package]).map_err(|why| format!("{missing}; {why}"))?;
    output(Command::new(program).arg(version)).map(drop).map_err(|why| format!("{missing}; {why}"))
}
