//! Finds processes that left the group of the program that started them, by their environment.

use super::sys;

/// The environment variable that every process of an execution inherits; it holds the execution's id.
pub(crate) const EXECUTION_VARIABLE: &str = "ANNALS_EXECUTION";
/// The environment variable that every process of this run of the service inherits.
pub(crate) const SERVICE_VARIABLE: &str = "ANNALS_EXECUTION_SERVICE";

/// Kills every process whose environment had this variable when it started, including those that they start meanwhile.
pub(crate) fn kill_stragglers(variable: &str, value: &str) {
    const ROUNDS_MAX: usize = 16;
    let entry = format!("{variable}={value}").into_bytes();
    for _ in 0..ROUNDS_MAX {
        let found = pids_with(&entry);
        if found.is_empty() {
            return;
        }
        found.into_iter().for_each(sys::kill_process);
    }
}

/// Returns the pids of processes with this entry. Processes of other users cannot be read, and are not ours. Processes that have ended
/// have no environment any more.
fn pids_with(entry: &[u8]) -> Vec<i32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|process| process.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == entry)
    })
    .collect()
}
