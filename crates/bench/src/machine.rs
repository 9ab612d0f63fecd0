//! Describes the machine on which the figures were measured.

use std::path::Path;

/// The first word of the command line that prints it.
pub const OPTION: &str = "machine";

/// Returns a description of the machine, as one line.
pub fn describe(folder: &Path) -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let memory = field("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let memory = memory.map_or_else(|| "?".to_owned(), |kib| (kib / 1024 / 1024).to_string());
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let file_system = file_system(folder).unwrap_or_else(|| "unknown file system".to_owned());
    format!("{cores} cores ({model}), {memory} GiB, Linux {}, {file_system}", kernel.trim())
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Returns the type of the file system that `folder` is on: that of the longest mount point above it.
fn file_system(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    let mount = |line: &str| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    let above = mounts.lines().filter_map(mount).filter(|(point, _)| folder.starts_with(point));
    above.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind)
}
