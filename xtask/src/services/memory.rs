//! A folder in memory for the data of a MongoDB that tests use. It creates dozens of files for each test, and every write waits until they
//! are on the disk. Tests kill processes, but do not cut the power of the machine, so a disk would keep nothing more for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::output;

/// The folder of Linux whose files are in memory.
const PLACE: &str = "/dev/shm";
/// The least free memory, in KiB. A run of all tests needs half of it, mostly for the oplog, the journal and the log.
const FREE_MIN: u64 = 4 * 1024 * 1024;

/// A folder in memory, which is removed with this value.
pub struct Memory(PathBuf);

impl Memory {
    /// Creates the folder. Returns `None` if there is not enough memory, as in many containers, or if the system is not Linux.
    pub fn find() -> Option<Self> {
        let free = output(Command::new("df").args(["-k", "--output=avail", PLACE])).ok()?;
        let room = first_number(String::from_utf8_lossy(&free).lines().nth(1)?)?;
        let available = available(&fs::read_to_string("/proc/meminfo").ok()?)?;
        let folder = Path::new(PLACE).join(format!("annals-{}", std::process::id()));
        // A killed run with the same process id has left its folders, which are empty: services remove their data themselves.
        for left in [&folder.join("run"), &folder] {
            let _ = fs::remove_dir(left);
        }
        if room.min(available) < FREE_MIN || fs::create_dir(&folder).is_err() {
            return None;
        }
        Some(Self(folder))
    }

    pub fn folder(&self) -> &Path {
        &self.0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the memory in KiB that programs can still get, from the content of `/proc/meminfo`.
fn available(meminfo: &str) -> Option<u64> {
    meminfo.lines().find_map(|line| first_number(line.strip_prefix("MemAvailable:")?))
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_that_programs_can_get_is_not_that_which_is_unused() {
        let meminfo = "MemTotal:       24689764 kB\nMemFree:         1060704 kB\nMemAvailable:   23125692 kB\n";
        assert_eq!(available(meminfo), Some(23_125_692));
        assert_eq!(available("MemTotal: 7 kB\n"), None);
    }
}
