//! The figures that are measured on a stored log.

/// A figure's name, its label for people, and its decimals.
pub struct Figure {
    pub name: &'static str,
    pub label: &'static str,
    pub decimals: usize,
}

const fn figure(name: &'static str, label: &'static str, decimals: usize) -> Figure {
    Figure { name, label, decimals }
}

pub const FILL: &str = "fill_events_per_second";
pub const OPEN: &str = "open_ms";
pub const MEMORY: &str = "memory_mib";
pub const MEMORY_READ: &str = "memory_read_mib";
pub const READ_ALL: &str = "read_all_events_per_second";
pub const LEND_ALL: &str = "lend_all_events_per_second";
pub const AGGREGATE: [[&str; 2]; 2] =
    [["aggregate_100_p50_us", "aggregate_100_p99_us"], ["aggregate_200_p50_us", "aggregate_200_p99_us"]];
pub const TAGGED: &str = "tagged_cold_events_per_second";
pub const ACKNOWLEDGED: &str = "acknowledged_p50_us";
pub const FOLLOWED: [&str; 2] = ["followed_p50_us", "followed_p99_us"];
pub const WEIGHT: [&str; 2] = ["disk_bytes_per_event_10", "disk_bytes_per_event_1"];

/// All figures, in the order of the table.
pub const FIGURES: [Figure; 16] = [
    figure(FILL, "fill, 256 commits of 10 in flight, events/s", 0),
    figure(OPEN, "open after kill -9 (a server: until its first response), warm, ms", 1),
    figure(MEMORY, "memory after opening, MiB", 1),
    figure(LEND_ALL, "read all, warm, each event lent until the next, events/s", 0),
    figure(READ_ALL, "read all, warm, events to keep, events/s", 0),
    figure(AGGREGATE[0][0], "one aggregate of 100 events, p50 µs", 1),
    figure(AGGREGATE[0][1], "… p99 µs", 1),
    figure(AGGREGATE[1][0], "one aggregate of 200 events, p50 µs", 1),
    figure(AGGREGATE[1][1], "… p99 µs", 1),
    figure(TAGGED, "1 % by a tag, files not in the page cache, events/s", 0),
    figure(MEMORY_READ, "memory after all these reads, MiB", 1),
    figure(ACKNOWLEDGED, "commit → acknowledged with a follower, p50 µs", 1),
    figure(FOLLOWED[0], "commit → the follower has it, p50 µs", 1),
    figure(FOLLOWED[1], "… p99 µs", 1),
    figure(WEIGHT[0], "disk, closed segments with indexes, bytes/event, 10 per commit", 1),
    figure(WEIGHT[1], "… 1 per commit", 1),
];
