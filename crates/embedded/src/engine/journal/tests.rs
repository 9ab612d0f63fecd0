use super::batch::{Batch, HEADER};
use super::read::{Found, whole};
use super::*;
use crate::disk::MemoryDisk;
use crate::engine::open::Failure;

const DIR: &str = "e";
const MARK: u64 = 0x5eed;

fn batch(n: u64) -> Vec<Write> {
    let key = |name: &str| format!("{name}-{n}").into_bytes().into();
    let large = vec![n as u8; (n as usize * 397) % 1_500];
    vec![(key("set"), Some(large.into())), (key("removed"), None), (key("empty"), Some([].into()))]
}

fn begun(files: [bool; 2]) -> Begun {
    Begun { mark: MARK, files }
}

/// A journal with batches 1 to `count`, of which those up to `turned` are in the first file and the others in the second.
fn journal(count: u64, turned: u64) -> (Arc<MemoryDisk>, Journal) {
    let disk = Arc::new(MemoryDisk::default());
    let mut journal = Journal::new(disk.clone(), DIR.to_owned(), MARK, 0);
    for n in 1..=count {
        append(&mut journal, n);
        if n == turned {
            journal.turn();
            journal.begin(true, |_| Ok(())).expect("it is made");
        }
    }
    (disk, journal)
}

fn append(journal: &mut Journal, n: u64) {
    journal.begin(true, |_| Ok(())).expect("it is made");
    journal.append(&batch(n), true).expect("it is appended");
}

fn path(name: &str) -> String {
    format!("{DIR}/{name}")
}

fn bytes_of(disk: &MemoryDisk, name: &str) -> Vec<u8> {
    whole(&*disk.open(&path(name), Open::Read).expect("it is there")).expect("it is read")
}

fn put(disk: &MemoryDisk, name: &str, bytes: &[u8]) {
    let file = disk.open(&path(name), Open::Write).or_else(|_| disk.open(&path(name), Open::Create));
    let file = file.expect("it is opened");
    file.truncate(0).and_then(|()| file.write_at(bytes, 0)).expect("it is written");
}

/// What a journal of these files holds behind `moved`: the last batch's number and where one is torn, or what is wrong.
fn found(disk: &MemoryDisk, files: [bool; 2], moved: u64) -> Result<(u64, Vec<(String, u64)>), String> {
    match read(disk, DIR, Some(begun(files)), moved) {
        Ok(found) => {
            assert_eq!(found.writes, (moved + 1..=found.last).flat_map(batch).collect::<Vec<_>>());
            Ok((found.last, found.torn.into_iter().map(|torn| (torn.file, torn.offset)).collect()))
        }
        Err(Failure::Damaged(damage)) => Err(damage.to_string()),
        Err(Failure::Refused(error)) => panic!("{error}"),
    }
}

/// The last batch's number where both files are named and nothing is torn.
fn last(disk: &MemoryDisk, moved: u64) -> Result<u64, String> {
    found(disk, [true, true], moved).map(|(last, torn)| {
        assert_eq!(torn, []);
        last
    })
}

/// Where the batches of a file begin, and where the last one ends.
fn places(bytes: &[u8]) -> (Vec<usize>, usize) {
    let (mut starts, mut at) = (Vec::new(), BLOCK);
    while let Some(batch) = Batch::at(&bytes[at..], MARK) {
        starts.push(at);
        at += batch.length();
    }
    (starts, at)
}

#[test]
fn a_file_is_named_when_it_is_whole_and_never_twice() {
    let disk = Arc::new(MemoryDisk::default());
    let mut journal = Journal::new(disk.clone(), DIR.to_owned(), MARK, 0);
    let mut named = Vec::new();
    for n in 1..=3 {
        journal
            .begin(true, |begun| {
                named.push(begun);
                assert_eq!(bytes_of(&disk, FILES[0]).len() as u64, FIRST_BYTES);
                Ok(())
            })
            .expect("it is made");
        journal.append(&batch(n), true).expect("it is appended");
    }
    let other = journal.begin_other(true, |begun| {
        named.push(begun);
        Ok(())
    });
    other.expect("it is made");
    assert_eq!(named, [begun([true, false]), begun([true, true])]);
    assert_eq!(last(&disk, 0), Ok(3));
}

#[test]
fn what_was_appended_is_read_behind_what_was_moved() {
    for (count, turned) in [(1, 1), (9, 4), (9, 9), (200, 120)] {
        let (disk, _) = journal(count, turned);
        for moved in [0, 1, count / 2, count] {
            assert_eq!(last(&disk, moved), Ok(count), "{count} {turned} {moved}");
        }
    }
}

#[test]
fn batches_of_a_file_that_is_filled_again_mean_nothing() {
    let (disk, mut journal) = journal(20, 12);
    // Everything up to 12 was moved, so the first file is written from its beginning.
    journal.turn();
    assert_eq!(last(&disk, 12), Ok(20));
    for n in 21..=23 {
        append(&mut journal, n);
        for moved in 12..=n {
            assert_eq!(last(&disk, moved), Ok(n));
        }
    }
    assert!(last(&disk, 7).expect_err("8 was overwritten").contains("batch 8 is missing"));
}

