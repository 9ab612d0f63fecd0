//! What this process uses, as Linux counts it.

/// Bytes of memory that this process occupies.
pub fn memory() -> Result<u64, String> {
    memory_of(std::process::id())
}

/// Bytes of memory that a process occupies.
pub fn memory_of(process: u32) -> Result<u64, String> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).map_err(|error| error.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("there is no VmRSS")?;
    let kibibytes = line.trim().trim_end_matches("kB").trim().parse::<u64>().map_err(|error| error.to_string())?;
    Ok(kibibytes * 1024)
}

/// CPU time of this process in seconds, of all its threads.
pub fn cpu_seconds() -> Result<f64, String> {
    /// What Linux counts CPU time in, as programs see it.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").map_err(|error| error.to_string())?;
    let after_name = stat.rsplit_once(')').ok_or("the name has no end")?.1;
    let ticks = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<f64>().map_err(|error| error.to_string()));
    Ok(ticks.sum::<Result<f64, String>>()? / TICKS_PER_SECOND)
}
