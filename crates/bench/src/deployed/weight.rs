//! Measures the footprint of an idle server: its image, its start time and its memory.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{median, process, start, text};
use crate::row::{self, Target, mebibytes};
use crate::usage::{cpu_seconds_of, memory_of};

/// The size of what the image has beside the program, the certificates of public authorities, rounded up.
const REST_BYTES: u64 = 300_000;
const IMAGE_MEGABYTES_MAX: f64 = 60.0;
/// The name of the image in the build command of the Dockerfile.
const IMAGE: &str = "annals";

pub async fn measure(place: &Path, program: &Path) -> Result<(), String> {
    image(place, program)?;
    let folder = place.join("weight");
    std::fs::create_dir_all(&folder).map_err(text)?;
    let mut took = Vec::new();
    // The first start creates the store.
    start(&folder, program).await?.stop().await?;
    for _ in 0..5 {
        let began = Instant::now();
        let server = start(&folder, program).await?;
        took.push(1_000.0 * began.elapsed().as_secs_f64());
        server.stop().await?;
    }
    row::figure("start of the server on an empty store until it is ready", "ms", median(took), Target::Unset);
    let server = start(&folder, program).await?;
    let process = process(&server)?;
    // The work of a starting server is done by then.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (cpu, began) = (cpu_seconds_of(process)?, Instant::now());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let share = 100.0 * (cpu_seconds_of(process)? - cpu) / began.elapsed().as_secs_f64();
    row::figure("idle server, memory", "MiB", mebibytes(memory_of(process)?), Target::Unset);
    row::figure("idle server, CPU of one core", "%", share, Target::Unset);
    server.stop().await
}

/// Measures the image if it was built here, else the program plus the rest of the image: the program of the Dockerfile, if it was built.
fn image(place: &Path, program: &Path) -> Result<(), String> {
    if let Some(bytes) = built() {
        row::figure("image", "MB", bytes as f64 / 1e6, Target::AtMost(IMAGE_MEGABYTES_MAX));
        return Ok(());
    }
    // The Dockerfile builds another profile, beside that of the benchmarks.
    let built_by_dockerfile = format!("{}-unknown-linux-musl/image/annals", std::env::consts::ARCH);
    let of_image = program.parent().and_then(Path::parent).map(|target| target.join(built_by_dockerfile));
    let of_image = of_image.filter(|program| program.exists());
    let built_as = if of_image.is_some() { "the program of the Dockerfile" } else { "the program of a release" };
    let program = of_image.as_deref().unwrap_or(program);
    let stripped = place.join("stripped");
    let strip = Command::new("strip").arg("-o").arg(&stripped).arg(program).status();
    let (measured, symbols) = match strip {
        Ok(status) if status.success() => (stripped.as_path(), "without symbols"),
        _ => (program, "with its symbols, because there is no `strip`"),
    };
    let what = format!("{built_as} {symbols}");
    let bytes = measured.metadata().map_err(text)?.len();
    let row = format!("image: {what}, and certificates");
    row::figure(row, "MB", (bytes + REST_BYTES) as f64 / 1e6, Target::AtMost(IMAGE_MEGABYTES_MAX));
    Ok(())
}

/// Returns the bytes of the image, if this machine has Docker and has built it.
fn built() -> Option<u64> {
    let inspected = Command::new("docker").args(["image", "inspect", "--format", "{{.Size}}", IMAGE]).output().ok()?;
    String::from_utf8(inspected.stdout).ok()?.trim().parse().ok()
}