#[test]
fn a_last_batch_that_is_not_whole_is_passed_over_and_told() {
    let (disk, _) = journal(5, 2);
    let bytes = bytes_of(&disk, FILES[1]);
    let start = *places(&bytes).0.last().expect("a batch");
    let length = Batch::at(&bytes[start..], MARK).expect("a batch").writes.len() + HEADER;
    for cut in start..start + length {
        let torn: Vec<u8> = bytes[..cut].iter().copied().chain(vec![0; bytes.len() - cut]).collect();
        put(&disk, FILES[1], &torn);
        let due = match (torn == bytes, cut == start) {
            // What was cut off was zeros.
            (true, _) => (5, vec![]),
            (false, true) => (4, vec![]),
            (false, false) => (4, vec![(path(FILES[1]), start as u64)]),
        };
        assert_eq!(found(&disk, [true, true], 0), Ok(due), "{cut}");
    }
}

#[test]
fn a_changed_byte_of_an_answered_batch_is_damage_as_soon_as_another_is_behind_it() {
    let (disk, _) = journal(6, 3);
    for (name, batches) in [(FILES[0], 3), (FILES[1], 2)] {
        let bytes = bytes_of(&disk, name);
        for &at in places(&bytes).0.iter().take(batches) {
            let length = HEADER + Batch::at(&bytes[at..], MARK).expect("a batch").writes.len();
            for changed in at..at + length {
                let mut damaged = bytes.clone();
                damaged[changed] ^= 0x20;
                put(&disk, name, &damaged);
                let found = last(&disk, 0).expect_err("it is damage");
                let said = ["is no batch here, but", "is missing"];
                assert!(said.iter().any(|said| found.contains(said)), "{changed}: {found}");
            }
        }
        put(&disk, name, &bytes);
    }
}

#[test]
fn a_file_that_is_gone_emptied_or_another_is_damage_and_named() {
    let (disk, _) = journal(6, 3);
    let other = Journal::new(Arc::<MemoryDisk>::default(), DIR.to_owned(), MARK + 1, 0);
    for (place, name) in FILES.into_iter().enumerate() {
        let bytes = bytes_of(&disk, name);
        let mut of_another = bytes.clone();
        of_another[..BLOCK].copy_from_slice(&batch::head(other.mark, place));
        let mut headless = bytes.clone();
        headless[9] ^= 1;
        let planted: [(&str, &[u8]); 5] = [
            ("it was truncated", &[]),
            ("it was truncated", &bytes[..FIRST_BYTES as usize - 1]),
            ("another journal", &of_another),
            ("header is damaged", &headless),
            ("its other file", &bytes_of(&disk, FILES[1 - place])),
        ];
        for (says, planted) in planted {
            put(&disk, name, planted);
            // Whatever was moved: what the map names must be there.
            for moved in [0, 3, 6] {
                let found = last(&disk, moved).expect_err("it is damage");
                assert!(found.contains(name) && found.contains(says), "{found}");
            }
        }
        disk.remove(&path(name)).expect("it is removed");
        let found = last(&disk, 6).expect_err("it is damage");
        assert!(found.contains(name) && found.contains("it is missing"), "{found}");
        put(&disk, name, &bytes);
        assert_eq!(last(&disk, 0), Ok(6));
    }
}

#[test]
fn a_grown_file_that_was_cut_in_or_behind_its_batches_is_damage() {
    let (disk, _) = journal(200, 1);
    let bytes = bytes_of(&disk, FILES[1]);
    let (starts, end) = places(&bytes);
    assert!(bytes.len() as u64 > FIRST_BYTES && end > FIRST_BYTES as usize, "it grew");
    let beyond = starts.into_iter().filter(|at| *at as u64 >= FIRST_BYTES);
    for cut in beyond.flat_map(|at| [at, at + 5, at + 100, at + BLOCK]).chain([end, end + BLOCK - 1]) {
        put(&disk, FILES[1], &bytes[..cut]);
        let found = last(&disk, 0).expect_err("it is damage");
        assert!(found.contains(FILES[1]) && found.contains("it was truncated"), "{cut}: {found}");
    }
    // Only zeros are gone that a growth had not finished.
    put(&disk, FILES[1], &bytes[..end + BLOCK]);
    assert_eq!(last(&disk, 0), Ok(200));
}

/// What one value holds is nobody's batch, whoever chose it.
#[test]
fn a_batch_inside_of_a_value_is_none() {
    let disk = Arc::new(MemoryDisk::default());
    let mut journal = Journal::new(disk.clone(), DIR.to_owned(), MARK, 0);
    journal.begin(true, |_| Ok(())).expect("it is made");
    let mut forged = Vec::new();
    batch::encode(&mut forged, MARK + 1, 7, &batch(7)).expect("it is encoded");
    let value: Vec<u8> = (0..BLOCK).flat_map(|_| forged[..BLOCK].iter().copied()).collect();
    journal.append(&[(b"k"[..].into(), Some(value.into()))], true).expect("it is appended");
    let found = read(&*disk, DIR, Some(begun([true, false])), 0);
    assert!(matches!(found, Ok(Found { last: 1, .. })));
}
