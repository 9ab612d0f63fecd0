//! Diagnoses the disk below a store for operators.

use annals_core::doctor::{Diagnosis, Finding, Severity};

use crate::Options;
use crate::disk::Disk;

/// Free space below this multiple of the floor is reported, so that an operator learns of it before commits are refused.
const FLOORS: u64 = 10;

/// Examines the disk.
pub(crate) fn examine(disk: &dyn Disk, options: &Options) -> Diagnosis {
    let free = disk.free_bytes().ok().filter(|free| *free != u64::MAX);
    let examined = free.map(|free| format!("the disk, {} MiB free", mib(free)));
    let found = of_free(free, options.min_free_disk_bytes);
    let diagnosis = Diagnosis::new(examined.into_iter().collect(), found.into_iter().collect());
    Diagnosis { free_disk_bytes: free, ..diagnosis }
}

fn of_free(free: Option<u64>, least: u64) -> Option<Finding> {
    let free = free.filter(|free| *free < least.saturating_mul(FLOORS))?;
    let what = format!("The disk has {} MiB free; below {} MiB commits are refused.", mib(free), mib(least));
    let severity = if free < least { Severity::Critical } else { Severity::Warning };
    Some(Finding::new(severity, "disk", what, "Free space on the disk, or move the store to a larger one."))
}

fn mib(bytes: u64) -> u64 {
    bytes / 1024 / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_a_warning_before_it_is_a_refusal() {
        let severity = |free: u64| of_free(Some(free << 20), 64 << 20).map(|finding| finding.severity);
        assert_eq!(severity(10), Some(Severity::Critical));
        assert_eq!(severity(100), Some(Severity::Warning));
        assert_eq!(severity(1_000), None);
        assert_eq!(of_free(None, 64 << 20), None, "nothing limits it");
        assert_eq!(of_free(Some(0), 0), None, "no floor is configured");
    }
}
