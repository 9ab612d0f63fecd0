//! Measures the disk alone: one thread appends and syncs in a loop. Nothing that waits for its sync can be faster with one writer, and
//! nothing that writes this much at once can be faster with many.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cell::percentile_us;

/// Bytes of each write.
const SIZES: [usize; 3] = [4 * 1024, 64 * 1024, 1024 * 1024];
/// Bytes that are filled with zeros before the writes. After their end, writing begins again at their start, which the disk cannot
/// distinguish from more zeros.
const FILLED_BYTES: u64 = 32 * 1024 * 1024;
/// Most bytes written for one figure, so that a disk with a burst allowance has some left for the next measurement.
const WRITTEN_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Where a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// To the end of the file, so that each sync also stores its new length.
    Growing,
    /// To bytes that were written as zeros and synced before.
    ZeroFilled,
}

/// One figure of one round.
pub struct Figure {
    pub round: usize,
    pub place: Place,
    pub bytes: usize,
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// Returns all places and sizes.
pub fn kinds() -> impl Iterator<Item = (Place, usize)> {
    [Place::Growing, Place::ZeroFilled].into_iter().flat_map(|place| SIZES.map(|bytes| (place, bytes)))
}

/// Measures all places and sizes under `folder`, each for at most this many seconds.
pub fn measure(round: usize, folder: &Path, seconds: f64) -> Result<Vec<Figure>, String> {
    let one = |(place, bytes)| measure_one(round, folder, seconds, place, bytes);
    kinds().map(one).collect::<Result<_, _>>().map_err(|error| format!("{}: {error}", folder.display()))
}

fn measure_one(round: usize, folder: &Path, seconds: f64, place: Place, bytes: usize) -> std::io::Result<Figure> {
    let folder = tempfile::tempdir_in(folder)?;
    let file = File::create_new(folder.path().join("disk"))?;
    if place == Place::ZeroFilled {
        let zeros = vec![0; 1024 * 1024];
        (0..FILLED_BYTES / zeros.len() as u64)
            .try_for_each(|step| file.write_all_at(&zeros, step * zeros.len() as u64))?;
        file.sync_all()?;
    }
    let mut random = fastrand::Rng::with_seed(3);
    let content: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(bytes).collect();
    let (mut at, mut latencies) = (0, Vec::new());
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs_f64(seconds) && latencies.len() < (WRITTEN_BYTES_MAX as usize / bytes) {
        let started = Instant::now();
        file.write_all_at(&content, at)?;
        file.sync_data()?;
        latencies.push(started.elapsed().as_nanos() as u64);
        at += bytes as u64;
        if place == Place::ZeroFilled {
            at %= FILLED_BYTES;
        }
    }
    let per_second = latencies.len() as f64 / begin.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let percentile = |share| percentile_us(&latencies, share);
    Ok(Figure { round, place, bytes, per_second, p50_us: percentile(0.5), p99_us: percentile(0.99) })
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Growing => "growing file",
            Self::ZeroFilled => "zero-filled ahead",
        })
    }
}
